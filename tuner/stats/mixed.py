"""Contrasts of candidates that took turns in passes: a mixed model, solved by generalised least squares.

A pass gives each live process slices there and back, so that its value stands for the middle of the pass:

    y_k = β_c + u_i + π_p + ε_k        u_i ~ N(0, σ_p²),  π_p ~ N(π, τ²),  ε_k ~ N(0, σ² / w_k)

Notation
    y (n,)        log rates, one for each process in each pass
    c, i, p (n,)  the candidate, the process and the pass of each value, numbered from 0; candidate 0 is the reference
    β (C,)        log rates of the candidates; what is estimated are the contrasts β_c - β_0
    u             luck of a process, which more slices of it do not reduce
    π             speed of the machine during a pass; τ is so large that passes are compared within themselves alone,
                  unless two candidates have no other link
    w (n,)        weights: a stall is no property of a candidate
    X, θ          columns of the contrasts, of the passes and of the mean; their coefficients
    V             σ² diag(1/w) + σ_p² Z Zᵀ, with Z (n, I) the processes of the values
    θ̂             (Xᵀ V⁻¹ X + diag(0, τ⁻², 0))⁻¹ Xᵀ V⁻¹ y, whose covariance is that inverse
    r             residuals of the two-way layout of passes, and of candidates in their processes, from which σ² is
                  estimated: there neither the luck of processes nor what candidates differ by is left

Candidates that never ran in one pass are compared through those that ran with both. Processes that ran in several
passes, at several batch sizes, share their luck, which the covariance holds.

Sources: Searle, Casella & McCulloch (1992), Variance Components, ch. 7 (mixed models, generalised least squares);
Yates (1940), Annals of Eugenics 10 (incomplete blocks); Lange, Little & Taylor (1989), JASA 84 (robust weights).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from tuner.stats.estimate import Array, Estimate

Numbers = NDArray[np.intp]

_PASS_SD = 10.0  # τ: log scale, more than any machine changes by
_USUAL_SDS = 2.5  # a residual beyond so many standard deviations counts for less, by the square of the excess
N_REWEIGHTED = 4
"""How often weights and what they weigh are worked out in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrasts:
    """β̂_c - β̂_0 (C,) with their covariance (C, C), and σ with its degrees of freedom. Those of the reference are 0."""

    mean: Array
    covariance: Array
    sd: float
    df: float

    def between(self, a: int, b: int, *, n: int = 0) -> Estimate:
        """Return β_a - β_b; `n` are the values behind it."""
        V = self.covariance
        variance = float(V[a, a] + V[b, b] - 2 * V[a, b])
        return Estimate(mean=float(self.mean[a] - self.mean[b]), se=math.sqrt(max(variance, 0.0)), n=n, df=self.df)


def contrasts(
    y: Array,
    candidate: Numbers,
    process: Numbers,
    in_pass: Numbers,
    *,
    process_sd: float,
    prior_sd: float,
    prior_df: float,
) -> Contrasts:
    """Return the contrasts of all candidates to candidate 0; all arrays have shape (n,).

    `process_sd` is σ_p. σ² is moderated by `prior_sd`², which counts for `prior_df` degrees of freedom.
    """
    n_candidates, n_passes = int(candidate.max()) + 1, int(in_pass.max()) + 1
    _, cell = np.unique(process * n_candidates + candidate, return_inverse=True)
    w, variance, df = _residual_variance(y, cell, in_pass, prior_sd=prior_sd, prior_df=prior_df)
    X = np.hstack([np.eye(n_candidates)[candidate][:, 1:], np.eye(n_passes)[in_pass], np.ones((len(y), 1))])
    A = _times_inverse(X, w / variance, process, process_sd**2)
    passes = slice(n_candidates - 1, n_candidates - 1 + n_passes)
    information = X.T @ A
    information[passes, passes] += np.eye(n_passes) / _PASS_SD**2
    factor = cho_factor(information)
    inverse = cho_solve(factor, np.eye(len(information)))
    mean, covariance = np.zeros(n_candidates), np.zeros((n_candidates, n_candidates))
    mean[1:] = (inverse @ (A.T @ y))[: n_candidates - 1]
    covariance[1:, 1:] = inverse[: n_candidates - 1, : n_candidates - 1]
    return Contrasts(mean=mean, covariance=covariance, sd=math.sqrt(variance), df=df)


def weights_of(residuals: Array, variance: float) -> Array:
    """Return what residuals (n,) of a variance count for: 1, or less if they are beyond 2.5 standard deviations."""
    usual = _USUAL_SDS**2 * variance  # the largest square that is
    return usual / np.maximum(residuals**2, usual) if usual else np.ones_like(residuals)


def _times_inverse(X: Array, precision: Array, process: Numbers, process_variance: float) -> Array:
    """Return V⁻¹ X, shape (n, q): by the formula of Sherman and Morrison for each process."""
    weighted = precision[:, None] * X
    n_processes = int(process.max()) + 1
    sums = np.zeros((n_processes, X.shape[1]))
    np.add.at(sums, process, weighted)
    shrink = process_variance / (1 + process_variance * np.bincount(process, precision, n_processes))
    return np.asarray(weighted - precision[:, None] * (shrink[:, None] * sums)[process])


def _residual_variance(
    y: Array, cell: Numbers, in_pass: Numbers, *, prior_sd: float, prior_df: float
) -> tuple[Array, float, float]:
    """Return the weights w (n,), the moderated σ² and its degrees of freedom; `cell` (n,) is a candidate's process."""
    X = np.hstack([np.eye(int(cell.max()) + 1)[cell], np.eye(int(in_pass.max()) + 1)[in_pass]])
    w = np.ones(len(y))
    for _ in range(N_REWEIGHTED):
        root = np.sqrt(w)
        coefficients, _, rank, _ = np.linalg.lstsq(root[:, None] * X, root * y, rcond=None)
        residuals = y - X @ coefficients
        df = len(y) - int(rank)
        if df <= 0:
            break
        variance = (prior_df * prior_sd**2 + float((w * residuals**2).sum())) / (prior_df + df)
        # A value that few others hold in place moves the fit, and shows a part of its deviation alone.
        w = weights_of(residuals, variance * df / len(y))
    else:
        return w, variance, prior_df + df
    return np.ones(len(y)), prior_sd**2, prior_df
