"""What the runtime costs a workload beside its operators: each execution at each batch size, in pairs and traced."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from tuner.devices.device import Device
from tuner.devices.registry import DEFAULT as CPU
from tuner.errors import BadInputError, unknown_name
from tuner.frameworks.framework import Framework
from tuner.identity import digest
from tuner.job.events import TaskEvents
from tuner.job.job import Job, feasible, prepare, tell_outputs
from tuner.job.parsed import parse_request
from tuner.job.request import OverheadRequest
from tuner.machine.locks import machine_lock
from tuner.measure.budget import Countdown
from tuner.measure.interruption import step_s
from tuner.measure.objective import Objective
from tuner.measure.pair import ReferenceLost, log_ratios, run_pair
from tuner.measure.passes import Live
from tuner.model.graph import Features
from tuner.model.overhead import Overhead, Row, overhead_of
from tuner.paths import cache_dir, file_stem, write_whole
from tuner.quantity import duration_text, ms_text, percent
from tuner.result.model import OverheadResult, OverheadRow, describe_overhead
from tuner.space.groups import parse_sizes
from tuner.stats.estimate import estimate
from tuner.trial.forking import ForkLauncher
from tuner.trial.fresh import FreshLauncher
from tuner.trial.launcher import Launcher
from tuner.trial.outcome import Status, TrialFailure
from tuner.trial.process import ChildProcess
from tuner.workload.feed import made_otherwise
from tuner.workload.workload import Execution, Workload

_FOLDER = "overheads"
_TRACED_S, _MOST_STEPS = 0.5, 25  # of a block with the profiler
_ROUNDS, _LONG_STEP_S = 2, 1.0  # of blocks, and one of a step that is longer
_SLICE_S, _N_SLICES = 0.5, 3  # of a process that is compared with none; a stall in one is not the median
_MIN_PASSES, _MAX_PASSES, _MAX_PAIR_S = 2, 6, 8.0
_STEPS_A_ROW, _WARM_UP_S = 20, 3.0  # where a step is long: to become warm, two blocks of a pair, and those of the trace


def measure_overhead(request: OverheadRequest, events: TaskEvents) -> OverheadResult:
    """Measure what the runtime costs; raises BadInputError for what cannot be looked into, before it measures.

    The result is kept in the cache, for searches of the same workload to tell of.
    """
    sizes = parse_sizes(request.batches, "--batch-size")
    prepared = _jobs(request, sizes, events)
    rows: list[Row] = []
    interrupted = False
    with machine_lock(wait=request.wait, on_wait=events.waiting), ExitStack() as processes:
        jobs = _exported(prepared, events, named=bool(request.executions))
        sizes = [size for size in sizes if size in next(iter(jobs.values())).space.domains["batch_size"]]
        starts = {each: partial(launch_traced, job, job.launcher(), processes) for each, job in jobs.items()}
        live: dict[Execution, Resized | None] = dict.fromkeys(jobs)
        job = next(iter(jobs.values()))
        countdown = Countdown(total_s=job.budget.time_s)
        try:
            for batch_size in sizes:
                for row in _measure(job, starts, live, batch_size, countdown, events, owes=not rows):
                    rows.append(row)
                    events.notice(f"  {_said(row)}")
        except KeyboardInterrupt:
            if not rows:
                raise
            interrupted = True
            events.notice("interrupted: these are the measurements until now")
    _check_any(rows)
    tell_outputs(job.seen_outputs, job.seen.not_finite, events.notice)
    result = describe_overhead(
        rows,
        job.subject,
        device=job.device.name,
        executions=list(jobs),
        interrupted=interrupted,
        pinned=next((each.seen.pinned for each in jobs.values() if each.seen.pinned), ""),
    )
    _keep(result, job)
    return result


def _said(row: Row) -> str:
    """Return what people are told of a row."""
    if row.overhead is None:
        return f"{row.status}: {row.message}"
    exposed, step = percent(row.overhead.exposed.estimate, 0), ms_text(1000 * (row.step_s or 0.0))
    return f"exposed overhead {exposed}, of a step of {step} ms"


def _check_any(rows: Sequence[Row]) -> None:
    """Raise BadInputError where nothing could be measured, with the reason of the first row."""
    if all(row.overhead is None for row in rows):
        first = rows[0]
        hint = advice(first.status, first.hint, smaller="smaller batches (--batch-size 1..8)")
        raise BadInputError(f"no step could be looked into: {first.message}", hint)


def _keep(result: OverheadResult, job: Job) -> None:
    """Keep a result in the cache if there is one, with the rows of an earlier one that it has not measured."""
    measured = {(row.execution, row.batch_size) for row in result.rows}
    earlier = _kept(job)
    others = () if earlier is None else earlier.rows
    kept = (*result.rows, *(row for row in others if (row.execution, row.batch_size) not in measured))
    with contextlib.suppress(OSError):
        write_whole(_path(job), msgspec.json.encode(msgspec.structs.replace(result, rows=kept)))


def _kept(job: Job) -> OverheadResult | None:
    """Return what the cache has of a job."""
    try:
        return msgspec.json.decode(_path(job).read_bytes(), type=OverheadResult)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def known_overhead(job: Job, rows: Sequence[OverheadRow]) -> OverheadRow | None:
    """Return of the rows of a job's workload that of its execution at its own batch size; None where there is none."""
    wanted = (job.workload.execution, job.space.reference.batch_size)
    known = (row for row in rows if row.exposed_overhead is not None)
    return next((row for row in known if (row.execution, row.batch_size) == wanted), None)


def known_overheads(job: Job) -> Sequence[OverheadRow]:
    """Return all rows that were measured of a job's workload, as they were measured last."""
    result = _kept(job)
    return () if result is None else result.rows


def with_overhead(features: Features | None, row: OverheadRow | None) -> Features | None:
    """Return what is known of a workload's graph, with the overhead of the default where it was measured."""
    return features if features is None or row is None else replace(features, exposed_overhead=row.exposed_overhead)


def _path(job: Job) -> Path:
    """Return the file of the cache for a workload, on this build, machine and device."""
    subject = job.subject
    where = [*job.device.identity(), job.feed]
    key = [subject.machine.id, subject.runtime["id"], subject.workload.fingerprint, job.environment, *where]
    key += made_otherwise(subject.workload.fed)
    return cache_dir() / _FOLDER / f"{file_stem(job.workload.name)}-{digest(key)}.json"


def _jobs(request: OverheadRequest, sizes: Sequence[int], events: TaskEvents) -> dict[Execution, Job]:
    """Return the job of each execution; one that was not asked for by name is left out where it does not go."""
    words = request.executions.split(",") if isinstance(request.executions, str) else request.executions
    named = [_execution(name.strip()) for name in words]
    batch_size = ",".join(map(str, sizes))
    jobs: dict[Execution, Job] = {}
    for execution in Execution:  # the graph first
        if named and execution not in named:
            continue
        workload = replace(request.workload, execution=execution.value)
        try:
            checked = parse_request(replace(request, workload=workload, batch_size=batch_size), stores=False)
        except BadInputError as error:
            if named or not jobs:  # whatever has a graph has no other fault
                raise
            _leave_out(error, events)
            continue
        check_inside(checked.workload, checked.framework)
        jobs[execution] = prepare(checked)
    first = next(iter(jobs.values()))
    first.tell_notes(events.notice)
    first.device.check_idle()
    return jobs


def _exported(jobs: dict[Execution, Job], events: TaskEvents, *, named: bool) -> dict[Execution, Job]:
    """Return those jobs whose model can be exported, with the batch sizes that it leaves possible.

    Raises BadInputError where none can, or one that was named.
    """
    exported: dict[Execution, Job] = {}
    refusal: BadInputError | None = None
    for execution, job in jobs.items():
        try:
            job.export(notify=events.notice)
            possible = feasible(job, notify=(lambda _: None) if exported else events.notice)
        except BadInputError as error:
            if named:
                raise
            refusal = error
            _leave_out(error, events)
        else:
            exported[execution] = possible
    if refusal is not None and not exported:
        raise refusal
    return exported


def _leave_out(error: BadInputError, events: TaskEvents) -> None:
    events.notice(f"left out: {error.message}; {error.hint}" if error.hint else f"left out: {error.message}")


def _execution(name: str) -> Execution:
    try:
        return Execution(name)
    except ValueError:
        raise unknown_name("execution", name, list(Execution)) from None


@dataclass(slots=True, kw_only=True)
class Resized(Live):
    """A process that can be looked into, with the batch size that it has; it is live once it was asked to be `at` one.

    Each other batch size is a warm-up more.
    """

    process: ChildProcess
    usual_s: list[float] = field(default_factory=list)
    batch_size: int

    def at(self, batch_size: int) -> Resized:
        """Return it, warm at a batch size and paused; raises TrialFailure."""
        if not self.usual_s:
            self.usual_s = [self.process.ready().step_s]
            self.process.pause()
        if batch_size != self.batch_size:
            self.resize(batch_size)
            self.batch_size = batch_size
        return self


def launch_traced(
    job: Job, launcher: Launcher, processes: ExitStack, *, batch_size: int, threads: int | None = None
) -> Resized:
    """Start a process of the default, or of that with so many threads; `processes` ends it."""
    assert isinstance(launcher, FreshLauncher | ForkLauncher)  # it is no command
    reference = job.space.reference
    known = reference.to_dict()
    values = {} if threads is None else job.framework.threads_on(threads)
    setting = reference.with_values(**{name: n for name, n in values.items() if name in known}, batch_size=batch_size)
    process = launcher.launch_one(setting, job.space.catalogue.deploy(setting.to_dict()))
    return Resized(process=processes.enter_context(closing(process)), batch_size=batch_size)


def _measure(
    job: Job,
    starts: Mapping[Execution, Callable[..., Resized]],
    live: dict[Execution, Resized | None],
    batch_size: int,
    countdown: Countdown,
    events: TaskEvents,
    *,
    owes: bool,
) -> Iterator[Row]:
    """Yield a row for each execution that is `live`; one that fails, or that has no time left, is so no more.

    Those that are owed are measured whatever they take. The first execution is the reference. A process starts when it
    is its turn; `starts` starts it at a batch size.
    """
    reference = next(iter(starts))
    for execution, own in list(live.items()):
        known_s = 0.0 if own is None else own.step_s * batch_size / own.batch_size
        # Those that are owed are measured although they take more time than is left, but not once it is over.
        is_short = countdown.is_over or (not owes and countdown.is_short_of(_WARM_UP_S + _STEPS_A_ROW * known_s))
        if is_short and not (owes and execution is reference):
            _end(live, execution)
            events.notice(f"{execution}: stopped before batch size {batch_size}, which takes more time than is left")
            continue
        events.progress(f"{execution}, batch size {batch_size}; {duration_text(countdown.left_s())} left")
        try:
            own = live[execution] = own or starts[execution](batch_size=batch_size)
            own.at(batch_size)
            try:
                yield _row(execution, own, live.get(reference), job)
            except ReferenceLost as lost:
                _end(live, reference)
                events.notice(f"{reference} died, and later rows have no ratio: {lost.failure.message}")
                yield _row(execution, own, None, job)
        except TrialFailure as failure:
            _end(live, execution)
            yield Row(
                execution=execution,
                batch_size=batch_size,
                status=failure.status,
                message=failure.message,
                hint=failure.hint,
            )


def _end(live: dict[Execution, Resized | None], execution: Execution) -> None:
    """End the process of an execution if it has one; it is live no more."""
    if (own := live.pop(execution)) is not None:
        own.process.close()


def _row(execution: Execution, own: Resized, reference: Resized | None, job: Job) -> Row:
    """Return what is measured of a process, in turns with the reference where that is another.

    Raises TrialFailure, or ReferenceLost.
    """
    over = None
    if reference is None or reference is own:
        own.usual_s = [median(map(step_s, own.run_alone(_N_SLICES, _SLICE_S)))]
    else:
        reference_s = reference.step_s
        pair = run_pair(
            reference,
            own,
            enough=lambda pair: pair.is_long(_MAX_PAIR_S),
            min_passes=_MIN_PASSES,
            max_passes=_MAX_PASSES,
        )
        over = estimate(log_ratios(pair, Objective.THROUGHPUT, batch_sizes=(own.batch_size, own.batch_size)))
        # As if all had been timed at once.
        reference.usual_s, own.usual_s = [reference_s], [reference_s * math.exp(-over.mean)]
    own.process.resume()
    overhead = traced_overhead(own.process, own.step_s, job)
    own.process.pause()
    if execution is Execution.XLA and not overhead.operators:
        # As in TensorFlow 2.14: what cannot be seen is no overhead.
        unseen = "the profiler of this TensorFlow shows no operators of a program that XLA compiled"
        raise TrialFailure(Status.FAILED, unseen, hint="look at --execution graph,eager")
    return Row(execution=execution, batch_size=own.batch_size, step_s=own.step_s, over=over, overhead=overhead)


def traced_overhead(process: ChildProcess, step_s: float, job: Job, *, n_rounds: int = _ROUNDS) -> Overhead:
    """Return the overhead of steps of a process that is warm, which take about `step_s` each; raises TrialFailure.

    Blocks with the profiler and without take turns, in `n_rounds`, and in one where steps are long. Raises
    BadInputError where nothing of a GPU is in them.
    """
    n_steps = min(_MOST_STEPS, max(1, round(_TRACED_S / step_s)))
    told = process.timeline(n_steps, 1 if step_s > _LONG_STEP_S else n_rounds)
    return overhead_told(told, job.framework, job.device)


def overhead_told(told: Mapping[str, Any], framework: Framework, device: Device) -> Overhead:
    """Return the overhead of the steps that a child tells of; raises BadInputError where nothing of a GPU is in it."""
    on_gpu = device.kind != CPU
    blocks = framework.steps_of(told, on_gpu=on_gpu)
    if on_gpu and not any(step.operators_s for block in blocks for step in block):
        raise BadInputError(
            f"{framework.title}'s profiler saw no kernel on the GPU",
            ": ".join(filter(None, ("see whether this user may profile it", device.profiling))),
        )
    return overhead_of(blocks, plain_s=told["plain_s"], traced_s=told["traced_s"])


def check_inside(workload: Workload, framework: Framework) -> None:
    """Raise BadInputError for a workload whose steps cannot be looked into: few frameworks tell of their own."""
    if workload.command is not None:
        raise BadInputError("commands cannot be traced", "give a model")
    if not framework.tells_steps:
        raise BadInputError(f"{framework.title} shows none of its operators", "use --framework tensorflow")
    if workload.members:
        raise BadInputError("an ensemble has several models", "give them one by one")
    if workload.rate is not None:
        raise BadInputError("steps are looked into without requests", "leave the rate out")


def advice(status: Status, hint: str | None, *, smaller: str) -> str:
    """Return what to do where a step could not be looked into; `smaller` says how a smaller batch is asked for."""
    slow = f"give it more time (--trial-timeout 10m), or {smaller}"
    return hint or (slow if status is Status.TIMEOUT else "see whether it runs at all: tftune search")
