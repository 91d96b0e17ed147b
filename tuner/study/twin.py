"""The twin: a second process of the default in the first passes of a run, which shows the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tuner.measure.noise import estimate_noise, noise_alone
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair
from tuner.stats.noise import Noise
from tuner.study.pool import LiveProcess
from tuner.study.turns import Turns
from tuner.trial.outcome import Slice


@dataclass(slots=True, kw_only=True)
class Twin:
    """The process, None once it has left, and its slices beside those of the reference in the same passes."""

    live: LiveProcess | None = None
    pair: Pair = field(default_factory=Pair)

    def is_in(self, live: LiveProcess) -> bool:
        """Return whether a live process is the twin."""
        return live is self.live

    def leave(self, live: LiveProcess) -> None:
        """Forget the process if it is the twin."""
        if live is self.live:
            self.live = None

    def add(self, reference: Sequence[Slice], own: Sequence[Slice]) -> None:
        """Keep what the reference and the twin ran in one pass."""
        if not self.pair.n_blocks:
            self.pair = Pair(slices_per_block=len(reference))
        if len(reference) == len(own) == self.pair.slices_per_block:
            self.pair.reference.extend(reference)
            self.pair.candidate.extend(own)

    def noise(self, turns: Turns, objective: Objective, *, batch_size: int, alone: bool) -> Noise:
        """Return what the slices show: σ_p by the twin, σ_w by all turns. Raises ValueError if there are none.

        Where processes live one at a time, what they differ by is in σ_w.
        """
        if alone:
            return noise_alone(self.pair, objective, batch_size=batch_size)
        noise = estimate_noise([self.pair], objective, batch_size=batch_size, block_sd=turns.block_sd)
        return replace(noise, n_blocks=noise.n_pairs + turns.df)
