"""The noise that pairs of processes show: what `tuner.stats.noise` says of their slices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.measure.objective import Objective
from tuner.measure.pair import Pair, log_rates, log_ratios
from tuner.stats import noise
from tuner.stats.estimate import Array


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
