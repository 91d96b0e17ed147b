"""Strata: kinds of machines and builds, each of which has its own evidence on whether a rule helps there.

A stratum is a shape of a machine (cores, quota), the build's pool, and whether oneDNN is on by itself: these decide
what a setting does. Of rules that gain 1.4 in one stratum and nothing in another, one average speaks for neither.

Notation
    g_s     what rules that have not seen the workload of study s gain there over what is kept without them (log-ratio)
    ĝ       the mean of g_s in a stratum: of each workload first, then of these; [l, h] its 95 % interval over workloads
    m       the margin: gains up to it are treated as none

Do no harm. A rule is advised in a stratum if ĝ > log(1 + m) and l > 0: the gain is large enough to matter, and there is
one, with an error of 2.5 %. Everywhere else the default is kept: it is the change that has to be shown to be good.
Neither condition would do alone: a ratio of 1.05 [0.90, 1.20] may be a loss, and one of 1.012 [1.003, 1.020] is there
but is not worth a change.

The interval of a few workloads says little. So the build decides for a stratum of fewer than six (the same pool, oneDNN
and quota or none, with any number of cores). The stratum's own mean has to be above the margin as well. The build also
decides for a number of cores that was never seen. If no study is of such a build, the default is kept: which knobs act
at all is a matter of the build, so that what was seen on others says nothing.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, structs

from tuner.rules.situation import Situation
from tuner.space.term import EIGEN, OPENMP
from tuner.stats.equivalence import MARGIN
from tuner.stats.estimate import Estimate, estimate

T = TypeVar("T")
Count = Annotated[int, Meta(ge=0)]
_MIN_WORKLOADS = 3  # of an interval that says something
_ENOUGH = 6
"""The workloads with which a stratum decides for itself: the interval of fewer is wide."""
_SHAPE = re.compile(r"\d+ cores?(, quota \d+(\.\d+)?(e[+-]?\d+)?)?")


class Ratio(Struct, frozen=True, kw_only=True):
    """A geometric mean of ratios over workloads with its 95 % interval, which a single workload does not have."""

    ratio: float
    low: float | None
    high: float | None
    n_workloads: Count

    @classmethod
    def of(cls, average: Estimate) -> Ratio:
        """Return a mean log-ratio as a ratio."""
        low, high = average.interval()
        has_interval = math.isfinite(high)
        return cls(
            ratio=average.ratio,
            low=low if has_interval else None,
            high=high if has_interval else None,
            n_workloads=average.n,
        )


def over_workloads(values: Iterable[tuple[str, float]]) -> Estimate:
    """Return the mean of (workload, log-ratio): of each workload first, then of these; raises ValueError of nothing.

    The workload is the unit: its standard error is what workloads scatter by, s/√C for C of them.
    """
    by_workload: dict[str, list[float]] = defaultdict(list)
    for workload, value in values:
        by_workload[workload].append(value)
    return estimate([math.fsum(each) / len(each) for each in by_workload.values()])


def prediction_interval(average: Estimate) -> tuple[float, float] | None:
    """Return what one more workload lies between with 95 %; None of fewer than two workloads."""
    if average.n < 2 or not math.isfinite(average.se):
        return None
    wide = Estimate(mean=average.mean, se=average.se * math.sqrt(average.n + 1), n=average.n, df=average.df)
    return wide.interval()


class StratumClass(StrEnum):
    """The classes of strata that headlines are given by: where oneDNN is off, else where there is a quota, the rest."""

    ONEDNN_OFF = "onednn-off"
    QUOTA = "quota"
    REST = "rest"


class Stratum(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kind of machine and build, or a build with any number of cores where `shape` is None."""

    shape: str | None
    """The cores and the quota, in words."""
    pool: str
    onednn: bool
    quota: bool
    gpu: str = ""
    """The model of the GPU that computes; empty on the CPU."""

    def __post_init__(self) -> None:
        """Raise ValueError for a shape or a pool that none can be."""
        if self.shape is not None and not _SHAPE.fullmatch(self.shape):
            raise ValueError(f"'{self.shape}' is no shape of a machine")
        if self.pool not in (EIGEN, OPENMP):
            raise ValueError(f"unknown pool '{self.pool}'")

    def covers(self, other: Stratum) -> bool:
        """Return whether another kind is of this one."""
        return self.shape in (None, other.shape) and self.build == other.build

    @property
    def build(self) -> tuple[str, bool, bool, str]:
        """Return all of it but the shape."""
        return self.pool, self.onednn, self.quota, self.gpu

    @property
    def cores(self) -> str | None:
        """Return the number of cores, None of any."""
        return None if self.shape is None else self.shape.partition(" ")[0]

    @property
    def cpu_limit(self) -> str | None:
        """Return the number of CPUs that the quota allows, None where there is none, or any."""
        return (self.shape or "").partition(", quota ")[2] or None

    @property
    def stratum_class(self) -> StratumClass:
        """Return the class that headlines count it among."""
        if not self.onednn:
            return StratumClass.ONEDNN_OFF
        return StratumClass.QUOTA if self.quota else StratumClass.REST


class SituationKind(Stratum, frozen=True, kw_only=True):
    """A workload in a mode, on a kind of machine and build."""

    workload: str
    mode: str

    @classmethod
    def of(cls, situation: Situation) -> SituationKind:
        """Return the kind of a situation."""
        machine = situation.machine
        quota = "" if machine.cpu_quota is None else f", quota {machine.cpu_quota:g}"
        plural = "s" if machine.physical_cores > 1 else ""
        return cls(
            workload=situation.workload,
            mode=situation.mode,
            shape=f"{machine.physical_cores} core{plural}{quota}",
            pool=situation.pool,
            onednn=situation.onednn,
            quota=machine.cpu_quota is not None,
            gpu=situation.gpu,
        )


class Expected(Struct, frozen=True, kw_only=True):
    """What rules gave on workloads that they had not seen; what they gained in those they were learned from is partly
    chance.
    """

    over_default: Ratio
    prediction_interval: tuple[float, float] | None
    """What a new workload gains over the default lies between these with 95 %; null of fewer than two workloads."""
    of_best: Ratio
    """Over the best setting found."""
    policy: Ratio
    """Over the default, with the step that does no harm."""


class StratumEvidence(Struct, frozen=True, kw_only=True):
    """What rules gain in a stratum, or in a build, over what is kept without them, and whether they are advised there.

    `gained` is what the advice rests on.
    """

    kind: Stratum
    n_studies: Count
    n_machines: Count = 0
    """On how many machines these studies were made; 0 in files of earlier versions."""
    gained: Ratio
    is_advised: bool
    expected: Expected | None = None
    n_processes: Count | None = 1
    """How many processes the rule sets on these machines; null where they differ in that."""
    call: Ratio | None = None
    """How many times as long a call takes as under the defaults, by the gain, the batch size and the processes."""

    def priced(self, factor: float) -> StratumEvidence:
        """Return the evidence with what a call costs, of a batch `factor` times the workload's own in each process.

        What is known of calls already, from studies, stays.
        """
        if self.n_processes is None or self.call is not None:
            return self
        factor *= self.n_processes
        gain = self.gained if self.expected is None else self.expected.over_default
        low, high = (None if end is None else factor / end for end in (gain.high, gain.low))
        call = Ratio(ratio=factor / gain.ratio, low=low, high=high, n_workloads=gain.n_workloads)
        return structs.replace(self, call=call)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What rules that have not seen the workload gain in a study over what is kept without them (log-ratio)."""

    situation: SituationKind
    log_ratio: float


class AdviceByStratum(Struct, frozen=True, kw_only=True):
    """What is advised in each stratum, and in each build with any number of cores."""

    strata: tuple[StratumEvidence, ...]
    builds: tuple[StratumEvidence, ...]

    def priced(self, factor: float) -> AdviceByStratum:
        """Return the advice with what a call costs in each, of a batch `factor` times the workload's own."""
        strata, builds = (tuple(row.priced(factor) for row in rows) for rows in (self.strata, self.builds))
        return AdviceByStratum(strata=strata, builds=builds)

    def row(self, kind: Stratum) -> StratumEvidence | None:
        """Return what speaks of a machine and build, a stratum before a build; None where nothing does."""
        return next((row for row in (*self.strata, *self.builds) if row.kind.covers(kind)), None)


def is_gain(ratio: float) -> bool:
    """Return whether a ratio to the default is above it by more than the margin."""
    return ratio > 1 + MARGIN


def is_shown(gain: Ratio) -> bool:
    """Return whether a ratio is above the margin, and its interval above 1; not where it has no interval."""
    return is_gain(gain.ratio) and gain.low is not None and gain.low > 1


def advice_by_stratum(gains: Sequence[Gain]) -> AdviceByStratum:
    """Return what the gains advise. If a stratum has few workloads, its build decides."""
    by_stratum = grouped(gains, lambda gain: (gain.situation.shape, gain.situation.build))
    by_build = grouped(gains, lambda gain: gain.situation.build)
    pooled = {build: _mean(members) for build, members in by_build.items()}
    strata = []
    for (shape, build), members in by_stratum.items():
        gained = _mean(members)
        deciding = gained if gained.n_workloads >= _ENOUGH else pooled[build]
        strata.append(_evidence(shape, members, gained, deciding))
    builds = [_evidence(None, members, pooled[build], pooled[build]) for build, members in by_build.items()]
    return AdviceByStratum(strata=tuple(strata), builds=tuple(builds))


def grouped(each: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    """Return things by a key, in the key's order."""
    groups: dict[Any, list[T]] = defaultdict(list)
    for one in each:
        groups[key(one)].append(one)
    return dict(sorted(groups.items()))


def _mean(members: Sequence[Gain]) -> Ratio:
    return Ratio.of(over_workloads((gain.situation.workload, gain.log_ratio) for gain in members))


def _evidence(shape: str | None, members: Sequence[Gain], gained: Ratio, deciding: Ratio) -> StratumEvidence:
    """Return the evidence of strata of one kind: advised if it gained, and what decides shows a gain."""
    pool, onednn, quota, gpu = members[0].situation.build
    return StratumEvidence(
        kind=Stratum(shape=shape, pool=pool, onednn=onednn, quota=quota, gpu=gpu),
        n_studies=len(members),
        gained=gained,
        is_advised=is_gain(gained.ratio) and deciding.n_workloads >= _MIN_WORKLOADS and is_shown(deciding),
    )
