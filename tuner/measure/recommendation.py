"""What the finals allow to be said about the incumbent against each baseline, and what to recommend."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tuner.measure import rates
from tuner.measure.objective import Objective, rounding
from tuner.measure.rounds import GROUP, INCUMBENT, SAME_BATCH, SAME_LATENCY, Contender, Round
from tuner.space.catalogue import Catalogue
from tuner.space.setting import Setting
from tuner.stats.equivalence import IDENTICAL, MARGIN, UNMEASURED, Verdict, VerdictCode, verdict_on
from tuner.stats.estimate import Array, Estimate, paired
from tuner.stats.noise import Noise, log_ratio_of_rounds

MUCH_LONGER = 1.25
"""Times as long takes a call that its user may not want, so that one at the default's latency is looked for, too."""
_MIN_SESSIONS = 4  # rounds of two rivals, below which they are compared by way of the incumbent


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalsEstimates:
    """What finals say: contenders, mean log rates (see `tuner.measure.rates.log_rates`) and levels of claims.

    `levels` are those of the intervals of the incumbent against each rival, by the rival's first name.
    """

    contenders: Sequence[Contender]
    incumbent: str
    """Its first name."""
    names: Sequence[str]
    y: Array
    levels: Mapping[str, float]
    margin: float = MARGIN
    rounding: Mapping[str, float] = field(default_factory=dict)
    """The most by which each mean log rate may be off because a command prints few digits, by first name."""
    noise: Noise | None = None
    """What is known of the noise beside these rounds; None in finals of earlier versions."""
    rounds: Sequence[Round] = ()
    of_slices: Sequence[dict[str, Array]] = ()
    """The log rates of their slices (see `tuner.measure.rates.slice_log_rates`)."""
    _pairs: dict[tuple[str, str], Estimate | None] = field(init=False, repr=False, compare=False, default_factory=dict)
    """The log-ratios that were asked for: each verdict asks for several of the others'."""

    @classmethod
    def of_rounds(
        cls,
        rounds: Sequence[Round],
        contenders: Sequence[Contender],
        objective: Objective,
        *,
        incumbent: str,
        levels: Mapping[str, float],
        margin: float,
        noise: Noise | None,
    ) -> FinalsEstimates:
        """Return what rounds say of contenders."""
        of_slices = rates.slice_log_rates(rounds, contenders, objective)
        names, y = rates.mean_log_rates(rounds, contenders, of_slices)
        counted = [each for each in rounds if not each.interruptions]
        slices = {name: [each for round_ in counted for each in round_.slices.get(name, ())] for name in names}
        return cls(
            contenders=contenders,
            incumbent=incumbent,
            names=names,
            y=y,
            levels=levels,
            margin=margin,
            rounding={name: rounding(own) for name, own in slices.items()},
            noise=noise,
            rounds=rounds,
            of_slices=of_slices,
        )

    def log_ratio(self, a: str, b: str) -> Estimate | None:
        """Return the log-ratio of contender `b` to `a`; None where nothing is known of it.

        Of two that seldom ran together it is told by way of the incumbent, with which each of them did.
        """
        direct = self._paired(a, b)
        if direct is not None and (direct.n >= _MIN_SESSIONS or self.incumbent in (a, b)):
            return direct
        first, second = self._paired(self.incumbent, a), self._paired(self.incumbent, b)
        return None if first is None or second is None else second.minus(first)

    def _paired(self, a: str, b: str) -> Estimate | None:
        if (a, b) not in self._pairs:
            self._pairs[a, b] = self._estimated(a, b)
        return self._pairs[a, b]

    def _estimated(self, a: str, b: str) -> Estimate | None:
        if a not in self.names or b not in self.names:
            return None
        i, j = self.names.index(a), self.names.index(b)
        if np.isnan(self.y[:, i] + self.y[:, j]).all():
            return None
        rounding = sum(self.rounding.get(name, 0.0) for name in {a, b})
        if self.noise is not None:
            passes = rates.pass_log_ratios(self.rounds, self.of_slices, a, b)
            return replace(log_ratio_of_rounds(passes, self.noise), rounding=rounding)
        return replace(paired(self.y, i, j), rounding=rounding)

    def level(self, a: str, b: str) -> float | None:
        """Return the level of an interval between two contenders: the stricter of those that they have.

        None where one of them was never looked at.
        """
        levels = [self.levels.get(name) for name in (a, b) if name != self.incumbent]
        return None if None in levels else max((level for level in levels if level is not None), default=0.95)

    def verdict(self, a: str, b: str) -> Verdict:
        """Return the verdict on contender `b` against `a`."""
        estimate, level = self.log_ratio(a, b), self.level(a, b)
        if a == b:
            return IDENTICAL
        if estimate is None or level is None:
            return UNMEASURED
        return verdict_on(estimate, level=level, margin=self.margin)


def all_verdicts(estimates: FinalsEstimates) -> dict[str, Verdict]:
    """Return the verdict on the incumbent against every other name of every contender."""
    verdicts: dict[str, Verdict] = {}
    for contender in estimates.contenders:
        first = contender.names[0]
        if first == estimates.incumbent:
            verdict = IDENTICAL
        else:
            verdict = estimates.verdict(first, estimates.incumbent) if first in estimates.levels else UNMEASURED
        verdicts |= {name: verdict for name in contender.names if name != estimates.incumbent}
    return verdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalsRecommendation:
    """What to use: the contender's name; and those that are tied with the fastest, it among them.

    `gain` is the verdict on it against the framework's default; None for that default itself.
    """

    source: str
    tied: tuple[str, ...]
    gain: Verdict | None = None


def recommend(
    estimates: FinalsEstimates, catalogue: Catalogue, *, broken: Collection[str] = ()
) -> FinalsRecommendation:
    """Return what to use: the framework's default unless something is better than it, and then the simplest that is.

    `broken` names the contenders that break a limit. Tied are those whose interval to the fastest of the others
    includes 1; among these the simplest that is better than the default. Where none of them is shown to be, as the
    fastest of all may have run in few rounds beside the default, the same is asked of those alone that are; and where
    there is none, it is the default. Where the default itself breaks a limit, the simplest that is tied.

    That a rival is better than the default is a claim beyond those that share the finals' error: it is made at the
    level of the rival's own comparison with the incumbent.
    """
    by_name = {c.names[0]: c for c in estimates.contenders}
    default = next((c.names[0] for c in estimates.contenders if catalogue.default in c.names), None)
    gains = {name: estimates.log_ratio(default, name) for name in by_name} if default is not None else {}
    allowed = [name for name, gain in gains.items() if gain and by_name[name].eligible and name not in broken]
    if default is None or not allowed:
        return FinalsRecommendation(source=catalogue.default, tied=())
    reference = by_name[default].setting

    def tied_among(names: Sequence[str]) -> list[str]:
        """Return the fastest, and those that are tied with it."""
        fastest = max(names, key=lambda name: _mean(gains[name]))
        leads = {name: estimates.verdict(name, fastest).low for name in names if name != fastest}
        return [name for name in names if name == fastest or (low := leads[name]) is None or low <= 1]

    better = [name for name in allowed if estimates.verdict(default, name).code is VerdictCode.BETTER]
    tied = tied_among(allowed)
    good = [name for name in tied if default in broken or name in better]
    if not good and better:
        tied = good = tied_among(better)
    # A fast setting may be shown to be better than the default while a simpler one is not.
    chosen = min(good, key=lambda name: simplicity(by_name[name].setting, reference, catalogue), default=default)
    return FinalsRecommendation(
        source=_name(by_name[chosen], catalogue.default),
        tied=tuple(_name(by_name[name], catalogue.default) for name in tied),
        gain=None if chosen == default else estimates.verdict(default, chosen),
    )


def _mean(estimate: Estimate | None) -> float:
    return -math.inf if estimate is None else estimate.mean


def _name(contender: Contender, default: str) -> str:
    """Return the name that a contender is spoken of by."""
    for preferred in (default, default + SAME_BATCH, INCUMBENT, GROUP, SAME_LATENCY):
        if preferred in contender.names:
            return preferred
    return contender.names[0]


def simplicity(setting: Setting, default: Setting, catalogue: Catalogue) -> tuple[int, int, float]:
    """Return a key that is smaller for simpler settings: fewer threads, then nearer to the default.

    Threads are what the pools start in all; near is few knobs that differ, and these by little (log2).
    """
    values, default_values = setting.to_dict(), default.to_dict()
    differing = [name for name in values if values[name] != default_values.get(name)]
    steps = sum(
        abs(math.log2(1 + value) - math.log2(1 + other))
        for name in differing
        if isinstance(value := values[name], int) and isinstance(other := default_values.get(name), int)
    )
    return catalogue.n_threads(setting), len(differing), steps
