"""Tail latency: quantiles of the step time, given enough samples, and the test of a limit on p99.

Notation
    n  steps seen;  k  of them longer than a limit
    q  share of all steps that are longer than the limit; "p99 ≤ limit" says q ≤ 0.01

Sources: David & Nagaraja (2003), Order Statistics, section 7.1 (a quantile between order statistics); Clopper & Pearson
(1934), Biometrika 26 (the interval of q).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache

import numpy as np
from scipy.special import betaincinv

from tuner.stats.estimate import Array

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


class LimitStatus(StrEnum):
    """Whether a limit is kept."""

    MET = "kept"
    BROKEN = "broken"
    UNKNOWN = "not known"


@lru_cache(maxsize=64)
def samples_needed(p: float) -> int:
    """Return the fewest samples of which, with 99 % probability, two lie above the p-quantile.

    P(at most one above) = pⁿ + n (1 - p) pⁿ⁻¹ ≤ 0.01; 64 for p90, 662 for p99. With fewer, the quantile is the
    longest step or next to it: an accident, not a property.
    """
    n = 2
    while p**n + n * (1 - p) * p ** (n - 1) > 0.01:
        n += 1
    return n


def quantiles(step_s: Sequence[float] | Array) -> dict[str, float | None]:
    """Return p50, p90 and p99 of the steps (s); None where there are too few samples for one."""
    values = np.asarray(step_s, dtype=float)
    return {
        name: float(np.quantile(values, p)) if len(values) >= samples_needed(p) else None
        for name, p in QUANTILES.items()
    }


def p99(step_s: Sequence[float] | Array) -> float:
    """Return the 99th percentile of the steps (s), however few they are."""
    return float(np.quantile(step_s, 0.99))


def p99_within(step_s: Sequence[float] | Array, limit_s: float, *, level: float = 0.95) -> LimitStatus:
    """Return whether 99 % of the steps take at most `limit_s`, by the interval of the share that takes longer.

    Known either way only where the one-sided interval says so; steps of one process are not independent, so it
    claims too much rather than too little where stalls come in bursts.
    """
    values = np.asarray(step_s, dtype=float)
    n, k = len(values), int((values > limit_s).sum())
    if n == 0:
        return LimitStatus.UNKNOWN
    low = 0.0 if k == 0 else float(betaincinv(k, n - k + 1, 1 - level))
    high = 1.0 if k == n else float(betaincinv(k + 1, n - k, level))
    if low > 0.01:
        return LimitStatus.BROKEN
    return LimitStatus.MET if high <= 0.01 else LimitStatus.UNKNOWN
