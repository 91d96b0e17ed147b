"""A suite: searches over many workloads, modes, shapes of this machine and builds of a framework, one study each.

Each search is a process of its own, confined to its shape; what is in the storage already is not made again. Of a suite
with a plan (`tuner.job.planned`) each study is of settings that are measured as planned, without finals.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import UNSET, Struct

from tuner.devices import registry as devices
from tuner.errors import BadInputError, DamagedStudyError, NoModeError, TunerError, unknown_name
from tuner.frameworks import registry
from tuner.frameworks.framework import Build
from tuner.identity import digest
from tuner.job import planned
from tuner.job.job import prepare, timing_variables, trial_environment
from tuner.job.nested import INTERRUPTED, EndedSearch, run_nested
from tuner.job.parsed import (
    find_device,
    find_workload,
    interpreter,
    parse_batch_sizes,
    parse_request,
    space_file,
    words,
)
from tuner.job.request import ALONE, KEEP, CheckRequest, SearchRequest, SuiteRequest, SuiteWorkload
from tuner.job.servers import parallel_starts
from tuner.machine.confine import PERIOD_US, CpuShape, choose_cpus, confined
from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine, detect, host_of
from tuner.machine.locks import machine_lock
from tuner.machine.topology import read_topology
from tuner.measure.budget import DEFAULT_TIME_S, Countdown, parse_duration
from tuner.measure.objective import Objective
from tuner.paths import FILE_URL
from tuner.quantity import CPUS, plural
from tuner.study.attributes import Attributes
from tuner.study.record import Record
from tuner.study.storage import attributes_in, check_storage, hosts_in, load_record, open_storage, storage_errors
from tuner.study.subject import identity_of
from tuner.workload import workload as workloads
from tuner.workload.pyfile import INFERENCE, MODES
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Workload

ALL = "all"
_EXPORTS = 0.5  # of the time of a plan: models that take longer to write are left to their own studies
_OF_A_CASE = (TunerError, OSError, subprocess.SubprocessError, ValueError)
"""The failures that belong to a case: the next one may still run."""


class CaseKey(Struct, frozen=True, kw_only=True):
    """What a case and its study have in common: two of one key are the same measurement."""

    host: str
    """What tells kinds of hosts apart, `tuner.machine.host.host_of`."""
    affinity: str
    quota_us: int | None
    """CPU time (µs) in each period of `PERIOD_US`, as the kernel keeps it."""
    device: str
    """The digest of what timings depend on in a device."""
    fingerprint: str
    mode: str
    execution: str
    build: str
    space: str
    space_digest: str
    environment: str
    """The digest of the variables that timings depend on."""
    batch_sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedWorkload:
    """A workload of a suite in one mode."""

    word: str
    """As the request names it."""
    spec: WorkloadSpec
    workload: Workload
    batch_sizes: tuple[int, ...] = ()
    """Those that were asked for; none: the search space's."""

    @property
    def measured(self) -> tuple[object, ...]:
        """Return what two of the same measurement have in common."""
        return self.workload.fingerprint, self.workload.mode, self.workload.execution, self.batch_sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(NamedWorkload):
    """One search of a suite."""

    shape: CpuShape
    python: Path
    build: Build
    key: CaseKey

    @property
    def title(self) -> str:
        """Return what it is called, for people."""
        return f"{self.workload.name} {self.workload.mode}"

    @property
    def build_line(self) -> str:
        """Return its build in a line."""
        build = self.build.to_dict()
        return registry.for_build(build).build_lines(build)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The searches that were asked for, those that are to be run, and how."""

    request: SuiteRequest
    cases: list[Case]
    existing: dict[int, Record]
    """The studies that the storage has already, by the number of the case."""
    begun: dict[int, Record]
    """The studies of a plan that the storage has in part."""
    budget_s: float
    stop_after_s: float | None
    unavailable: list[str]
    """What was asked for and is not there, such as the training of a workload that has none."""
    reasons: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Of a suite of what is stale: what has changed since a case was measured, by its number."""

    @property
    def is_planned(self) -> bool:
        """Return whether its settings are planned, and not searched for."""
        return self.request.plan is not None

    @property
    def stored(self) -> dict[int, Record]:
        """Return all studies that the storage has, whole or in part, by the number of the case."""
        return self.existing | self.begun

    @property
    def missing(self) -> list[int]:
        """Return the numbers of the cases that are to be run."""
        return [number for number in range(len(self.cases)) if number not in self.existing]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedCase(EndedSearch):
    """How a case ended: its study, or why there is none."""

    number: int
    wall_s: float


@storage_errors()
def plan(request: SuiteRequest) -> Suite:
    """Understand a suite and find what is done of it; raises BadInputError, and runs nothing but the probe."""
    machine = detect()
    check_stale(request)
    budget_s = DEFAULT_TIME_S if request.time_budget is None else parse_duration(request.time_budget)
    stop_after_s = None if request.stop_after is None else parse_duration(request.stop_after, option="--stop-after")
    parse_duration(request.trial_timeout, option="--trial-timeout")
    framework = registry.find(request.framework)
    device = find_device(WorkloadSpec(device=request.device), framework)
    if request.plan is not None:
        stop_after_s = parse_duration(request.plan, option="--plan")
        request = planned.completed(request, framework, device)
    space = space_file(request.space or device.space, framework, machine)
    check_storage(request.storage)
    all_named, absent = workloads_of(request)
    if request.plan is None:
        shapes, refused = _shapes(request, machine), list[str]()
        modes = dict.fromkeys(mode for each in chosen_workloads(request).values() for mode in _modes(request, each))
        parts = [planned.Part(mode=mode, shape=shape) for mode in modes for shape in shapes]
    else:
        parts, refused = planned.parts(machine)
    env, _ = trial_environment(framework, devices.find(devices.DEFAULT))  # builds are looked at on the CPU
    environment = timing_variables(env, framework, device)
    pythons = list(dict.fromkeys(interpreter(text) for text in request.pythons or (None,)))
    builds = {python: framework.probe(python, env) for python in pythons}

    def key(workload: Workload, part: planned.Part, build: Build, sizes: tuple[int, ...]) -> CaseKey:
        quotas = [each for each in (part.shape.quota, machine.cpu_quota) if each is not None]
        return CaseKey(
            host=host_of(machine),
            affinity=part.shape.affinity,
            quota_us=_quota_us(min(quotas, default=None)),
            device=digest(identity_of(device)),
            fingerprint=workload.fingerprint,
            mode=workload.mode,
            execution=workload.execution,
            build=build.id,
            space=space.name,
            space_digest=space.digest,
            environment=digest(environment),
            batch_sizes=sizes,
        )

    # The first loop varies slowest, so that a suite that ends early has run every workload at least once.
    cases = [
        Case(
            word=each.word,
            spec=each.spec,
            workload=each.workload,
            shape=part.shape,
            python=python,
            build=build,
            batch_sizes=(sizes := part.batch_sizes(each.workload.batch_size) or each.batch_sizes),
            key=key(each.workload, part, build, sizes),
        )
        for part in parts
        for python, build in builds.items()
        for each in [named for named in all_named if named.workload.mode == part.mode][: part.most]
    ]
    existing, begun = dict[int, Record](), dict[int, Record]()
    for number, (record, is_complete) in matching_studies(request, [case.key for case in cases]).items():
        (existing if is_complete else begun)[number] = record
    suite = Suite(
        request=request,
        cases=cases,
        existing=existing,
        begun=begun,
        budget_s=budget_s,
        stop_after_s=stop_after_s,
        unavailable=[*absent, *refused],
    )
    return _measured_part(suite) if request.stale else suite


def workloads_of(request: SuiteRequest) -> tuple[list[NamedWorkload], list[str]]:
    """Return each workload in each mode that it has, and those that it has not."""
    named_workloads, absent = dict[tuple[object, ...], NamedWorkload](), list[str]()
    for word, chosen in chosen_workloads(request).items():
        try:
            sizes = tuple(sorted({*(parse_batch_sizes(chosen.batch_size) or ())}))
            for mode in _modes(request, chosen):
                spec = replace(chosen.spec, mode=mode, framework=request.framework, device=request.device)
                try:
                    workload = find_workload(spec)[1]
                except NoModeError as error:
                    absent.append(error.message)
                    continue
                named = NamedWorkload(word=word, spec=spec, workload=workload, batch_sizes=sizes)
                other = named_workloads.setdefault(named.measured, named)
                if other is not named:
                    raise BadInputError(f"{word} and {other.word} are the same measurement", "remove one of them")
        except (BadInputError, OSError, ValueError) as error:
            if _are_stored(request):
                absent.append(f"cannot use {word} here: {error}")
            elif request.file is None or not isinstance(error, BadInputError):
                raise
            else:
                raise BadInputError(f"{request.file}: workloads.{word}: {error.message}", error.hint) from error
    if not named_workloads:
        raise BadInputError(f"nothing to run: {'; '.join(absent)}", "choose another mode or workload")
    return [*named_workloads.values()], absent


def chosen_workloads(request: SuiteRequest) -> Mapping[str, SuiteWorkload]:
    """Return the workloads of a suite by their names in the request: from the suite file, or what it names."""
    requested_names = words(ALL if request.workloads is None else request.workloads)
    if _are_stored(request):
        requested_names = _measured_words(request)
    if not requested_names:
        raise BadInputError("--workloads is empty", f"name some, or '{ALL}'")
    known_names = list(request.file_workloads or workloads.names())
    named = dict.fromkeys(name for word in requested_names for name in (known_names if word == ALL else [word]))
    if not request.file_workloads:
        return {word: SuiteWorkload(spec=WorkloadSpec(words=(word,))) for word in named}
    for name in named:
        if name not in request.file_workloads:
            raise unknown_name(f"workload of {request.file}", name, request.file_workloads)
    return {name: request.file_workloads[name] for name in named}


def check_stale(request: SuiteRequest) -> None:
    """Raise BadInputError if what is stale is asked for with a plan."""
    if request.stale and request.plan is not None:
        raise BadInputError("--stale with --plan", "leave one of them out: a plan measures the missing settings")


def _are_stored(request: SuiteRequest) -> bool:
    """Return whether the workloads are those that the storage has studies of."""
    return request.stale and request.workloads is None and not request.file_workloads


def _measured_words(request: SuiteRequest) -> list[str]:
    """Return the words that name the workloads of the studies that a suite could have made; raises BadInputError."""
    named = dict[str, None]()
    storage = open_storage(request.storage, create=False)
    for stored in [] if storage is None else attributes_in(storage)[0].values():
        if is_of_suite(stored, request):
            word = (*stored.spec.words, stored.subject.workload.name)[0]
            path = os.path.join(stored.folder, word)  # noqa: PTH118  # pathlib's may raise on what others have stored
            is_path = word not in workloads.names() and os.path.exists(path)  # noqa: PTH110
            named[path if is_path else word] = None
    if not named:
        where = request.storage.removeprefix(FILE_URL)
        raise BadInputError(f"{where} has no studies of such a suite", "run the suite without --stale first")
    return [*named]


def _modes(request: SuiteRequest, chosen: SuiteWorkload) -> list[str]:
    """Return the modes of a workload: `--mode`, else its own."""
    text = request.modes if request.modes is not None else chosen.modes
    modes = words(INFERENCE if text is None else text)
    if not modes:
        raise BadInputError("--mode is empty", f"give one or both of: {','.join(MODES)}")
    for mode in modes:
        if mode not in MODES:
            raise unknown_name("mode", mode, MODES)
    return modes


def _shapes(request: SuiteRequest, machine: Machine) -> list[CpuShape]:
    """Return the shapes: each number of CPUs, then each quota on all of them; if neither is given, all CPUs."""
    mask = parse_list(machine.affinity)
    topology = read_topology()
    for option, typed in (("--cpus", request.cpus), ("--cpu-quota", request.cpu_quotas)):
        if typed is not None and not words(typed):
            raise BadInputError(f"{option} is empty", "omit it to use all CPUs, or give numbers, e.g. 1,2")
    shapes = [CpuShape(cpus=choose_cpus(topology, mask, _whole(n, "--cpus"))) for n in words(request.cpus or "")]
    for text in words(request.cpu_quotas or ""):
        quota = CPUS.parse(text, "--cpu-quota")
        shape = CpuShape(cpus=mask, quota=quota)
        if machine.cpu_quota is not None and machine.cpu_quota <= quota:
            raise BadInputError(
                f"--cpu-quota {text} is not below the current quota", f"expected less than {machine.cpu_quota:g} CPUs"
            )
        with confined(shape):  # fail now rather than hours later
            shapes.append(shape)
    return list(dict.fromkeys(shapes)) or [CpuShape(cpus=mask)]


def _whole(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadInputError(f"{option} is '{text}'", "expected whole numbers, e.g. 1,2") from None


def matching_studies(request: SuiteRequest, keys: Sequence[CaseKey]) -> dict[int, tuple[Record, bool]]:
    """Return the newest study that the storage has of each key, by the key's index, and whether it is complete."""
    storage = open_storage(request.storage, create=False) if keys else None
    if storage is None:
        return {}
    newest = {
        key_of(stored, usual=keys[0]): (name, request.plan is None or stored.is_complete)
        for name, stored in attributes_in(storage)[0].items()
        if _was_asked_for(stored, request)
    }
    return {
        number: (load_record(storage, newest[key][0]), newest[key][1])
        for number, key in enumerate(keys)
        if key in newest
    }


def _was_asked_for(stored: Attributes, request: SuiteRequest) -> bool:
    """Return whether a study was asked for as this suite does, and has its finals; planned studies have none."""
    is_ended = stored.finals is not None if request.plan is None else stored.planned
    lacks_groups = request.instances and is_of_one_process(stored.get("command", str) or ALONE)
    return is_ended and is_usual(stored) and stored.seed == request.seed and not lacks_groups


def is_of_one_process(command: str) -> bool:
    """Return whether a search by this command tried one process alone."""
    return bool({ALONE, "--no-instances"} & {*shlex.split(command)})  # the second is its name in earlier studies


def is_usual(stored: Attributes) -> bool:
    """Return whether a study asks what a suite does: for throughput, without limits and pins, in the same precision."""
    return (
        stored.objective is Objective.THROUGHPUT
        and not stored.limits
        and not stored.pins
        and stored.numerics in (None, KEEP)
    )


def is_of_suite(stored: Attributes, request: SuiteRequest) -> bool:
    """Return whether a suite with these options could have made a study, whatever workload and shape it is of."""
    if not _was_asked_for(stored, request) or stored.subject.framework is not registry.find(request.framework):
        return False
    spec = replace(stored.spec, framework=None)
    if not request.file_workloads:
        plain = WorkloadSpec(words=spec.words, mode=spec.mode, device=request.device)
        return spec.command_line == plain.command_line
    named = [replace(own.spec, mode=spec.mode, device=request.device) for own in request.file_workloads.values()]
    return any(
        replace(own, words=spec.words).command_line == spec.command_line and _is_same_model(own, stored)
        for own in named
    )


def _is_same_model(spec: WorkloadSpec, stored: Attributes) -> bool:
    """Return whether a spec has the words of a study, or names the same file here in other words."""
    words = stored.spec.words
    if tuple(words) == tuple(spec.words) or len(words) != 1:
        return tuple(words) == tuple(spec.words)
    try:
        there, here = (os.path.expanduser(name) for name in (words[0], spec.words[0]))  # noqa: PTH111
        return os.path.samefile(os.path.join(stored.folder, there), here)  # noqa: PTH118, PTH121
    except (OSError, ValueError):  # pathlib's raise more on what others have stored
        return False


# ---- what is stale --------------------------------------------------------------------------------------------------

_CHANGED = {
    "host": "the machine changed",
    "device": "the machine changed",
    "fingerprint": "the model changed",
    "space": "the search space changed",
    "space_digest": "the search space changed",
    "environment": "variables that change timings changed",
}


def changes(then: CaseKey, now: CaseKey, *, build_then: str, build_now: str) -> tuple[str, ...]:
    """Return what has changed since a study was measured, in words; a study of which nothing has is current.

    Its key was `then`, and the same case has `now` this one; each build is named in a line. Neither a mode nor a shape
    changes: they are other cases.
    """
    different = [name for name in CaseKey.__struct_fields__ if getattr(then, name) != getattr(now, name)]
    texts = (_build_change(build_then, build_now) if name == "build" else _CHANGED.get(name) for name in different)
    return tuple(dict.fromkeys(text for text in texts if text is not None))


def _build_change(then: str, now: str) -> str:
    """Return the first part in which lines on two builds differ, `TensorFlow 2.20.0, now 2.21.0`."""
    for before, after in zip(then.split(", "), now.split(", "), strict=False):
        if before != after:
            name, _, rest = after.partition(" ")
            return f"{before}, now {rest if rest and before.startswith(f'{name} ') else after}"
    return "the build changed"


def build_line(stored: Attributes) -> str:
    """Return the build of a study in a line."""
    subject = stored.subject
    return subject.framework.build_lines(subject.runtime)[0]


def stale_cases(
    request: SuiteRequest, cases: Sequence[tuple[str, CaseKey, str]], *, host: str
) -> dict[int, tuple[str, ...]]:
    """Return what has changed since the storage's newest study of a case, by the number of the case.

    A case is given by the name of its workload, its key and its build in a line; `host` is the name of the host that
    would measure it. A case that has a current study, or was never measured, is left out. On a host that has become
    another machine, a case was measured if its workload was, in whatever shape.
    """
    storage = open_storage(request.storage, create=False) if cases else None
    if storage is None:
        return {}
    stored_studies = [each for each in attributes_in(storage)[0].values() if is_of_suite(each, request)]
    known = [(each, key_of(each, usual=cases[0][1])) for each in sorted(stored_studies, key=lambda each: each.touched)]
    hosts = {name: {*names} for name, names in hosts_in(storage).items()}
    for stored in stored_studies:
        with contextlib.suppress(DamagedStudyError):  # in a cluster a host may have another name
            held = (stored.finals, *stored.checks)
            hosts.setdefault(stored.study, set()).update(finals.node for finals in held if finals is not None)

    def is_earlier(stored: Attributes, then: CaseKey, name: str, now: CaseKey) -> bool:
        subject = stored.subject
        is_same = subject.workload.name == name and (then.mode, then.execution) == (now.mode, now.execution)
        is_same &= then.batch_sizes == now.batch_sizes
        if then.host != now.host:
            return is_same and host in hosts.get(stored.study, ())
        return is_same and (then.affinity, then.quota_us) == (now.affinity, now.quota_us)

    reasons = {}
    for number, (name, key, build) in enumerate(cases):
        earlier = [each for each in known if is_earlier(*each, name, key)]
        if earlier and all(then != key for _, then in earlier):
            stored, then = earlier[-1]
            reasons[number] = changes(then, key, build_then=build_line(stored), build_now=build)
    return reasons


def _measured_part(suite: Suite) -> Suite:
    """Return the cases of a suite that were measured once: those that are current, and those that have changed."""
    named = [(case.workload.name, case.key, case.build_line) for case in suite.cases]
    changed = stale_cases(suite.request, named, host=socket.gethostname())
    reasons = {number: each for number, each in changed.items() if number not in suite.existing}
    measured = [number for number in range(len(suite.cases)) if number in suite.existing or number in reasons]
    n_never = len(suite.cases) - len(measured)
    return replace(
        suite,
        cases=[suite.cases[number] for number in measured],
        existing={place: suite.existing[n] for place, n in enumerate(measured) if n in suite.existing},
        reasons={place: reasons[n] for place, n in enumerate(measured) if n in reasons},
        unavailable=[*suite.unavailable, *([never_measured(n_never)] if n_never else [])],
    )


def never_measured(n: int) -> str:
    """Return the line for cases that a suite of what is stale leaves out."""
    return f"{plural(n, 'search was', 'searches were')} never measured: leave out --stale to run them"


def key_of(stored: Attributes, usual: CaseKey | None = None) -> CaseKey:
    """Return the key of a study; what the first studies did not keep is as `usual`, or empty."""
    subject = stored.subject
    machine, workload, environment = subject.machine, subject.workload, subject.environment
    # On a GPU the inputs of a step usually come from the host.
    device = {name: value for name, value in subject.device_identity.items() if (name, value) != ("feed", "host")}
    return CaseKey(
        host=host_of(machine),
        affinity=machine.affinity,
        quota_us=_quota_us(machine.cpu_quota),
        device=digest(device),
        fingerprint=workload.fingerprint,
        mode=workload.mode,
        execution=workload.execution,
        build=subject.runtime["id"],
        space=subject.space,
        space_digest=subject.space_digest or (usual.space_digest if usual else ""),
        environment=digest(environment) if environment is not UNSET else usual.environment if usual else "",
        batch_sizes=tuple(sorted(stored.batch_sizes)),
    )


def _quota_us(quota: float | None) -> int | None:
    return None if quota is None else round(quota * PERIOD_US)


def run(
    suite: Suite,
    *,
    on_start: Callable[[int, float], None],
    on_end: Callable[[FinishedCase, float], None],
    notify: Callable[[str], None] = lambda _: None,
) -> list[FinishedCase]:
    """Run what is missing, one after another; the callbacks are given about how long (s) all will yet take.

    A case that fails is kept as one; the others continue. Ends early where it is interrupted, or its time is over.
    `notify` is called with a line before models are written, or another tftune is waited for.
    """
    countdown = Countdown(total_s=suite.stop_after_s)
    done: list[FinishedCase] = []

    def left_s(n_cases: int) -> float:
        return countdown.left_s() if suite.is_planned else n_cases * _typical_s(suite, done)

    try:
        if suite.is_planned and suite.missing:
            export_models(suite, countdown.part(_EXPORTS), notify)
    except KeyboardInterrupt:
        number, wall_s = suite.missing[0], countdown.elapsed_s()
        return [FinishedCase(number=number, wall_s=wall_s, failure=INTERRUPTED, interrupted=True)]
    for number in suite.missing:
        left = len(suite.missing) - len(done)
        if suite.is_planned and countdown.is_short_of(planned.LEAST_S):
            break
        on_start(number, left_s(left))
        budget_s = planned.study_s(countdown.left_s(), left) if suite.is_planned else None
        result = run_case(suite, number, budget_s)
        done.append(result)
        on_end(result, left_s(left - 1))
        if result.interrupted or countdown.is_over:
            break
    return done


def export_models(suite: Suite, countdown: Countdown, notify: Callable[[str], None]) -> None:
    """Write the models of the inference that is missing, several at once: that needs cores, and no quiet.

    One that fails, or is not written when the countdown ends, is left to its own study.
    """
    missing = [suite.cases[number] for number in suite.missing]
    by_model = {(each.workload.fingerprint, each.python): each for each in missing if each.workload.mode == INFERENCE}

    def write(case: Case) -> None:
        with contextlib.suppress(*_OF_A_CASE):
            job = prepare(parse_request(search_request(case, suite.request)))
            left_s = countdown.left_s()
            if left_s > 0:
                replace(job, export_deadline_s=min(job.export_deadline_s, left_s)).export(notify=notify)

    with machine_lock(wait=True, on_wait=notify), ThreadPoolExecutor(parallel_starts(detect())) as pool:
        list(pool.map(write, by_model.values()))


def _typical_s(suite: Suite, done: Sequence[FinishedCase]) -> float:
    """Return how long a case takes: as those that are done, or its budget."""
    durations_s = [each.wall_s for each in done if each.study is not None]
    return sum(durations_s) / len(durations_s) if durations_s else suite.budget_s


def run_case(suite: Suite, number: int, budget_s: float | None, *, again: str = "") -> FinishedCase:
    """Run the search of a case, confined to its shape; it may take so long (s) if it is planned.

    With `again`, the answers of that study are checked instead.
    """
    case, began_s = suite.cases[number], time.monotonic()
    request: SearchRequest | CheckRequest = search_request(case, suite.request, budget_s)
    if again:
        request = CheckRequest(
            study=again,
            spec=case.spec,
            python=str(case.python),
            storage=suite.request.storage,
            trial_timeout=suite.request.trial_timeout,
            wait=True,
        )
    try:
        with confined(case.shape) as enter:
            ended = run_nested(request, enter=enter)
    except _OF_A_CASE as error:
        ended = EndedSearch(failure=str(error))
    return FinishedCase(
        number=number,
        wall_s=time.monotonic() - began_s,
        study=ended.study,
        failure=ended.failure,
        interrupted=ended.interrupted,
    )


def search_request(case: Case, request: SuiteRequest, budget_s: float | None = None) -> SearchRequest:
    """Return the request of the search of a case; `budget_s` is the time (s) of one that is planned."""
    search = SearchRequest(
        workload=case.spec,
        python=str(case.python),
        time_budget=request.time_budget,
        seed=request.seed,
        storage=request.storage,
        trial_timeout=request.trial_timeout,
        space=request.space,
        batch_size=",".join(map(str, case.batch_sizes)) or None,
        # Rules are of the threads of one process, and what they are learned from is not to depend on what is predicted.
        objective=None if request.instances else Objective.THROUGHPUT.value,
        instances=request.instances,
        predict=None if request.instances else False,
        wait=True,
    )
    if request.plan is None:
        return search
    budget = None if budget_s is None else f"{budget_s:.0f}s"
    return replace(search, planned=request.planned_command(case.word), instances=True, time_budget=budget)
