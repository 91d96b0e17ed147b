"""Steady state: whether the speed of a process still changes after its warm-up.

The child warms up by one rule for every setting (`tuner.child.worker`); what it cannot see, as its neighbours start
meanwhile, a pair can: its first block stands apart from the others. So can rounds: each time, the last slices are
slower than the first. Such a workload is labelled, not waited for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

_MIN_CHANGE = 0.05  # log-ratio: smaller changes do not count as warm-up
_SDS = 4.0


def has_trend(changes: Sequence[float]) -> bool:
    """Return whether all processes became clearly faster, or all clearly slower, while they ran.

    `changes`, shape (n,), are log-ratios of a round's (or a pair's) last slices to its first. One alone may be the
    drift of the machine, and two have to be twice as large as more.
    """
    least = _MIN_CHANGE if len(changes) > 2 else 2 * _MIN_CHANGE
    return len(changes) > 1 and (min(changes) > least or max(changes) < -least)


def first_block_deviates(x: Sequence[float], sd: float) -> bool:
    """Return whether the first of a pair's log-ratios, shape (n,), lies apart from the mean of the others.

    `sd` is the standard deviation of a block in this study. One block alone says nothing.
    """
    if len(x) < 2:
        return False
    difference = abs(x[0] - float(np.mean(x[1:])))
    return difference > max(_MIN_CHANGE, _SDS * sd * math.sqrt(1 + 1 / (len(x) - 1)))
