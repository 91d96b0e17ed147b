"""Estimates of a mean log-ratio from few, noisy, paired observations.

Notation
    x   (n,)   log-ratios; one per quad of a pair, or one per round of the finals
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
import scipy  # scipy.optimize is loaded where a root is first looked for, which many commands do not
from numpy.typing import NDArray
from scipy.special import digamma, polygamma, stdtrit

Array = NDArray[np.float64]

_LEAST_VARIANCE = 1e-8  # of log-ratios: no quads scatter by less than 0.01 %
_LEAST_DF, _MOST_DF = 0.5, 200.0  # of what many variances say of one


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean log-ratio with its standard error; `df` are the degrees of freedom behind `se`, 0 for none."""

    mean: float
    se: float
    n: int
    df: float

    @property
    def ratio(self) -> float:
        """Return the ratio itself."""
        return math.exp(self.mean)

    def minus(self, other: Estimate) -> Estimate:
        """Return the difference to an independent estimate; its degrees of freedom are the fewer of the two."""
        return Estimate(
            mean=self.mean - other.mean, se=math.hypot(self.se, other.se), n=self.n, df=min(self.df, other.df)
        )

    def widened(self, sd: float) -> Estimate:
        """Return the estimate with a deviation that its own values do not show, of this standard deviation (log)."""
        return replace(self, se=math.hypot(self.se, sd))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the ends of Student's interval of the ratio; (0, inf) where there is nothing to judge by."""
        if self.df <= 0 or not math.isfinite(self.se):
            return 0.0, math.inf
        half = -float(stdtrit(self.df, (1 - level) / 2)) * self.se
        # A ratio past e^±700 has no floating-point value, nor any meaning.
        return math.exp(max(self.mean - half, -700.0)), math.exp(min(self.mean + half, 700.0))


def estimate(x: Sequence[float] | Array) -> Estimate:
    """Return the mean of `x` with the textbook standard error s/√n; infinite for a single value."""
    values = np.asarray(x, dtype=float)
    n = len(values)
    if n == 0:
        raise ValueError("no values to estimate a mean from")
    se = float(values.std(ddof=1) / math.sqrt(n)) if n > 1 else math.inf
    return Estimate(mean=float(values.mean()), se=se, n=n, df=n - 1)


def moderated(x: Sequence[float] | Array, *, prior_sd: float, prior_df: float) -> Estimate:
    """Return the mean of `x` with a standard error that few values cannot make accidentally small.

    s̃² = (d₀ s₀² + d s²) / (d₀ + d), with d = n - 1 and d₀ + d degrees of freedom: the moderated t-statistic of
    Smyth (2004), Linear models and empirical Bayes methods, eq. 7. s₀ is what the study's other pairs showed.
    """
    values = np.asarray(x, dtype=float)
    n = len(values)
    d = n - 1
    s2 = float(values.var(ddof=1)) if n > 1 else 0.0
    variance = (prior_df * prior_sd**2 + d * s2) / (prior_df + d)
    return Estimate(mean=float(values.mean()), se=math.sqrt(variance / n), n=n, df=prior_df + d)


def squeezed(sums: Array, df: Array) -> Array:
    """Return many variances, each in the light of all, from sums of squares and their degrees of freedom, shape (n,).

    (d₀ s₀² + d_k s_k²) / (d₀ + d_k), with s₀² and d₀ from how the logarithms of the s_k² scatter: Smyth (2004), Linear
    models and empirical Bayes methods, section 6.2. One that is far larger than the others moves them little, which
    their mean would not keep it from. Those without degrees of freedom become s₀²; raises ValueError if all are such.
    """
    told = df > 0
    if not told.any():
        raise ValueError("no degrees of freedom: no variance can be told")
    half = df[told] / 2
    e = np.log(np.maximum(sums[told] / df[told], _LEAST_VARIANCE)) - digamma(half) + np.log(half)
    beyond = float(e.var(ddof=1) - polygamma(1, half).mean()) if len(e) > 1 else 0.0
    most, least = (float(polygamma(1, d / 2)) for d in (_LEAST_DF, _MOST_DF))
    beyond = min(max(beyond, least), most)
    half_prior = float(scipy.optimize.brentq(lambda h: polygamma(1, h) - beyond, _LEAST_DF / 2, _MOST_DF / 2))
    usual = math.exp(float(e.mean()) + float(digamma(half_prior)) - math.log(half_prior))
    return np.asarray((2 * half_prior * usual + sums) / (2 * half_prior + df))


def pooled_sd(groups: Sequence[Sequence[float]], *, prior_sd: float, prior_df: float) -> float:
    """Return the standard deviation inside groups, pooled over them and with a prior for when there are few."""
    total, df = prior_df * prior_sd**2, prior_df
    for group in groups:
        if len(group) > 1:
            total += float(np.var(group, ddof=1)) * (len(group) - 1)
            df += len(group) - 1
    return math.sqrt(total / df)


def unpaired(a: Sequence[float] | Array, b: Sequence[float] | Array) -> Estimate:
    """Return mean(b) - mean(a) as if the two had been measured apart (Welch's interval)."""
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    va, vb = x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)
    df = (va + vb) ** 2 / (va**2 / (len(x) - 1) + vb**2 / (len(y) - 1)) if va + vb > 0 else math.inf
    return Estimate(mean=float(y.mean() - x.mean()), se=math.sqrt(va + vb), n=len(x) + len(y), df=float(df))


def paired(y: Array, a: int, b: int) -> Estimate:
    """Return the log-ratio of contender `b` to contender `a`, from the rounds in which both ran.

    `y` (r, c) holds mean log rates, NaN where a contender did not run. A round's weather, good or bad for all, drops
    out of the difference: the paired t-test. Its variance is that of these differences alone. Pooled with that of
    other contenders it would be known better, and wrongly where one of them scatters more than the others, as two
    operators at once do in an OpenMP build. No rounds have no estimate: raises ValueError.
    """
    x = y[:, b] - y[:, a]
    return estimate(x[~np.isnan(x)])
