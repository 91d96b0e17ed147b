"""What is compared: the rate of a slice, the larger the better."""

from __future__ import annotations

import math
import statistics
from enum import StrEnum

from tuner.trial.outcome import Slice


class Objective(StrEnum):
    """What the user wants more of."""

    THROUGHPUT = "throughput"
    """Items per second."""
    LATENCY = "latency"
    """Short steps: the inverse of the median step, at one batch size."""

    def log_rate(self, slice_: Slice, batch_size: int) -> float:
        """Return the natural logarithm of the slice's rate: items/s, or 1/(median step in s)."""
        if self is Objective.THROUGHPUT:
            return math.log(slice_.n_steps * batch_size / slice_.elapsed_s)
        return -math.log(statistics.median(slice_.step_s))
