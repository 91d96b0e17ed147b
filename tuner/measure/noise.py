"""The noise floor: what one setting looks like against itself, and so what can be told apart at all.

Notation
    x_ij   log-ratio of quad j of pair i, A against A: its mean is 0 but for luck and noise
    σ_q    what a quad scatters by inside a pair; as two slices stand against two, also what one slice scatters by
    σ_p    what two processes of one setting differ by, however long each is measured (the luck of a process)
    n_i    quads of pair i;   x̄_i their mean:   E x̄_i² = 2σ_p² + σ_q²/n_i, as the true ratio is known to be 1
    S_k    what the pairs of study k say of σ_p², in all: Σ_i (x̄_i² - σ_q²/n_i) / 2
    r, m   rounds of finals, and slices of a contender in each:   se² = 2 (σ_p² + σ_q²/m) / r

Sources: Searle, Casella & McCulloch (1992), Variance Components, ch. 3 (estimates from mean squares); many variances of
few degrees of freedom, each in the light of all: Smyth (2004), Linear models and empirical Bayes methods, Statistical
Applications in Genetics and Molecular Biology 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from tuner.measure import dunnett
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair, log_ratios
from tuner.measure.statistics import Array, contrast_df

# What is believed before anything is known of this machine, and how much that counts (degrees of freedom).
PRIOR_QUAD_SD, PRIOR_PROCESS_SD, PRIOR_DF = 0.02, 0.006, 4.0
# Few pairs can look more alike than their quads allow; a tenth of the prior is as lucky as processes get.
LEAST_PROCESS_SD = PRIOR_PROCESS_SD / 10
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

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Noise:
        """Return the noise of a stored study."""
        return cls(**data)

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

    def best_slices(self, *, start_s: float, slice_s: float) -> float:
        """Return how many slices of a process are worth its start: m* = √(start/slice · σ_q²/σ_p²).

        The cheapest finals of a given standard error: optimum allocation in two stages, Cochran (1977), Sampling
        Techniques, section 10.6.
        """
        return math.sqrt(start_s / slice_s) * self.quad_sd / self.process_sd

    def floor(self, *, rounds: int, slices: int, contenders: int = 2) -> float:
        """Return what A against A stays below in 95 % of finals, as a ratio minus 1: half the interval's width."""
        se = self.finals_se(rounds=rounds, slices=slices)
        return math.expm1(_critical(rounds, contenders) * se)

    def detectable(self, *, rounds: int, slices: int, threshold: float, contenders: int = 2) -> float:
        """Return the smallest true gain that such finals call better in 90 % of cases, as a ratio minus 1.

        Its interval has to leave out 1, and its estimate to be beyond the practical `threshold`.
        """
        se, luck = self.finals_se(rounds=rounds, slices=slices), float(ndtri(_POWER))
        return math.expm1(max(_critical(rounds, contenders) * se, math.log1p(threshold)) + luck * se)


UNKNOWN = Noise(quad_sd=PRIOR_QUAD_SD, process_sd=PRIOR_PROCESS_SD, drift=0.0, n_pairs=0, n_quads=0)
"""What is believed before anything was measured."""


def _critical(rounds: int, contenders: int) -> float:
    """Return the quantile of finals that are looked at for the last time, as `statistics.contrast` has it."""
    rivals = max(1, contenders - 1)
    return dunnett.quantile(0.95, rivals, contrast_df(max(2, rounds), rivals + 1))


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


def together(noises: Sequence[Noise]) -> list[Noise]:
    """Return the noises of studies of one machine and build, the luck of processes of each in the light of all.

    Two or three pairs of a study tell little of it, and may look more alike than processes are:
    σ_k² = (d₀ s_k² + S_k) / (d₀ + pairs), where s_k² is that of the others, found in the same way from the prior.
    """
    told = [(PRIOR_DF + n.n_pairs) * n.process_sd**2 - PRIOR_DF * PRIOR_PROCESS_SD**2 for n in noises]
    all_told, n_pairs = PRIOR_DF * PRIOR_PROCESS_SD**2 + sum(told), PRIOR_DF + sum(n.n_pairs for n in noises)
    found = []
    for noise, own in zip(noises, told, strict=True):
        usual = (all_told - own) / (n_pairs - noise.n_pairs)
        process = (PRIOR_DF * usual + own) / (PRIOR_DF + noise.n_pairs)
        found.append(replace(noise, process_sd=math.sqrt(max(process, LEAST_PROCESS_SD**2))))
    return found


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
