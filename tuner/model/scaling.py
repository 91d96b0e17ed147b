"""How the time of an operator depends on its threads.

Notation
    n      threads, n ≥ 1
    t(n)   time (s) of the operator with n threads
    σ, κ   contention and coherency: the shares of t(1) that cannot be divided, and that each pair of threads adds
    t(n) = t(1) · (1 + σ(n − 1) + κ n(n − 1)) / n

Source: N. J. Gunther, Guerrilla Capacity Planning (Springer 2007), the Universal Scalability Law; κ = 0 is Amdahl's
law (AFIPS 1967) with the serial share σ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

_HARDLY = 0.05  # more time than the least: not worth another thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The law of one operator: t(1) in seconds, σ and κ, and the root mean square of the fit's relative errors.

    The error is None where the law has as many coefficients as there were times, and fits whatever they were.
    """

    one_s: float
    contention: float
    coherency: float
    error: float | None = None

    def time_s(self, n: float) -> float:
        """Return the time (s) with n threads, n ≥ 1."""
        return self.one_s * (1 + self.contention * (n - 1) + self.coherency * n * (n - 1)) / n

    def best_threads(self, most: int) -> int:
        """Return the fewest threads, at most `most`, that take hardly more than the least time."""
        times = [self.time_s(n) for n in range(1, most + 1)]
        return next(n for n, time_s in enumerate(times, 1) if time_s <= (1 + _HARDLY) * min(times))


def fit(times_s: Mapping[int, float]) -> Scaling:
    """Return the law that fits times (s) by thread counts, in least squares of relative errors.

    Coefficients are not negative. From one count nothing is known, and the operator is taken as serial (σ = 1); from
    two, κ is 0. Raises ValueError where there are no times, or none with one thread.
    """
    if 1 not in times_s:
        raise ValueError("expected the time with one thread")
    one_s = times_s[1]
    more = sorted(n for n in times_s if n > 1 and times_s[n] > 0.0)
    if not more or one_s <= 0.0:
        return Scaling(one_s=one_s, contention=1.0, coherency=0.0)
    n = np.array(more, dtype=float)
    seen = np.array([times_s[count] for count in more])
    # n·t(n)/t(1) − 1 = σ(n − 1) + κ n(n − 1), each row divided by n·t(n)/t(1), so that errors are relative.
    weight = one_s / (n * seen)
    columns = [n - 1] if len(more) == 1 else [n - 1, n * (n - 1)]
    a = np.stack(columns, axis=1) * weight[:, None]
    coefficients, _ = nnls(a, (1 / weight - 1) * weight)
    contention, coherency = (*map(float, coefficients), 0.0)[:2]
    fitted = Scaling(one_s=one_s, contention=contention, coherency=coherency)
    if len(more) == len(columns):
        return fitted
    errors = [fitted.time_s(count) / times_s[count] - 1 for count in more]
    error = math.sqrt(sum(each**2 for each in errors) / len(errors))
    return Scaling(one_s=one_s, contention=contention, coherency=coherency, error=error)
