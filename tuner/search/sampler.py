"""The sampler: which setting comes next. One small door, `LatticeSampler.propose`; behind it the mathematics.

The baselines come first. Then the setting of the lattice, not yet tried, whose expected improvement under a
Gaussian process is largest; each trial's own noise is in the model, and no setting is suggested twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from tuner.measure.statistics import Array
from tuner.search import gp
from tuner.search.record import Trial, distributions, pending_of, trials_of
from tuner.space.catalogue import KNOBS
from tuner.space.knob import Value
from tuner.space.setting import Setting, distinct
from tuner.space.space import Space
from tuner.trial.outcome import Status

# Two processes of one setting differ by about this much (log scale), however long each is measured.
_PROCESS_SD = 0.006
_MAX_SCORED = 20_000  # points of a large lattice that are looked at for one suggestion, drawn at random


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A setting to try, and what it is expected to gain over the best so far (log-ratio; infinite: unknown)."""

    setting: Setting
    expected_gain: float


class LatticeSampler(BaseSampler):
    """An Optuna sampler over the points of a space."""

    def __init__(self, space: Space, *, seed: int) -> None:
        self._space = space
        self._seed = seed
        self._encoding = Encoding(space.choices())
        self._last: tuple[tuple[int, ...], Proposal | None] | None = None

    def propose(self, study: optuna.Study) -> Proposal | None:
        """Return the next setting for what the study knows now, or None if every setting was tried.

        The same knowledge gives the same proposal, so asking twice is harmless.
        """
        trials, pending = trials_of(study), pending_of(study)
        knowledge = (len(trials), len(pending))
        if self._last is None or self._last[0] != knowledge:
            self._last = knowledge, self._propose(trials, pending)
        return self._last[1]

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return every knob's distribution: the knobs are chosen together."""
        del study, trial
        return distributions(self._space)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the proposal's parameters."""
        del trial, search_space
        proposal = self.propose(study)
        return {} if proposal is None else dict(proposal.setting.items)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the reference's value: reached only when somebody asks for more than there is."""
        del study, trial, param_distribution
        return self._space.reference[param_name]

    def _propose(self, trials: Sequence[Trial], pending: Sequence[Setting]) -> Proposal | None:
        tried = {trial.setting for trial in trials} | set(pending)
        # A baseline that failed stops the study, so where it is seen again its cause may have been mended.
        measured = {trial.setting for trial in trials if trial.status is Status.OK or trial.void} | set(pending)
        for setting in distinct(self._space.baselines.values()):
            if setting not in measured:
                return Proposal(setting=setting, expected_gain=math.inf)
        rng = np.random.default_rng([self._seed, len(trials), len(pending)])
        points = [point for point in self._space.points if point not in tried]
        if len(points) > _MAX_SCORED:
            points = [points[i] for i in rng.choice(len(points), _MAX_SCORED, replace=False)]
        if not points:
            return None
        posterior = self._believe(trials, pending, rng)
        if posterior is None:
            return Proposal(setting=points[int(rng.integers(len(points)))], expected_gain=math.inf)
        mean, sd = gp.predict(posterior, self._encoding.encode(points))
        best = float(gp.predict(posterior, posterior.X)[0].max())
        gain = gp.expected_improvement(mean, sd, best)
        # Equal points are taken in a random order, so that no corner of the lattice is favoured.
        chosen = int(np.lexsort((rng.random(len(points)), -gain))[0])
        return Proposal(setting=points[chosen], expected_gain=float(gain[chosen]))

    def _believe(
        self, trials: Sequence[Trial], pending: Sequence[Setting], rng: np.random.Generator
    ) -> gp.Posterior | None:
        """Return the process of the trials, in which those under way came out as expected; None without trials.

        This "kriging believer" keeps settings that are started together apart: Ginsbourger et al. (2010),
        Kriging is well-suited to parallelize optimization, section 4.2.
        """
        posterior = fit(trials, self._encoding, rng)
        if posterior is None or not pending:
            return posterior
        x = self._encoding.encode(pending)
        return gp.condition(
            np.vstack([posterior.X, x]),
            np.concatenate([posterior.y, gp.predict(posterior, x)[0]]),
            np.concatenate([posterior.v, np.full(len(pending), _PROCESS_SD**2)]),
            posterior.lengthscales,
            posterior.amplitude,
        )


def fit(trials: Sequence[Trial], encoding: Encoding, rng: np.random.Generator) -> gp.Posterior | None:
    """Return the Gaussian process of the trials that gave a number, or None if none did."""
    seen = [t for t in trials if t.status is Status.OK and t.log_ratio is not None and t.se is not None]
    if not seen:
        return None
    y = np.array([t.log_ratio for t in seen], dtype=float)
    v = np.array([(t.se or 0.0) ** 2 + _PROCESS_SD**2 for t in seen])
    return gp.fit(encoding.encode([t.setting for t in seen]), y, v, rng)


class Encoding:
    """Settings as points of the unit cube.

    A numeric knob is one coordinate, log2(1 + value) scaled to [0, 1]: the step from 1 to 2 threads matters as
    much as that from 8 to 16. A word is one coordinate per choice, 1/√2 or 0, so that two words are 1 apart.
    """

    def __init__(self, choices: Mapping[str, Sequence[Value]]) -> None:
        self._choices = {name: list(values) for name, values in choices.items()}

    def encode(self, settings: Sequence[Setting]) -> Array:
        """Return the settings' coordinates, shape (n, d)."""
        columns = []
        for name, values in self._choices.items():
            column = [setting[name] for setting in settings]
            if KNOBS[name].numeric:
                ends = np.log2(1.0 + np.array([min(map(int, values)), max(map(int, values))]))
                x = np.log2(1.0 + np.array(column, dtype=float))
                columns.append((x - ends[0]) / max(ends[1] - ends[0], 1e-12))
            elif len(values) > 1:
                columns.extend(np.array([v == word for v in column]) / math.sqrt(2) for word in values)
        return np.asarray(np.column_stack(columns), dtype=float)
