"""Limits that a setting must meet besides being fast: `--max-p99`, `--max-memory` and `--max-power`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tuner.plain import SPARSE
from tuner.stats.tail import LimitStatus, p99, p99_within


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits, None where there is none.

    The p99 of the step (s), the peak memory of a process (bytes), and the mean power of the device (W).
    """

    p99_s: float | None = None
    memory_bytes: int | None = None
    power_w: float | None = field(default=None, metadata=SPARSE)

    def __bool__(self) -> bool:
        return self.p99_s is not None or self.memory_bytes is not None or self.power_w is not None

    def status(self, step_s: Sequence[float], memory_bytes: int | None, power_w: float | None = None) -> LimitStatus:
        """Return whether a setting with these steps, this peak memory and this power keeps to all limits."""
        statuses = [] if self.p99_s is None else [p99_within(step_s, self.p99_s)]
        statuses += [_status(*each) for each in ((memory_bytes, self.memory_bytes), (power_w, self.power_w))]
        return next((each for each in (LimitStatus.BROKEN, LimitStatus.UNKNOWN) if each in statuses), LimitStatus.MET)

    def unmet_text(self, measurements: Sequence[tuple[Sequence[float], int | None, float | None]]) -> str:
        """Return which limits no setting met, and the least that was measured of each.

        `measurements` are steps (s), peak memory (bytes) and power (W), each of a setting.
        """
        parts = []
        steps = [steps for steps, _, _ in measurements if len(steps)]
        if self.p99_s is not None and not any(p99_within(each, self.p99_s) is LimitStatus.MET for each in steps):
            least = f"; the lowest was {1000 * min(map(p99, steps)):.3g} ms" if steps else ""
            parts.append(f"none has shown a p99 of at most {1000 * self.p99_s:g} ms{least}")
        peaks = [peak for _, peak, _ in measurements if peak]
        if self.memory_bytes is not None and not any(peak <= self.memory_bytes for peak in peaks):
            least = f"; the least was {min(peaks) / 1024**2:.0f} MiB" if peaks else ""
            parts.append(f"none needs at most {self.memory_bytes / 1024**2:.0f} MiB{least}")
        powers = [power for _, _, power in measurements if power]
        if self.power_w is not None and not any(power <= self.power_w for power in powers):
            least = f"; the least was {min(powers):.0f} W" if powers else ""
            parts.append(f"none takes at most {self.power_w:g} W{least}")
        return ", and ".join(parts) or "none meets all limits"

    def excess(self, step_s: Sequence[float], memory_bytes: int | None, power_w: float | None = None) -> list[float]:
        """Return, for each limit, log(measured / limit): negative where it is kept; NaN where nothing was measured.

        This is what the search models, so the 99th percentile is taken however few the steps are.
        """
        p99_s = p99(step_s) if self.p99_s is not None and len(step_s) else None
        pairs = ((p99_s, self.p99_s), (memory_bytes, self.memory_bytes), (power_w, self.power_w))
        return [math.log(value / limit) if value else math.nan for value, limit in pairs if limit is not None]


def _status(value: float | None, limit: float | None) -> LimitStatus:
    """Return whether a value keeps to a limit; what has no limit keeps to it."""
    if limit is None:
        return LimitStatus.MET
    if value is None:
        return LimitStatus.UNKNOWN
    return LimitStatus.MET if value <= limit else LimitStatus.BROKEN
