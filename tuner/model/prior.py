"""What a model of the machine expects of settings before any is measured: the prior mean of a search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tuner.machine.host import Machine
from tuner.model.hardware import Hardware
from tuner.model.prediction import best_of, rate_of
from tuner.model.predictor import Predictor
from tuner.space.setting import Setting
from tuner.stats.estimate import Array
from tuner.study.lattice import thinned


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedRatio:
    """The log-ratio of the predicted throughput of settings to that of the reference; each is simulated once."""

    predictor: Predictor
    machine: Machine
    hardware: Hardware
    reference: Setting
    _rates: dict[Setting, float] = field(default_factory=dict, init=False)

    def __call__(self, settings: Sequence[Setting]) -> Array:
        """Return the log-ratios, shape (settings,)."""
        reference = self._rate(self.reference)
        return np.array([math.log(self._rate(setting) / reference) for setting in settings])

    def best(self, points: Sequence[Setting]) -> Setting:
        """Return the point that is predicted to be best, the simplest of those near it; of very many some are asked."""
        return best_of({points[i]: self._rate(points[i]) for i in thinned(len(points))}, self.reference)

    def _rate(self, setting: Setting) -> float:
        if setting not in self._rates:
            self._rates[setting] = rate_of(self.predictor, setting, self.machine, self.hardware)
        return self._rates[setting]
