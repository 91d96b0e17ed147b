"""The pair: two live processes in passes of two, A B B A and then B A A B, so that drift affects both alike.

A pass gives one log-ratio, in which a drift that is linear over the pass has dropped out. As every pass goes the other
way than the one before, both run equally often after the other. A process whose steps are long has one slice in a pass
(`tuner.measure.passes.long_ones`): A B A, or where both are very long, A B and then B A.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tuner.measure.interruption import Interruption
from tuner.measure.objective import Objective
from tuner.measure.passes import Live, Passes, long_ones, waking, whole_steps
from tuner.measure.planning import SLICE_S
from tuner.stats import noise
from tuner.stats.estimate import Array
from tuner.trial.outcome import Slice, TrialFailure

_REFERENCE, _CANDIDATE = "reference", "candidate"


class ReferenceLost(Exception):  # noqa: N818  # as TrialFailure: a state of the study, not an error of the tool
    """The reference process failed; the candidate is not to blame."""

    def __init__(self, failure: TrialFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The raw slices of a pair, of the reference and of the candidate, each in order of time.

    A block is a pass. It has `slices_per_block` slices of the one that has fewer, and equally many of the other in
    every block. `interruptions` says why slices or blocks were measured again.
    """

    reference: list[Slice] = field(default_factory=list)
    candidate: list[Slice] = field(default_factory=list)
    interruptions: list[Interruption] = field(default_factory=list)
    slices_per_block: int = 2

    @property
    def n_blocks(self) -> int:
        """Return the number of complete blocks."""
        return min(len(self.reference), len(self.candidate)) // self.slices_per_block

    def block_means(self, values: Array) -> Array:
        """Return the mean of each block, shape (n_blocks,), of what each slice of a side has."""
        per_block = max(1, len(values) // max(1, self.n_blocks))
        return np.asarray(values.reshape(-1, per_block).mean(axis=1), dtype=float)

    @property
    def timed_s(self) -> float:
        """Return the time spent inside slices."""
        return sum(s.elapsed_s for s in self.reference) + sum(s.elapsed_s for s in self.candidate)

    def is_long(self, limit_s: float) -> bool:
        """Return whether one more block would make its slices last for more than `limit_s`."""
        return self.timed_s * (1 + 1 / max(self.n_blocks, 1)) > limit_s


def log_rates(pair: Pair, objective: Objective, *, batch_sizes: tuple[int, int]) -> tuple[Array, Array]:
    """Return the log rates of the slices of the candidate and of the reference, shapes (slices,).

    `batch_sizes` are in that order, too. What the first step after a pause takes is estimated from all slices.
    """
    costs = waking([*pair.reference, *pair.candidate])
    candidate, reference = (
        np.array([objective.log_rate(each, batch_size, costs) for each in side])
        for side, batch_size in zip((pair.candidate, pair.reference), batch_sizes, strict=True)
    )
    return candidate, reference


def log_ratios(pair: Pair, objective: Objective, *, batch_sizes: tuple[int, int]) -> Array:
    """Return the log-ratio candidate/reference of each block, shape (n_blocks,); `batch_sizes` in that order too."""
    candidate, reference = map(pair.block_means, log_rates(pair, objective, batch_sizes=batch_sizes))
    return np.asarray(candidate - reference)


def run_pair(
    reference: Live,
    candidate: Live,
    *,
    enough: Callable[[Pair], bool],
    slice_s: float = SLICE_S,
    min_passes: int = 1,
    max_passes: int = 8,
    rng: np.random.Generator | None = None,
) -> Pair:
    """Time two live processes in passes, until `enough` says so after `min_passes`, or for `max_passes`.

    A pass that was interrupted is not kept, but for the last ones if the machine keeps interrupting. `rng` tells who
    begins. Raises TrialFailure for the candidate's failure, ReferenceLost for the reference's.
    """
    live, ask_s = {_REFERENCE: reference, _CANDIDATE: candidate}, whole_steps(slice_s)
    once = long_ones(live, ask_s)
    pair = Pair(slices_per_block=1 if once else 2)
    passes = Passes(rng=rng or np.random.default_rng())
    while pair.n_blocks < max_passes and (pair.n_blocks < min_passes or not enough(pair)):
        done = passes.run(live, ask_s, once=once)
        if _REFERENCE in done.failures:
            raise ReferenceLost(done.failures[_REFERENCE]) from done.failures[_REFERENCE]
        if _CANDIDATE in done.failures:
            raise done.failures[_CANDIDATE]
        pair.interruptions.extend(done.interruptions)
        if not done.counts:
            continue
        pair.reference.extend(done.slices[_REFERENCE])
        pair.candidate.extend(done.slices[_CANDIDATE])
    return pair


# ---- noise ----------------------------------------------------------------------------------------------------------


def estimate_noise(pairs: Sequence[Pair], objective: Objective, *, batch_size: int) -> noise.Noise:
    """Return the noise that pairs of one setting with itself show, in the light of the prior.

    Raises ValueError if no pair has a block.
    """
    blocks = [blocks_of(pair, objective, batch_size=batch_size) for pair in pairs if pair.n_blocks]
    return noise.components([x for x, _ in blocks], [float(rate) for _, common in blocks for rate in common])


def blocks_of(pair: Pair, objective: Objective, *, batch_size: int) -> tuple[Array, Array]:
    """Return (x, common) of a pair of one setting, shapes (n_blocks,).

    These are the log-ratios of its blocks, and the log rates that both processes had together.
    """
    a, b = map(pair.block_means, log_rates(pair, objective, batch_sizes=(batch_size, batch_size)))
    return a - b, (a + b) / 2


def process_sds(studies: Sequence[Sequence[Pair]], objective: Objective) -> list[float]:
    """Return σ_p in studies of one machine and build, of each in the light of all, from the pairs of each."""
    x = [[log_ratios(pair, objective, batch_sizes=(1, 1)) for pair in pairs if pair.n_blocks] for pairs in studies]
    return noise.process_sds(x)


def slice_sd(pairs: Sequence[Pair], objective: Objective, *, batch_size: int) -> float:
    """Return what a slice scatters by inside its process when nothing is paired: noise and drift together."""
    groups = [side for pair in pairs for side in log_rates(pair, objective, batch_sizes=(batch_size, batch_size))]
    df = sum(len(each) - 1 for each in groups)
    return math.sqrt(sum(float(((each - each.mean()) ** 2).sum()) for each in groups) / max(df, 1))
