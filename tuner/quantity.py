"""Numbers with units as people type them, `50ms`, `50 W`, `10/s`, `3%`, and as people read them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.errors import BadInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What an option is a number of: its units, each with how many of the usual one it is, and an example.

    A plain number has the usual unit.
    """

    what: str
    units: Mapping[str, float]
    example: str

    def parse(self, text: str | float, option: str) -> float:
        """Return the number in the usual unit; raises BadInputError with the units that there are."""
        if isinstance(text, int | float) and not isinstance(text, bool):
            return float(text)
        match = re.fullmatch(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?nan|[+-]?inf) *(.*)", str(text).strip())
        unit = None if match is None else next((u for u in self.units if u.lower() == match[2].lower()), None)
        if match is None or (match[2] and unit is None):
            names: dict[float, str] = {}
            for name, size in self.units.items():
                names.setdefault(size, name)
            raise BadInputError(
                f"{option} is '{text}'",
                f"expected {self.what}, e.g. {self.example}; its units are {', '.join(names.values())}",
            )
        number = float(match[1]) * (1.0 if unit is None else self.units[unit])
        return number if math.isnan(number) else float(f"{number:.12g}")  # 0.05 s is 50 ms, without a tail of digits


MILLISECONDS = Quantity(
    what="a time",
    units={
        **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), 1.0),
        **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1000.0),
        # The micro sign, and the Greek letter that looks the same.
        **dict.fromkeys(("us", "\u00b5s", "\u03bcs", "usec", "usecs", "microsecond", "microseconds"), 0.001),
    },
    example="50ms or 0.05s",
)
WATTS = Quantity(what="a power", units={"W": 1.0, "kW": 1000.0, "watts": 1.0, "watt": 1.0}, example="50W")
PER_SECOND = Quantity(
    what="requests per second",
    units={
        **dict.fromkeys(("/s", "/sec", "/second", "per second", "per sec", "rps", "qps", "tps", "Hz"), 1.0),
        **dict.fromkeys(("req/s", "req/sec", "requests/s", "requests/sec", "requests/second"), 1.0),
        **dict.fromkeys(("requests per second", "requests a second", "queries/s", "queries per second"), 1.0),
        **dict.fromkeys(("/min", "/minute", "per minute", "rpm"), 1 / 60),
        **dict.fromkeys(("/h", "/hour", "per hour"), 1 / 3600),
        **dict.fromkeys(("k/s", "krps", "kqps", "kHz"), 1000.0),
    },
    example="10/s or 600/min",
)
PERCENT = Quantity(what="a percentage", units={"%": 1.0, "percent": 1.0, "pct": 1.0}, example="3%")
CPUS = Quantity(
    what="a number of CPUs",
    units={"%": 0.01, "m": 0.001, **dict.fromkeys(("cpu", "cpus", "core", "cores"), 1.0)},
    example="1.5, 150% or 1500m",
)


def plural(n: int, noun: str, nouns: str | None = None) -> str:
    """Return a count with its noun; `nouns` where its plural has another ending."""
    return f"{n} {noun if n == 1 else nouns or f'{noun}s'}"


def percent(share: float, digits: int = 1) -> str:
    """Return a share in percent."""
    return f"{100 * share:.{digits}f} %"


def ratio_text(ratio: float | None, low: float | None, high: float | None, sign: str = "") -> str:
    """Return a ratio with its interval, `1.05 [1.01, 1.09]`, to the digits that the interval leaves meaning.

    `sign` follows the ratio, such as × in a sentence.
    """
    if ratio is None:
        return "—"
    if low is None or high is None:
        return f"{ratio:.2f}{sign}"
    digits = _ratio_digits(low, high)
    return f"{ratio:.{digits}f}{sign} {interval_text(low, high)}"


def interval_text(low: float, high: float) -> str:
    """Return an interval of ratios, `[1.01, 1.09]`."""
    digits = _ratio_digits(low, high)
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def _ratio_digits(low: float, high: float) -> int:
    return 3 if high - low < 0.02 else 2


def rate_text(rate: float) -> str:
    """Return a rate with three digits at least."""
    return f"{rate:.1f}" if rate >= 10 else f"{rate:.3g}"


def ms_text(ms: float | None) -> str:
    """Return a step time in ms with three digits at least."""
    return "—" if ms is None else f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"


def gib_text(n_bytes: float | None, digits: int = 2) -> str:
    """Return an amount of memory (bytes) in GiB."""
    return "—" if n_bytes is None else f"{n_bytes / 2**30:.{digits}f} GiB"


def energy_text(joules: float | None) -> str:
    """Return an energy with three digits at least."""
    return "—" if joules is None else f"{joules:.3g} J" if joules >= 0.1 else f"{1000 * joules:.3g} mJ"


def duration_text(seconds: float | None) -> str:
    """Return a duration as people say it."""
    if seconds is None:
        return "—"
    if 0 < seconds < 0.95:
        return f"{seconds:.2g} s"
    whole_s = round(max(0.0, seconds))
    return f"{whole_s // 60} min {whole_s % 60:02d} s" if whole_s >= 60 else f"{whole_s} s"


def left_text(left_s: float) -> str:
    """Return how much time is left, to follow what was said; nothing where there is no end."""
    return f", {duration_text(left_s)} left" if left_s < math.inf else ""


def clock_text(seconds: float) -> str:
    """Return a duration as a clock shows it, `4:05`."""
    whole_s = round(max(0.0, seconds))
    return f"{whole_s // 60}:{whole_s % 60:02d}"


def age_text(seconds: float) -> str:
    """Return how old something is, in its largest unit of which there are two or more."""
    for size_s, unit in ((365.25 * 86400, "year"), (30.44 * 86400, "month"), (86400, "day"), (3600, "hour")):
        if seconds >= 2 * size_s:
            return f"{int(seconds // size_s)} {unit}s old"
    return "1 hour old" if seconds >= 3600 else "less than an hour old"
