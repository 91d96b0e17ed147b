"""Frameworks side by side, as they are published: a row for each framework, setting and batch size."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from tuner.machine.conditions import Conditions
from tuner.machine.host import Machine
from tuner.result.study import VerdictResult, WarningResult
from tuner.space.values import Value
from tuner.stats.equivalence import VerdictCode
from tuner.study.subject import BuildFacts, Document, Values, WorkloadFacts
from tuner.trial.outcome import Status

COMPLETE, OUT_OF_TIME, INTERRUPTED = "complete", "time", "interrupted"
"""How a comparison ended."""


class SettingKind(StrEnum):
    """Which setting of a framework."""

    DEFAULT = "default"
    TUNED = "tuned"


class RatioResult(Struct, frozen=True, kw_only=True):
    """A ratio of rates with its interval of 95 %."""

    low: float
    speedup: float
    high: float


class RowResult(Struct, frozen=True, kw_only=True):
    """A setting of a framework at a batch size; what is not known is null.

    `kind` is default or tuned; the two are one setting where `is_default` holds of a tuned one. `ratio` is that to the
    reference's default at the same batch size, and null of that itself; `source` says what it is from: finals, rounds
    of new processes of all at once, or pair, one process of each beside one of the reference. `load_s` is from the
    start of a process until its first answer, `first_batch_s` the part of it that the first batch takes; with its files
    in the page cache, and `cold_` without. `deviation`
    is that of the outputs from TensorFlow's. `status` is that of a trial: ok, or why there are no figures, as of a
    framework that is left out because it computes something else or cannot run the model.
    """

    framework: str
    kind: str
    batch_size: int
    setting: Values
    is_default: bool
    status: Status
    message: str
    items_per_s: float | None
    ratio: RatioResult | None
    verdict: VerdictCode | None
    batch_ratio: RatioResult | None
    """Of the reference's default: its rate to that at the batch size of the verdicts, beside it."""
    source: str | None
    n: int
    """Rounds, or passes."""
    precision: str | None
    deviation: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    load_s: float | None
    first_batch_s: float | None
    cold_load_s: float | None
    cold_first_batch_s: float | None
    peak_memory_bytes: int | None
    energy_j_per_item: float | None


class FastestResult(Struct, frozen=True, kw_only=True):
    """The fastest at the batch size of the verdicts, each framework at its best, in the precision of the reference.

    `over` is what is said of it against the best of each other framework.
    """

    framework: str
    kind: str
    over: dict[str, VerdictResult]


class AbsentResult(Struct, frozen=True, kw_only=True):
    """A framework that takes no part, and what to do about it."""

    framework: str
    status: str
    reason: str
    hint: str
    deviation: float | None = None
    precision: str | None = None


class TunedResult(Struct, frozen=True, kw_only=True):
    """What the search in a framework came to: its study, and the setting that is called tuned here."""

    study: str | None
    setting: Values | None
    failure: str
    searched_s: float | None
    """The time that it had (s), 0 if that was too short for a search; None if it failed, or is not known."""

    @property
    def text(self) -> str:
        """Return the setting in words."""
        return self.failure or " ".join(f"{name}={value}" for name, value in (self.setting or {}).items())


class FrameworksResult(Document, frozen=True, kw_only=True):
    """A comparison of frameworks on one workload."""

    comparison: str | None
    """Its name in the storage."""
    machine: Machine
    device: dict[str, Value | list[str]]
    workload: WorkloadFacts
    reference: str
    batch_size: int
    """That of the searches and verdicts."""
    margin: float
    builds: dict[str, BuildFacts]
    rows: tuple[RowResult, ...]
    fastest: FastestResult | None
    searches: dict[str, TunedResult]
    absent: tuple[AbsentResult, ...]
    rounds: int
    ended: str
    """Complete, or why it was ended before: time, or interrupted. The same command continues it."""
    why_no_energy: str | None
    conditions: Conditions | None
    """What else the machine did during the last run; None where that is not known."""
    warnings: tuple[WarningResult, ...]
