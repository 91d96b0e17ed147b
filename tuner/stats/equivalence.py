"""Equivalence: whether a log-ratio is shown to be better, worse, or no different within a practical margin."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from scipy.special import ndtr

from tuner.stats import MARGIN as MARGIN
from tuner.stats import Z95
from tuner.stats.estimate import Estimate

_HOPELESSLY_WIDE = math.log(1.5)
MIN_DF = 2.0
"""Of a decision: with one, the width of an interval depends on whether two numbers happen to agree."""


class VerdictCode(StrEnum):
    """What is said of a speed-up."""

    BETTER = "better"
    NO_DIFFERENCE = "no difference"
    WORSE = "worse"
    UNDECIDED = "undecided"


DIFFERENCES = frozenset({VerdictCode.BETTER, VerdictCode.WORSE})
"""What is said where a difference is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The speed-up of the incumbent over a baseline with its interval; None where nothing can be said."""

    speedup: float | None
    low: float | None
    high: float | None
    code: VerdictCode


IDENTICAL = Verdict(speedup=1.0, low=1.0, high=1.0, code=VerdictCode.NO_DIFFERENCE)
"""The incumbent against its own setting under another name."""
UNMEASURED = Verdict(speedup=None, low=None, high=None, code=VerdictCode.UNDECIDED)


def verdict_on(estimate: Estimate, *, level: float = 0.95, margin: float = MARGIN) -> Verdict:
    """Return the verdict on a log-ratio, by its interval at `level` and the practical `margin` (0.02 for 2 %).

    better or worse: the interval excludes 1, and the estimate is beyond the margin. no difference: the whole interval
    lies inside the margin, which is an equivalence test (Westlake 1976, Biometrics 32; at 95 % a stricter one than the
    usual two one-sided tests at 5 %). Anything else is undecided: no evidence, no claim; and no number at all where
    the interval reaches more than half as much again up and down. Two rounds decide nothing,
    unless there is a prior of what rounds scatter by.
    """
    low, high = estimate.interval(level)
    speedup, most = estimate.ratio, 1 + margin
    if estimate.df < MIN_DF:
        word = VerdictCode.UNDECIDED
    elif low > 1 and speedup > most:
        word = VerdictCode.BETTER
    elif high < 1 and speedup < 1 / most:
        word = VerdictCode.WORSE
    elif low >= 1 / most and high <= most:
        word = VerdictCode.NO_DIFFERENCE
    else:
        word = VerdictCode.UNDECIDED
    is_wide = estimate.df <= 0 or math.log(max(high, 1e-300)) - estimate.mean > _HOPELESSLY_WIDE
    if word is VerdictCode.UNDECIDED and is_wide:
        return UNMEASURED
    return Verdict(speedup=speedup, low=low, high=high, code=word)


def verdict_probability(difference: float, se: float, *, margin: float = MARGIN) -> float:
    """Return the probability that an estimate with this standard error is judged at all, for a true `difference` (log).

    A normal approximation: |x| is beyond both the margin and 1.96 standard errors, or closer to 0 than the margin by so
    much.
    """
    outer, inner = max(math.log1p(margin), Z95 * se), math.log1p(margin) - Z95 * se
    claim = ndtr((-outer - difference) / se) + ndtr((difference - outer) / se)
    equal = ndtr((inner - difference) / se) - ndtr((-inner - difference) / se) if inner > 0 else 0.0
    return float(claim + equal)
