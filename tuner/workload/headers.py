"""Units that stand away from their numbers: in the head of a table, in a field beside them, or at a list's end.

    Name (time in us)     Min     Mean          benchmark programs choose such a unit again in each run, and
    test_predict        598.1    667.9          {"latency": 1.2, "unit": "ms"} has another one in the next

Which number they belong to is not known. So nothing is converted: a run is refused if its units differ from the units
of the first run, and the difference explains why its numbers do.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence

from tuner.workload.units import PREFIXES, TIMES, NoNumberError, scales

_TIME = "|".join(map(re.escape, sorted(TIMES, key=len, reverse=True)))
_PREFIX = "|".join(sorted(PREFIXES, key=len, reverse=True))
_RATE = rf"(?:{_PREFIX})? ?(?:[A-Za-z]+/(?:{_TIME})|[A-Za-z]*ps|Hz|flops)"
_UNIT = rf"(?P<unit>(?i:{_TIME})|{_RATE}|{_PREFIX})"
_LOOKED_AT = 1 << 16  # characters at each end of an output
_PLACES = [
    re.compile(rf"[\[(]{_UNIT}[\])]"),
    re.compile(rf"\b(?i:in) {_UNIT}(?![\w/])"),
    re.compile(rf"(?i:units?)[\"']?\s*[:=]\s*[\"']?{_UNIT}(?![\w/])"),
    re.compile(rf"(?:^|[,;|\t\"'])\s*{_UNIT}\s*(?=$|[,;|\t\"'])", re.MULTILINE),
    # Behind a number: the end of a list such as 1.2, 3.4 ms, and what stands apart, [1.2]  ms.
    re.compile(rf"(?<![\w.])[0-9][0-9.,]*(?:[^\w\n]|_){{0,4}}{_UNIT}(?![\w/])"),
]


def units_in(lines: str) -> tuple[str, ...]:
    """Return the units that an output names, each once."""
    ends = lines if len(lines) <= 2 * _LOOKED_AT else f"{lines[:_LOOKED_AT]}\n{lines[-_LOOKED_AT:]}"
    return tuple(sorted({" ".join(found["unit"].split()) for each in _PLACES for found in each.finditer(ends)}))


def check_alike(
    values: Sequence[float], units: Sequence[str], first_values: Sequence[float], first_units: Sequence[str]
) -> None:
    """Raise NoNumberError if numbers without units differ from the numbers of the first run because these units do."""
    apart = math.log(statistics.median(values) / statistics.median(first_values))
    gone = [each for each in first_units if each not in units] or [""]
    for new in [each for each in units if each not in first_units] or [""]:
        for old in gone:
            if any(abs(apart + math.log(scale)) < abs(apart) for scale in _scales(new, old)):
                raise NoNumberError(
                    f"the numbers have no unit, and the output names {new or 'none'} where that of the first run named "
                    f"{old or 'none'}",
                    "let the command print one unit under every setting: pytest-benchmark has --benchmark-time-unit=ms",
                )


def _scales(unit: str, other: str) -> list[float]:
    """Return how many of the other unit one of this unit may be; "" is the unit without a prefix."""
    own, others = scales(unit), scales(other)
    if unit and other:
        return [own[root] / others[root] for root in own if root in others]
    return [*own.values()] if unit else [1 / each for each in others.values()]
