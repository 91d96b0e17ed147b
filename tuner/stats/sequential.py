"""Group-sequential levels: how to analyse the data several times without a higher error rate.

Whoever tests at 5 % after each of ten rounds, and stops at the first success, is wrong far more often than in 5 %. So
each look gets a share of the whole error, and its own, smaller, nominal level.

Notation
    t_k   information at look k as a share of what the last planned look would have, 0 < t_1 < … < t_K ≤ 1
    A(t)  error spent up to t: α t^ρ
    Z_k   standardised statistic at look k. Without a difference √t_k Z_k is a Brownian motion at t_k
    z_k   boundary: the error spent at look k, A(t_k) - A(t_{k-1}), is P(|Z_j| < z_j for all j < k, |Z_k| ≥ z_k)
    α_k   nominal level of look k, 2 (1 - Φ(z_k)): a Student quantile at α_k stands in for z_k where the variance
          is estimated

An interval at level 1 - α_k is a repeated confidence interval: all of them hold together with probability 1 - α, for
whatever reason the looks end.

Sources: Lan & DeMets (1983), Biometrika 70 (spending); Kim & DeMets (1987), Biometrika 74 (t^ρ); Armitage, McPherson &
Rowe (1969), JRSS A 132 (recursion); Jennison & Turnbull (1989), JRSS B 51 (repeated intervals), and (2000), Group
Sequential Methods, ch. 7, 9 and 11 (spending, repeated intervals, Student's quantiles).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy  # scipy.optimize: as in moderation
from scipy.special import ndtr, ndtri

from tuner.stats.estimate import Array

_MAX_Z = 8.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(160)


def nominal_levels(fractions: Sequence[float], *, alpha: float, rho: float) -> list[float]:
    """Return α_k for looks at these `fractions` (increasing, in (0, 1]), each to 1e-9; see the notation above.

    ρ = 1 spends evenly, like Pocock's boundary; larger ρ keeps more for the last look: 3 is like O'Brien and Fleming's.
    """
    return list(_levels(tuple(round(float(t), 9) for t in fractions), alpha, rho))


@lru_cache(maxsize=4096)
def _levels(fractions: tuple[float, ...], alpha: float, rho: float) -> tuple[float, ...]:
    """Return the levels; each prefix of the looks is worked out once."""
    if not fractions:
        return ()
    t = fractions[-1]
    before = fractions[:-1]
    if not 0.0 < t <= 1.0 or (before and t <= before[-1]):
        raise ValueError(f"information fractions {fractions}: expected increasing values above 0 and at most 1")
    spent_alpha = alpha * before[-1] ** rho if before else 0.0
    levels = _levels(before, alpha, rho)
    z = _boundary(alpha * t**rho - spent_alpha, t, before, tuple(float(-ndtri(level / 2)) for level in levels))
    return (*levels, 2.0 * float(ndtr(-z)))


def _boundary(error: float, t: float, before: tuple[float, ...], z: tuple[float, ...]) -> float:
    """Return z_k, at which the paths that have stayed inside so far leave with probability `error`."""
    if not before:
        return float(-ndtri(error / 2))
    nodes, mass = _inside(before, z)
    step = math.sqrt(t - before[-1])

    def leaving(bound: float) -> float:
        edge = bound * math.sqrt(t)
        return float(mass @ (ndtr((-edge - nodes) / step) + ndtr((nodes - edge) / step))) - error

    return _MAX_Z if leaving(_MAX_Z) > 0 else float(scipy.optimize.brentq(leaving, 0.0, _MAX_Z, xtol=1e-10))


@lru_cache(maxsize=4096)
def _inside(fractions: tuple[float, ...], z: tuple[float, ...]) -> tuple[Array, Array]:
    """Return nodes and masses, shapes (160,), of the paths that stayed inside the boundaries at all these looks."""
    t, edge = fractions[-1], z[-1] * math.sqrt(fractions[-1])
    nodes = edge * _NODES
    if len(fractions) == 1:
        density = _normal(nodes / math.sqrt(t)) / math.sqrt(t)
    else:
        earlier, mass = _inside(fractions[:-1], z[:-1])
        step = math.sqrt(t - fractions[-2])
        density = _normal((nodes[:, None] - earlier[None, :]) / step) @ mass / step
    return nodes, density * edge * _WEIGHTS


def _normal(x: Array) -> Array:
    return np.asarray(np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi))


@dataclass(frozen=True, slots=True, kw_only=True)
class AlphaSpending:
    """A plan of interim analyses: after each observation from `first_look` to `planned_looks`."""

    first_look: int
    planned_looks: int
    alpha: float = 0.05
    rho: float = 3.0

    def level(self, n: int, *, last: bool = False) -> float:
        """Return the level of the interval after `n` observations, 1 - α_k; the `last` look spends all that is left.

        Whether a look is the last may depend on the clock, but not on the data.
        """
        total = max(self.planned_looks, n)
        earlier = [k / total for k in range(self.first_look, n)]
        return 1.0 - nominal_levels([*earlier, 1.0 if last else n / total], alpha=self.alpha, rho=self.rho)[-1]
