"""Verdicts: what the finals allow to be said about the incumbent against each baseline, and what to recommend."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.special import ndtr

from tuner.measure.finals import SAME_BATCH, Contender
from tuner.measure.statistics import Array, Estimate, paired
from tuner.space.catalogue import Catalogue
from tuner.space.setting import Setting

INCUMBENT = "incumbent"
SIMPLER = "simpler"
"""The simplest of the settings that the search could not tell apart from the incumbent."""
MARGIN = 0.02
"""The smallest difference that matters in practice, unless the user says another: fixed, whatever the noise is."""
_HOPELESSLY_WIDE = math.log(1.5)
_FEWEST_DF = 2.0  # with one, an interval is narrow or wide by whether two numbers happen to agree
_Z = 1.96
_FEWEST_TOGETHER = 4  # rounds of two rivals, below which they are compared by way of the incumbent


class Word(StrEnum):
    """What is said of a speed-up."""

    BETTER = "better"
    NO_DIFFERENCE = "no difference"
    WORSE = "worse"
    UNDECIDED = "undecided"


CLAIMS = frozenset({Word.BETTER, Word.WORSE})
"""What is said where a difference is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The speed-up of the incumbent over a baseline with its interval; None where nothing can be said."""

    speedup: float | None
    low: float | None
    high: float | None
    word: Word


SAME = Verdict(speedup=1.0, low=1.0, high=1.0, word=Word.NO_DIFFERENCE)
"""The incumbent against its own setting under another name."""
UNMEASURED = Verdict(speedup=None, low=None, high=None, word=Word.UNDECIDED)


def judge(estimate: Estimate, *, level: float = 0.95, margin: float = MARGIN) -> Verdict:
    """Return the verdict on a log-ratio, by its interval at `level` and the practical `margin` (0.02 for 2 %).

    better or worse: the interval excludes 1, and the estimate is beyond the margin. no difference: the whole interval
    lies inside the margin, which is an equivalence test (Westlake 1976, Biometrics 32; at 95 % a stricter one than the
    usual two one-sided tests at 5 %). Anything else is undecided: no evidence, no claim; and no number at all where
    the interval reaches more than half as much again up and down. Two rounds decide nothing.
    """
    low, high = estimate.interval(level)
    if estimate.df <= 0 or math.log(max(high, 1e-300)) - estimate.mean > _HOPELESSLY_WIDE:
        return UNMEASURED
    speedup, most = estimate.ratio, 1 + margin
    if estimate.df < _FEWEST_DF:
        word = Word.UNDECIDED
    elif low > 1 and speedup > most:
        word = Word.BETTER
    elif high < 1 and speedup < 1 / most:
        word = Word.WORSE
    elif low >= 1 / most and high <= most:
        word = Word.NO_DIFFERENCE
    else:
        word = Word.UNDECIDED
    return Verdict(speedup=speedup, low=low, high=high, word=word)


def chance_of_verdict(difference: float, se: float, *, margin: float = MARGIN) -> float:
    """Return the probability that an estimate with this standard error is judged at all, for a true `difference` (log).

    A normal approximation: |x| is beyond both the margin and 1.96 standard errors, or closer to 0 than the margin by so
    much.
    """
    outer, inner = max(math.log1p(margin), _Z * se), math.log1p(margin) - _Z * se
    claim = ndtr((-outer - difference) / se) + ndtr((difference - outer) / se)
    equal = ndtr((inner - difference) / se) - ndtr((-inner - difference) / se) if inner > 0 else 0.0
    return float(claim + equal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What finals say: their contenders, the mean log rates (see `tuner.measure.finals.table`), the levels of claims.

    `levels` are those of the intervals of the incumbent against each rival, by the rival's first name.
    """

    contenders: Sequence[Contender]
    incumbent: str
    """Its first name."""
    names: Sequence[str]
    y: Array
    levels: Mapping[str, float]
    margin: float = MARGIN

    def between(self, a: str, b: str) -> Estimate | None:
        """Return the log-ratio of contender `b` to `a`; None where nothing is known of it.

        Of two that seldom ran together it is told by way of the incumbent, with which each of them did.
        """
        direct = self._paired(a, b)
        if direct is not None and (direct.n >= _FEWEST_TOGETHER or self.incumbent in (a, b)):
            return direct
        first, second = self._paired(self.incumbent, a), self._paired(self.incumbent, b)
        return None if first is None or second is None else second.minus(first)

    def _paired(self, a: str, b: str) -> Estimate | None:
        if a not in self.names or b not in self.names:
            return None
        i, j = self.names.index(a), self.names.index(b)
        return None if np.isnan(self.y[:, i] + self.y[:, j]).all() else paired(self.y, i, j)

    def level(self, a: str, b: str) -> float | None:
        """Return the level of an interval between two contenders: the stricter of those that they have.

        None where one of them was never looked at.
        """
        levels = [self.levels.get(name) for name in (a, b) if name != self.incumbent]
        return None if None in levels else max((level for level in levels if level is not None), default=0.95)

    def verdict(self, a: str, b: str) -> Verdict:
        """Return the verdict on contender `b` against `a`."""
        estimate, level = self.between(a, b), self.level(a, b)
        if a == b:
            return SAME
        if estimate is None or level is None:
            return UNMEASURED
        return judge(estimate, level=level, margin=self.margin)


def judge_all(standing: Standing) -> dict[str, Verdict]:
    """Return the verdict on the incumbent against every other name of every contender."""
    verdicts: dict[str, Verdict] = {}
    for contender in standing.contenders:
        first = contender.names[0]
        if first == standing.incumbent:
            verdict = SAME
        else:
            verdict = standing.verdict(first, standing.incumbent) if first in standing.levels else UNMEASURED
        verdicts |= {name: verdict for name in contender.names if name != INCUMBENT}
    return verdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to use: the contender's name; and those that cannot be told apart from the fastest, it among them.

    `gain` is the verdict on it against the framework's default; None for that default itself.
    """

    source: str
    alike: tuple[str, ...]
    gain: Verdict | None = None


def recommend(standing: Standing, catalogue: Catalogue, *, broken: Collection[str] = ()) -> Advice:
    """Return what to use: the framework's default unless something is better than it, and then the simplest that is.

    `broken` names the contenders that break a limit. Alike are those whose interval to the fastest of the others
    includes 1; among these the simplest that is better than the default, or, where none is shown to be, the
    default. Where the default itself breaks a limit, the simplest that is alike.

    That a rival is better than the default is a claim beyond those that share the finals' error: it is made at the
    level of the rival's own comparison with the incumbent.
    """
    by_name = {c.names[0]: c for c in standing.contenders}
    default = next((c.names[0] for c in standing.contenders if catalogue.default in c.names), None)
    gains = {name: standing.between(default, name) for name in by_name} if default is not None else {}
    allowed = [name for name, gain in gains.items() if gain and by_name[name].eligible and name not in broken]
    if default is None or not allowed:
        return Advice(source=catalogue.default, alike=())
    reference = by_name[default].setting
    fastest = max(allowed, key=lambda name: _mean(gains[name]))

    def is_slower(name: str) -> bool:
        lead = standing.verdict(name, fastest)
        return lead.low is not None and lead.low > 1

    alike = [name for name in allowed if name == fastest or not is_slower(name)]
    good = [name for name in alike if default in broken or standing.verdict(default, name).word is Word.BETTER]
    # What is fast may be shown to be better where a simpler one is not.
    chosen = min(good, key=lambda name: simplicity(by_name[name].setting, reference, catalogue), default=default)
    return Advice(
        source=_name(by_name[chosen], catalogue.default),
        alike=tuple(_name(by_name[name], catalogue.default) for name in alike),
        gain=None if chosen == default else standing.verdict(default, chosen),
    )


def _mean(estimate: Estimate | None) -> float:
    return -math.inf if estimate is None else estimate.mean


def _name(contender: Contender, default: str) -> str:
    """Return the name that a contender is spoken of by."""
    for known in (default, default + SAME_BATCH, INCUMBENT):
        if known in contender.names:
            return known
    return contender.names[0]


def simplicity(setting: Setting, default: Setting, catalogue: Catalogue) -> tuple[int, int, float]:
    """Return a key that is smaller for simpler settings: fewer threads, then nearer to the default.

    Threads are what the pools start in all; near is few knobs that differ, and these by little (log2).
    """
    values, usual = setting.to_dict(), default.to_dict()
    differing = [name for name in values if values[name] != usual.get(name)]
    steps = sum(
        abs(math.log2(1 + value) - math.log2(1 + other))
        for name in differing
        if isinstance(value := values[name], int) and isinstance(other := usual.get(name), int)
    )
    return catalogue.n_threads(setting), len(differing), steps
