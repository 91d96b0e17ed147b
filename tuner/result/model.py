"""Where the time of a model's step goes and what that predicts, as it is published: overhead, profile, prediction."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from msgspec import Struct

from tuner.frameworks.framework import Part
from tuner.machine.host import Machine
from tuner.measure.warning import Code, MeasurementWarning, seen_warnings
from tuner.model.configuration import EXECUTOR
from tuner.model.costs import Costs
from tuner.model.overhead import HIDDEN, Row, hiding_batch
from tuner.model.prediction import Predicted, Reasons, influential_knobs, interval
from tuner.model.profile import Bound, Profile
from tuner.quantity import percent, plural
from tuner.result import fields_of
from tuner.result.frameworks import RatioResult
from tuner.result.study import WarningResult
from tuner.space.setting import Setting
from tuner.study.subject import BuildFacts, Document, Subject, Values, WorkloadFacts
from tuner.trial.outcome import Status
from tuner.workload.workload import Execution

# ---- overhead -------------------------------------------------------------------------------------------------------

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
        **fields_of(OverheadResult, subject) | {"device": device},
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
    beside = ("operators", "operator_s", "launch_ratio", "launch_s", "profiler_cost", "clock_error")
    return OverheadRow(
        **fields_of(OverheadRow, row) | {"message": f"{row.message}; {row.hint}" if row.hint else row.message},
        **(dict.fromkeys(beside) if own is None else fields_of(OverheadRow, own)),
        per_item_s=None if row.step_s is None else row.step_s / row.batch_size,
        ratio=RatioResult(low=low, speedup=over.ratio, high=high) if known else None,  # type: ignore[arg-type, union-attr]
        exposed_overhead=own.exposed.estimate if own else None,
        exposed_low=own.exposed.low if own else None,
        exposed_high=own.exposed.high if own else None,
        parts=dict(own.shares) if own else {},
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


# ---- profile --------------------------------------------------------------------------------------------------------


class ThreadsResult(Struct, frozen=True, kw_only=True):
    """What a process with so many threads did: a step (s) as a trial times it, and in a session one without statistics
    (`plain_s`), one with them, and how long operators ran in that.

    `profiler_cost` is the ratio of the last two steps; `flops` (FLOP/s) and `bytes_s` are the roof: what a large
    product and a large sum reach.
    """

    threads: int
    step_s: float
    plain_s: float
    traced_s: float
    busy_s: float
    profiler_cost: float
    flops: float
    bytes_s: float


class OperatorResult(Struct, frozen=True, kw_only=True, rename={"bound": "class", "op": "type", "n_bytes": "bytes"}):
    """An operator of a step; times (s) by the number of threads, and the law that fits them.

    `contention` and `coherency` are σ and κ of the Universal Scalability Law, `error` is the root mean square of the
    relative errors of the fit, null where it fits anything, and `best_threads` the fewest threads of those that were
    tried that it would take hardly more than its least time with.
    """

    name: str
    op: str
    bound: Bound
    runs: int
    time_s: dict[int, float]
    share: float
    """Of the time of all operators with one thread."""
    flops: int
    n_bytes: int
    contention: float
    coherency: float
    error: float | None
    best_threads: int


class ProfileResult(Document, frozen=True, kw_only=True):
    """What the operators of a workload take; those that took no time are left out."""

    machine: Machine
    runtime: BuildFacts
    workload: WorkloadFacts
    batch_size: int
    threads: tuple[ThreadsResult, ...]
    between_share: tuple[float, float]
    """Between what shares of a step with one thread no operator runs: too little, and too much."""
    exposed_overhead: float | None
    """That share as TensorFlow's profiler tells it, as `tftune overhead` does; null where it keeps no whole step."""
    operators: tuple[OperatorResult, ...]
    warnings: tuple[WarningResult, ...] = ()


def describe_profile(profile: Profile, subject: Subject, *, batch_size: int, pinned: str = "") -> ProfileResult:
    """Return what is published of a profile.

    `pinned` is how the workload has changed the CPUs of its processes, empty where it has not.
    """
    total_s = sum(operator.times_s[1] for operator in profile.operators) or 1.0
    most = profile.traced[-1].threads
    return ProfileResult(
        **fields_of(ProfileResult, subject),
        batch_size=batch_size,
        threads=tuple(
            ThreadsResult(**fields_of(ThreadsResult, each, each.roof), profiler_cost=each.traced_s / each.plain_s)
            for each in profile.traced
        ),
        between_share=profile.between_shares,
        exposed_overhead=profile.traced[0].exposed,
        operators=tuple(
            OperatorResult(
                **fields_of(OperatorResult, each.scaling, each)
                | {"time_s": dict(each.times_s), "best_threads": each.scaling.best_threads(most)},
                share=each.times_s[1] / total_s,
            )
            for each in sorted(profile.operators, key=lambda each: -each.times_s[1])
            if each.times_s[1] > 0
        ),
        warnings=tuple(map(WarningResult.of, seen_warnings(pinned))),
    )


# ---- prediction -----------------------------------------------------------------------------------------------------

_NEAR = 4.0  # times what was profiled
LARGER = 2.0  # times the largest batch that was profiled, a line is still trusted
_NARROW = 1.3  # operators at once, on average, that are hardly more than one
_LARGE = 0.3  # a share that bounds what can be gained


class Trust(StrEnum):
    """How far what was measured has to be extended."""

    PROFILED = "within the profiled range"
    NEAR = "a few times the profiled range"
    FAR = "many times the profiled range"


class ReasonCode(StrEnum):
    """What a reason speaks of."""

    WIDTH = "width"
    DISPATCH = "dispatch"
    MEMORY = "memory"
    EFFICIENCY = "efficiency"


class PredictedSetting(Struct, frozen=True, kw_only=True):
    """A setting with its predicted items per second, and their ratio to the default's with its 90 % interval."""

    setting: Values
    items_per_s: float
    ratio: float
    low: float
    high: float


class ReasonResult(Struct, frozen=True, kw_only=True):
    """Why it is so: what is looked at, its value, and a sentence for people."""

    code: ReasonCode
    value: float
    sentence: str


class TrustResult(Struct, frozen=True, kw_only=True):
    """How far to trust it: most threads that were profiled, cores that are predicted for, knobs that are ignored."""

    code: Trust
    profiled_threads: int
    cores: int
    is_here: bool
    """Whether the machine is the one that was profiled."""
    largest_batch_size: int
    """Of the best setting, where it is beyond what was profiled; else the largest that was."""
    wake_us: float
    """What a hop to another thread costs (µs): as on the machine that was profiled, or as is known of the other one."""
    is_wake_known: bool
    """Whether that is known of the machine that is asked about, by its file."""
    is_divided: bool
    """Whether operators were timed on several cores; else how they gain from threads is a guess, and `wake_us` too."""
    ignored_knobs: tuple[str, ...]
    left_out: int
    """Settings of the space that were not simulated: it has too many, and those that were are a sample."""


class SourceKind(StrEnum):
    """Where the profile comes from that is predicted from."""

    OWN = "made here"
    FILE = "file"
    SHIPPED = "shipped"


class ProfileSource(Struct, frozen=True, kw_only=True):
    """The profile that is predicted from: its `file` and the date on which it was made, as far as they are known.

    `differences` are those of its build and variables from the machine's file, where that tells of them, or else from
    what is here: as far as they may change timings.
    """

    kind: SourceKind
    file: str | None = None
    created: str | None = None
    differences: tuple[str, ...] = ()

    @property
    def warning(self) -> list[MeasurementWarning]:
        """Return that it differs, where it does."""
        return [Code.OTHER_BUILD.seen("; ".join(self.differences))] if self.differences else []


class IdealResult(Struct, frozen=True, kw_only=True):
    """What a scheduler that knows the best number of threads of each operator would gain, as a ratio.

    `over_best` is over the best setting of one process, `over_reference` over the default, at this batch size.
    """

    batch_size: int
    over_best: float
    over_reference: float


class PredictionResult(Document, frozen=True, kw_only=True):
    """Predicted throughput of settings on a machine; nothing of it is measured.

    `profiled_on` is the machine that operators were measured on.
    """

    machine: Machine
    profiled_on: Machine
    runtime: BuildFacts
    workload: WorkloadFacts
    batch_sizes: tuple[int, ...]
    """At which operators were measured."""
    measured: Literal[False] = False
    predicted: tuple[PredictedSetting, ...]
    best: PredictedSetting
    reference: PredictedSetting
    baselines: dict[str, PredictedSetting]
    reasons: tuple[ReasonResult, ...]
    knobs: tuple[str, ...]
    """By how much they matter, the most first."""
    trust: TrustResult
    source: ProfileSource
    ideal: IdealResult | None = None
    warnings: tuple[WarningResult, ...] = ()


def describe_prediction(
    predicted: Predicted,
    why: Reasons,
    *,
    machine: Machine,
    profiled_on: Machine,
    runtime: BuildFacts,
    workload: WorkloadFacts,
    batch_sizes: Sequence[int],
    profiled_threads: int,
    costs: Costs,
    waking: float,
    is_wake_known: bool,
    ideal: IdealResult | None,
    source: ProfileSource,
    pinned: str = "",
    unlike_cores: str = "",
) -> PredictionResult:
    """Return what is published of a prediction.

    `pinned` is how the workload has changed the CPUs of the profiled processes, and `unlike_cores` how those of the
    best setting's processes differ; empty where they have not, and do not.
    """
    rates = predicted.rates
    reference_rate = rates[predicted.reference]

    def described(setting: Setting) -> PredictedSetting:
        ratio = rates[setting] / reference_rate
        low, high = interval(ratio, predicted.ratio_sds[setting])
        return PredictedSetting(setting=setting.to_dict(), items_per_s=rates[setting], ratio=ratio, low=low, high=high)

    is_here = machine.id == profiled_on.id
    largest = max(predicted.best.batch_size, *batch_sizes)
    times = max(machine.usable_cores / profiled_threads, largest / max(batch_sizes) / LARGER)
    code = Trust.PROFILED if is_here and times <= 1 else Trust.NEAR if times <= _NEAR else Trust.FAR
    code = code if costs.is_divided or machine.usable_cores == 1 else Trust.FAR
    return PredictionResult(
        machine=machine,
        profiled_on=profiled_on,
        runtime=runtime,
        workload=workload,
        batch_sizes=tuple(batch_sizes),
        predicted=tuple(sorted(map(described, predicted.settings), key=lambda each: -each.items_per_s)),
        best=described(predicted.best),
        reference=described(predicted.reference),
        baselines={name: described(setting) for name, setting in predicted.baselines.items()},
        reasons=tuple(_reasons(why, machine)),
        knobs=tuple(influential_knobs(predicted)),
        trust=TrustResult(
            code=code,
            profiled_threads=profiled_threads,
            cores=machine.usable_cores,
            is_here=is_here,
            largest_batch_size=largest,
            wake_us=1e6 * costs.fork_s * waking,
            is_wake_known=is_wake_known,
            is_divided=costs.is_divided,
            ignored_knobs=predicted.ignored,
            left_out=predicted.left_out,
        ),
        source=source,
        ideal=ideal,
        warnings=tuple(map(WarningResult.of, [*source.warning, *seen_warnings(pinned, unlike_cores)])),
    )


def _reasons(why: Reasons, machine: Machine) -> list[ReasonResult]:
    """Return the reasons, in the order in which they decide."""
    cores = machine.usable_cores
    if why.width < _NARROW:
        width = f"operators run one after another ({why.width:.1f} at once on average): "
        width += f"one slot ({EXECUTOR.slots}) is enough"
    else:
        width = f"{why.width:.1f} operators could run at once on average: as many slots may help"
    dispatch = f"the executor itself takes {percent(why.dispatch, 0)} of a step with one thread"
    dispatch += ": a larger batch helps more than threads" if why.dispatch > _LARGE else ""
    memory = (
        f"waiting for data from memory is {percent(why.memory, 0)} of the operators' time on {plural(cores, 'core')}"
    )
    memory += ": more threads do not make memory faster" if why.memory > _LARGE else ""
    quota = machine.cpu_quota
    whole = plural(cores, "core") if quota is None or quota > cores else f"a quota of {quota:g} CPUs"
    efficiency = f"one process that runs one operator at a time uses {percent(why.efficiency, 0)} of {whole}"
    efficiency += (
        ": several processes, or a larger batch, use more" if why.efficiency < 1 - _LARGE and cores > 1 else ""
    )
    return [
        ReasonResult(code=ReasonCode.WIDTH, value=why.width, sentence=width),
        ReasonResult(code=ReasonCode.DISPATCH, value=why.dispatch, sentence=dispatch),
        ReasonResult(code=ReasonCode.MEMORY, value=why.memory, sentence=memory),
        ReasonResult(code=ReasonCode.EFFICIENCY, value=why.efficiency, sentence=efficiency),
    ]
