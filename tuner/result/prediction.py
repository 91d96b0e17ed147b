"""A prediction, as it is published."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from msgspec import Struct

from tuner.machine.host import Machine
from tuner.measure.warning import seen_warnings
from tuner.model.configuration import EXECUTOR
from tuner.model.costs import Costs
from tuner.model.prediction import Predicted, Reasons, influential_knobs
from tuner.quantity import percent, plural
from tuner.result.study import WarningResult
from tuner.space.setting import Setting
from tuner.study.subject import BuildFacts, Document, Values, WorkloadFacts

_NEAR = 4.0  # times what was profiled
_LARGER = 2.0  # times the largest batch that was profiled, a line is still trusted
_NARROW = 1.3  # operators at once, on average, that are hardly more than one
_LARGE = 0.3  # a share that bounds what can be gained


class Trust(StrEnum):
    """How far what was measured has to be extended."""

    PROFILED = "within what was profiled"
    NEAR = "a few times what was profiled"
    FAR = "many times what was profiled"


class ReasonCode(StrEnum):
    """What a reason speaks of."""

    WIDTH = "width"
    DISPATCH = "dispatch"
    MEMORY = "memory"
    EFFICIENCY = "efficiency"


class PredictedSetting(Struct, frozen=True, kw_only=True):
    """A setting with its predicted items a second, and their ratio to the default's."""

    setting: Values
    items_per_s: float
    ratio: float


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
    """What it costs to wake a thread and to wait for it, as on the machine that was profiled (µs)."""
    is_divided: bool
    """Whether operators were timed on several cores; else how they gain from threads is a guess, and `wake_us` too."""
    ignored_knobs: tuple[str, ...]
    left_out: int
    """Settings of the space that were not simulated: it has too many, and those that were are a sample."""


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
    ideal: IdealResult | None,
    pinned: str = "",
) -> PredictionResult:
    """Return what is published of a prediction.

    `pinned` is how the workload has changed the CPUs of the profiled processes, empty where it has not.
    """
    rates = predicted.rates
    reference_rate = rates[predicted.reference]

    def described(setting: Setting) -> PredictedSetting:
        return PredictedSetting(
            setting=setting.to_dict(), items_per_s=rates[setting], ratio=rates[setting] / reference_rate
        )

    is_here = machine.id == profiled_on.id
    largest = max(predicted.best.batch_size, *batch_sizes)
    times = max(machine.usable_cores / profiled_threads, largest / max(batch_sizes) / _LARGER)
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
            wake_us=1e6 * costs.fork_s,
            is_divided=costs.is_divided,
            ignored_knobs=predicted.ignored,
            left_out=predicted.left_out,
        ),
        ideal=ideal,
        warnings=tuple(map(WarningResult.of, seen_warnings(pinned))),
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
