"""The noise that pairs of processes show: what `tuner.stats.noise` says of their slices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tuner.measure.objective import Objective
from tuner.measure.pair import Pair, log_ratios
from tuner.stats import noise
from tuner.stats.estimate import Array


def estimate_noise(
    pairs: Sequence[Pair], objective: Objective, *, batch_size: int, block_sd: float | None = None
) -> noise.Noise:
    """Return the noise that pairs of one setting with itself show, in the light of the prior.

    `block_sd` is the standard deviation of a block (log scale) if more than these pairs show it. Raises ValueError if
    no pair has a block.
    """
    measured_pairs = [pair for pair in pairs if pair.n_blocks]
    x = [log_ratios(pair, objective, batch_sizes=(batch_size, batch_size)) for pair in measured_pairs]
    sides = [map(pair.block_means, _log_rates(pair, objective, batch_size)) for pair in measured_pairs]
    return noise.components(x, [float(rate) for a, b in sides for rate in (a + b) / 2], block_sd=block_sd)


def noise_alone(pair: Pair, objective: Objective, *, batch_size: int) -> noise.Noise:
    """Return the noise that a pair of one setting with itself shows whose blocks are of new processes each.

    Raises ValueError where it has no block.
    """
    x = log_ratios(pair, objective, batch_sizes=(batch_size, batch_size))
    reference, candidate = map(pair.block_means, _log_rates(pair, objective, batch_size))
    return noise.of_new_processes(x, (reference + candidate) / 2)


def process_sds(studies: Sequence[Sequence[Pair]], objective: Objective) -> list[float]:
    """Return σ_p in studies of one machine and build, of each in the light of all, from the pairs of each."""
    x = [[log_ratios(pair, objective, batch_sizes=(1, 1)) for pair in pairs if pair.n_blocks] for pairs in studies]
    return noise.process_sds(x)


def slice_sd(pairs: Sequence[Pair], objective: Objective, *, batch_size: int) -> float:
    """Return what a slice scatters by inside its process when nothing is paired: noise and drift together."""
    groups = [side for pair in pairs for side in _log_rates(pair, objective, batch_size)]
    df = sum(len(each) - 1 for each in groups)
    return math.sqrt(sum(float(((each - each.mean()) ** 2).sum()) for each in groups) / max(df, 1))


def _log_rates(pair: Pair, objective: Objective, batch_size: int) -> tuple[Array, Array]:
    """Return the log rates of the slices of the reference and of the candidate, shapes (slices,)."""
    reference, candidate = (
        np.array([objective.log_rate(s, batch_size) for s in side]) for side in (pair.reference, pair.candidate)
    )
    return reference, candidate
