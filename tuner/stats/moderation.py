"""Moderated variances: what few values scatter by, in the light of what others of their kind do.

Few values may agree by chance. A prior, or the variances of the others, keeps their own from being taken at its word.

Notation
    d, s²     degrees of freedom of a variance, and the variance
    d₀, s₀²   what is believed of it, and how many degrees of freedom that is worth

Source: Smyth (2004), Linear models and empirical Bayes methods for assessing differential expression in microarray
experiments, Statistical Applications in Genetics and Molecular Biology 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy  # scipy.optimize is loaded where a root is first looked for, which many commands do not
from scipy.special import digamma, polygamma, stdtrit

from tuner.stats.estimate import Array, Estimate, estimate

_MIN_VARIANCE = 1e-8  # of log-ratios: no block has a standard deviation of less than 0.01 %
_LEAST_DF, _MOST_DF = 0.5, 200.0  # of what many variances say of one


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is believed of a variance before it is seen: s₀ (`sd`), and d₀ (`df`)."""

    sd: float
    df: float

    def moderate(self, mean: Estimate) -> Estimate:
        """Return an estimate with a moderated standard error, which few values cannot make small by chance.

        s̃² = (d₀ s₀² + d s²) / (d₀ + d), with d₀ + d degrees of freedom: the moderated t-statistic of Smyth (2004),
        Linear models and empirical Bayes methods, eq. 7.
        """
        sum_of_squares = mean.df * mean.n * mean.se**2 if mean.df else 0.0
        df = self.df + mean.df
        return replace(mean, se=math.sqrt((self.df * self.sd**2 + sum_of_squares) / df / mean.n), df=df)


def moderated_estimate(x: Sequence[float] | Array, *, prior_sd: float, prior_df: float) -> Estimate:
    """Return the mean of `x` with a standard error moderated by what the study's other pairs showed."""
    return Prior(sd=prior_sd, df=prior_df).moderate(estimate(x))


def moderated_variances(sums: Array, df: Array) -> Array:
    """Return moderated variances (empirical Bayes), from sums of squares and their degrees of freedom, shape (n,).

    (d₀ s₀² + d_k s_k²) / (d₀ + d_k), with s₀² and d₀ from how the logarithms of the s_k² scatter: Smyth (2004), Linear
    models and empirical Bayes methods, section 6.2. One that is far larger than the others moves them little, which
    their mean would not keep it from. Those without degrees of freedom become s₀²; raises ValueError if all are such.
    """
    has_df = df > 0
    if not has_df.any():
        raise ValueError("cannot estimate a variance without degrees of freedom")
    half = df[has_df] / 2
    e = np.log(np.maximum(sums[has_df] / df[has_df], _MIN_VARIANCE)) - digamma(half) + np.log(half)
    excess_variance = float(e.var(ddof=1) - polygamma(1, half).mean()) if len(e) > 1 else 0.0
    most, least = (float(polygamma(1, d / 2)) for d in (_LEAST_DF, _MOST_DF))
    excess_variance = min(max(excess_variance, least), most)
    half_prior = float(scipy.optimize.brentq(lambda h: polygamma(1, h) - excess_variance, _LEAST_DF / 2, _MOST_DF / 2))
    prior_variance = math.exp(float(e.mean()) + float(digamma(half_prior)) - math.log(half_prior))
    return np.asarray((2 * half_prior * prior_variance + sums) / (2 * half_prior + df))


def half_widths(x: Array) -> Array:
    """Return the half width of the 95 % interval of each column's mean, shape (c,); `x` (r, c) has NaN for none.

    A variance that is small by chance would end a series too early, and leave an interval that covers too seldom. So a
    column's counts as no smaller than its moderated one. A column that does not scatter, as the first does not where
    all are differences to it, says nothing of the others, and is known.
    """
    df = (~np.isnan(x)).sum(axis=0) - 1
    sums = np.nansum((x - np.nanmean(x, axis=0)) ** 2, axis=0)
    scatters = (df > 0) & (sums > 0)
    widths = np.where(df > 0, 0.0, np.inf)
    if scatters.any():
        d = df[scatters]
        variances = np.maximum(sums[scatters] / d, moderated_variances(sums[scatters], d))
        widths[scatters] = -stdtrit(d, 0.025) * np.sqrt(variances / (d + 1))
    return np.asarray(widths)
