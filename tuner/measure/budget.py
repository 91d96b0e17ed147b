"""The time budget: how it is typed, the clock of a run, and which share of it goes to what.

Of the time of a search
    predictions     `PREDICTIONS` of it at most, before anything else, unless somebody asked for them
    guides          all the time that they need, up to `OVERRUN` of the budget, or `OVERRUN_S`, beyond its end
    trials          what is left until the finals need the rest
    finals          what a small gain needs at the noise of the machine, `FINALS` of it at most
Of the time of finals
    the default     `PRIMARY` of it is the comparison's with the default alone, unless that is decided before; of the
                    finals of several processes all of it
    same latency    `LATENCY` of what is left once the others are decided, or `PRIMARY` of the time is over; what two
                    rounds need, if that is more
    rivals          the rest, and what is left once nothing is open
    narrowing       what is decided is made narrower once `NARROWING` of it is over
Of the time of a comparison of frameworks
    searches        `SEARCHES` of what is left, each framework as much as the others
    finals          what loading and the scan of batch sizes do not need, from `LEAST_FINALS` to `MOST_FINALS`
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tuner.errors import BadInputError

DEFAULT_TIME_S = 300.0
PREDICTIONS = 0.1
OVERRUN, OVERRUN_S = 0.25, 45.0
FINALS = 0.5
GROUP_FINALS = 0.33
"""What of a budget those of several processes take about, as they come before others of one."""
LATENCY_FINALS = 0.12
"""What of a budget those at the latency of the default take about."""
PRIMARY, GROUP_PRIMARY = 0.5, 1.0
PRIMARY_ROUNDS = 0.8
"""What of the time of finals the rounds of those that are compared with the default take about."""
LATENCY = 0.5
NARROWING = 0.5
SEARCHES = 0.2
LEAST_FINALS, MOST_FINALS = 0.25, 0.55
_UNITS = {
    "d|days?": 86400.0,
    "h|hrs?|hours?": 3600.0,
    "m|mins?|minutes?": 60.0,
    "s|secs?|seconds?": 1.0,
    "ms|milliseconds?": 0.001,
}
_LONGEST_S = 1000 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """`trials` counts the study's trials, finished in earlier runs included; `time_s` is for this run alone."""

    trials: int | None = None
    time_s: float | None = None


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

    @property
    def finals_s(self) -> float:
        """Return the most time that the finals of a search have."""
        return share_s(self.total_s, FINALS)

    def part(self, share: float) -> Countdown:
        """Return the same clock, which ends once a share of what is left is over."""
        return self if self.total_s is None else replace(self, total_s=self.elapsed_s() + share * self.left_s())

    def is_overrun_by(self, needed_s: float) -> bool:
        """Return whether what takes so long (s) would overrun the budget of a search by more than it may."""
        return self.is_short_of(needed_s - max(share_s(self.total_s, OVERRUN), OVERRUN_S))


def share_s(total_s: float | None, share: float) -> float:
    """Return a share (s) of the time; infinite without a limit."""
    return math.inf if total_s is None else share * total_s


def duration_option(seconds: float) -> str:
    """Return a duration as it is typed, rounded up to half a minute: 30s, 3m30s, 12m."""
    minutes, half = divmod(math.ceil(seconds / 30), 2)
    return f"{minutes}m30s" if minutes and half else f"{minutes}m" if minutes else "30s"


def make_budget(trials: int | None, time_budget: str | None) -> Budget:
    """Return the budget of the two options; 5 minutes if neither is given. Raises BadInputError."""
    if trials is not None and trials < 1:
        raise BadInputError(f"--trials is {trials}", "expected at least 1")
    if trials is None and time_budget is None:
        return Budget(time_s=DEFAULT_TIME_S)
    return Budget(trials=trials, time_s=None if time_budget is None else parse_duration(time_budget))


def parse_duration(text: str, *, option: str = "--time-budget") -> float:
    """Return the seconds of `90s`, `5m`, `1.5h`, `1m30s`, `2 min` or a plain number of seconds; BadInputError."""
    number = r"(\d+(?:\.\d+)?)"
    words = text.strip().lower()
    parts = re.fullmatch(" *".join(f"(?:{number} *(?:{unit}))?" for unit in _UNITS), words)
    if words and parts:
        seconds = sum(float(part or 0) * unit for part, unit in zip(parts.groups(), _UNITS.values(), strict=True))
    elif re.fullmatch(number, words):
        seconds = float(words)
    else:
        raise BadInputError(f"{option} is '{text}'", "expected e.g. 90s, 5m or 1h30m")
    if not 0 < seconds <= _LONGEST_S:
        raise BadInputError(f"{option} is '{text}'", f"expected more than 0 s and at most {_LONGEST_S / 3600:g}h")
    return seconds
