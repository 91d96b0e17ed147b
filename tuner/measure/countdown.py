"""The clock of a run: the time since it began, and what is left of its time budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Countdown:
    """Time since `began_s`, on the clock `now`, against `total_s`; None is no limit. All are in seconds."""

    total_s: float | None
    now: Callable[[], float] = time.monotonic
    began_s: float = field(default_factory=time.monotonic)

    def elapsed_s(self) -> float:
        """Return the time since the run began."""
        return self.now() - self.began_s

    def left_s(self) -> float:
        """Return what is left, negative once the time is over; infinite without a limit."""
        return math.inf if self.total_s is None else self.total_s - self.elapsed_s()

    def is_short_of(self, needed_s: float) -> bool:
        """Return whether less than `needed_s` is left."""
        return self.left_s() < needed_s

    @property
    def is_over(self) -> bool:
        """Return whether all of the time is used up."""
        return self.left_s() <= 0
