"""Dunnett's quantile: the interval for several comparisons with one contender, all to hold together.

    T_i = (Z_i - Z_0) / (√2 S),  i = 1 … m;  Z_0 … Z_m ~ N(0, 1) independent, ν S² ~ χ²(ν)
    c   : P(max |T_i| ≤ c) = level

The comparisons share Z_0, so they are correlated by 1/2, and c is smaller than Bonferroni's. For m = 1 it is Student's.
Source: Dunnett (1955), A multiple comparison procedure for comparing several treatments with a control, JASA 50.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy  # scipy.optimize is loaded where a root is first looked for, which many commands do not
from scipy.special import gammaincinv, ndtr, stdtrit

_Z, _Z_MASS = np.polynomial.hermite_e.hermegauss(80)
_Z_MASS = _Z_MASS / _Z_MASS.sum()
_U, _U_MASS = np.polynomial.legendre.leggauss(80)
_U, _U_MASS = (_U + 1) / 2, _U_MASS / 2  # on [0, 1], for the probability integral of S


@lru_cache(maxsize=4096)
def quantile(level: float, m: int, df: float) -> float:
    """Return c for `m` comparisons and ν = `df` degrees of freedom; Student's two-sided quantile for one."""
    student = float(stdtrit(df, 0.5 + level / 2))
    if m <= 1:
        return student
    bonferroni = float(stdtrit(df, 1 - (1 - level) / (2 * m)))
    return float(
        scipy.optimize.brentq(lambda c: _all_within(c, m, df) - level, 0.9 * student, 1.05 * bonferroni, xtol=1e-6)
    )


def _all_within(c: float, m: int, df: float) -> float:
    """Return P(max |T_i| ≤ c), integrated over Z_0 by Hermite's and over S by Legendre's quadrature."""
    s = np.sqrt(2 * gammaincinv(df / 2, _U) / df)  # from the quantiles of χ²(ν)
    reach = math.sqrt(2) * c * s[:, None]
    inside = ndtr(_Z[None, :] + reach) - ndtr(_Z[None, :] - reach)
    return float(_U_MASS @ (inside**m) @ _Z_MASS)
