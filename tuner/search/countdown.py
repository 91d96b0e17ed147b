"""The time budget of a run, on the launcher's clock."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.trial.launcher import Launcher


@dataclass(frozen=True, slots=True)
class Countdown:
    """Time since `began_s`, against `total_s`; None is no limit."""

    launcher: Launcher
    began_s: float
    total_s: float | None

    def passed_s(self) -> float:
        """Return the time since the run began."""
        return self.launcher.now() - self.began_s

    def left_s(self) -> float | None:
        """Return what is left; None if there is no limit."""
        return None if self.total_s is None else self.total_s - self.passed_s()

    def is_short_of(self, needed_s: float) -> bool:
        """Return whether less than `needed_s` is left."""
        left = self.left_s()
        return left is not None and left < needed_s
