"""The noise floor: how much equal settings appear to differ, and so which differences can be detected.

Notation
    x_ij   log-ratio of block j of pair i, A against A: its expectation is 0
    σ_w    standard deviation of a block within a pair; as a block compares two slices with two, also that of one slice
    σ_p    between-process standard deviation: how processes of one setting differ, however long each is measured
    n_i    blocks of pair i;   x̄_i their mean:   E x̄_i² = 2σ_p² + σ_w²/n_i, as the true ratio is known to be 1
    s_k²   what the studies other than k say of σ_p²
    r, m   rounds of finals, and slices of a contender in each:   se² = 2 (σ_p² + σ_w²/m) / r
    d_rk   log-ratio of two contenders in pass k of round r:  θ + u_r + ε_rk,  u_r ~ N(0, 2σ_p²),  ε_rk ~ N(0, σ_w²)
    w_rk   weights: a pass in which one of the two stalled says less
    x_r    Σ_k w_rk d_rk / Σ_k w_rk, of which a round gives one

Sources: Searle, Casella & McCulloch (1992), Variance Components, ch. 3 (estimates from mean squares); many variances of
few degrees of freedom, each in the light of all: Smyth (2004), Linear models and empirical Bayes methods, Statistical
Applications in Genetics and Molecular Biology 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from tuner.stats.estimate import Array, Estimate, estimate
from tuner.stats.mixed import N_REWEIGHTED, weights_of
from tuner.stats.moderation import Prior, moderated_variances

# The prior before anything is measured on this machine, and its weight (degrees of freedom).
PRIOR_BLOCK_SD, PRIOR_PROCESS_SD, PRIOR_DF = 0.035, 0.006, 4.0
# A few pairs may agree better than their blocks explain; a tenth of the prior is the smallest credible value.
MIN_PROCESS_SD = PRIOR_PROCESS_SD / 10
_GRID = np.geomspace(MIN_PROCESS_SD, 1.0, 160) ** 2  # of σ_p², where it has to be integrated over
_MIN_DF = 3  # of the blocks; the prior counts for 4
_POWER = 0.9
# What rounds scatter by (s²), beside what the noise of an earlier hour says (s₀²), is distributed as c² s₀² F(d, d₀).
# Fits to 528 comparisons of 220 studies give c from 0.6 to 1.4 and d₀ from 1.4 to 2.9; where the passes of the rounds
# themselves say what s₀² is, 129 rounds of ResNet-50 and MobileNetV2 give c from 0.85 to 1.6, and d₀ of 3 or more.
_ROUND_SD_FACTOR, _EARLIER_DF, _MOST_DF = 1.2, 1.0, 4.0
_PROCESS_DF = 1.0  # processes of an incumbent may differ more than those of the default do, by which σ_p is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Standard deviations on the log scale (0.01 is 1 %), and how many pairs and blocks they are from.

    `drift` is what the machine's speed, common to both processes of a pair, went up and down by.
    """

    block_sd: float
    process_sd: float
    drift: float
    n_pairs: int
    n_blocks: int

    def rounded(self) -> Noise:
        """Return the noise to six digits after the point, as it is stored and published."""
        return replace(
            self, block_sd=round(self.block_sd, 6), process_sd=round(self.process_sd, 6), drift=round(self.drift, 6)
        )

    @property
    def is_mostly_prior(self) -> bool:
        """Return whether the prior weighs more than the measurements."""
        return self.n_blocks - self.n_pairs < _MIN_DF

    def finals_se(self, *, rounds: int, slices: float) -> float:
        """Return the standard error of a log-ratio from so many rounds, with so many slices of each in a round."""
        return math.sqrt(2 * (self.process_sd**2 + self.block_sd**2 / slices) / rounds)

    def round_prior(self, *, slices: float, df: float) -> Prior:
        """Return what the log-ratio of one round is believed to scatter by, with `slices` of each of the two.

        `df` are the degrees of freedom of σ_w if it is that of the passes of these rounds, 0 if it is of an earlier
        hour. The sum of the two variances has those of Satterthwaite (1946), Biometrics Bulletin 2.
        """
        if not df:
            return Prior(sd=_ROUND_SD_FACTOR * self.finals_se(rounds=1, slices=slices), df=_EARLIER_DF)
        processes, blocks = 2 * self.process_sd**2, 2 * self.block_sd**2 / slices
        total = max(processes + blocks, MIN_PROCESS_SD**2)
        own_df = total**2 / (processes**2 / _PROCESS_DF + blocks**2 / df)
        return Prior(sd=_ROUND_SD_FACTOR * math.sqrt(total), df=min(own_df, _MOST_DF))

    def half_width(self, *, rounds: int, slices: int) -> float:
        """Return half the width (log) of the 95 % interval of finals whose rounds scatter so, two or more."""
        mean = Estimate(mean=0.0, se=self.finals_se(rounds=rounds, slices=slices), n=rounds, df=rounds - 1)
        df = rounds * (slices // 2 - 1)
        return self.round_prior(slices=slices, df=PRIOR_DF + df if df else 0.0).moderate(mean).half_width()

    def floor(self, *, rounds: int, slices: int) -> float:
        """Return the ratio (minus 1) that equal settings stay below in 95 % of finals: half the interval's width."""
        return math.expm1(self.half_width(rounds=rounds, slices=slices))

    def detectable_gain(self, *, rounds: int, slices: int, margin: float) -> float:
        """Return the smallest true gain that such finals call better in 90 % of cases, as a ratio minus 1.

        Its interval has to leave out 1, and its estimate to be beyond the practical `margin`.
        """
        se, z_power = self.finals_se(rounds=rounds, slices=slices), float(ndtri(_POWER))
        return math.expm1(max(self.half_width(rounds=rounds, slices=slices), math.log1p(margin)) + z_power * se)


PRIOR_NOISE = Noise(block_sd=PRIOR_BLOCK_SD, process_sd=PRIOR_PROCESS_SD, drift=0.0, n_pairs=0, n_blocks=0)
"""The prior: used until something has been measured."""


def components(x: Sequence[Array], common: Sequence[float], *, block_sd: float | None = None) -> Noise:
    """Return the noise that pairs of one setting with itself show, in the light of the prior.

    `x` are the log-ratios of each pair's blocks, shapes (n_i,), `common` the log rates that both processes of a block
    had together, one for each block. `block_sd` is σ_w if more than these pairs show it. Raises ValueError where there
    is no pair.
    """
    if not x:
        raise ValueError("no calibration pair has a complete block")
    df = sum(len(each) - 1 for each in x)
    inside = sum(float(((each - each.mean()) ** 2).sum()) for each in x)
    block_variance = (PRIOR_DF * PRIOR_BLOCK_SD**2 + inside) / (PRIOR_DF + df) if block_sd is None else block_sd**2
    between = [(float(each.mean()) ** 2 - block_variance / len(each)) / 2 for each in x]
    process = (PRIOR_DF * PRIOR_PROCESS_SD**2 + sum(between)) / (PRIOR_DF + len(x))
    return Noise(
        block_sd=math.sqrt(block_variance),
        process_sd=math.sqrt(max(process, MIN_PROCESS_SD**2)),
        drift=float(np.std(common, ddof=1)) if len(common) > 1 else 0.0,
        n_pairs=len(x),
        n_blocks=sum(len(each) for each in x),
    )


def log_ratio_of_rounds(passes: Sequence[Array], noise: Noise) -> Estimate:
    """Return θ from the log-ratios of each round's passes, shapes (m_r,), in the light of the study's `noise`.

    Few rounds may agree by chance, and two or three that know nothing but their own scatter have a very wide interval.
    So the variance of x_r is moderated by what it should be: 2σ_p² of the study, and σ_w²/2 of each pass, where σ_w is
    what the passes of these same rounds scatter by within them, moderated by the study's. One round has no interval.
    Raises ValueError without a round.
    """
    weights = _pass_weights(passes)
    x = np.array([float((w * d).sum() / w.sum()) for d, w in zip(passes, weights, strict=True)])
    mean = estimate(x)
    if mean.n == 1:
        return mean
    within = sum(float((w * (d - x_r) ** 2).sum()) for d, w, x_r in zip(passes, weights, x, strict=True))
    df = sum(len(d) - 1 for d in passes)
    if not df and not noise.n_pairs:
        return mean
    own = replace(noise, block_sd=math.sqrt((PRIOR_DF * noise.block_sd**2 + within) / (PRIOR_DF + df)))
    slices = 2 / float(np.mean([1 / w.sum() for w in weights]))
    return own.round_prior(slices=slices, df=PRIOR_DF + df if df else 0.0).moderate(mean)


def _pass_weights(passes: Sequence[Array]) -> list[Array]:
    """Return the weights w_r of each round's passes, shapes (m_r,)."""
    d = np.concatenate(passes)
    w = np.ones_like(d)
    for _ in range(N_REWEIGHTED):
        residuals = d - (w * d).sum() / w.sum()
        w = weights_of(residuals, (w * residuals**2).sum() / max(len(d) - 1, 1))
    return np.split(w, np.cumsum([len(of_round) for of_round in passes])[:-1])


def of_new_processes(x: Array, common: Array) -> Noise:
    """Return the noise that log-ratios of one setting to itself show, shape (n,), each of two new processes.

    What processes differ by is in σ_w then, and σ_p is 0. As the true ratio is 1, σ_w² = Σ x²/n; where these values
    are fewer than the prior's degrees of freedom, it makes up for those that are missing, with σ_w² + 2σ_p² of its
    own. `common` as for `components`. Raises ValueError where there is no block.
    """
    if not len(x):
        raise ValueError("no block to estimate the noise from")
    missing = max(0.0, PRIOR_DF - len(x))
    prior_variance = PRIOR_BLOCK_SD**2 + 2 * PRIOR_PROCESS_SD**2
    variance = (missing * prior_variance + float((x**2).sum())) / (missing + len(x))
    return Noise(
        block_sd=max(math.sqrt(variance), PRIOR_BLOCK_SD / 10),
        process_sd=0.0,
        drift=float(np.std(common, ddof=1)) if len(common) > 1 else 0.0,
        n_pairs=1,
        n_blocks=len(x),
    )


def process_sds(x: Sequence[Sequence[Array]]) -> list[float]:
    """Return σ_p in studies of one machine and build, of each estimated together, from the blocks of each one's pairs.

    Two or three pairs of a study say little about it, and may agree by chance. So

    p(σ_p² | study k) ∝ Π_i N(x̄_i; 0, 2σ_p² + σ_w²/n_i) · scaled inverse χ²(σ_p²; d₀, of mean s_k²)

    with s_k² from the other studies, in the same way from the prior; and of it E[σ_p²], which would be
    ((d₀ - 2) s_k² + Σ_i x̄_i²/2) / (d₀ - 2 + pairs) if blocks had no noise. Where they have much, pairs count for
    little. σ_w² is a study's own in the light of all: an error of one sign in all of them would not become smaller with
    their number.
    """
    df = np.array([sum(len(each) - 1 for each in pairs) for pairs in x])
    inside = np.array([sum(float(((each - each.mean()) ** 2).sum()) for each in pairs) for pairs in x])
    block_variance = moderated_variances(inside, df) if df.any() else np.full(len(x), PRIOR_BLOCK_SD**2)
    log_likelihoods = np.array([_log_likelihood(pairs, q) for pairs, q in zip(x, block_variance, strict=True)])
    others = _mean(log_likelihoods.sum(axis=0) - log_likelihoods, np.full(len(log_likelihoods), PRIOR_PROCESS_SD**2))
    return [float(each) for each in np.sqrt(_mean(log_likelihoods, others))]


def _log_likelihood(x: Sequence[Array], block_variance: float) -> Array:
    """Return what the pairs of a study say of each σ_p² of the grid, but for a constant, shape (G,)."""
    means = np.array([each.mean() for each in x])
    variance = 2 * _GRID[:, None] + block_variance / np.array([len(each) for each in x])
    return np.asarray(-0.5 * (np.log(variance) + means**2 / variance).sum(axis=1))


def _mean(log_likelihoods: Array, expected: Array) -> Array:
    """Return E[σ_p²] from log-likelihoods (K, G) and what was `expected` (K,), with d₀ degrees of freedom."""
    scale = expected[:, None] * (PRIOR_DF - 2) / PRIOR_DF  # of which `expected` is the mean
    log_density = log_likelihoods - PRIOR_DF / 2 * (np.log(_GRID) + scale / _GRID)
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    return np.asarray((density * _GRID).sum(axis=1) / density.sum(axis=1))
