"""What a search tells of itself; whoever listens decides what people see of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tuner.measure.rounds import Round
from tuner.stats.noise import Noise
from tuner.study.trials import Trial


class Events(Protocol):
    """Told what happens, between measurements and never during one."""

    def stage(self, text: str) -> None:
        """A new phase begins."""

    def calibrated(self, noise: Noise, floor: float) -> None:
        """The calibration is done; `floor` is the noise floor of finals of the usual length."""

    def trials_started(self, trials: Sequence[Trial], left_s: float) -> None:
        """The processes of these trials are about to be started."""

    def trial_ended(self, trial: Trial, best: Trial | None, left_s: float) -> None:
        """A trial is in the record; `best` is the incumbent now."""

    def round_ended(self, number: int, round_: Round, left_s: float) -> None:
        """A round of the finals is in the record."""
