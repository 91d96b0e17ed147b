"""Conditions: when a rule applies, as a person would say it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.rules.situation import FEATURE


@dataclass(frozen=True, slots=True, order=True)
class Literal:
    """One comparison: a feature is below a threshold, or is at least that."""

    feature: str
    threshold: float
    below: bool

    def holds(self, values: Mapping[str, float]) -> bool:
        """Return whether it holds; a value that is not known lies on neither side."""
        value = values[self.feature]
        if math.isnan(value):
            return False
        return value < self.threshold if self.below else value >= self.threshold

    def __str__(self) -> str:
        feature = FEATURE[self.feature]
        if feature.is_binary:
            return feature.words[1 if self.below else 0]
        unit = f" {feature.unit}" if feature.unit else ""
        threshold = f"{self.threshold:g}{unit}"
        return f"{feature.words[0]} below {threshold}" if self.below else f"{feature.words[0]} of {threshold} or more"


@dataclass(frozen=True, slots=True)
class Condition:
    """Literals that all have to hold; none at all is always true."""

    literals: tuple[Literal, ...] = ()

    def holds(self, values: Mapping[str, float]) -> bool:
        """Return whether it holds for the values of a situation's features."""
        return all(literal.holds(values) for literal in self.literals)

    def __str__(self) -> str:
        return " and ".join(map(str, self.literals)) or "everywhere"


def thresholds(values: Sequence[float], *, log: bool, at_most: int) -> list[float]:
    """Return round numbers that part the values, one between each two neighbours, `at_most` so many.

    Of more neighbours those that part the values most evenly are taken.
    """
    distinct_values = sorted({value for value in values if not math.isnan(value)})
    cuts = [roundest(a, b, log=log) for a, b in itertools.pairwise(distinct_values)]
    if len(cuts) <= at_most:
        return cuts
    ordered = sorted(value for value in values if not math.isnan(value))
    targets = [ordered[round(q * (len(ordered) - 1) / (at_most + 1))] for q in range(1, at_most + 1)]
    return sorted({min(cuts, key=lambda cut: abs(cut - value)) for value in targets})


def roundest(low: float, high: float, *, log: bool = False) -> float:
    """Return the number above `low` and at most `high` with the fewest digits, near the middle of the two."""
    middle = math.sqrt(low * high) if log and low > 0 else (low + high) / 2
    if low.is_integer() and high.is_integer() and high <= low + 2:
        return high  # of counts: 2 or more, not 1.5 or more
    if middle == 0:
        return 0.0
    for digits in range(1, 17):
        step = 10.0 ** (math.floor(math.log10(abs(middle))) + 1 - digits)
        for part in (1, 2) if digits == 1 else (1,):  # 1.5 is as round as 2
            rounded = float(f"{round(middle / step * part) * step / part:.15g}")
            if low < rounded <= high:
                return rounded
    return high
