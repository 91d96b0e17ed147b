"""Predict the throughput of settings on this machine or another: profile, simulate, say why.

A profile is kept as a capture: a workload at several batch sizes as a file, for predictions here and elsewhere.
"""

from __future__ import annotations

import contextlib
import lzma
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec

from tuner.errors import BadInputError
from tuner.frameworks import registry
from tuner.frameworks.framework import Build
from tuner.identity import digest
from tuner.job import comparable
from tuner.job.compare import parse_compared
from tuner.job.events import ProfileEvents
from tuner.job.job import Job, elsewhere, prepare, tell_outputs
from tuner.job.parsed import ParsedRequest, parse_request
from tuner.job.profile import check_profiled, thread_counts, trace, trace_quickly
from tuner.job.request import PredictRequest
from tuner.machine.corecosts import LONGEST_WAKE_S, MOST_LOSS, busy_loss, wake_s
from tuner.machine.coresets import unlike
from tuner.machine.host import Machine, contradiction
from tuner.machine.locks import machine_lock
from tuner.machine.spec import EXAMPLE, parse_spec
from tuner.model.configuration import configuration_of
from tuner.model.graph import Features
from tuner.model.hardware import TERMS, Hardware, hardware_of
from tuner.model.ideal import ideal_makespan_s
from tuner.model.prediction import predict, reasons, sampled
from tuner.model.predictor import Predictor, predictor_of
from tuner.model.profile import Profile, Traced, is_worth_more, profile
from tuner.paths import cache_dir, file_stem, shipped_profiles, write_whole
from tuner.result.model import IdealResult, PredictionResult, ProfileSource, SourceKind, describe_prediction
from tuner.space.groups import is_group
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.term import OPENMP
from tuner.study.subject import LIBRARY_FOLDERS, BuildFacts, Document, WorkloadFacts, workload_facts
from tuner.trial.forking import ForkLauncher
from tuner.trial.fresh import FreshLauncher
from tuner.workload.feed import made_otherwise
from tuner.workload.pyfile import TRAINING
from tuner.workload.workload import Kind

_FOLDER = "profiles"
_FORMAT = 7  # of what is measured, and how
_QUICK = "-quick"
_XZ = b"\xfd7zXZ\x00"  # how every file of that format begins
_IN_PROFILE = "in the profile"
_AGAIN = "profile it again: leave --from out"
_EXPECTED = "expected capture.json, as tftune predict WORKLOAD --out FOLDER writes it, or that file as .xz"


class Capture(Document, frozen=True, kw_only=True, dict=True):
    """What processes told at each batch size, by how many threads they had, and of what."""

    machine: Machine
    runtime: BuildFacts
    workload: WorkloadFacts
    traced: dict[int, list[Traced]]
    features: Features | None = None
    """What is known of the graph; None in captures that earlier versions made."""
    environment: dict[str, str] | None = None
    """The inherited variables that change timings; None in captures that earlier versions made."""
    wake_s: Annotated[float, msgspec.Meta(gt=0, lt=LONGEST_WAKE_S)] | None = None
    """How long it took (s) to wake a thread on another core; None where that is not known."""
    busy_loss: Annotated[float, msgspec.Meta(ge=0, le=MOST_LOSS)] | None = None
    """How much longer a core takes while all are at work, as a share; None where that is not known."""
    pinned: str = ""
    """How the workload has changed the CPUs of the processes that told, in words; empty where it has not."""
    is_quick: bool = False
    """Whether it is a search's own, of a few steps with one thread and with all."""
    created: str | None = None
    """The date on which it was made (UTC); None in captures that earlier versions made."""

    def __post_init__(self) -> None:
        """Raise ValueError for what no prediction can be made from."""
        if not isinstance(self.runtime.get("id"), str) or not isinstance(self.runtime.get("framework", ""), str):
            raise ValueError("its build has no id")
        if (impossible := contradiction(self.machine)) is not None:
            raise ValueError(f"its machine cannot be: {impossible}")
        if not self.traced or any(not each or each[0].threads != 1 for each in self.traced.values()):
            raise ValueError("it has no process with one thread")
        if min(self.traced) < 1:
            raise ValueError(f"it is of batches of {min(self.traced)} items")
        told = [each for rows in self.traced.values() for each in rows]
        times = [time for each in told for time in (each.step_s, each.plain_s, each.traced_s)]
        times += [rate for each in told for rate in (each.roof.flops, each.roof.bytes_s)]
        if not all(0 < time < math.inf for time in times):
            raise ValueError("a time or a rate in it is not above 0")
        if any(rows != sorted(rows, key=lambda each: each.threads) for rows in self.traced.values()):
            raise ValueError("its processes are not in the order of their threads")

    @cached_property
    def profiles(self) -> dict[int, Profile]:
        """Return the profile at each batch size."""
        has_quota = self.machine.cpu_quota is not None
        return {batch_size: profile(traced, has_quota=has_quota) for batch_size, traced in self.traced.items()}

    @property
    def bytes_s(self) -> dict[int, float]:
        """Return what threads move from and to memory (bytes/s), by how many there were."""
        return {each.threads: each.roof.bytes_s for each in self.traced[max(self.traced)]}

    @property
    def has_teams(self) -> bool:
        """Return whether oneDNN ran on OpenMP."""
        return registry.for_build(self.runtime).pool(self.runtime) == OPENMP

    @property
    def build(self) -> Build:
        """Return the build that it was made with; raises BadInputError where its facts are none."""
        try:
            return registry.for_build(self.runtime).stored_build(self.runtime)
        except (ValueError, TypeError) as error:
            raise BadInputError(
                f"the profile is of a build that cannot be read: {error}", "profile the workload again"
            ) from error

    def check(self, asked: ParsedRequest) -> None:
        """Raise BadInputError where it is of another workload than is asked for, or of another framework."""
        if self.workload.fingerprint != asked.workload.fingerprint:
            differs = comparable.workload_difference(self.workload, workload_facts(asked.workload))
            raise BadInputError(f"the profile is of another workload: {differs}", _AGAIN)
        if (own := registry.for_build(self.runtime)).name != asked.framework.name:
            raise BadInputError(f"the profile is of {own.title}, and this is for {asked.framework.title}", _AGAIN)

    def differences(
        self, runtime: BuildFacts | None, environment: Mapping[str, str] | None, place: str
    ) -> tuple[str, ...]:
        """Return in what its build and variables differ from those of a `place`, as far as these are known.

        What no operator takes longer by is no difference.
        """
        differ = [] if runtime is None else comparable.build_differences(self.runtime, runtime, _IN_PROFILE, place)
        if self.environment is not None and environment is not None:
            known, own = (
                {name: value for name, value in each.items() if name not in LIBRARY_FOLDERS}
                for each in (self.environment, environment)
            )
            differ += comparable.differences(known, own, _IN_PROFILE, place)
        return tuple(differ)


def read_capture(path: Path) -> Capture:
    """Return the capture in a file, which may be packed by xz; raises BadInputError for what is none."""
    try:
        data = path.read_bytes()
        text = lzma.decompress(data) if data.startswith(_XZ) else data
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror}", _EXPECTED) from error
    except lzma.LZMAError as error:
        raise BadInputError(f"{path} is damaged: {error}", "copy it again") from error
    try:
        capture = msgspec.json.decode(text, type=Capture)
        _ = capture.profiles  # whether its nodes can be read
        return capture
    # msgspec's are ValueErrors.
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError) as error:
        raise BadInputError(f"{path} is no capture of a profile: {_reason(text) or error}", _EXPECTED) from error


def _reason(text: bytes) -> str:
    """Return what a document is that is no capture, as far as it says so itself."""
    try:
        document = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(document, dict):
        return ""
    if "predicted" in document:
        return "it is the prediction; the profile lies next to it"
    schema = document.get("schema", 1)
    return "" if schema == 1 else f"it is of another version of tftune (schema {schema!r:.20})"


def cached_captures() -> list[Capture]:
    """Return all captures of the cache that can be read, but quick ones, the newest last."""
    captures = []
    for path in sorted((cache_dir() / _FOLDER).glob("*.json"), key=lambda path: path.stat().st_mtime):
        with contextlib.suppress(BadInputError):
            captures.append(read_capture(path))
    return [each for each in captures if not each.is_quick]


def shipped_capture(asked: ParsedRequest) -> Capture | None:
    """Return the profile that is shipped of a workload, None where there is none of it as it is asked for."""
    mode = f"-{TRAINING}" if asked.workload.mode == TRAINING else ""
    path = shipped_profiles() / f"{asked.workload.path.stem}{mode}.json.xz"
    if not path.is_file():
        return None
    capture = read_capture(path)
    return capture if capture.workload.fingerprint == asked.workload.fingerprint else None


def capture_made_here(asked: ParsedRequest, sizes_of: Callable[[Job], Sequence[int]]) -> Capture | None:
    """Return the newest thorough capture of the cache that a request would be answered from, None if there is none.

    It may be of any build: no interpreter is asked. `sizes_of` are the batch sizes that a job is profiled at.
    """
    places = (cache_dir() / _FOLDER).glob(f"{file_stem(asked.workload.name)}-*.json")
    for path in sorted(places, key=lambda path: path.stat().st_mtime, reverse=True):
        with contextlib.suppress(BadInputError):
            capture = read_capture(path)
            job = elsewhere(asked, capture.build)
            if path == cache_path(job, sizes_of(job)):
                return capture
    return None


def write_capture(capture: Capture, path: Path) -> None:
    """Write a capture, whole or not at all."""
    write_whole(path, capture_text(capture).encode())


def capture_text(capture: Capture) -> str:
    """Return a capture as its file has it."""
    return msgspec.json.encode(capture).decode()


def captured(job: Job, batch_sizes: Sequence[int], *, wait: bool, new: bool, events: ProfileEvents) -> Capture:
    """Return the capture of a job: the one of the cache, or a new one.

    Raises BadInputError for a workload that has no operators to look at.
    """
    if not new and (capture := cached_capture(job, batch_sizes, notify=events.notice)) is not None:
        return capture
    with machine_lock(wait=wait, on_wait=events.waiting):
        return new_capture(job, batch_sizes, events=events)


def cached_capture(
    job: Job, batch_sizes: Sequence[int], *, is_quick: bool = False, notify: Callable[[str], None]
) -> Capture | None:
    """Return the capture of a job that the cache has, None where it has none that can be read."""
    path = cache_path(job, batch_sizes, is_quick=is_quick)
    if not path.exists():
        return None
    try:
        return read_capture(path)
    except BadInputError:
        notify(f"{path.name} of the cache cannot be read, and is made again")
        return None


def new_capture(
    job: Job,
    batch_sizes: Sequence[int],
    *,
    limit_s: float | None = None,
    events: ProfileEvents,
) -> Capture:
    """Profile a job, which takes about a minute on few CPUs, and keep what it tells in the cache.

    No more threads are tried after `limit_s`, if that is given; a profile that it ends before all threads were tried is
    not kept. Where not all batch sizes run, those above the job's own are left out, and then all but that. The lock of
    the machine has to be held. Raises BadInputError for a workload that has no operators to look at.
    """
    traced = _trace(job, batch_sizes, limit_s=limit_s, events=events)
    capture = _capture_of(job, traced, events)
    largest = traced[max(traced)]
    is_cut = is_worth_more(largest) and largest[-1].threads < max(thread_counts(job.machine.usable_cpus))
    if limit_s is None or not is_cut:
        write_capture(capture, cache_path(job, batch_sizes))
        cache_path(job, batch_sizes, is_quick=True).unlink(missing_ok=True)
    return capture


def quick_capture(
    job: Job,
    batch_sizes: Sequence[int],
    *,
    launcher: FreshLauncher | ForkLauncher,
    limit_s: float | None,
    events: ProfileEvents,
) -> Capture:
    """Profile a job quickly, at those of the batch sizes that are not above its own; see `trace_quickly`.

    The cache keeps it until a thorough one takes its place.
    """
    fewer = [size for size in batch_sizes if size <= job.space.reference.batch_size]
    traced = trace_quickly(job, fewer, launcher=launcher, limit_s=limit_s, events=events)
    capture = msgspec.structs.replace(_capture_of(job, traced, events), is_quick=True)
    write_capture(capture, cache_path(job, batch_sizes, is_quick=True))
    return capture


def _capture_of(job: Job, traced: dict[int, list[Traced]], events: ProfileEvents) -> Capture:
    tell_outputs(job.seen_outputs, job.seen.not_finite, events.notice)
    subject = job.subject
    return Capture(
        machine=subject.machine,
        runtime=subject.runtime,
        workload=subject.workload,
        traced=traced,
        features=job.features(),
        environment=job.environment,
        pinned=job.seen.pinned,
        created=datetime.now(UTC).date().isoformat(),
        wake_s=wake_s(subject.machine),
        busy_loss=busy_loss(subject.machine),
    )


def _trace(
    job: Job, batch_sizes: Sequence[int], *, limit_s: float | None, events: ProfileEvents
) -> dict[int, list[Traced]]:
    """Return what processes tell at as many of the batch sizes as run; raises BadInputError where none does."""
    own = job.space.reference.batch_size
    fewer = [size for size in batch_sizes if size <= own] if max(batch_sizes) > own else [own]
    try:
        return trace(job, batch_sizes, limit_s=limit_s, events=events)
    except BadInputError as error:
        if len(batch_sizes) == 1:
            raise
        events.notice(f"{error.message}: profiling at batch size {', '.join(map(str, fewer))} alone")
    return _trace(job, fewer, limit_s=limit_s, events=events)


def cache_path(job: Job, batch_sizes: Sequence[int], *, is_quick: bool = False) -> Path:
    """Return the file of the cache that holds what is told of a job at these batch sizes."""
    subject = job.subject
    key = [_FORMAT, subject.machine.id, subject.runtime["id"], subject.workload.fingerprint, job.environment]
    key += made_otherwise(subject.workload.fed)
    name = f"{file_stem(job.workload.name)}-{digest([*key, *batch_sizes])}"
    return cache_dir() / _FOLDER / f"{name}{_QUICK if is_quick else ''}.json"


# ---- predictions ----------------------------------------------------------------------------------------------------

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
    asked = msgspec.structs.replace(asked, socket_bytes_s=None)  # which the file of a machine does not know
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
