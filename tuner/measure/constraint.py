"""Constraints: what a setting must keep to besides being fast, `--max-p99` and `--max-memory`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner.stats.tail import Kept, p99, p99_within


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits, None where there is none: the p99 of the step (s), and the peak memory of a process (bytes)."""

    p99_s: float | None = None
    memory_bytes: int | None = None

    def __bool__(self) -> bool:
        return self.p99_s is not None or self.memory_bytes is not None

    def to_dict(self) -> dict[str, Any]:
        """Return the limits as plain data."""
        return {"p99_s": self.p99_s, "memory_bytes": self.memory_bytes}

    def kept(self, step_s: Sequence[float], memory_bytes: int | None) -> Kept:
        """Return whether a setting with these steps and this peak memory keeps to all limits."""
        found = []
        if self.p99_s is not None:
            found.append(p99_within(step_s, self.p99_s))
        if self.memory_bytes is not None:
            within = Kept.YES if memory_bytes is not None and memory_bytes <= self.memory_bytes else Kept.NO
            found.append(Kept.UNKNOWN if memory_bytes is None else within)
        for answer in (Kept.NO, Kept.UNKNOWN):
            if answer in found:
                return answer
        return Kept.YES

    def nearest(self, seen: Sequence[tuple[Sequence[float], int | None]]) -> str:
        """Return the least that was measured of each limited quantity; `seen` are steps (s) and peak memory."""
        found = []
        if self.p99_s is not None:
            found.append(f"a p99 of {1000 * min(p99(steps) for steps, _ in seen):.3g} ms")
        peaks = [peak for _, peak in seen if peak]
        if self.memory_bytes is not None and peaks:
            found.append(f"{min(peaks) / 1024**2:.0f} MiB")
        return " and ".join(found)

    def excess(self, step_s: Sequence[float], memory_bytes: int | None) -> list[float]:
        """Return, for each limit, log(measured / limit): negative where it is kept; NaN where nothing was measured.

        This is what the search models, so the 99th percentile is taken however few the steps are.
        """
        found = []
        if self.p99_s is not None:
            found.append(math.log(p99(step_s) / self.p99_s) if len(step_s) else math.nan)
        if self.memory_bytes is not None:
            found.append(math.log(memory_bytes / self.memory_bytes) if memory_bytes else math.nan)
        return found
