"""What the runtime costs beside the operators, as it is published, and what a search says of it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tuner.frameworks.framework import Part
from tuner.machine.host import Machine
from tuner.measure.warning import seen_warnings
from tuner.model.overhead import HIDDEN, Row, hiding_batch
from tuner.quantity import percent
from tuner.result.frameworks import RatioResult
from tuner.result.study import WarningResult
from tuner.study.subject import BuildFacts, Document, Subject, WorkloadFacts
from tuner.trial.outcome import Status
from tuner.workload.workload import Execution

_NOTABLE = 1.1  # how much faster another execution has to be to be spoken of


class OverheadRow(Struct, frozen=True, kw_only=True):
    """An execution at a batch size; what is not known is null.

    `exposed_overhead` is the share of a step in which no operator runs, with its interval of 95 %; `parts` are the
    shares of a step by where they go, their sum is 1. `operators` is how many run in a step, `operator_s` how long one
    lasts on average, `launch_ratio` the median of that over the median gap between two launches, `launch_s` from the
    launch of a kernel to its begin, on a GPU. `profiler_cost` is a step with the profiler over one without, and
    `clock_error` how far the traced steps are from what a clock around them says. `ratio` is the rate over that of the
    reference at the same batch size, and null of the reference itself. `status` is that of a trial.
    """

    execution: Execution
    batch_size: int
    status: Status
    message: str
    step_s: float | None
    per_item_s: float | None
    ratio: RatioResult | None
    exposed_overhead: float | None
    exposed_low: float | None
    exposed_high: float | None
    parts: dict[Part, float]
    operators: int | None
    operator_s: float | None
    launch_ratio: float | None
    launch_s: float | None
    profiler_cost: float | None
    clock_error: float | None

    @property
    def is_hidden(self) -> bool:
        """Return whether the overhead is known to be small."""
        return self.exposed_overhead is not None and self.exposed_overhead < HIDDEN

    @property
    def speed(self) -> float:
        """Return the rate over the reference's."""
        return 1.0 if self.ratio is None else self.ratio.speedup

    def is_faster(self, other: OverheadRow) -> bool:
        """Return whether the intervals of two rates over the reference's are apart, and this one's is above."""
        low = 1.0 if self.ratio is None else self.ratio.low
        high = 1.0 if other.ratio is None else other.ratio.high
        return low is not None and high is not None and low > high


class HidingResult(Struct, frozen=True, kw_only=True):
    """The smallest batch size that hides the overhead, and with either end of its interval; null where none does."""

    estimate: int | None
    low: int | None
    high: int | None


class OverheadResult(Document, frozen=True, kw_only=True):
    """What the runtime costs a workload: a row for each execution and batch size."""

    machine: Machine
    runtime: BuildFacts
    workload: WorkloadFacts
    device: str
    reference: Execution
    interrupted: bool
    rows: tuple[OverheadRow, ...]
    hiding_batch: dict[Execution, HidingResult]
    warnings: tuple[WarningResult, ...] = ()


def describe_overhead(
    rows: Sequence[Row],
    subject: Subject,
    *,
    device: str,
    executions: Sequence[Execution],
    interrupted: bool,
    pinned: str,
) -> OverheadResult:
    """Return what is published of what was measured; the first of the executions is the reference.

    `pinned` is how the workload has changed the CPUs of its processes, empty where it has not.
    """
    return OverheadResult(
        machine=subject.machine,
        runtime=subject.runtime,
        workload=subject.workload,
        device=device,
        reference=executions[0],
        interrupted=interrupted,
        rows=tuple(_row(each) for each in rows),
        hiding_batch={execution: _hiding(rows, execution) for execution in executions},
        warnings=tuple(map(WarningResult.of, seen_warnings(pinned))),
    )


def _row(row: Row) -> OverheadRow:
    own, over = row.overhead, row.over
    low, high = over.interval() if over is not None and over.df > 0 else (None, None)
    known = over is not None and low is not None and high is not None
    return OverheadRow(
        execution=row.execution,
        batch_size=row.batch_size,
        status=row.status,
        message=f"{row.message}; {row.hint}" if row.hint else row.message,
        step_s=row.step_s,
        per_item_s=None if row.step_s is None else row.step_s / row.batch_size,
        ratio=RatioResult(low=low, speedup=over.ratio, high=high) if known else None,  # type: ignore[arg-type, union-attr]
        exposed_overhead=own.exposed.estimate if own else None,
        exposed_low=own.exposed.low if own else None,
        exposed_high=own.exposed.high if own else None,
        parts=dict(own.shares) if own else {},
        operators=own.operators if own else None,
        operator_s=own.operator_s if own else None,
        launch_ratio=own.launch_ratio if own else None,
        launch_s=own.launch_s if own else None,
        profiler_cost=own.profiler_cost if own else None,
        clock_error=own.clock_error if own else None,
    )


def _hiding(rows: Sequence[Row], execution: Execution) -> HidingResult:
    own = [row for row in rows if row.execution is execution]
    hiding = hiding_batch([(row.batch_size, row.overhead.exposed) for row in own if row.overhead is not None])
    return HidingResult(estimate=hiding.estimate, low=hiding.low, high=hiding.high)


def search_line(row: OverheadRow, others: Sequence[OverheadRow]) -> str:
    """Return what a search says of the overhead at its batch size, and of what was measured to help.

    `others` are all rows of the same workload.
    """
    exposed = row.exposed_overhead or 0.0
    line = f"{percent(exposed, 0)} of a step at batch size {row.batch_size} is exposed overhead of the runtime"
    if exposed <= HIDDEN:
        return line
    helps = []
    own = [each for each in others if each.execution is row.execution and each.exposed_overhead is not None]
    larger = next((each for each in own if each.batch_size > row.batch_size and each.is_hidden), None)
    if larger is not None:
        helps.append(f"batch size {larger.batch_size} brings it below {percent(HIDDEN, 0)}")
    beside = [each for each in others if each.batch_size == row.batch_size and each.exposed_overhead is not None]
    fastest = max(beside, key=lambda each: each.speed, default=row)
    if fastest.speed > _NOTABLE * row.speed and fastest.is_faster(row):
        faster = f"--execution {fastest.execution} is {fastest.speed / row.speed:.2g} times as fast"
        helps.append(f"{faster} at batch size {row.batch_size}")
    return f"{line}, which more threads do not reduce; {' and '.join(helps) or 'a larger batch may'}"
