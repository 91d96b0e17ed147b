"""The turns of a study: what every process ran in every pass, and what that says of the settings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from tuner.measure.interruption import Interruption
from tuner.measure.objective import Objective, Waking
from tuner.measure.pair import Pair, blocks_of
from tuner.measure.passes import PassEstimates, Turn, estimate_passes, log_rate
from tuner.space.setting import Setting
from tuner.stats.noise import PRIOR_DF, Noise, components, of_new_processes
from tuner.stats.steady import first_block_deviates
from tuner.study.processes import LiveProcess
from tuner.study.race import RaceDecision
from tuner.study.trials import Trial
from tuner.trial.outcome import Slice


@dataclass(slots=True, kw_only=True)
class Runner:
    """A live process in the passes of a batch. One without a `trial` runs along: the incumbent's, or the twin."""

    live: LiveProcess
    trial: Trial | None = None
    decision: RaceDecision = RaceDecision.CONTINUE
    slices: list[Slice] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)
    """The pass of each slice."""
    interruptions: list[Interruption] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Forget what steps took in another batch."""
        self.live.usual_s = [self.live.facts.step_s]

    @property
    def n_passes(self) -> int:
        """Return how many passes it was in."""
        return len(set(self.passes))

    @property
    def timed_s(self) -> float:
        """Return the time spent inside its slices."""
        return sum(each.elapsed_s for each in self.slices)


class Turns:
    """The turns so far, and what they say; passes are numbered from 1."""

    def __init__(self, reference: Setting, objective: Objective) -> None:
        self._reference, self._objective = reference, objective
        self._all: list[Turn] = []
        self._beside: list[Turn] = []
        """Turns of processes without a trial that no trial has stored yet."""
        self.n_passes = 0
        self.estimates: PassEstimates | None = None
        """What all of them say of the settings; None before the first."""

    def recall(self, finished: Sequence[Trial], noise: Noise) -> None:
        """Take the turns of trials of earlier runs."""
        self._all = [turn for trial in finished for turn in trial.turns]
        self.n_passes = max((turn.in_pass for turn in self._all), default=0)
        self.estimate(noise)

    def add(self, process: int, setting: Setting, slices: Sequence[Slice], *, has_trial: bool) -> None:
        """Add what a process ran in the pass that was counted last."""
        turn = Turn(in_pass=self.n_passes, process=process, setting=setting, slices=tuple(slices))
        self._all.append(turn)
        if not has_trial:
            self._beside.append(turn)

    def take_beside(self) -> tuple[Turn, ...]:
        """Return the turns of processes without a trial, which whoever asks stores."""
        beside, self._beside = self._beside, []
        return tuple(beside)

    def estimate(self, noise: Noise) -> None:
        """Work out what all turns say, by what is known of the noise."""
        self.estimates = estimate_passes(self._all, self._reference, self._objective, noise)

    def pair(self, process: int) -> Pair:
        """Return what the reference and another process of the default, of that number, ran in the same passes.

        A pass with another number of slices than most is left out.
        """
        both = [(a.slices, b.slices) for a, b in self._beside_reference(process) if b.setting == self._reference]
        counts = Counter((len(a), len(b)) for a, b in both)
        usual = max(counts, key=counts.__getitem__, default=(2, 2))
        alike = [(a, b) for a, b in both if (len(a), len(b)) == usual]
        return Pair(
            reference=[each for slices, _ in alike for each in slices],
            candidate=[each for _, slices in alike for each in slices],
            slices_per_block=min(usual),
        )

    def noise(self, pair: Pair, *, alone: bool) -> Noise:
        """Return the noise: σ_p as a pair of the default shows it, σ_w as all turns do.

        Where processes live one at a time, what they differ by is in σ_w. Raises ValueError if the pair is empty.
        """
        x, common = blocks_of(pair, self._objective, batch_size=self._reference.batch_size)
        if alone:
            return of_new_processes(x, common)
        noise = components([x], common.tolist(), block_sd=self._block_sd)
        df = 0 if self.estimates is None else round(self.estimates.contrasts.df - PRIOR_DF)
        return replace(noise, n_blocks=noise.n_pairs + df)

    def is_steady(self, process: int, passes: Collection[int]) -> bool:
        """Return whether the first of a process's passes is like the others, beside the reference."""
        costs = Waking() if self.estimates is None else self.estimates.waking
        x = [
            log_rate(own, self._objective, costs) - log_rate(beside, self._objective, costs)
            for beside, own in self._beside_reference(process)
            if own.in_pass in passes
        ]
        return not first_block_deviates(x, self._block_sd or 0.0)

    @property
    def _block_sd(self) -> float | None:
        """Return the standard deviation of a block (log scale) as all turns show it; None before the first."""
        return None if self.estimates is None else math.sqrt(2) * self.estimates.contrasts.sd

    def _beside_reference(self, process: int) -> list[tuple[Turn, Turn]]:
        """Return each turn of the reference and that of another process in the same pass."""
        others = [turn for turn in self._all if turn.setting == self._reference and turn.process != process]
        beside = {turn.in_pass: turn for turn in reversed(others)}  # in each pass the reference was added first
        own = [turn for turn in self._all if turn.process == process and turn.in_pass in beside]
        return [(beside[turn.in_pass], turn) for turn in own]
