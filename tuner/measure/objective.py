"""What is compared: the rate of a slice, the larger the better."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tuner.errors import TunerError
from tuner.stats.estimate import rounding_error
from tuner.trial.outcome import Slice
from tuner.workload.digits import resolution_of
from tuner.workload.units import OF_RATES, OF_TIMES, is_time

RESPONSE_UNIT = "ms to respond"
METRIC = "metric"
"""What a command's number is called, whose unit only the command knows."""
_MANY_DIGITS = {3: 2.5e-4, 8: 1e-3}  # of a number, by how many slices have one number alone: runs scatter by more


@dataclass(frozen=True, slots=True, kw_only=True)
class Waking:
    """What the first step after a pause takes beyond the others: a + b s (s), of steps of s seconds."""

    constant_s: float = 0.0
    share: float = 0.0

    def step_s(self, slice_: Slice) -> float:
        """Return how long a step of a slice of k processes takes without that: s, of T = n s + a + b k s.

        Each of them takes its own first step, of k s seconds, while the others take theirs.
        """
        if not slice_.resumed or slice_.window_s is not None:
            return slice_.elapsed_s / slice_.n_steps
        # A constant from longer steps is no reason to believe that a short one takes no time at all.
        rest_s = max(slice_.elapsed_s - self.constant_s, slice_.elapsed_s / 2)
        return rest_s / (slice_.n_steps + self.share * slice_.resumed)


class Objective(StrEnum):
    """What the user wants more of."""

    THROUGHPUT = "throughput"
    """Items per second."""
    LATENCY = "latency"
    """Short steps: the inverse of the median step, at one batch size."""
    ENERGY = "energy"
    """Items per joule."""
    RESPONSE = "response"
    """Short responses to requests that come at random times: the inverse of their mean, at one batch size."""
    CAPACITY = "capacity"
    """Requests per second within a limit. The trials measure throughput, and what that carries is their score."""
    MAXIMIZE = "maximize"
    """The number that a command prints."""
    MINIMIZE = "minimize"
    """The inverse of the number that a command prints."""

    def log_rate(self, slice_: Slice, batch_size: int, waking: Waking | None = None) -> float:
        """Return the natural logarithm of the slice's rate: items/s, 1/(median step or mean response), or a command's.

        Of several numbers it is their median: the first ones of a run are often from its warm-up. If `waking` is known,
        the first step after a pause counts, too.
        """
        is_throughput = self in (Objective.THROUGHPUT, Objective.CAPACITY)
        if is_throughput and waking is not None:
            return math.log(batch_size / waking.step_s(slice_))
        if is_throughput:
            n_steps, elapsed_s = slice_.counted_steps
            return math.log(n_steps * batch_size / elapsed_s)
        if self is Objective.ENERGY:
            if slice_.energy_j is None or slice_.energy_j <= 0:
                raise TunerError("the energy of a slice is not known", "the meter did not move, or is gone: see dmesg")
            return math.log(slice_.n_steps * batch_size / slice_.energy_j)
        if self is Objective.LATENCY:
            return -math.log(statistics.median(slice_.step_s))
        if self is Objective.RESPONSE:
            return -math.log(statistics.fmean(slice_.latency_samples_s))
        logarithm = math.log(statistics.median(slice_.metrics))
        return logarithm if self is Objective.MAXIMIZE else -logarithm

    @property
    def is_of_command(self) -> bool:
        """Return whether it is a number that a command prints."""
        return self in (Objective.MAXIMIZE, Objective.MINIMIZE)

    @property
    def unit(self) -> str:
        """Return what a rate is shown in."""
        units = {
            Objective.THROUGHPUT: "items/s",
            Objective.CAPACITY: "items/s",
            Objective.LATENCY: "steps/s",
            Objective.RESPONSE: RESPONSE_UNIT,
            Objective.ENERGY: "J/item",
        }
        return units.get(self, METRIC)

    @property
    def has_fixed_batch(self) -> bool:
        """Return whether settings of different batch sizes cannot be compared."""
        return self in (Objective.LATENCY, Objective.RESPONSE)

    def shown(self, log_rate: float) -> float:
        """Return the rate that people know: the number itself where less of it is better."""
        if self is Objective.RESPONSE:
            return 1000 * math.exp(-log_rate)
        return math.exp(-log_rate if self.smaller_is_better else log_rate)

    @property
    def smaller_is_better(self) -> bool:
        """Return whether less is better of what `shown` gives."""
        return self in (Objective.RESPONSE, Objective.MINIMIZE, Objective.ENERGY)


def rounding(slices: Sequence[Slice]) -> float:
    """Return the most by which the mean log rate of slices may be off because a command prints few digits."""
    printed = [(statistics.median(each.metrics), each.resolution) for each in slices if each.metrics]
    resolution = printed[0][0] if are_quantised(slices) else resolution_of(printed)
    return rounding_error([median for median, _ in printed], resolution)


def are_quantised(slices: Sequence[Slice]) -> bool:
    """Return whether a command computes its rates or times from coarse ones, as 1000 images in whole seconds.

    All runs then print the same many digits. The step between two such numbers is not known: it may be half of them.
    """
    values = [value for each in slices for value in each.metrics]
    n_alike = sum(bool(each.metrics) for each in slices) if len(set(values)) == 1 else 0
    limit = max((share for fewest, share in _MANY_DIGITS.items() if n_alike >= fewest), default=0.0)
    if not limit or max(each.resolution for each in slices) > limit * values[0]:
        return False
    unit, around = slices[0].unit or slices[0].unit_of_all, slices[0].around
    if unit:  # counted cycles, for one, are the same in all runs
        return is_time(unit) is not None
    return bool(OF_RATES.search(around) or OF_TIMES.search(around))


OF_MODELS = (Objective.THROUGHPUT, Objective.LATENCY, Objective.ENERGY, Objective.CAPACITY)
"""Those that can be asked for by name; a command's follow from whether it is to be minimised."""
