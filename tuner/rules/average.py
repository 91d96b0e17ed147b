"""Averages over studies: geometric means whose intervals know that studies of one workload are not independent."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct

from tuner.stats.estimate import Estimate, estimate

Count = Annotated[int, Meta(ge=0)]


class Ratio(Struct, frozen=True, kw_only=True):
    """A geometric mean of ratios over workloads with its 95 % interval, which a single workload does not have."""

    ratio: float
    low: float | None
    high: float | None
    n_workloads: Count

    @classmethod
    def of(cls, average: Estimate) -> Ratio:
        """Return a mean log-ratio as a ratio."""
        low, high = average.interval()
        has_interval = math.isfinite(high)
        return cls(
            ratio=average.ratio,
            low=low if has_interval else None,
            high=high if has_interval else None,
            n_workloads=average.n,
        )


def over_workloads(values: Iterable[tuple[str, float]]) -> Estimate:
    """Return the mean of (workload, log-ratio): of each workload first, then of these; raises ValueError of nothing.

    The workload is the unit: its standard error is what workloads scatter by, s/√C for C of them.
    """
    by_workload: dict[str, list[float]] = defaultdict(list)
    for workload, value in values:
        by_workload[workload].append(value)
    return estimate([math.fsum(each) / len(each) for each in by_workload.values()])


def prediction_interval(average: Estimate) -> tuple[float, float] | None:
    """Return what one more workload lies between with 95 %; None of fewer than two workloads."""
    if average.n < 2 or not math.isfinite(average.se):
        return None
    wide = Estimate(mean=average.mean, se=average.se * math.sqrt(average.n + 1), n=average.n, df=average.df)
    return wide.interval()
