"""Limits that a setting must meet besides being fast: `--max-p99` and `--max-memory`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner.stats.tail import LimitStatus, p99, p99_within


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

    def status(self, step_s: Sequence[float], memory_bytes: int | None) -> LimitStatus:
        """Return whether a setting with these steps and this peak memory keeps to all limits."""
        statuses = []
        if self.p99_s is not None:
            statuses.append(p99_within(step_s, self.p99_s))
        if self.memory_bytes is not None:
            within = (
                LimitStatus.MET
                if memory_bytes is not None and memory_bytes <= self.memory_bytes
                else LimitStatus.BROKEN
            )
            statuses.append(LimitStatus.UNKNOWN if memory_bytes is None else within)
        for answer in (LimitStatus.BROKEN, LimitStatus.UNKNOWN):
            if answer in statuses:
                return answer
        return LimitStatus.MET

    def unmet_text(self, measurements: Sequence[tuple[Sequence[float], int | None]]) -> str:
        """Return which limits no setting met, and the least that was measured of each.

        `measurements` are steps (s) and peak memory (bytes), each of a setting.
        """
        parts = []
        steps = [steps for steps, _ in measurements if len(steps)]
        if self.p99_s is not None and not any(p99_within(each, self.p99_s) is LimitStatus.MET for each in steps):
            least = f"; the lowest was {1000 * min(map(p99, steps)):.3g} ms" if steps else ""
            parts.append(f"none has shown a p99 of at most {1000 * self.p99_s:g} ms{least}")
        peaks = [peak for _, peak in measurements if peak]
        if self.memory_bytes is not None and not any(peak <= self.memory_bytes for peak in peaks):
            least = f"; the least was {min(peaks) / 1024**2:.0f} MiB" if peaks else ""
            parts.append(f"none needs at most {self.memory_bytes / 1024**2:.0f} MiB{least}")
        return ", and ".join(parts) or "none meets both limits"

    def excess(self, step_s: Sequence[float], memory_bytes: int | None) -> list[float]:
        """Return, for each limit, log(measured / limit): negative where it is kept; NaN where nothing was measured.

        This is what the search models, so the 99th percentile is taken however few the steps are.
        """
        excesses = []
        if self.p99_s is not None:
            excesses.append(math.log(p99(step_s) / self.p99_s) if len(step_s) else math.nan)
        if self.memory_bytes is not None:
            excesses.append(math.log(memory_bytes / self.memory_bytes) if memory_bytes else math.nan)
        return excesses
