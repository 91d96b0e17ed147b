"""A suite: searches over many workloads, modes, shapes of this machine and builds of a framework, one study each.

Each search is a process of its own, confined to its shape; what is in the storage already is not made again.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import UNSET

from tuner.devices import registry as devices
from tuner.devices.device import Device
from tuner.errors import BadInputError, NoModeError, unknown_name
from tuner.frameworks import registry
from tuner.frameworks.framework import Build
from tuner.job.job import timing_variables, trial_environment
from tuner.job.nested import EndedSearch, run_search
from tuner.job.parsed import find_device, find_workload, interpreter, space_file, words
from tuner.job.request import KEEP, SearchRequest, SuiteRequest
from tuner.machine.confine import PERIOD_US, CpuShape, choose_cpus, confined
from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine, detect, host_of
from tuner.machine.topology import read_topology
from tuner.measure.budget import Countdown, parse_duration
from tuner.measure.objective import Objective
from tuner.quantity import CPUS
from tuner.result.study import StudyResult
from tuner.space.spacefile import SpaceFile
from tuner.study.attributes import Attributes
from tuner.study.record import Record
from tuner.study.storage import all_records, check_storage, open_storage, storage_errors
from tuner.study.subject import Subject
from tuner.workload import workload as workloads
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Workload

ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One search of a suite."""

    spec: WorkloadSpec
    workload: Workload
    shape: CpuShape
    python: Path
    build: Build

    @property
    def title(self) -> str:
        """Return what it is called, for people."""
        return f"{self.workload.name} {self.workload.mode}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The searches that were asked for, those that are to be run, and how."""

    request: SuiteRequest
    cases: list[Case]
    existing: dict[int, Record]
    """The studies that the storage has already, by the number of the case."""
    budget_s: float
    stop_after_s: float | None
    unavailable: list[str]
    """What was asked for and is not there, such as the training of a workload that has none."""

    @property
    def missing(self) -> list[int]:
        """Return the numbers of the cases that are to be run."""
        return [number for number in range(len(self.cases)) if number not in self.existing]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedCase:
    """How a case ended: its study, or why there is none."""

    number: int
    wall_s: float
    study: StudyResult | None = None
    failure: str = ""
    interrupted: bool = False


@storage_errors()
def plan(request: SuiteRequest) -> Suite:
    """Understand a suite and find what is done of it; raises BadInputError, and runs nothing but the probe."""
    machine = detect()
    budget_s = parse_duration(request.time_budget)
    stop_after_s = None if request.stop_after is None else parse_duration(request.stop_after, option="--stop-after")
    parse_duration(request.trial_timeout, option="--trial-timeout")
    framework = registry.find(request.framework)
    device = find_device(WorkloadSpec(device=request.device), framework)
    space = space_file(request.space or device.space, framework, machine)
    check_storage(request.storage)
    shapes = _shapes(request, machine)
    named, absent = _workloads(request)
    env, _ = trial_environment(framework, devices.find(devices.DEFAULT))  # builds are looked at on the CPU
    environment = timing_variables(env, framework, device)
    pythons = list(dict.fromkeys(interpreter(text) for text in request.pythons or (None,)))
    builds = {python: framework.probe(python, env) for python in pythons}
    # The first loop varies slowest, so that a suite that ends early has run every workload at least once.
    cases = [
        Case(spec=spec, workload=workload, shape=shape, python=python, build=builds[python])
        for mode in words(request.modes)
        for shape in shapes
        for python in pythons
        for spec, workload in named
        if workload.mode == mode
    ]
    storage = open_storage(request.storage, create=False)
    stored = [] if storage is None else [(record, record.attributes()) for record in reversed(all_records(storage))]
    matching_studies = [
        (r, a.subject) for r, a in stored if _matches_request(a, request, machine, device, space, environment)
    ]
    existing = {}
    for number, case in enumerate(cases):
        existing_record = next((r for r, subject in matching_studies if _is_of(subject, case, machine.cpu_quota)), None)
        if existing_record is not None:
            existing[number] = existing_record
    return Suite(
        request=request,
        cases=cases,
        existing=existing,
        budget_s=budget_s,
        stop_after_s=stop_after_s,
        unavailable=absent,
    )


def _workloads(request: SuiteRequest) -> tuple[list[tuple[WorkloadSpec, Workload]], list[str]]:
    """Return each workload in each mode that it has, and those that it has not."""
    modes = words(request.modes)
    all_modes = ("inference", "training")
    if not modes:
        raise BadInputError("--modes is empty", f"give one or both of: {','.join(all_modes)}")
    for mode in modes:
        if mode not in all_modes:
            raise unknown_name("mode", mode, all_modes)
    requested_names = words(request.workloads)
    if not requested_names:
        raise BadInputError("--workloads is empty", f"name some, or '{ALL}'")
    named = dict.fromkeys(name for word in requested_names for name in (workloads.names() if word == ALL else [word]))
    named_workloads, absent = [], []
    for word in named:
        for mode in modes:
            spec = WorkloadSpec(words=(word,), mode=mode, framework=request.framework, device=request.device)
            try:
                named_workloads.append((spec, find_workload(spec)[1]))
            except NoModeError as error:
                absent.append(error.message)
    if not named_workloads:
        raise BadInputError(f"nothing to run: {'; '.join(absent)}", "choose another mode or workload")
    return named_workloads, absent


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


def _matches_request(
    stored: Attributes,
    request: SuiteRequest,
    machine: Machine,
    device: Device,
    space: SpaceFile,
    environment: Mapping[str, str],
) -> bool:
    """Return whether a study, by its attributes, was asked for as this suite does, on this host, and has its finals."""
    subject = stored.subject
    return (
        stored.finals is not None
        and stored.objective is Objective.THROUGHPUT
        and not stored.limits
        and not stored.pins
        and stored.numerics in (None, KEEP)
        and not stored.batch_sizes
        and stored.seed == request.seed
        and host_of(subject.machine) == host_of(machine)
        and subject.is_on(device)
        and subject.space_digest in (UNSET, space.digest)
        and subject.space == space.name
        and subject.environment in (UNSET, environment)
    )


def _is_of(subject: Subject, case: Case, quota_here: float | None) -> bool:
    """Return whether a study is of that case, by what it is of; `quota_here` is that of this process."""
    study_machine, workload = subject.machine, subject.workload
    quotas = [quota for quota in (case.shape.quota, quota_here) if quota is not None]
    return (
        study_machine.affinity == case.shape.affinity
        and _same_quota(study_machine.cpu_quota, min(quotas, default=None))
        and workload.fingerprint == case.workload.fingerprint
        and workload.mode == case.workload.mode
        and workload.execution is case.workload.execution
        and subject.runtime["id"] == case.build.id
    )


def _same_quota(a: float | None, b: float | None) -> bool:
    """Return whether two quotas are one; the kernel keeps whole microseconds of a period."""
    return a == b if a is None or b is None else abs(a - b) < 2 / PERIOD_US


def run(
    suite: Suite, *, on_start: Callable[[int, float], None], on_end: Callable[[FinishedCase, float], None]
) -> list[FinishedCase]:
    """Run what is missing, one after another; the callbacks are given about how long (s) all will yet take.

    A case that fails is kept as one; the others continue. Ends early where it is interrupted, or its time is over.
    """
    countdown = Countdown(total_s=suite.stop_after_s)
    done: list[FinishedCase] = []
    for number in suite.missing:
        left = len(suite.missing) - len(done)
        on_start(number, left * _typical_s(suite, done))
        result = _run(suite, number)
        done.append(result)
        on_end(result, (left - 1) * _typical_s(suite, done))
        if result.interrupted or countdown.is_over:
            break
    return done


def _typical_s(suite: Suite, done: Sequence[FinishedCase]) -> float:
    """Return how long a case takes: as those that are done, or its budget."""
    durations_s = [each.wall_s for each in done if each.study is not None]
    return sum(durations_s) / len(durations_s) if durations_s else suite.budget_s


def _run(suite: Suite, number: int) -> FinishedCase:
    """Run one search, confined to its shape."""
    case, began_s = suite.cases[number], time.monotonic()
    try:
        with confined(case.shape) as enter:
            ended = run_search(search_request(case, suite.request), enter=enter)
    except (BadInputError, OSError, subprocess.SubprocessError, ValueError) as error:
        # The failure belongs to this case; the next one may still run.
        ended = EndedSearch(failure=str(error))
    return FinishedCase(
        number=number,
        wall_s=time.monotonic() - began_s,
        study=ended.study,
        failure=ended.failure,
        interrupted=ended.interrupted,
    )


def search_request(case: Case, request: SuiteRequest) -> SearchRequest:
    """Return the request of the search of a case."""
    return SearchRequest(
        workload=case.spec,
        python=str(case.python),
        time_budget=request.time_budget,
        seed=request.seed,
        storage=request.storage,
        trial_timeout=request.trial_timeout,
        space=request.space,
        objective=Objective.THROUGHPUT.value,  # alone
        # Rules are of the threads of one process, and what they are learned from is not to depend on what is predicted.
        instances=False,
        predict=False,
        wait=True,
    )
