"""A prediction, as it is published."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from tuner.machine.host import Machine
from tuner.report.result.study import WarningResult
from tuner.study.subject import BuildFacts, Document, Values, WorkloadFacts


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
