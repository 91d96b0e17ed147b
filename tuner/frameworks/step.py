"""Where the time of a step goes: the parts that every framework's is split into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median


class Part(StrEnum):
    """Where time of a step goes."""

    OPERATORS = "operators"
    """An operator runs; on a GPU, one of its kernels."""
    COPIES = "copies"
    """A GPU copies, and runs no kernel."""
    EXECUTOR = "executor"
    """The runtime looks up, schedules and hands over, and no operator runs."""
    WAITING = "waiting"
    """A caller waits for its graph, and nobody runs any of it."""
    PYTHON = "python"
    """None of these: the program that calls the framework."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """Where the time of one step goes (s), by part; their sum is the step.

    `operators_s` are the durations of its operators, and `gaps_s` the times between one's launch and the next: on a CPU
    an operator is launched when it begins. `latencies_s` are the times from a launch to the kernel, on a GPU.
    """

    parts_s: Mapping[Part, float]
    operators_s: Sequence[float]
    gaps_s: Sequence[float]
    latencies_s: Sequence[float]

    @property
    def step_s(self) -> float:
        """Return how long the step lasts."""
        return sum(self.parts_s.values())

    @property
    def exposed(self) -> float:
        """Return 1 - busy / step: the share in which no operator runs, and on a GPU nothing is copied either."""
        busy_s = self.parts_s[Part.OPERATORS] + self.parts_s[Part.COPIES]
        return 1.0 - busy_s / self.step_s

    @property
    def launch_ratio(self) -> float | None:
        """Return the median kernel over the median gap between launches; None for fewer than two operators."""
        gap_s = median(self.gaps_s) if self.gaps_s else 0.0
        return median(self.operators_s) / gap_s if gap_s > 0 else None
