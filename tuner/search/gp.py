"""A Gaussian process for noisy log-ratios on a lattice, as pure functions.

Notation
    X (n, d)   encoded settings of the observations, each coordinate in [0, 1]
    y (n,)     observed mean log-ratios
    N (n, n)   covariance of their noise: squared standard errors, and the luck of the processes, which observations
               share that were compared with the same reference
    Z (m, d)   encoded settings to predict at
    θ          log lengthscales ℓ (d,) and log amplitude σ, of which the prior is log-normal
    k(x, x')   σ² (1 + √5 r + 5r²/3) exp(-√5 r),  r² = Σ_j ((x_j - x'_j) / ℓ_j)²      Matérn 5/2, ARD
    K          k(X, X) + N

Sources: Rasmussen & Williams (2006), Gaussian Processes for Machine Learning, eqs. 2.25-2.26 (posterior), 2.30
(marginal likelihood), 4.17 (Matérn); Jones et al. (1998), eq. 15 (expected improvement); Picheny et al. (2013),
section 4.1 (with noise, the best posterior mean at an observed point takes the place of the best observation).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # scipy.optimize: as in statistics
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import ndtr

from tuner.measure.statistics import Array

_SQRT5 = np.sqrt(5.0)
# Log-normal priors, (mean, sd) of the logarithm. A lengthscale of half the domain lets a trend be learned from
# three points; settings of one model differ by about 15 % in speed, seldom by more than a factor of 2.
_LENGTHSCALE_PRIOR = (np.log(0.6), 0.8)
_AMPLITUDE_PRIOR = (np.log(0.15), 0.8)
_BOUNDS_SD = 3.5
_RESTARTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """A fitted process: θ = (ℓ, σ), the mean μ, the observations, and what predictions need of K."""

    lengthscales: Array
    amplitude: float
    mean: float
    X: Array
    y: Array
    N: Array
    L: Array
    alpha: Array


def matern(X: Array, Z: Array, lengthscales: Array, amplitude: float) -> Array:
    """Return k(X, Z), shape (n, m)."""
    a, b = X / lengthscales, Z / lengthscales
    squared = (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2 * a @ b.T
    r = np.sqrt(np.maximum(squared, 0.0))
    return np.asarray(amplitude**2 * (1 + _SQRT5 * r + 5 / 3 * r**2) * np.exp(-_SQRT5 * r))


def fit(X: Array, y: Array, N: Array, rng: np.random.Generator) -> Posterior:
    """Return the process at the maximum a posteriori of θ, from several starts."""
    d = X.shape[1]
    centre = np.array([_LENGTHSCALE_PRIOR[0]] * d + [_AMPLITUDE_PRIOR[0]])
    spread = np.array([_LENGTHSCALE_PRIOR[1]] * d + [_AMPLITUDE_PRIOR[1]])

    def objective(theta: Array) -> float:
        return _negative_log_posterior(theta, X, y, N, centre, spread)

    starts = [centre] + [centre + spread * rng.standard_normal(d + 1) for _ in range(_RESTARTS - 1)]
    bounds = list(zip(centre - _BOUNDS_SD * spread, centre + _BOUNDS_SD * spread, strict=True))
    fits = [scipy.optimize.minimize(objective, start, method="L-BFGS-B", bounds=bounds) for start in starts]
    theta = np.asarray(min(fits, key=lambda found: float(found.fun)).x, dtype=float)
    return condition(X, y, N, np.exp(theta[:-1]), float(np.exp(theta[-1])))


def condition(X: Array, y: Array, N: Array, lengthscales: Array, amplitude: float) -> Posterior:
    """Return the process for given θ; its mean μ is the generalised least-squares estimate."""
    L = cholesky(matern(X, X, lengthscales, amplitude) + N, lower=True)
    ones = np.ones(len(y))
    weights = cho_solve((L, True), ones)
    mean = float(weights @ y / (weights @ ones))
    return Posterior(
        lengthscales=lengthscales,
        amplitude=amplitude,
        mean=mean,
        X=X,
        y=y,
        N=N,
        L=L,
        alpha=np.asarray(cho_solve((L, True), y - mean)),
    )


def predict(posterior: Posterior, Z: Array) -> tuple[Array, Array]:
    """Return the mean and the standard deviation of the noise-free function at Z, shapes (m,) and (m,)."""
    k = matern(posterior.X, Z, posterior.lengthscales, posterior.amplitude)
    mean = posterior.mean + k.T @ posterior.alpha
    w = solve_triangular(posterior.L, k, lower=True)
    variance = posterior.amplitude**2 - (w**2).sum(axis=0)
    return np.asarray(mean), np.sqrt(np.maximum(variance, 0.0))


def expected_improvement(mean: Array, sd: Array, best: float) -> Array:
    """Return E max(f - best, 0) for f ~ N(mean, sd²), elementwise."""
    gain = mean - best
    safe = np.maximum(sd, 1e-12)
    z = gain / safe
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return np.where(sd > 1e-12, gain * ndtr(z) + safe * density, np.maximum(gain, 0.0))


def _negative_log_posterior(theta: Array, X: Array, y: Array, N: Array, centre: Array, spread: Array) -> float:
    """Return -log p(y | X, θ) - log p(θ) up to a constant."""
    try:
        posterior = condition(X, y, N, np.exp(theta[:-1]), float(np.exp(theta[-1])))
    except np.linalg.LinAlgError:
        return 1e10
    fit_term = 0.5 * float((y - posterior.mean) @ posterior.alpha)
    return float(fit_term + np.log(np.diag(posterior.L)).sum() + 0.5 * (((theta - centre) / spread) ** 2).sum())
