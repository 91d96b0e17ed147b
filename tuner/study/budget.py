"""The budget of a search: so many trials, so much time, or both."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from tuner.errors import BadInputError

DEFAULT_TIME_S = 300.0
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


def duration_option(seconds: float) -> str:
    """Return a duration as it is typed, rounded up to half a minute: 30s, 3m30s, 12m."""
    minutes, half = divmod(math.ceil(seconds / 30), 2)
    return f"{minutes}m30s" if minutes and half else f"{minutes}m" if minutes else "30s"


def make_budget(trials: int | None, time: str | None) -> Budget:
    """Return the budget of the two options; 5 minutes if neither is given. Raises BadInputError."""
    if trials is not None and trials < 1:
        raise BadInputError(f"--trials is {trials}", "expected at least 1")
    if trials is None and time is None:
        return Budget(time_s=DEFAULT_TIME_S)
    return Budget(trials=trials, time_s=None if time is None else parse_duration(time))


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
