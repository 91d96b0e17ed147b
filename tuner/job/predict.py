"""Predict the throughput of settings on this machine or another: profile, simulate, say why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from tuner.errors import BadInputError
from tuner.job.capture import Capture, captured, read_capture
from tuner.job.compare import parse_compared
from tuner.job.events import ProfileEvents
from tuner.job.job import Job, elsewhere, prepare
from tuner.job.parsed import parse_request
from tuner.job.profile import check_profiled
from tuner.job.request import PredictRequest
from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine
from tuner.machine.locks import machine_lock
from tuner.machine.spec import EXAMPLE, parse_spec
from tuner.model.configuration import configuration_of
from tuner.model.hardware import Hardware, hardware_of
from tuner.model.ideal import ideal_makespan_s
from tuner.model.prediction import predict, reasons, sampled
from tuner.model.predictor import Predictor, predictor_of
from tuner.result.model import IdealResult, PredictionResult, describe_prediction
from tuner.space.groups import is_group
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.workload.workload import Kind

_SMALLER, _LARGER = 8, 2  # times its own are the other batch sizes that a workload is profiled at


def predict_workload(request: PredictRequest, events: ProfileEvents) -> tuple[PredictionResult, Capture]:
    """Return the predicted throughput of a workload's settings, and what it is predicted from.

    Raises BadInputError for what cannot be profiled or predicted.
    """
    if request.settings and request.pins:
        raise BadInputError("--set and --setting contradict each other", "put all of it into --setting")
    if request.new and request.profile is not None:
        raise BadInputError("--new and --profile contradict each other", "give one of them")
    machine, socket_bytes_s = (None, None) if request.machine is None else find_machine(request.machine)
    # What is profiled here is the model alone: knobs and values are those of the machine that is asked about.
    search = request.search
    profiled_search = search if machine is None else replace(search, space=None, pins=())
    here = prepare(parse_request(profiled_search, stores=False))
    here.tell_notes(events.notice)
    check_profiled(here)
    job = here
    if machine is not None:
        job = elsewhere(parse_request(search, stores=False, machine=machine), here)
    settings = [parse_compared(text, job, search.storage, is_here=machine is None).setting for text in request.settings]
    capture = _capture(request, here, events)
    predictor, hardware = model_of(capture)
    if job.machine.id != capture.machine.id:
        hardware = hardware_of(job.machine, capture.bytes_s, is_here=False, socket_bytes_s=socket_bytes_s)
    predicted = predict(predictor, job.space, job.machine, hardware, settings=settings)
    result = describe_prediction(
        predicted,
        reasons(predictor, job.space.reference.batch_size, hardware),
        machine=job.machine,
        profiled_on=capture.machine,
        runtime=capture.runtime,
        workload=capture.workload,
        batch_sizes=sorted(capture.traced),
        profiled_threads=max(capture.bytes_s),
        costs=predictor.costs,
        ideal=_ideal(predictor, job.space, job.machine, hardware) if request.ideal else None,
        pinned=capture.pinned,
    )
    return result, capture


def model_of(capture: Capture) -> tuple[Predictor, Hardware]:
    """Return the predictor of a workload, and the machine that it was profiled on; raises BadInputError."""
    profiles = capture.profiles
    if not any(time_s > 0 for each in profiles[max(profiles)].operators for time_s in each.times_s.values()):
        raise BadInputError("no operator of it takes any time", "there is nothing to predict: measure it")
    hardware = hardware_of(capture.machine, capture.bytes_s, is_here=True)
    return predictor_of(profiles, hardware, has_teams=capture.has_teams), hardware


def profiled_sizes(job: Job) -> list[int]:
    """Return the batch sizes that a job is profiled at: its own, a smaller and a larger one; of one item, a larger.

    What does not fit into caches any more, and what large buffers cost, is only seen in the larger. It is one alone
    where the job has no other.
    """
    own, sizes = job.space.reference.batch_size, job.space.domains["batch_size"]
    if len(sizes) == 1:
        return [own]
    largest = max(map(int, sizes))
    if own == 1:
        return [own, min(_SMALLER, largest)]
    return sorted({max(1, own // _SMALLER), own, max(own, min(_LARGER * own, largest))})


def find_machine(text: str) -> tuple[Machine, float | None]:
    """Return the machine that is described, or that a file holds, and the bytes/s of a socket where they are said.

    Raises BadInputError for what is neither.

    A file is what `tftune inspect --json` prints, or any other document of tftune's with a machine in it.
    """
    path = Path(text)
    if "=" in text and not path.exists():
        spec = parse_spec(text)
        return spec.machine(), None if spec.bandwidth is None else spec.bandwidth * 1e9
    try:
        document = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        hint = f"expected a file, or words such as {EXAMPLE}"
        raise BadInputError(f"cannot read the machine {text}: {error.strerror}", hint) from error
    except msgspec.DecodeError as error:
        raise BadInputError(f"{text} is no JSON: {error}", "give what tftune inspect --json prints") from error
    try:
        machine = msgspec.convert(document["machine"], Machine)
    except (KeyError, TypeError, msgspec.ValidationError) as error:
        raise BadInputError(f"{text} describes no machine", "give what tftune inspect --json prints") from error
    if (contradiction := _contradiction(machine)) is not None:
        raise BadInputError(
            f"{text} describes a machine that cannot be: {contradiction}", "give what tftune inspect --json prints"
        )
    return machine, None


def _contradiction(machine: Machine) -> str | None:
    """Return which facts of a machine cannot be, or not together; None where all can."""
    cores, cpus = machine.physical_cores, machine.logical_cpus
    if cores < 1 or cpus < cores:
        return f"physical_cores is {cores}, and logical_cpus {cpus}"
    if not 1 <= machine.sockets <= cores:
        return f"sockets is {machine.sockets}, and physical_cores {cores}"
    if machine.cpu_quota is not None and machine.cpu_quota <= 0:
        return f"cpu_quota is {machine.cpu_quota:g}"
    if machine.cores and len(machine.cores) != cores:
        return f"cores lists {len(machine.cores)}, and physical_cores is {cores}"
    if any((cache.size_bytes or 0) < 0 or cache.n_instances < 1 for cache in machine.caches):
        return "a cache is smaller than nothing"
    try:
        allowed = parse_list(machine.affinity)
    except ValueError:
        return f"affinity is {machine.affinity!r}"
    if len(allowed) != cpus:
        return f"affinity lists {len(allowed)} CPUs, and logical_cpus is {cpus}"
    try:
        of_cores = [parse_list(core) for core in machine.cores]
    except ValueError:
        return f"cores is {machine.cores!r}"
    if not frozenset().union(*of_cores) <= allowed:
        return f"cores lists other CPUs than affinity, {machine.affinity}"
    return None


def _capture(request: PredictRequest, here: Job, events: ProfileEvents) -> Capture:
    """Return the profiles to predict from; raises BadInputError for those of something else."""
    if request.profile is not None:
        capture = read_capture(Path(request.profile))
        capture.check(here, is_elsewhere=request.machine is not None)
        if capture.is_quick:
            events.notice(f"{request.profile} is a quick profile of a search: leave --profile out for a thorough one")
        if here.workload.kind != Kind.PYTHON:
            _check_batches(request, here, events)
        return capture
    _check_batches(request, here, events)
    sizes = profiled_sizes(here)
    return captured(here, sizes, wait=request.wait, new=request.new, events=events)


def _check_batches(request: PredictRequest, here: Job, events: ProfileEvents) -> None:
    """Raise BadInputError for a model whose inputs have another batch size than is asked for: its export tells."""
    with machine_lock(wait=request.wait, on_wait=events.waiting):
        here.launcher(notify=events.notice)


def _ideal(predictor: Predictor, space: Space, machine: Machine, hardware: Hardware) -> IdealResult:
    """Return what an ideal scheduler would gain at the default's batch size, over one process with one setting.

    The setting is the best one of the whole space, whatever is predicted beside it.
    """
    reference = space.reference
    batch_size = reference.batch_size

    def simulated(setting: Setting) -> float:
        configuration = configuration_of(setting, machine, has_teams=predictor.has_teams)
        return configuration.pools.streams * batch_size / predictor.step(configuration, hardware).makespan_s

    own = [each for each in space.points if each.batch_size == batch_size and not is_group(each)]
    best = max(map(simulated, [reference, *space.baselines.values(), *sampled(own)[0]]))
    # It may run a whole step with one setting, too.
    ideal = max(best, batch_size / ideal_makespan_s(predictor, batch_size, hardware))
    return IdealResult(
        batch_size=batch_size,
        over_best=ideal / best,
        over_reference=ideal / simulated(reference),
    )
