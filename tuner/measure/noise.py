"""The noise floor: what one setting looks like against itself, and so what can be told apart at all.

Notation
    x_ij   log-ratio of quad j of pair i, A against A: its mean is 0 but for luck and noise
    σ_q    what a quad scatters by inside a pair; as two slices stand against two, also what one slice scatters by
    σ_p    what two processes of one setting differ by, however long each is measured (the luck of a process)
    n_i    quads of pair i;   x̄_i their mean:   E x̄_i² = 2σ_p² + σ_q²/n_i, as the true ratio is known to be 1
    s_k²   what the studies other than k say of σ_p²
    r, m   rounds of finals, and slices of a contender in each:   se² = 2 (σ_p² + σ_q²/m) / r

Sources: Searle, Casella & McCulloch (1992), Variance Components, ch. 3 (estimates from mean squares); many variances of
few degrees of freedom, each in the light of all: Smyth (2004), Linear models and empirical Bayes methods, Statistical
Applications in Genetics and Molecular Biology 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtrit

from tuner.measure.objective import Objective
from tuner.measure.pair import Pair, log_ratios
from tuner.measure.statistics import Array, squeezed

# What is believed before anything is known of this machine, and how much that counts (degrees of freedom).
PRIOR_QUAD_SD, PRIOR_PROCESS_SD, PRIOR_DF = 0.035, 0.006, 4.0
# Few pairs can look more alike than their quads allow; a tenth of the prior is as lucky as processes get.
LEAST_PROCESS_SD = PRIOR_PROCESS_SD / 10
_GRID = np.geomspace(LEAST_PROCESS_SD, 1.0, 160) ** 2  # of σ_p², where it has to be integrated over
_FEWEST_DF = 3  # of the quads; the prior counts for 4
_POWER = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Standard deviations on the log scale (0.01 is 1 %), and how many pairs and quads they are from.

    `drift` is what the machine's speed, common to both processes of a pair, went up and down by.
    """

    quad_sd: float
    process_sd: float
    drift: float
    n_pairs: int
    n_quads: int

    def to_dict(self) -> dict[str, Any]:
        """Return the noise as plain data."""
        return {key: round(value, 6) if isinstance(value, float) else value for key, value in asdict(self).items()}

    @property
    def assumed(self) -> bool:
        """Return whether it is more what is usual than what was seen."""
        return self.n_quads - self.n_pairs < _FEWEST_DF

    def finals_se(self, *, rounds: int, slices: int) -> float:
        """Return the standard error of a log-ratio from so many rounds, with so many slices of each in a round."""
        return math.sqrt(2 * (self.process_sd**2 + self.quad_sd**2 / slices) / rounds)

    def floor(self, *, rounds: int, slices: int) -> float:
        """Return what A against A stays below in 95 % of finals, as a ratio minus 1: half the interval's width."""
        return math.expm1(_critical(rounds) * self.finals_se(rounds=rounds, slices=slices))

    def detectable(self, *, rounds: int, slices: int, margin: float) -> float:
        """Return the smallest true gain that such finals call better in 90 % of cases, as a ratio minus 1.

        Its interval has to leave out 1, and its estimate to be beyond the practical `margin`.
        """
        se, luck = self.finals_se(rounds=rounds, slices=slices), float(ndtri(_POWER))
        return math.expm1(max(_critical(rounds) * se, math.log1p(margin)) + luck * se)


UNKNOWN = Noise(quad_sd=PRIOR_QUAD_SD, process_sd=PRIOR_PROCESS_SD, drift=0.0, n_pairs=0, n_quads=0)
"""What is believed before anything was measured."""


def _critical(rounds: int) -> float:
    """Return Student's quantile of the difference of two, in so many rounds."""
    return -float(stdtrit(max(1, rounds - 1), 0.025))


def gauge(pairs: Sequence[Pair], objective: Objective, *, batch_size: int) -> Noise:
    """Return the noise that pairs of one setting with itself show, in the light of the prior.

    Raises ValueError where no pair has a quad.
    """
    whole = [pair for pair in pairs if pair.n_quads]
    if not whole:
        raise ValueError("no pair of A with A to take the noise from")
    x = [log_ratios(pair, objective, batch_sizes=(batch_size, batch_size)) for pair in whole]
    df = sum(len(each) - 1 for each in x)
    inside = sum(float(((each - each.mean()) ** 2).sum()) for each in x)
    quad = (PRIOR_DF * PRIOR_QUAD_SD**2 + inside) / (PRIOR_DF + df)
    between = [(float(each.mean()) ** 2 - quad / len(each)) / 2 for each in x]
    process = (PRIOR_DF * PRIOR_PROCESS_SD**2 + sum(between)) / (PRIOR_DF + len(x))
    return Noise(
        quad_sd=math.sqrt(quad),
        process_sd=math.sqrt(max(process, LEAST_PROCESS_SD**2)),
        drift=_drift(whole, objective, batch_size),
        n_pairs=len(whole),
        n_quads=sum(pair.n_quads for pair in whole),
    )


def together(studies: Sequence[Sequence[Pair]], objective: Objective) -> list[float]:
    """Return σ_p in studies of one machine and build, of each in the light of all, from the pairs of each.

    Two or three pairs of a study tell little of it, and may look more alike than processes are. So

    p(σ_p² | study k) ∝ Π_i N(x̄_i; 0, 2σ_p² + σ_q²/n_i) · scaled inverse χ²(σ_p²; d₀, of mean s_k²)

    with s_k² from the other studies, in the same way from the prior; and of it E[σ_p²], which would be
    ((d₀ - 2) s_k² + Σ_i x̄_i²/2) / (d₀ - 2 + pairs) if quads had no noise. Where they have much, pairs count for
    little. σ_q² is a study's own in the light of all: an error of one sign in all of them would not become smaller with
    their number.
    """
    x = [[log_ratios(pair, objective, batch_sizes=(1, 1)) for pair in pairs if pair.n_quads] for pairs in studies]
    df = np.array([sum(len(each) - 1 for each in pairs) for pairs in x])
    inside = np.array([sum(float(((each - each.mean()) ** 2).sum()) for each in pairs) for pairs in x])
    quad = squeezed(inside, df) if df.any() else np.full(len(x), PRIOR_QUAD_SD**2)
    told = np.array([_log_likelihood(pairs, q) for pairs, q in zip(x, quad, strict=True)])
    others = _mean(told.sum(axis=0) - told, np.full(len(told), PRIOR_PROCESS_SD**2))
    return [float(each) for each in np.sqrt(_mean(told, others))]


def _log_likelihood(x: Sequence[Array], quad: float) -> Array:
    """Return what the pairs of a study say of each σ_p² of the grid, but for a constant, shape (G,)."""
    means = np.array([each.mean() for each in x])
    variance = 2 * _GRID[:, None] + quad / np.array([len(each) for each in x])
    return np.asarray(-0.5 * (np.log(variance) + means**2 / variance).sum(axis=1))


def _mean(told: Array, expected: Array) -> Array:
    """Return E[σ_p²] from log-likelihoods (K, G) and what was `expected` (K,), with d₀ degrees of freedom."""
    scale = expected[:, None] * (PRIOR_DF - 2) / PRIOR_DF  # of which `expected` is the mean
    log_density = told - PRIOR_DF / 2 * (np.log(_GRID) + scale / _GRID)
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    return np.asarray((density * _GRID).sum(axis=1) / density.sum(axis=1))


def slice_sd(pairs: Sequence[Pair], objective: Objective, *, batch_size: int) -> float:
    """Return what a slice scatters by inside its process when nothing is paired: noise and drift together."""
    groups = [
        np.array([objective.log_rate(s, batch_size) for s in slices])
        for pair in pairs
        for slices in (pair.reference, pair.candidate)
    ]
    df = sum(len(each) - 1 for each in groups)
    return math.sqrt(sum(float(((each - each.mean()) ** 2).sum()) for each in groups) / max(df, 1))


def _drift(pairs: Sequence[Pair], objective: Objective, batch_size: int) -> float:
    """Return the standard deviation of the quads' common log rate: of all pairs, one after another."""
    common: list[float] = []
    for pair in pairs:
        sides: list[Array] = [
            np.array([objective.log_rate(s, batch_size) for s in slices]).reshape(-1, 2).mean(axis=1)
            for slices in (pair.reference, pair.candidate)
        ]
        common.extend(float(rate) for rate in (sides[0] + sides[1]) / 2)
    return float(np.std(common, ddof=1)) if len(common) > 1 else 0.0
