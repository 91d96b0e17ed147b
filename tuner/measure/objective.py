"""What is compared: the rate of a slice, the larger the better."""

from __future__ import annotations

import math
import statistics
from enum import StrEnum

from tuner.trial.outcome import Slice

METRIC = "metric"
"""What a command's number is called, whose unit only the command knows."""


class Objective(StrEnum):
    """What the user wants more of."""

    THROUGHPUT = "throughput"
    """Items per second."""
    LATENCY = "latency"
    """Short steps: the inverse of the median step, at one batch size."""
    MAXIMIZE = "maximize"
    """The number that a command prints."""
    MINIMIZE = "minimize"
    """The inverse of the number that a command prints."""

    def log_rate(self, slice_: Slice, batch_size: int) -> float:
        """Return the natural logarithm of the slice's rate: items/s, or 1/(median step in s), or of a command's number.

        Of several numbers it is their median: the first ones of a run are often from its warm-up.
        """
        if self is Objective.THROUGHPUT:
            n_steps, elapsed_s = slice_.counted_steps
            return math.log(n_steps * batch_size / elapsed_s)
        if self is Objective.LATENCY:
            return -math.log(statistics.median(slice_.step_s))
        logarithm = math.log(statistics.median(slice_.metrics))
        return logarithm if self is Objective.MAXIMIZE else -logarithm

    @property
    def unit(self) -> str:
        """Return what a rate is shown in."""
        return {Objective.THROUGHPUT: "items/s", Objective.LATENCY: "steps/s"}.get(self, METRIC)

    def shown(self, log_rate: float) -> float:
        """Return the rate that people know: the number itself where less of it is better."""
        return math.exp(-log_rate if self is Objective.MINIMIZE else log_rate)


OF_MODELS = (Objective.THROUGHPUT, Objective.LATENCY)
"""Those that can be asked for by name; a command's follow from whether it is to be minimised."""
