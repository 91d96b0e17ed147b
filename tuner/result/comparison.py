"""Single measurements as they are published: what `tftune compare`, `check` and `noise` give to programs."""

from __future__ import annotations

from msgspec import Struct, field

from tuner.machine.conditions import Conditions
from tuner.measure.objective import Objective
from tuner.result.study import Applied, PooledResult, WarningResult
from tuner.stats.equivalence import VerdictCode
from tuner.stats.noise import Noise
from tuner.stats.tail import LimitStatus
from tuner.study.subject import Document, Values
from tuner.workload.feed import InputFacts


class SideResult(Applied, frozen=True, kw_only=True):
    """One of the two that are compared: what was asked for, its rate, quantiles of its step (ms) and its memory."""

    asked: str
    rate: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    n_steps: int
    peak_memory_bytes: int | None
    energy_j: float | None = None
    """What the device took for an item (J), what it takes anyway included."""


class ComparisonResult(Document, frozen=True, kw_only=True):
    """Setting b against setting a; `code` is the JSON's `verdict`, `reason` why it is undecided, if it is."""

    a: Values
    b: Values
    speedup: float | None
    low: float | None
    high: float | None
    code: VerdictCode = field(name="verdict")
    reason: str | None
    margin: float
    level: float | None
    """Of the interval; null where there was no look at it yet."""
    objective: Objective
    unit: str
    """Of the rates."""
    rounds: int
    fresh_rounds: int
    """Those of fresh interpreters."""
    ended: str
    timed_s: float
    sides: dict[str, SideResult]
    failures: dict[str, str]
    inputs: tuple[InputFacts, ...] = ()
    """What tftune feeds to the model, where it does not make its own inputs."""
    conditions: Conditions
    warnings: tuple[WarningResult, ...]


class LatencyRatio(Struct, frozen=True, kw_only=True):
    """How many times as long a call takes under a recommendation, by the median, with its 95 % interval."""

    ratio: float
    low: float
    high: float | None


class CheckResult(ComparisonResult, frozen=True, kw_only=True):
    """A study's recommendation (b) against the default (a), and what all sessions say `together`.

    `helps` is null where nothing was decided; `limits` whether each keeps to them, null where there are none.
    `latency` is null but of the answer at the same latency, which does not help where a call is shown to take longer.
    """

    study: str
    helps: bool | None
    limits: dict[str, LimitStatus] | None
    together: PooledResult
    closest_s: float | None
    latency: LatencyRatio | None = None


class NothingToCheck(Document, frozen=True, kw_only=True):
    """The check of a study that recommends the default."""

    study: str
    reason: str
    helps: None = None


class PairResult(Struct, frozen=True, kw_only=True):
    """A pair of processes of one setting: their ratio with its 95 % interval, and its standard error (log)."""

    ratio: float
    low: float
    high: float
    se: float
    n_blocks: int


class NoiseReport(Document, frozen=True, kw_only=True):
    """The noise of a machine, and what `rounds` of finals can tell there: see `tuner.job.calibration`."""

    noise: Noise
    unpaired_sd: float
    between_sd: float
    pairs: tuple[PairResult, ...]
    rounds: int
    floor: float
    detectable: float
    inputs: tuple[InputFacts, ...] = ()
    """What tftune feeds to the model, where it does not make its own inputs."""
    conditions: Conditions
    warnings: tuple[WarningResult, ...]
    timed_s: float
