"""A Gaussian process for noisy log-ratios on a lattice, as pure functions.

Notation
    X (n, d)   encoded settings of the observations, each coordinate in [0, 1]
    y (n,)     observed mean log-ratios
    N (n, n)   covariance of their noise: squared standard errors, and σ_p² for each two observations that share a
               process
    Z (m, d)   encoded settings to predict at
    t (n,)     trend: what a model of the machine expects of each observation, 0 where there is none; t(z) at Z
    β          how much of the trend there is, β ~ N(1, s²): f(z) = μ + β t(z) + the process
    g          a group of coordinates; the process is a sum of one independent process for each group
    θ          log lengthscales ℓ (d,), shared by the groups, and log amplitudes σ_g, of which the prior is log-normal
    k(x, x')   Σ_g σ_g² (1 + √5 r_g + 5r_g²/3) exp(-√5 r_g),  r_g² = Σ_{j∈g} ((x_j - x'_j) / ℓ_j)²    Matérn 5/2, ARD
    K          k(X, X) + s² t tᵀ + N
    μ          the mean, by generalised least squares;  α = K⁻¹ (y - t - μ)

The variance takes μ for known. With its uncertainty, (1 - 1ᵀ K⁻¹ k)² / (1ᵀ K⁻¹ 1), searches need more trials.

Sources: Rasmussen & Williams (2006), Gaussian Processes for Machine Learning, eqs. 2.25-2.26 (posterior), 2.30
(marginal likelihood), 2.39-2.41 (explicit basis functions: the trend), 4.17 (Matérn), 5.9 (its gradient; as μ
minimises the quadratic form, it adds nothing);
Duvenaud, Nickisch & Rasmussen (2011), Additive Gaussian processes (sums over groups of coordinates); Jones et al.
(1998), eq. 15 (expected improvement); Picheny et al. (2013), section 4.1 (with noise, the best posterior mean at an
observed point takes the place of the best observation).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy  # scipy.optimize: as in moderation
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import logsumexp, ndtr

from tuner.stats.estimate import Array

_SQRT5 = np.sqrt(5.0)
# Log-normal priors, (mean, sd) of the logarithm. A lengthscale of half the domain lets a trend be learned from
# three points; settings of one model differ by about 15 % in speed on few cores, by a factor of 2 on many.
_LENGTHSCALE_PRIOR = (np.log(0.6), 0.8)
_AMPLITUDE_PRIOR = (np.log(0.3), 0.8)
_TREND_SD = 0.3  # s
_BOUNDS_SD = 3.5
_SPREAD_STARTS = (-1.0, 1.0)  # of the lengthscales, in standard deviations of the prior: rough and smooth
_FAILED = 1e10

Groups = Sequence[NDArray[np.intp]]
"""The coordinates of each group, index arrays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """A fitted process: θ = (ℓ, σ), the mean μ, the observations, and what predictions need of K.

    The `trend` is None where it has none. `log_evidence` is log p(y | X, θ) + log p(θ) up to a constant, where θ was
    fitted.
    """

    groups: Groups
    lengthscales: Array
    amplitudes: Array
    mean: float
    X: Array
    y: Array
    N: Array
    trend: Array | None
    L: Array
    alpha: Array
    log_evidence: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Processes, and how much each is believed, weights that sum to 1."""

    posteriors: tuple[Posterior, ...]
    weights: tuple[float, ...]


def matern(X: Array, Z: Array, lengthscales: Array, amplitude: float) -> Array:
    """Return the term of one group, shape (n, m)."""
    a, b = X / lengthscales, Z / lengthscales
    squared = (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2 * a @ b.T
    r = _SQRT5 * np.sqrt(np.maximum(squared, 0.0))
    return np.asarray(amplitude**2 * (1 + r + r**2 / 3) * np.exp(-r))


def kernel(X: Array, Z: Array, groups: Groups, lengthscales: Array, amplitudes: Array) -> Array:
    """Return k(X, Z), shape (n, m)."""
    terms = (matern(X[:, g], Z[:, g], lengthscales[g], s) for g, s in zip(groups, amplitudes, strict=True))
    return np.asarray(sum(terms))


def whole(d: int) -> Groups:
    """Return the one group of all coordinates."""
    return (np.arange(d),)


def fit(X: Array, y: Array, N: Array, groups: Groups | None = None, trend: Array | None = None) -> Posterior:
    """Return the process at the maximum a posteriori of θ, from several starts; the same data give the same fit."""
    d = X.shape[1]
    groups = whole(d) if groups is None else groups
    n_groups = len(groups)
    # The terms share the variance that one alone would have.
    amplitude = _AMPLITUDE_PRIOR[0] - np.log(n_groups) / 2
    centre = np.array([_LENGTHSCALE_PRIOR[0]] * d + [amplitude] * n_groups)
    spread = np.array([_LENGTHSCALE_PRIOR[1]] * d + [_AMPLITUDE_PRIOR[1]] * n_groups)
    squares = (X[:, None, :] - X[None, :, :]) ** 2
    left, noise = _less_trend(y, N, trend)

    def objective(theta: Array) -> tuple[float, Array]:
        return negative_log_posterior(theta, squares, left, noise, groups, centre, spread)

    lengths = np.concatenate([np.ones(d), np.zeros(n_groups)])
    starts = [centre, *(centre + sd * spread * lengths for sd in _SPREAD_STARTS)]
    bounds = list(zip(centre - _BOUNDS_SD * spread, centre + _BOUNDS_SD * spread, strict=True))
    fits = [scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds) for start in starts]
    best = min(fits, key=lambda fit: float(fit.fun))
    theta = np.asarray(best.x, dtype=float)
    fitted = condition(X, y, N, np.exp(theta[:d]), np.exp(theta[d:]), groups, trend)
    return replace(fitted, log_evidence=-float(best.fun))


def condition(
    X: Array,
    y: Array,
    N: Array,
    lengthscales: Array,
    amplitudes: Array,
    groups: Groups | None = None,
    trend: Array | None = None,
) -> Posterior:
    """Return the process for given θ; its mean μ is the generalised least-squares estimate."""
    groups = whole(X.shape[1]) if groups is None else groups
    left, noise = _less_trend(y, N, trend)
    L = cholesky(kernel(X, X, groups, lengthscales, amplitudes) + noise, lower=True)
    mean, alpha = _mean(L, left)
    return Posterior(
        groups=groups,
        lengthscales=lengthscales,
        amplitudes=amplitudes,
        mean=mean,
        X=X,
        y=y,
        N=N,
        trend=trend,
        L=L,
        alpha=alpha,
    )


def mixture(families: Sequence[Sequence[Posterior]]) -> Mixture:
    """Return processes of several kinds, each kind as likely as its evidence says, and those of a kind equally likely.

    All have to be of the same observations.
    """
    evidence = np.array(
        [logsumexp([each.log_evidence for each in family]) - np.log(len(family)) for family in families]
    )
    likely = np.exp(evidence - logsumexp(evidence))
    weights = tuple(float(w) / len(family) for w, family in zip(likely, families, strict=True) for _ in family)
    return Mixture(posteriors=tuple(each for family in families for each in family), weights=weights)


def trust(mixture: Mixture) -> float:
    """Return the weight of the processes that have a trend, from 0 to 1."""
    both = zip(mixture.posteriors, mixture.weights, strict=True)
    return sum(weight for posterior, weight in both if posterior.trend is not None)


def predict(posterior: Posterior, Z: Array, trend: Array | float = 0.0) -> tuple[Array, Array]:
    """Return the mean and the standard deviation of the noise-free function at Z, shapes (m,) and (m,).

    `trend` is t(z), which counts where the process has one.
    """
    k = kernel(posterior.X, Z, posterior.groups, posterior.lengthscales, posterior.amplitudes)
    mean, variance = np.full(len(Z), posterior.mean), np.full(len(Z), (posterior.amplitudes**2).sum())
    if posterior.trend is not None:
        t = np.broadcast_to(trend, len(Z))
        k = k + _TREND_SD**2 * np.outer(posterior.trend, t)
        mean, variance = mean + t, variance + _TREND_SD**2 * t**2
    mean = mean + k.T @ posterior.alpha
    variance = variance - (solve_triangular(posterior.L, k, lower=True) ** 2).sum(axis=0)
    return np.asarray(mean), np.sqrt(np.maximum(variance, 0.0))


def expected_improvement(mean: Array, sd: Array, best: float) -> Array:
    """Return E max(f - best, 0) for f ~ N(mean, sd²), elementwise."""
    gain = mean - best
    safe = np.maximum(sd, 1e-12)
    z = gain / safe
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return np.where(sd > 1e-12, gain * ndtr(z) + safe * density, np.maximum(gain, 0.0))


def moments_of(mixture: Mixture, Z: Array, trend: Array | float = 0.0) -> tuple[Array, Array]:
    """Return the mean and the standard deviation of the noise-free function at Z over all processes, both (m,)."""
    means, sds = zip(*(predict(posterior, Z, trend) for posterior in mixture.posteriors), strict=True)
    mean = np.average(means, axis=0, weights=mixture.weights)
    variance = np.average(np.square(sds) + np.square(means - mean), axis=0, weights=mixture.weights)
    return np.asarray(mean), np.sqrt(variance)


def improvement_of(mixture: Mixture, Z: Array, best: float, trend: Array | float = 0.0) -> Array:
    """Return the expected improvement at Z over all processes, shape (m,)."""
    improvements = [expected_improvement(*predict(posterior, Z, trend), best) for posterior in mixture.posteriors]
    return np.asarray(np.average(improvements, axis=0, weights=mixture.weights))


def _less_trend(y: Array, N: Array, trend: Array | None) -> tuple[Array, Array]:
    """Return y - t, and the covariance of what is left without the process: N + s² t tᵀ."""
    return (y, N) if trend is None else (y - trend, N + _TREND_SD**2 * np.outer(trend, trend))


def _mean(L: Array, y: Array) -> tuple[float, Array]:
    """Return μ and α."""
    weights = cho_solve((L, True), np.ones(len(y)))
    mean = float(weights @ y / weights.sum())
    return mean, np.asarray(cho_solve((L, True), y - mean))


def negative_log_posterior(
    theta: Array, squares: Array, y: Array, N: Array, groups: Groups, centre: Array, spread: Array
) -> tuple[float, Array]:
    """Return -log p(y | X, θ) - log p(θ) up to a constant, and its gradient by θ; `squares` are (x_j - x'_j)²."""
    d = squares.shape[2]
    inverse_squares, variances = np.exp(-2 * theta[:d]), np.exp(2 * theta[d:])
    K, terms, slopes = N.copy(), [], []
    for g, variance in zip(groups, variances, strict=True):
        r = _SQRT5 * np.sqrt(squares[:, :, g] @ inverse_squares[g])
        decay = variance * np.exp(-r)
        terms.append((1 + r + r**2 / 3) * decay)
        # ∂k/∂log ℓ_j = σ² 5/3 (1 + √5 r) exp(-√5 r) ((x_j - x'_j) / ℓ_j)²
        slopes.append(5 / 3 * (1 + r) * decay)
        K += terms[-1]
    try:
        L = cholesky(K, lower=True)
    except np.linalg.LinAlgError:
        return _FAILED, np.zeros_like(theta)
    mean, alpha = _mean(L, y)
    # ∂/∂θ of -log p(y | X, θ) is half the trace of W ∂K/∂θ.
    W = cho_solve((L, True), np.eye(len(y))) - np.outer(alpha, alpha)
    off = (theta - centre) / spread
    gradient = off / spread
    for i, (g, term, slope) in enumerate(zip(groups, terms, slopes, strict=True)):
        gradient[d + i] += float((W * term).sum())
        gradient[g] += 0.5 * np.tensordot(W * slope, squares[:, :, g], axes=2) * inverse_squares[g]
    value = 0.5 * float((y - mean) @ alpha) + float(np.log(np.diag(L)).sum()) + 0.5 * float((off**2).sum())
    return value, gradient
