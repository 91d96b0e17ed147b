"""The budget of a search: so many trials, so much time, or both."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tuner.errors import BadInputError

DEFAULT_TIME_S = 300.0
_UNITS = (3600.0, 60.0, 1.0)
_LONGEST_S = 1000 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """`trials` counts the study's trials, finished in earlier runs included; `time_s` is for this run alone."""

    trials: int | None = None
    time_s: float | None = None


def make_budget(trials: int | None, time: str | None) -> Budget:
    """Return the budget of the two options; 5 minutes if neither is given. Raises BadInputError."""
    if trials is not None and trials < 1:
        raise BadInputError(f"--trials is {trials}", "expected at least 1")
    if trials is None and time is None:
        return Budget(time_s=DEFAULT_TIME_S)
    return Budget(trials=trials, time_s=None if time is None else parse_duration(time))


def parse_duration(text: str, *, option: str = "--time-budget") -> float:
    """Return the seconds of `90s`, `5m`, `1.5h`, `1m30s` or a plain number of seconds; raises BadInputError."""
    number = r"(\d+(?:\.\d+)?)"
    parts = re.fullmatch(f"(?:{number}h)?(?:{number}m)?(?:{number}s)?", text)
    if text and parts:
        seconds = sum(float(part or 0) * unit for part, unit in zip(parts.groups(), _UNITS, strict=True))
    elif re.fullmatch(number, text):
        seconds = float(text)
    else:
        raise BadInputError(f"{option} is '{text}'", "expected e.g. 90s, 5m or 1h")
    if not 0 < seconds <= _LONGEST_S:
        raise BadInputError(f"{option} is '{text}'", f"expected more than 0 s and at most {_LONGEST_S / 3600:g}h")
    return seconds
