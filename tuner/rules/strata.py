"""Strata: kinds of machines and builds, each of which has its own evidence on whether a rule helps there.

A stratum is a shape of a machine (cores, quota), the build's pool, and whether oneDNN is on by itself: these decide
what a setting does. Of rules that gain 1.4 in one stratum and nothing in another, one average speaks for neither.

Notation
    g_s     what rules that have not seen the workload of study s gain there over what is kept without them (log-ratio)
    ĝ       the mean of g_s in a stratum: of each workload first, then of these; [l, h] its 95 % interval over workloads
    m       the margin: gains up to it are treated as none

Do no harm. A rule is advised in a stratum where ĝ > log(1 + m) and l > 0: the gain is large enough to matter, and there
is one, with an error of 2.5 %. Everywhere else the default is kept: it is the change that has to be shown to be good.
Neither condition would do alone: a ratio of 1.05 [0.90, 1.20] may be a loss, and one of 1.012 [1.003, 1.020] is there
but is not worth a change.

A stratum of fewer than three workloads has no interval to speak of: there the build decides (the same pool, oneDNN and
quota or none, with any number of cores), and its own mean has to be above the margin as well. So does the build for a
number of cores that was never seen. Where no study is of such a build, the default is kept: which knobs act at all is a
matter of the build, so that what was seen on others says nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec import Struct, structs

from tuner.rules.average import Count, Ratio, over_workloads
from tuner.rules.kind import Kind, SituationKind
from tuner.stats.equivalence import MARGIN

T = TypeVar("T")
_MIN_WORKLOADS = 3  # of an interval that says something


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

    kind: Kind
    n_studies: Count
    n_machines: Count = 0
    """On how many machines these studies were made; 0 in files of earlier versions."""
    gained: Ratio
    is_advised: bool
    expected: Expected | None = None
    call: Ratio | None = None
    """How many times as long a call takes as under the defaults, by the gain and the batch size."""

    def priced(self, factor: float) -> StratumEvidence:
        """Return the evidence with what a call costs, of a batch `factor` times the workload's own."""
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

    def row(self, kind: Kind) -> StratumEvidence | None:
        """Return what speaks of a machine and build, a stratum before a build; None where nothing does."""
        return next((row for row in (*self.strata, *self.builds) if row.kind.covers(kind)), None)


def is_gain(ratio: float) -> bool:
    """Return whether a ratio to the default is above it by more than the margin."""
    return ratio > 1 + MARGIN


def is_shown(gain: Ratio) -> bool:
    """Return whether a ratio is above the margin, and its interval above 1; not where it has no interval."""
    return is_gain(gain.ratio) and gain.low is not None and gain.low > 1


def advice_by_stratum(gains: Sequence[Gain]) -> AdviceByStratum:
    """Return what the gains advise: where a stratum has too few workloads, its build decides."""
    by_stratum = grouped(gains, lambda gain: (gain.situation.shape, gain.situation.build))
    by_build = grouped(gains, lambda gain: gain.situation.build)
    pooled = {build: _mean(members) for build, members in by_build.items()}
    strata = []
    for (shape, build), members in by_stratum.items():
        gained = _mean(members)
        deciding = gained if gained.n_workloads >= _MIN_WORKLOADS else pooled[build]
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
    """Return the evidence of strata of one kind: advised where it gained, and where what decides shows a gain."""
    pool, onednn, quota, gpu = members[0].situation.build
    return StratumEvidence(
        kind=Kind(shape=shape, pool=pool, onednn=onednn, quota=quota, gpu=gpu),
        n_studies=len(members),
        gained=gained,
        is_advised=is_gain(gained.ratio) and deciding.n_workloads >= _MIN_WORKLOADS and is_shown(deciding),
    )
