"""Profile a workload: processes with one thread, two, all, and numbers between, while operators gain by them.

A quick profile is of two processes alone. What each is asked of its operators is at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from tuner.devices.registry import DEFAULT as CPU
from tuner.errors import BadInputError, TunerError
from tuner.job.events import ProfileEvents
from tuner.job.job import Job, feasible, prepare, tell_outputs
from tuner.job.overhead import Resized, advice, check_inside, launch_traced, traced_overhead
from tuner.job.parsed import ParsedRequest, parse_request
from tuner.job.request import ProfileRequest, SearchRequest
from tuner.machine.locks import machine_lock
from tuner.measure.budget import Countdown
from tuner.measure.interruption import step_s
from tuner.measure.objective import Objective
from tuner.measure.pair import ReferenceLost, log_ratios, run_pair
from tuner.model.profile import Roof, Traced, is_worth_more, profile
from tuner.quantity import plural
from tuner.result.model import ProfileResult, describe_profile
from tuner.trial.forking import ForkLauncher
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import Slice, Status, TrialFailure
from tuner.trial.process import ChildProcess
from tuner.workload.workload import Execution

_N_SLICES = 3  # of the process with one thread, where no other was timed in turns with it
# Steps of a few milliseconds differ by a tenth from process to process, by the memory and the CPUs that each happens to
# get, and the machine may be disturbed. So many more pairs of processes are timed, none after so long (s).
_N_REPEATS, _REPEATS_UNTIL_S = 2, 40.0
_BETWEEN_UNTIL_S = 60.0  # no count between two threads and all is begun after so long (s)
_SLICE_S = 0.5
_MAX_PASSES, _MAX_PAIR_S = 2, 8.0


class Clock:
    """A process with one thread that others are timed in turns with."""

    def __init__(self, resized: Resized, batch_sizes: Sequence[int]) -> None:
        """Take a process at the largest of some batch sizes."""
        self._resized = resized
        self.batch_sizes = sorted(batch_sizes, reverse=True)
        self._slices: dict[int, list[Slice]] = {size: [] for size in self.batch_sizes}

    def fill(self, *, n_slices: int) -> None:
        """Time so many slices of its own at each batch size at which there are none; raises TrialFailure."""
        for size in self.batch_sizes:
            if not self._slices[size]:
                self._slices[size] += self._resized.at(size).run_alone(n_slices, _SLICE_S)

    def step_s(self, batch_size: int) -> float:
        """Return how long its own step takes (s) at a batch size: the median of all slices."""
        return median(map(step_s, self._slices[batch_size]))

    def time(self, other: Resized, is_late: Callable[[], bool], *, max_passes: int = _MAX_PASSES) -> dict[int, float]:
        """Return how many times as long a step of another takes at each batch size, in turns with its own.

        Batch sizes for which there is no time are left out. Raises TrialFailure, or ReferenceLost where its own process
        failed.
        """
        times: dict[int, float] = {}
        for batch_size in self.batch_sizes:
            if is_late():
                break
            other.at(batch_size)
            try:
                own = self._resized.at(batch_size)
            except TrialFailure as failure:
                raise ReferenceLost(failure) from failure
            pair = run_pair(own, other, enough=lambda pair: pair.is_long(_MAX_PAIR_S), max_passes=max_passes)
            self._slices[batch_size] += pair.reference
            ratios = log_ratios(pair, Objective.THROUGHPUT, batch_sizes=(batch_size, batch_size))
            times[batch_size] = math.exp(-float(ratios.mean()))
        return times


_Begun = tuple[Resized, dict[int, Resized], TrialFailure | None]


def profile_workload(request: ProfileRequest, events: ProfileEvents) -> ProfileResult:
    """Measure what the operators of a workload take; raises BadInputError for one that has none to look at."""
    search = SearchRequest(
        workload=request.workload,
        batch_size=None if request.batch_size is None else str(request.batch_size),
        python=request.python,
        trial_timeout=request.trial_timeout,
    )
    job = feasible(prepare(parse_request(search, stores=False)), notify=events.notice)
    job.tell_notes(events.notice)
    check_profiled(job)
    batch_size = job.space.reference.batch_size
    with machine_lock(wait=request.wait, on_wait=events.waiting):
        traced = trace(job, [batch_size], events=events)[batch_size]
        tell_outputs(job.seen_outputs, job.seen.not_finite, events.notice)
    measured = profile(traced, has_quota=job.machine.cpu_quota is not None)
    return describe_profile(measured, job.subject, batch_size=batch_size, pinned=job.seen.pinned)


def trace(
    job: Job,
    batch_sizes: Sequence[int],
    *,
    limit_s: float | None = None,
    events: ProfileEvents,
) -> dict[int, list[Traced]]:
    """Return what processes with one thread, two, all, and four, eight … tell at each batch size, the largest last.

    Their steps are timed in turns with those of a process with one thread, the clock, so that drift does not look like
    threads that help or do not; their operators are asked for afterwards, as a process is slower once that was done.
    How long a step takes with one thread is the median of all slices of the clock. Where there is time, steps with one
    thread and with two are timed in other processes too, and the median of the processes counts. Two threads come
    first, so that the clock's own operators can be asked for where no others are timed any more. All threads come next:
    what lies between is then known within some ten percent, where four threads and eight say little of sixteen. More
    than two are tried only where the doubling before made operators faster. Raises BadInputError where not even one
    thread can be profiled. After `limit_s` no more threads are tried. The lock of the machine has to be held.
    """
    sizes = sorted(batch_sizes)
    launcher = job.launcher(notify=events.notice)
    countdown = Countdown(total_s=limit_s)
    one, *more = thread_counts(job.machine.usable_cpus)
    with ExitStack() as live:
        launch = partial(launch_traced, job, launcher, live, batch_size=sizes[-1])
        events.began(more[0] if more else one)
        clock, begun, failure = _begun_together(launch, [one, *more], sizes[-1])
        climb = _Climb(
            job,
            clock=Clock(clock, sizes),
            start=lambda threads: begun.get(threads) or launch(threads=threads),
            is_late=lambda: countdown.is_over,
            events=events,
        )
        if failure is not None:
            climb.ends(failure)
        elif more:
            climb.add(more[0])
        if more:
            events.began(one)
        climb.add_one(None if climb.goes_on and more[1:] else clock)
        for threads in _after_two(more):
            fewer = [row[sizes[-1]] for row in climb.rows() if row[sizes[-1]].threads < threads]
            is_late = threads < more[-1] and countdown.elapsed_s() > _BETWEEN_UNTIL_S
            if not climb.goes_on or is_late or not is_worth_more(fewer):
                break
            events.began(threads)
            climb.add(threads, may_fail=len(more) > 2 and threads == more[-1])
        for process in begun.values():
            process.process.close()  # one that was not worth it, after all
        for _ in range(_N_REPEATS if more else 0):
            if not climb.goes_on or countdown.elapsed_s() > _REPEATS_UNTIL_S:
                break
            events.repeats()
            climb.repeat(partial(_begun_together, launch, [one, more[0]], sizes[-1]), more[0])
    return {size: [row[size] for row in climb.rows()] for size in sizes}


def _after_two(more: Sequence[int]) -> list[int]:
    """Return what is tried after one thread and two, of all counts above one: the most, and then those between."""
    if len(more) < 2:
        return []
    _, *between, most = more
    return [most, *between]


class _Climb:
    """Processes with more and more threads: each is timed in turns with the clock, and then asked for its operators."""

    def __init__(
        self,
        job: Job,
        *,
        clock: Clock,
        start: Callable[[int], Resized],
        is_late: Callable[[], bool],
        events: ProfileEvents,
    ) -> None:
        """`start` starts a process of so many threads; `is_late` tells whether the time is over."""
        self._job, self._clock, self._start, self._is_late, self._events = job, clock, start, is_late, events
        self._rows: dict[int, dict[int, Traced]] = {}  # by threads and batch size
        self._times = {1: dict.fromkeys(clock.batch_sizes, 1.0)}  # as long as with one thread
        self._repeats: list[_Repeat] = []
        self._has_ended = False

    @property
    def goes_on(self) -> bool:
        """Return whether more threads may be tried: none has failed, and there is time."""
        return not self._has_ended and not self._is_late()

    def rows(self) -> list[dict[int, Traced]]:
        """Return what the processes told, by batch size, those of few threads first."""
        return [
            {size: replace(each, step_s=self._step_s(threads, size)) for size, each in row.items()}
            for threads, row in sorted(self._rows.items())
        ]

    def ends(self, failure: TrialFailure) -> None:
        """Say that no more threads are tried, and why."""
        self._has_ended = True
        self._events.notice(f"no more than {plural(max(self._rows, default=1), 'thread')}: {failure.message}")

    def add(self, threads: int, *, may_fail: bool = False) -> None:
        """Time and trace a process of so many threads, as far as there is time; see `goes_on`.

        Where that fails, no more are tried, unless it may.
        """
        try:
            process = self._start(threads)
            times = self._clock.time(process, self._is_late)
            if self._is_late():
                process.process.close()
                return
            self._times[threads] = times
            self._trace(process, threads)
        except TrialFailure as failure:
            if may_fail:
                self._events.notice(f"not with {plural(threads, 'thread')}: {failure.message}")
            else:
                self.ends(failure)
        except ReferenceLost as lost:
            self.ends(lost.failure)

    def add_one(self, clock: Resized | None) -> None:
        """Trace the clock, which times no others any more, or else another process with one thread.

        Raises BadInputError where that fails.
        """
        try:
            self._clock.fill(n_slices=1 if self._is_late() else _N_SLICES)
            process = clock or self._start(1)
            self._trace(process.at(min(self._clock.batch_sizes)), 1)  # where what is exposed is looked at
        except TrialFailure as failure:
            raise cannot(failure) from failure

    def repeat(self, begin: Callable[[], _Begun], threads: int) -> None:
        """Time the steps of two other processes, of one thread and of `threads`, which `begin` starts; they end.

        Where that fails, what is known already stands.
        """
        with ExitStack() as live:
            try:
                one, others, failure = begin()
                for each in (one, *others.values()):
                    live.callback(each.process.close)
                if failure is not None:
                    return
                clock = Clock(one, self._clock.batch_sizes)
                times = clock.time(others[threads], self._is_late, max_passes=1)
            except (BadInputError, TrialFailure, ReferenceLost):
                return
        self._repeats.append(_Repeat(clock=clock, threads=threads, times=times))

    def one_s(self, batch_size: int) -> float:
        """Return how long a step takes (s) with one thread: the median of processes."""
        clocks = [self._clock, *(each.clock for each in self._repeats if batch_size in each.times)]
        return median(each.step_s(batch_size) for each in clocks)

    def _trace(self, process: Resized, threads: int) -> None:
        steps_s = {size: self._step_s(threads, size) for size in sorted(self._clock.batch_sizes)}
        process.process.resume()
        row = trace_sizes(self._job, process.process, threads, steps_s)
        process.process.close()
        self._rows[threads] = row
        self._events.ended(row[max(row)])

    def _step_s(self, threads: int, batch_size: int) -> float:
        times = [self._times[threads][batch_size]]
        times += [own.times[batch_size] for own in self._repeats if own.threads == threads and batch_size in own.times]
        return self.one_s(batch_size) * median(times)


def _begun_together(launch: Callable[..., Resized], counts: Sequence[int], batch_size: int) -> _Begun:
    """Return the clock and the first others by their threads, ready and paused, or why there are no others.

    To begin takes a process seconds and one CPU, so they do so together: the clock, one with two threads, and where
    more are tried, so that the clock goes on, one with one thread, and one with all. Raises BadInputError where the
    clock alone fails.
    """
    wanted = [*counts[1:2], *((counts[0], counts[-1]) if len(counts) > 2 else ())]
    failure: TrialFailure | None = None
    while True:
        clock, *others = launched = [launch(threads=threads) for threads in (counts[0], *wanted)]
        try:
            for each in launched:
                each.at(batch_size)
        except TrialFailure as caught:
            for each in launched:
                each.process.close()
            if not wanted:
                raise cannot(caught) from caught
            failure = caught
            # Memory may hold fewer; another failure of the clock itself comes again.
            wanted = wanted[:-1] if clock.usual_s or failure.status is Status.OOM else []
        else:
            return clock, dict(zip(wanted, others, strict=True)), None if wanted else failure


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repeat:
    """Two other processes: the clock, and how many times as long a step took with so many threads, by batch size."""

    clock: Clock
    threads: int
    times: Mapping[int, float]


def thread_counts(usable_cpus: int) -> list[int]:
    """Return how many threads are tried: doubling, and all CPUs that the process may use."""
    doubled = [1 << i for i in range(max(1, usable_cpus).bit_length())]
    return sorted({*doubled, max(1, usable_cpus)})


def check_profiled(asked: ParsedRequest) -> None:
    """Raise BadInputError for a request that has no operators to look at."""
    check_inside(asked.workload, asked.framework)
    if asked.device.kind != CPU:
        raise BadInputError(
            f"operators are profiled on the CPU only, found --device {asked.device.name}", "leave it out"
        )
    if asked.workload.execution is not Execution.GRAPH:
        raise BadInputError(
            f"--execution {asked.workload.execution} has no graph of operators", "use --execution graph"
        )


# ---- operators, one at a time ---------------------------------------------------------------------------------------

_TRACED_S, _LEAST_STEPS, _MOST_STEPS = 1.0, 3, 50
_QUICK_S = 0.25  # instead, of the quick profile
_N_STEPS = 4  # of the largest batch size that each of its processes takes once it is warm, at least


def cannot(failure: TrialFailure) -> BadInputError:
    """Return the error that says why steps cannot be profiled."""
    hint = advice(failure.status, failure.hint, smaller="a smaller --batch-size")
    return BadInputError(f"a step cannot be profiled: {failure.message}", hint, log=failure.evidence(2000))


def trace_sizes(job: Job, process: ChildProcess, threads: int, steps_s: Mapping[int, float]) -> dict[int, Traced]:
    """Return what a process tells of its operators at each batch size, ascending, by how long a step takes there (s).

    With one thread it has the smallest. Raises TrialFailure.
    """
    row = {}
    for size, known_s in steps_s.items():
        n_steps = min(_MOST_STEPS, max(_LEAST_STEPS, round(_TRACED_S / known_s)))
        row[size] = replace(trace_steps(process, threads, size, n_steps), step_s=known_s)
    if threads == 1:  # at last, as a process whose profiler fails has ended
        smallest = next(iter(row))
        row[smallest] = _with_exposed(row[smallest], process, job)
    return row


def trace_steps(process: ChildProcess, threads: int, batch_size: int, n_steps: int) -> Traced:
    """Return what a process tells of its operators in so many steps; a step takes as long as in its session.

    Raises TrialFailure.
    """
    told = process.operators(n_steps, batch_size)
    plain_s = median(told["plain_s"])
    return Traced(
        threads=threads,
        step_s=plain_s,
        plain_s=plain_s,
        traced_s=median(told["steps_s"]),
        busy_s=median(told["busy_s"]),
        roof=Roof(**told["roof"]),
        nodes=told["nodes"],
    )


def _with_exposed(traced: Traced, process: ChildProcess, job: Job) -> Traced:
    """Return what a process told with the exposed overhead of its steps at the same batch size.

    The smallest batch size shows it best. Where the profiler keeps no whole step, it stays unknown.
    """
    try:
        overhead = traced_overhead(process, traced.step_s, job, n_rounds=1)
    except TrialFailure:
        return traced
    return replace(traced, exposed=overhead.exposed.estimate)


def trace_quickly(
    job: Job,
    batch_sizes: Sequence[int],
    *,
    launcher: FreshLauncher | ForkLauncher,
    limit_s: float | None,
    events: ProfileEvents,
) -> dict[int, list[Traced]]:
    """Return what a process with one thread, and one with all, tell at each batch size: for a search to begin with.

    Two processes are forked as a search's are. They start and load at the same time, as that is mostly one thread each,
    and at the smallest batch size, where warm-up is short. Then one after the other tells of its operators, with
    nothing else running. A step counts as long as in its session: in the profiles of results/predictions that is 2 %
    from steps in turns in the median (4 % in those of another day), and 26 and 41 % where a neighbour disturbed one of
    the two.

    The model has to be exported, and the lock of the machine to be held. Raises BadInputError where a process fails or
    takes `limit_s` to start, and TunerError where all would take longer.
    """
    countdown = Countdown(total_s=limit_s)
    sizes = sorted(batch_sizes)
    counts = sorted({1, job.machine.usable_cpus})
    with ExitStack() as live:
        try:
            processes = {n: launch_traced(job, launcher, live, batch_size=sizes[0], threads=n).process for n in counts}
            one_item_s = {}
            for n, process in processes.items():
                process.deadline_s = min(process.deadline_s, limit_s or process.deadline_s)
                one_item_s[n] = process.ready().step_s / sizes[0]
            steps_s = _N_STEPS * sizes[-1] * sum(one_item_s.values())
            if countdown.is_short_of(steps_s):
                needed_s = countdown.elapsed_s() + steps_s
                raise TunerError(f"a quick profile would take {needed_s:.0f} s, more than a tenth of the time", "")
            for process in processes.values():
                process.start_operators(0, sizes[-1])
            for process in processes.values():
                process.end_operators()
                process.pause()
            told: dict[int, list[Traced]] = {size: [] for size in sizes}
            for n, process in processes.items():
                events.began(n)
                process.resume()
                for size in sizes:
                    n_steps = min(_MOST_STEPS, max(1, round(_QUICK_S / (one_item_s[n] * size))))
                    told[size].append(trace_steps(process, n, size, n_steps))
                events.ended(told[sizes[-1]][-1])
                process.close()
        except TrialFailure as failure:
            raise cannot(failure) from failure
    return told
