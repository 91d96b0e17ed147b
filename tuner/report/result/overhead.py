"""What the runtime costs beside the operators, as it is published."""

from __future__ import annotations

from msgspec import Struct

from tuner.machine.host import Machine
from tuner.model.timeline import Part
from tuner.report.result.frameworks import RatioResult
from tuner.report.result.study import WarningResult
from tuner.study.subject import BuildFacts, Document, WorkloadFacts
from tuner.trial.outcome import Status
from tuner.workload.workload import Execution


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
