"""Averages over studies: geometric means whose intervals know that studies of one workload are not independent."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tuner.stats.estimate import Estimate, estimate


def over_workloads(values: Iterable[tuple[str, float]]) -> Estimate | None:
    """Return the mean of (workload, log-ratio): of each workload first, then of these; None of nothing.

    The workload is the unit: its standard error is what workloads scatter by, s/√C for C of them.
    """
    by_workload: dict[str, list[float]] = defaultdict(list)
    for workload, value in values:
        by_workload[workload].append(value)
    if not by_workload:
        return None
    return estimate([math.fsum(each) / len(each) for each in by_workload.values()])


def ratio_document(average: Estimate | None) -> dict[str, Any] | None:
    """Return a mean log-ratio as a ratio with its 95 % interval; without one for a single workload."""
    if average is None:
        return None
    low, high = average.interval()
    has_interval = math.isfinite(high)
    return {
        "ratio": average.ratio,
        "low": low if has_interval else None,
        "high": high if has_interval else None,
        "workloads": average.n,
    }


def next_one(average: Estimate | None) -> list[float] | None:
    """Return what one more workload lies between with 95 % (a prediction interval); None of fewer than two."""
    if average is None or average.n < 2 or not math.isfinite(average.se):
        return None
    wide = Estimate(mean=average.mean, se=average.se * math.sqrt(average.n + 1), n=average.n, df=average.df)
    return list(wide.interval())
