"""Estimates of a mean log-ratio from few, noisy, paired observations.

Notation
    x   (n,)   log-ratios; one per block of a pair, or one per round of the finals
    x̄, s       their mean and standard deviation
    y   (r, c) mean log rates of c contenders in r rounds of the finals, NaN where one did not run

Ratios are compared on the log scale, where "twice as fast" and "half as fast" are equally far from 1 and the
mean of ratios does not depend on which side is called the reference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean log-ratio with its standard error; `df` are the degrees of freedom behind `se`, 0 for none.

    `rounding` is the most by which the mean may be off (log) because values were rounded, which no repetition reduces.
    """

    mean: float
    se: float
    n: int
    df: float
    rounding: float = 0.0

    @property
    def ratio(self) -> float:
        """Return the ratio itself."""
        return math.exp(self.mean)

    def minus(self, other: Estimate) -> Estimate:
        """Return the difference to an independent estimate; its degrees of freedom are the fewer of the two."""
        return Estimate(
            mean=self.mean - other.mean,
            se=math.hypot(self.se, other.se),
            n=self.n,
            df=min(self.df, other.df),
            rounding=self.rounding + other.rounding,
        )

    def widened(self, sd: float) -> Estimate:
        """Return the estimate with a deviation that its own values do not show, of this standard deviation (log)."""
        return replace(self, se=math.hypot(self.se, sd))

    def half_width(self, level: float = 0.95) -> float:
        """Return half the width of Student's interval of the mean; infinite where there is nothing to judge by."""
        return math.inf if self.df <= 0 else -float(stdtrit(self.df, (1 - level) / 2)) * self.se

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the ends of Student's interval of the ratio; (0, inf) where there is nothing to judge by."""
        if self.df <= 0 or not math.isfinite(self.se):
            return 0.0, math.inf
        half = self.half_width(level) + self.rounding
        # A ratio past e^±700 has no floating-point value, nor any meaning.
        return math.exp(max(self.mean - half, -700.0)), math.exp(min(self.mean + half, 700.0))


def rounding_error(values: Sequence[float] | Array, resolution: float) -> float:
    """Return the most by which the mean of rounded positive values, shape (n,), may be off (log).

    h = log(1 + q e^(-2 π² σ²/q²) / 2 x̄)    x̄, σ  mean and standard deviation before rounding;  q  the resolution

    Values that do not scatter are all rounded the same way, by up to q/2. Scatter makes up for it: the error falls as
    the characteristic function of a normal distribution at 1/q (Widrow & Kollár 2008, Quantization Noise, ch. 4).
    Rounding alone makes up to q²/4 of the variance, which is therefore left out of σ².
    """
    x = np.asarray(values, dtype=float)
    if not resolution or not len(x):
        return 0.0
    variance = max(0.0, float(x.var()) / resolution**2 - 0.25)
    return math.log1p(0.5 * resolution * math.exp(-2 * math.pi**2 * variance) / float(x.mean()))


def estimate(x: Sequence[float] | Array) -> Estimate:
    """Return the mean of `x` with the textbook standard error s/√n; infinite for a single value."""
    values = np.asarray(x, dtype=float)
    n = len(values)
    if n == 0:
        raise ValueError("no values to estimate a mean from")
    se = float(values.std(ddof=1) / math.sqrt(n)) if n > 1 else math.inf
    return Estimate(mean=float(values.mean()), se=se, n=n, df=n - 1)


def unpaired(a: Sequence[float] | Array, b: Sequence[float] | Array) -> Estimate:
    """Return mean(b) - mean(a) as if the two had been measured apart (Welch's interval)."""
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    va, vb = x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)
    df = (va + vb) ** 2 / (va**2 / (len(x) - 1) + vb**2 / (len(y) - 1)) if va + vb > 0 else math.inf
    return Estimate(mean=float(y.mean() - x.mean()), se=math.sqrt(va + vb), n=len(x) + len(y), df=float(df))


def p_of_equal_means(a: Array, b: Array) -> float:
    """Return how probable means at least so far apart are if the two, shapes (m,) and (n,), m + n > 2, have one mean.

    Student's t-test of two samples with one variance; of one of them alone nothing scatters.
    """
    m, n = len(a), len(b)
    inside = float(((a - a.mean()) ** 2).sum() + ((b - b.mean()) ** 2).sum())
    se = math.sqrt(inside / (m + n - 2) * (1 / m + 1 / n))
    return 2 * float(stdtr(m + n - 2, -abs(float(a.mean() - b.mean())) / max(se, 1e-12)))


def paired(y: Array, a: int, b: int) -> Estimate:
    """Return the log-ratio of contender `b` to contender `a`, from the rounds in which both ran.

    `y` (r, c) holds mean log rates, NaN where a contender did not run. What a round has in common for all contenders
    drops out of the difference: the paired t-test. Its variance is that of these differences alone. Pooled with that of
    other contenders it would be known better, and wrongly where one of them scatters more than the others, as two
    operators at once do in an OpenMP build. No rounds have no estimate: raises ValueError.
    """
    x = y[:, b] - y[:, a]
    return estimate(x[~np.isnan(x)])


def rank_correlation(x: Array, y: Array) -> float | None:
    """Return Spearman's coefficient of two samples of shape (n,), None where either has one value only.

    Equal values have their mean rank.
    """
    a, b = _ranks(x), _ranks(y)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float(a @ b) / scale if scale > 0 else None


def _ranks(x: Array) -> Array:
    """Return the ranks of values, from 0 on, shape (n,)."""
    _, number, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts) - 1
    return np.asarray(last - (counts - 1) / 2)[number]
