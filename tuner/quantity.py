"""Numbers with units as people type them: `50ms`, `50 W`, `10/s`, `3%`; a plain number has the unit that is usual."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.errors import BadInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What an option is a number of: its units, each with how many of the usual one it is, and an example."""

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
    what="requests a second",
    units={
        **dict.fromkeys(("/s", "/sec", "/second", "per second", "per sec", "rps", "qps", "tps", "Hz"), 1.0),
        **dict.fromkeys(("req/s", "req/sec", "requests/s", "requests/sec", "requests/second"), 1.0),
        **dict.fromkeys(("requests per second", "requests a second", "queries/s", "queries per second"), 1.0),
        **dict.fromkeys(("/min", "/minute", "per minute", "rpm"), 1 / 60),
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
