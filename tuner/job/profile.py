"""Profile a workload: one process for each number of threads, doubling until no operator gains."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Protocol

from tuner.devices.registry import DEFAULT as CPU
from tuner.errors import BadInputError
from tuner.job.events import TaskEvents
from tuner.job.inside import advice, check_inside
from tuner.job.job import Job, prepare
from tuner.job.overhead import traced_overhead
from tuner.job.request import TRIAL_TIMEOUT, SearchRequest, parse_request
from tuner.machine.locks import machine_lock
from tuner.measure.interruption import step_s
from tuner.measure.objective import Objective
from tuner.measure.pair import PairPlan, ReferenceLost, log_ratios, measure_pair
from tuner.model.profile import Profile, Roof, Traced, is_worth_more, profile
from tuner.report.layout import plural
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import Slice, TrialFailure
from tuner.trial.process import ChildProcess
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Execution

_SLICE_S = 0.5  # of the process with one thread, at a batch size at which no other was timed in turns with it
_N_SLICES, _N_SLICES_ALONE = 1, 3  # the latter where no others are timed at all
_TRACED_S, _LEAST_STEPS, _MOST_STEPS = 1.0, 3, 50
_MAX_BLOCKS, _MAX_PAIR_S = 2, 8.0


class ProfileEvents(TaskEvents, Protocol):
    """What a profile tells."""

    def began(self, threads: int) -> None:
        """A process of so many threads begins."""

    def ended(self, traced: Traced) -> None:
        """It has told what its operators take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """The options of a profile as they were typed."""

    workload: WorkloadSpec
    batch_size: int | None = None
    python: str | None = None
    trial_timeout: str = TRIAL_TIMEOUT
    wait: bool = False


def profile_workload(request: ProfileRequest, events: ProfileEvents) -> tuple[Job, Profile]:
    """Measure what the operators of a workload take; raises BadInputError for one that has none to look at."""
    search = SearchRequest(
        workload=request.workload,
        batch_size=None if request.batch_size is None else str(request.batch_size),
        python=request.python,
        trial_timeout=request.trial_timeout,
    )
    job = prepare(parse_request(search, stores=False))
    check_profiled(job)
    batch_size = job.space.reference.batch_size
    with machine_lock(wait=request.wait, on_wait=events.waiting):
        return job, profile(trace(job, [batch_size], events=events)[batch_size])


def trace(
    job: Job,
    batch_sizes: Sequence[int],
    *,
    limit_s: float | None = None,
    events: ProfileEvents,
) -> dict[int, list[Traced]]:
    """Return what processes with one thread, two, four … tell at each batch size, the largest of these last.

    Their steps are timed in turns with those of a process with one thread, so that drift does not look like threads
    that help or do not; their operators are asked for afterwards, as a process is slower once that was done. How long
    a step takes with one thread is the median of all its slices. Raises BadInputError where not even one thread can be
    profiled. After `limit_s` no more threads are tried. The lock of the machine has to be held.
    """
    sizes = sorted(batch_sizes)
    largest = sizes[-1]
    rows: list[dict[int, Traced]] = []  # by batch size, for each number of threads
    launcher = job.launcher(notify=events.notice)
    assert isinstance(launcher, FreshLauncher)  # it is no command
    began_s = time.monotonic()
    counts = thread_counts(job.machine.usable_cpus)
    with ExitStack() as live:
        launch = partial(_launch, job, launcher, live, batch_size=largest)
        events.began(counts[0])
        begun = _begun_together(launch, counts, batch_size=largest)
        clock = _Clock(begun.clock, sizes)
        times = _first_times(begun, clock, n_slices=_N_SLICES if len(counts) > 1 else _N_SLICES_ALONE)
        for threads in counts:
            is_late = limit_s is not None and time.monotonic() - began_s > limit_s
            if not is_worth_more([row[largest] for row in rows]) or (rows and is_late):
                break
            if rows:
                events.began(threads)
            try:
                if threads in begun.failures:
                    raise begun.failures[threads]
                own = begun.others.get(threads) or _Resized(launch(threads), largest)
                if threads not in times:
                    times[threads] = clock.time(own)
                own.process.resume()
                if threads == counts[0]:
                    own.at(sizes[0])  # where what is exposed is looked at
                steps_s = {size: clock.step_s(size) * times[threads][size] for size in sizes}
                row = trace_sizes(own.process, threads, steps_s)
            except (TrialFailure, ReferenceLost) as error:
                why = error.failure if isinstance(error, ReferenceLost) else error
                if not rows:
                    raise _cannot(why) from error
                events.notice(f"no more than {plural(rows[-1][largest].threads, 'thread')}: {why.message}")
                break
            own.process.close()
            rows.append(row)
            events.ended(row[largest])
    return {
        size: [
            replace(row[size], step_s=clock.step_s(size) * times[threads][size])
            for threads, row in zip(counts, rows, strict=False)
        ]
        for size in sizes
    }


class _Resized:
    """A process that is ready, with the batch size that it has: each other one is a warm-up more."""

    def __init__(self, process: ChildProcess, batch_size: int) -> None:
        """Take a process that was launched with a batch size; raises TrialFailure."""
        self.process, self._batch_size = process, batch_size
        process.ready()

    def at(self, batch_size: int) -> ChildProcess:
        """Return the process, warm at a batch size; raises TrialFailure."""
        if batch_size != self._batch_size:
            self.process.set_batch_size(batch_size)
            self._batch_size = batch_size
        return self.process


@dataclass(frozen=True, slots=True)
class _Begun:
    """Processes that are ready, and paused: the one with one thread that others are timed with, and those others.

    They are told apart by how many threads they have, and so are `failures`: for what memory does not hold beside it.
    """

    clock: _Resized
    others: dict[int, _Resized]
    failures: dict[int, TrialFailure]


def _begun_together(launch: Callable[[int], ChildProcess], counts: Sequence[int], *, batch_size: int) -> _Begun:
    """Return the first processes. To begin takes a process seconds and one CPU, so they do so together.

    Where two numbers of threads are tried at most, the one that others are timed with has its operators asked for, too,
    at last; where more are, that is another one. Raises BadInputError where not even one thread can be profiled.
    """
    wanted = [*(counts[:1] if len(counts) > 2 else ()), *counts[1:2]]
    failures: dict[int, TrialFailure] = {}
    while True:
        processes = [launch(threads) for threads in (counts[0], *wanted)]
        try:
            clock, *others = (_Resized(process, batch_size) for process in processes)
            for each in (clock, *others):
                each.process.pause()
        except TrialFailure as failure:
            for process in processes:
                process.close()
            if not wanted:
                raise _cannot(failure) from failure
            if len(wanted) == 1:
                failures[counts[1]] = failure
            wanted.pop()
        else:
            return _Begun(clock, {counts[0]: clock} | dict(zip(wanted, others, strict=True)), failures)


def _first_times(begun: _Begun, clock: _Clock, *, n_slices: int) -> dict[int, dict[int, float]]:
    """Return how many times as long steps of the first processes take as with one thread, by threads and batch size.

    That is before any is asked for its operators. Of the clock itself there are so many slices at least at each batch
    size. Raises BadInputError where it fails.
    """
    times = {1: dict.fromkeys(clock.batch_sizes, 1.0)}
    try:
        for threads, other in begun.others.items():
            if threads > 1:
                try:
                    times[threads] = clock.time(other)
                    other.process.pause()
                except TrialFailure as failure:
                    begun.failures[threads] = failure
        clock.fill(n_slices=n_slices)
    except TrialFailure as failure:
        raise _cannot(failure) from failure
    except ReferenceLost as lost:
        raise _cannot(lost.failure) from lost
    return times


class _Clock:
    """A process with one thread that others are timed in turns with."""

    def __init__(self, resized: _Resized, batch_sizes: Sequence[int]) -> None:
        """Take a paused process at the largest of some batch sizes."""
        self._resized = resized
        self.batch_sizes = sorted(batch_sizes, reverse=True)
        self._slices: dict[int, list[Slice]] = {size: [] for size in self.batch_sizes}

    def fill(self, *, n_slices: int) -> None:
        """Time so many slices of its own at each batch size at which there are none; raises TrialFailure."""
        self._resized.process.resume()
        for size, slices in self._slices.items():
            if not slices:
                slices += [self._resized.at(size).slice(_SLICE_S) for _ in range(n_slices)]
        self._resized.process.pause()

    def step_s(self, batch_size: int) -> float:
        """Return how long its own step takes (s) at a batch size: the median of all slices."""
        return median(map(step_s, self._slices[batch_size]))

    def time(self, other: _Resized) -> dict[int, float]:
        """Return how many times as long a step of another takes at each batch size, in turns with its own.

        Raises TrialFailure, or ReferenceLost where this one failed.
        """
        own = self._resized.process
        times: dict[int, float] = {}
        for batch_size in self._slices:
            other.at(batch_size).pause()
            try:
                own.resume()
                self._resized.at(batch_size).pause()
            except TrialFailure as failure:
                raise ReferenceLost(failure) from failure
            plan = PairPlan(max_blocks=_MAX_BLOCKS)
            pair = measure_pair(own, other.process, plan, enough=lambda pair: pair.is_long(_MAX_PAIR_S))
            self._slices[batch_size] += pair.reference
            ratios = log_ratios(pair, Objective.THROUGHPUT, batch_sizes=(batch_size, batch_size))
            times[batch_size] = math.exp(-float(ratios.mean()))
            other.process.resume()
        return times


def _launch(job: Job, launcher: FreshLauncher, live: ExitStack, threads: int, *, batch_size: int) -> ChildProcess:
    """Start a process of so many threads that runs one operator at a time; it ends with `live`."""
    reference = job.space.reference
    known = reference.to_dict()
    values = {name: n for name, n in job.framework.threads_on(threads).items() if name in known}
    setting = reference.with_values(**values, batch_size=batch_size)
    process = launcher.launch_one(setting, job.space.catalogue.deploy(setting.to_dict()))
    return live.enter_context(closing(process))


def thread_counts(usable_cpus: int) -> list[int]:
    """Return how many threads are tried: doubling, and all CPUs that the process may use."""
    doubled = [1 << i for i in range(max(1, usable_cpus).bit_length())]
    return sorted({*doubled, max(1, usable_cpus)})


def _cannot(failure: TrialFailure) -> BadInputError:
    hint = advice(failure.status, failure.hint, smaller="a smaller --batch-size")
    return BadInputError(f"a step cannot be profiled: {failure.message}", hint, log=failure.log[-2000:])


def check_profiled(job: Job) -> None:
    """Raise BadInputError for a job that has no operators to look at."""
    check_inside(job.workload, job.framework)
    if job.device.kind != CPU:
        raise BadInputError(f"operators are profiled on the CPU only, found --device {job.device.name}", "leave it out")
    if job.workload.execution is not Execution.GRAPH:
        raise BadInputError(f"--execution {job.workload.execution} has no graph of operators", "use --execution graph")


def trace_sizes(process: ChildProcess, threads: int, steps_s: Mapping[int, float]) -> dict[int, Traced]:
    """Return what a process tells of its operators at each batch size, ascending, by how long a step takes there (s).

    With one thread it has the smallest. Raises TrialFailure.
    """
    row = {size: _trace_steps(process, threads, size, known_s) for size, known_s in steps_s.items()}
    if threads == 1:  # at last, as a process whose profiler fails has ended
        smallest = next(iter(row))
        row[smallest] = _with_exposed(row[smallest], process)
    return row


def _trace_steps(process: ChildProcess, threads: int, batch_size: int, known_s: float) -> Traced:
    """Return what a process tells of its operators at a batch size, where a step takes `known_s` (s).

    Raises TrialFailure.
    """
    n_steps = min(_MOST_STEPS, max(_LEAST_STEPS, round(_TRACED_S / known_s)))
    told = process.operators(n_steps, batch_size)
    return Traced(
        threads=threads,
        step_s=known_s,
        plain_s=median(told["plain_s"]),
        traced_s=median(told["steps_s"]),
        busy_s=median(told["busy_s"]),
        roof=Roof(**told["roof"]),
        nodes=told["nodes"],
    )


def _with_exposed(traced: Traced, process: ChildProcess) -> Traced:
    """Return what a process told with the exposed overhead of its steps at the same batch size.

    The smallest batch size shows it best. Where the profiler keeps no whole step, it stays unknown.
    """
    try:
        overhead = traced_overhead(process, traced.step_s, on_gpu=False, n_rounds=1)
    except TrialFailure:
        return traced
    return replace(traced, exposed=overhead.exposed.estimate)
