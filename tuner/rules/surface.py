"""The response surface of a study: the predicted gain of any setting, from the few that were measured.

Notation
    z, z'   settings; z₀ is TensorFlow's default at the workload's own batch size
    y (m,)  measured log-ratios of the rate to that of z₀
    N (m,m) covariance of their noise: what each has of its own, and what those of one reference share
    x_j     coordinate of a knob: log₂(1 + value) for numbers, in units in which neighbours are about 1 apart
    k_j     exp(-½ (x_j - x'_j)²), or 0.3 for two different words;  k̃_j(x, x') = k_j(x, x') - k_j(x, x₀) k_j(x₀, x')
    k       a² (Π_j (1 + θ k̃_j) - 1) / θ

A Gaussian process of mean zero over the effects of knobs, each of which is nothing at the default, and of their
interactions, whose weight falls by θ with each knob more. So f(z₀) = 0, and what one knob was seen to do says nothing
of another: a setting of which nothing is known is believed to gain nothing, whatever larger batches gain (functional
ANOVA: Durrande, Ginsbourger, Roustant & Carraro 2013, ANOVA kernels and RKHS of zero mean functions). The kernel is
the same for every study but for a, the most probable of a few (Rasmussen & Williams 2006, eq. 2.30): for a given a
predictions are linear in y and blind to its sign, so that noise cannot make one side of 1 look better than the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from tuner.rules.recipe import FRAMEWORK
from tuner.space.setting import Setting
from tuner.space.values import Numbers, Value
from tuner.stats.estimate import Array

_AMPLITUDES = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0)
_OTHER_WORD = 0.3
_INTERACTION = 0.5  # θ
FINALS = -1
"""The reference of the finals: TensorFlow's default in all of their rounds. Trials' references count from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured of one setting: its log-ratio to a reference process, or to the reference of the finals.

    Its variance is `variance`, of its own, and `shared`, of the reference's: one error in all with that reference,
    unless it is 0, which says that none is known.
    """

    setting: Setting
    log_ratio: float
    variance: float
    shared: float = 0.0
    reference: int = 0


class ResponseSurface:
    """What is believed of every setting of a study."""

    def __init__(self, default: Setting, measured: Sequence[Measured]) -> None:
        self.default = default
        # The default itself says nothing: it keeps the sums from being empty.
        measured = measured or [Measured(setting=default, log_ratio=0.0, variance=1.0)]
        self._settings = [each.setting for each in measured]
        self._y = np.array([each.log_ratio for each in measured])
        references = np.array([each.reference for each in measured], dtype=int)
        shared = np.sqrt([each.shared for each in measured])
        shares_reference = (references[:, None] == references) & (references != 0) | np.eye(len(references), dtype=bool)
        N = np.diag([each.variance for each in measured]) + shares_reference * np.outer(shared, shared)
        self._z = self._coordinates(self._settings)
        K = self._kernel(self._z, self._z)
        fits = [(self._fit(amplitude**2 * K + N), amplitude) for amplitude in _AMPLITUDES]
        (_, self._factor, self._alpha), self._amplitude = max(fits, key=lambda fit: fit[0][0])
        self.measured = frozenset([default, *self._settings])
        self._difference_sd: dict[tuple[Setting, Setting], tuple[float, float]] = {}

    def _fit(self, A: Array) -> tuple[float, tuple[Array, bool], Array]:
        """Return the log marginal likelihood, the factor of A, and A⁻¹y."""
        factor = cho_factor(A, lower=True)
        alpha = cho_solve(factor, self._y)
        return float(-0.5 * self._y @ alpha - np.log(np.diag(factor[0])).sum()), factor, np.asarray(alpha)

    def gains(self, settings: Sequence[Setting]) -> tuple[Array, Array]:
        """Return the mean log-ratios of settings to the default, and their standard deviations, shapes (n,)."""
        z = self._coordinates(settings)
        k = self._amplitude**2 * self._kernel(self._z, z)
        explained = np.einsum("mn,mn->n", k, cho_solve(self._factor, k))
        variance = self._amplitude**2 * self._prior(z) - explained
        return np.asarray(k.T @ self._alpha), np.sqrt(np.maximum(variance, 0.0))

    def log_ratio(self, a: Setting, b: Setting) -> tuple[float, float]:
        """Return the mean log-ratio of b to a, and its standard deviation."""
        if (a, b) not in self._difference_sd:
            self._difference_sd[a, b] = self._difference(a, b)
        return self._difference_sd[a, b]

    def _difference(self, a: Setting, b: Setting) -> tuple[float, float]:
        both = self._coordinates([a, b])
        k = self._amplitude**2 * self._kernel(self._z, both)
        cov = self._amplitude**2 * self._kernel(both, both) - k.T @ cho_solve(self._factor, k)
        mean = k.T @ self._alpha
        variance = float(cov[0, 0] + cov[1, 1] - 2 * cov[0, 1])
        return float(mean[1] - mean[0]), float(np.sqrt(max(variance, 0.0)))

    def best(self, *, batch_size: int | None = None) -> Setting:
        """Return the measured setting with the largest mean, of those of a batch size if that is said."""
        candidates = [s for s in dict.fromkeys([self.default, *self._settings]) if batch_size in (None, s.batch_size)]
        return candidates[int(np.argmax(self.gains(candidates)[0]))]

    def _coordinates(self, settings: Sequence[Setting]) -> list[_Coordinates]:
        """Return x_j of each setting by knob, the default's first, each of shape (1 + n,)."""
        rows = [each.to_dict() for each in (self.default, *settings)]
        return [_coordinates(name, [row[name] for row in rows]) for name, _ in self.default.items]

    def _kernel(self, a: Sequence[_Coordinates], b: Sequence[_Coordinates]) -> Array:
        """Return k / a² between two lists of settings, shape (len(a), len(b))."""
        product = np.ones((len(a[0].x) - 1, len(b[0].x) - 1))
        for x, y in zip(a, b, strict=True):
            k = _along(x, y)  # its first row and column are of the default
            product *= 1 + _INTERACTION * (k[1:, 1:] - k[1:, :1] * k[:1, 1:])
        return (product - 1) / _INTERACTION

    def _prior(self, a: Sequence[_Coordinates]) -> Array:
        """Return k(z, z) / a² of each setting, shape (n,)."""
        product = np.ones(len(a[0].x) - 1)
        for each in a:
            product *= 1 + _INTERACTION * (1 - _along(each, each.first)[1:, 0] ** 2)
        return (product - 1) / _INTERACTION


@dataclass(frozen=True, slots=True)
class _Coordinates:
    """Coordinates along a knob, shape (n,): of numbers on their scale, or words as they are."""

    x: NDArray[Any]
    numeric: bool

    @property
    def first(self) -> _Coordinates:
        """Return the first alone."""
        return _Coordinates(self.x[:1], self.numeric)


def _coordinates(name: str, values: Sequence[Value]) -> _Coordinates:
    knob_values = FRAMEWORK.knobs[name].values
    if not isinstance(knob_values, Numbers):
        return _Coordinates(np.array(values, dtype=str), numeric=False)
    return _Coordinates(np.log2(1.0 + np.array(values, dtype=float)) / knob_values.octaves, numeric=True)


def _along(a: _Coordinates, b: _Coordinates) -> Array:
    """Return k_j between two lists of coordinates, shape (len(a), len(b))."""
    if not a.numeric:
        return np.where(a.x[:, None] == b.x[None, :], 1.0, _OTHER_WORD)
    return np.asarray(np.exp(-0.5 * (a.x[:, None] - b.x[None, :]) ** 2))
