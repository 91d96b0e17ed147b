"""Predict the throughput of settings on this machine or another: profile, simulate, say why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from tuner.errors import BadInputError
from tuner.frameworks import registry
from tuner.job.capture import Capture, capture_made_here, captured, read_capture, shipped_capture
from tuner.job.compare import parse_compared
from tuner.job.events import ProfileEvents
from tuner.job.job import Job, elsewhere, prepare
from tuner.job.parsed import ParsedRequest, parse_request
from tuner.job.profile import check_profiled
from tuner.job.request import PredictRequest
from tuner.machine.busy import MOST_LOSS
from tuner.machine.coresets import unlike
from tuner.machine.host import Machine, contradiction
from tuner.machine.locks import machine_lock
from tuner.machine.spec import EXAMPLE, parse_spec
from tuner.machine.waking import LONGEST_WAKE_S
from tuner.model.configuration import configuration_of
from tuner.model.hardware import TERMS, Hardware, hardware_of
from tuner.model.ideal import ideal_makespan_s
from tuner.model.prediction import predict, reasons, sampled
from tuner.model.predictor import Predictor, predictor_of
from tuner.result.model import IdealResult, PredictionResult, ProfileSource, SourceKind, describe_prediction
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
        raise BadInputError("--set and --only contradict each other", "put all of it into --only")
    if request.new and request.profile is not None:
        raise BadInputError("--new and --from contradict each other", "give one of them")
    asked = None if request.machine is None else find_machine(request.machine)
    # What is profiled here is the model alone: knobs and values are those of the machine that is asked about.
    search = request.search
    own = parse_request(search if asked is None else replace(search, space=None, pins=()), stores=False)
    check_profiled(own)
    found, kind = _at_hand(request, own)
    here = _here(request, own, events) if found is None or kind is SourceKind.FILE else None
    job = _job(request, asked, found, here)
    settings = [parse_compared(text, job, search.storage, is_here=job is here).setting for text in request.settings]
    if here is not None and (found is None or here.workload.kind != Kind.PYTHON):
        _check_batches(request, here, events)
    if found is not None and found.is_quick:
        events.notice(f"{request.profile} is a quick profile of a search: leave --from out for a thorough one")
    capture = found if found is not None else _measured(request, here, events)
    predictor, hardware = model_of(capture)
    if job.machine.id != capture.machine.id:
        hardware = _hardware(job.machine, capture, asked or _Asked(machine=job.machine))
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
        waking=hardware.waking,
        is_wake_known=asked is not None and asked.wake_s is not None,
        ideal=_ideal(predictor, job.space, job.machine, hardware) if request.ideal else None,
        source=_source(request, kind, capture, job, here, asked),
        pinned=capture.pinned,
        unlike_cores=_unlike_cores(job, predicted.best),
    )
    return result, capture


def model_of(capture: Capture) -> tuple[Predictor, Hardware]:
    """Return the predictor of a workload, and the machine that it was profiled on; raises BadInputError."""
    profiles = capture.profiles
    if not any(time_s > 0 for each in profiles[max(profiles)].operators for time_s in each.times_s.values()):
        raise BadInputError("no operator of it takes any time", "there is nothing to predict: measure it")
    hardware = hardware_of(capture.machine, capture.bytes_s, is_here=True, busy_loss=capture.busy_loss)
    return predictor_of(profiles, hardware, has_teams=capture.has_teams), hardware


def _hardware(machine: Machine, capture: Capture, asked: _Asked) -> Hardware:
    """Return a machine that was not profiled as simulations see it.

    A hop between threads is taken to be slower there as the wake of a thread is. A profile without its own wake counts
    as one of the usual wake (`fork_s` of `tuner.model.hardware`).
    """
    there_s, here_s = asked.wake_s, capture.wake_s or TERMS.fork_s
    return hardware_of(
        machine,
        capture.bytes_s,
        is_here=False,
        socket_bytes_s=asked.socket_bytes_s,
        waking=1.0 if there_s is None else there_s / here_s,
        busy_loss=asked.busy_loss,
    )


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


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that is asked about, the bytes/s of a socket, and what its file tells of its build and variables.

    `wake_s` is how long it takes (s) to wake a thread there, `busy_loss` how much longer a core takes while all are at
    work, as a share; None where the file does not have them.
    """

    machine: Machine
    socket_bytes_s: float | None = None
    runtime: Any = None
    environment: Any = None
    wake_s: Annotated[float, msgspec.Meta(gt=0, lt=LONGEST_WAKE_S)] | None = None
    busy_loss: Annotated[float, msgspec.Meta(ge=0, le=MOST_LOSS)] | None = None


def find_machine(text: str) -> _Asked:
    """Return the machine that is described in words, or that a file holds; raises BadInputError for what is neither.

    A file is what `tftune inspect --json` prints, or any other document of tftune's with a machine in it.
    """
    path = Path(text)
    if "=" in text and not path.exists():
        spec = parse_spec(text)
        return _Asked(machine=spec.machine(), socket_bytes_s=None if spec.bandwidth is None else spec.bandwidth * 1e9)
    expected = "give what tftune inspect --json prints"
    try:
        asked = msgspec.json.decode(path.read_bytes(), type=_Asked)
    except OSError as error:
        hint = f"expected a file, or words such as {EXAMPLE}"
        raise BadInputError(f"cannot read the machine {text}: {error.strerror}", hint) from error
    except msgspec.ValidationError as error:
        raise BadInputError(f"{text} describes no machine", expected) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInputError(f"{text} is no JSON: {error}", expected) from error
    if (impossible := contradiction(asked.machine)) is not None:
        raise BadInputError(f"{text} describes a machine that cannot be: {impossible}", expected)
    is_build = isinstance(asked.runtime, dict) and isinstance(asked.environment, dict)
    is_build = is_build and asked.runtime.get("framework", registry.DEFAULT) == registry.DEFAULT
    return asked if is_build else msgspec.structs.replace(asked, runtime=None, environment=None)


def _at_hand(request: PredictRequest, own: ParsedRequest) -> tuple[Capture | None, SourceKind]:
    """Return the profile to predict from where none has to be made, and where it comes from.

    For another machine that is the one that was made here, or else the one that is shipped. None of them is of an
    interpreter that the user names. Raises BadInputError for a file of something else.
    """
    if request.profile is not None:
        capture = read_capture(Path(request.profile))
        capture.check(own)
        return capture, SourceKind.FILE
    is_open = request.machine is not None and not request.new and request.python is None
    shipped = shipped_capture(own) if is_open else None
    made = capture_made_here(own, profiled_sizes) if shipped is not None else None
    return made or shipped, SourceKind.SHIPPED if made is None and shipped is not None else SourceKind.OWN


def _here(request: PredictRequest, own: ParsedRequest, events: ProfileEvents) -> Job | None:
    """Return the job that is profiled, or that the profile of a file is compared with.

    None where the interpreter has no TensorFlow, and none of it is needed.
    """
    try:
        here = prepare(own)
    except BadInputError:
        if request.profile is None or request.machine is None or own.workload.kind != Kind.PYTHON:
            raise
        return None
    here.tell_notes(events.notice)
    return here


def _job(request: PredictRequest, asked: _Asked | None, found: Capture | None, here: Job | None) -> Job:
    """Return what is predicted: on the machine that is asked about, with the build that was profiled."""
    build = None if found is None else found.build
    if here is not None and (build is None or build.id == here.build.id):
        if asked is None:
            return here
        build = here.build
    assert build is not None  # without a profile there is a job here
    machine = None if asked is None else asked.machine
    return elsewhere(parse_request(request.search, stores=False, machine=machine), build)


def _measured(request: PredictRequest, here: Job | None, events: ProfileEvents) -> Capture:
    """Return the profile of the cache, or a new one."""
    assert here is not None  # nothing else is at hand
    return captured(here, profiled_sizes(here), wait=request.wait, new=request.new, events=events)


def _source(
    request: PredictRequest, kind: SourceKind, capture: Capture, job: Job, here: Job | None, asked: _Asked | None
) -> ProfileSource:
    """Return where a profile comes from, and how it differs from the machine's file, or from what is here."""
    runtime = None if here is None else here.subject.runtime
    environment: Mapping[str, str] | None = job.environment
    place = "here"
    if asked is not None and asked.runtime is not None:
        runtime, environment, place = asked.runtime, asked.environment, f"in {request.machine}"
    return ProfileSource(
        kind=kind,
        file=request.profile,
        created=capture.created,
        differences=capture.differences(runtime, environment, place),
    )


def _check_batches(request: PredictRequest, here: Job, events: ProfileEvents) -> None:
    """Raise BadInputError for a model whose inputs have another batch size than is asked for: its export tells."""
    with machine_lock(wait=request.wait, on_wait=events.waiting):
        here.launcher(notify=events.notice)


def _unlike_cores(job: Job, setting: Setting) -> str:
    """Return how the cores of the processes of a setting differ, in words; "" where they do not."""
    kinds, cpu_sets = job.machine.kind_by_core, job.space.deployment(setting).cpu_sets
    return (unlike(cpu_sets, kinds) if kinds and cpu_sets else None) or ""


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
