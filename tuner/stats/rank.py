"""Rank correlation: whether two orders of the same things agree (Spearman 1904)."""

from __future__ import annotations

import numpy as np

from tuner.stats.estimate import Array


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
