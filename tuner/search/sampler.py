"""The sampler: which setting comes next. One small door, `LatticeSampler.propose`; behind it the mathematics.

The baselines come first, then what is hinted at: by rules, and by the graph's width. Then the setting of the lattice,
not yet tried, whose expected improvement under a Gaussian process is largest; each trial's own noise is in the model,
and no setting is suggested twice. Under limits the improvement is weighted by the probability that they are kept
(Schonlau, Welch & Jones 1998, Global versus local search in constrained optimization of computer models, section 4).
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
from scipy.linalg import block_diag
from scipy.special import ndtr

from tuner.measure.constraint import Limits
from tuner.measure.noise import Noise
from tuner.measure.statistics import Array
from tuner.search import gp
from tuner.search.record import Trial, distributions, pending_of, trials_of
from tuner.space.catalogue import KNOBS
from tuner.space.knob import Value
from tuner.space.setting import Setting, distinct
from tuner.space.space import Space
from tuner.trial.outcome import Status

_LIMIT_SD = 0.05  # what a measured p99 or peak memory is believed to within (log scale)
_MAX_SCORED = 20_000  # points of a large lattice that are looked at for one suggestion, drawn at random


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A setting to try, and what it is expected to gain over the best so far (log-ratio; infinite: unknown)."""

    setting: Setting
    expected_gain: float


class LatticeSampler(BaseSampler):
    """An Optuna sampler over the points of a space."""

    def __init__(self, space: Space, *, seed: int, limits: Limits | None = None, hints: Sequence[Setting] = ()) -> None:
        """`hints` are settings of the space to try before the model has a say."""
        self._space = space
        self._hints = hints
        self._limits = limits or Limits()
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
            self._last = knowledge, self._propose(trials, pending, _luck(study))
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

    def _propose(self, trials: Sequence[Trial], pending: Sequence[Setting], luck: float) -> Proposal | None:
        tried = {trial.setting for trial in trials} | set(pending)
        # A baseline that failed stops the study, so where it is seen again its cause may have been mended.
        measured = {trial.setting for trial in trials if trial.status is Status.OK or trial.void} | set(pending)
        for setting in distinct(self._space.baselines.values()):
            if setting not in measured:
                return Proposal(setting=setting, expected_gain=math.inf)
        for setting in self._hints:
            if setting not in tried:
                return Proposal(setting=setting, expected_gain=math.inf)
        rng = np.random.default_rng([self._seed, len(trials), len(pending)])
        points = [point for point in self._space.points if point not in tried]
        if len(points) > _MAX_SCORED:
            points = [points[i] for i in rng.choice(len(points), _MAX_SCORED, replace=False)]
        if not points:
            return None
        posterior = self._believe(trials, pending, luck, rng)
        if posterior is None:
            return Proposal(setting=points[int(rng.integers(len(points)))], expected_gain=math.inf)
        Z = self._encoding.encode(points)
        mean, sd = gp.predict(posterior, Z)
        allowed = [t.setting for t in trials if t.estimate is not None and t.eligible and not t.over_limit]
        kept = self._kept(trials, Z, rng)
        if allowed:
            best = float(gp.predict(posterior, self._encoding.encode(allowed))[0].max())
            gain = kept * gp.expected_improvement(mean, sd, best)
        else:
            gain = kept  # nothing keeps to the limits yet: find what does
        # Equal points are taken in a random order, so that no corner of the lattice is favoured.
        chosen = int(np.lexsort((rng.random(len(points)), -gain))[0])
        return Proposal(setting=points[chosen], expected_gain=float(gain[chosen]))

    def _kept(self, trials: Sequence[Trial], Z: Array, rng: np.random.Generator) -> Array:
        """Return the probability that each point of Z (m, d) keeps to all limits, shape (m,); 1 without limits."""
        probability = np.ones(len(Z))
        if not self._limits:
            return probability
        seen = [(t, self._limits.excess(t.step_s, t.peak_memory_bytes)) for t in trials if t.estimate is not None]
        for each in range(len(seen[0][1]) if seen else 0):
            known = [(trial.setting, excess[each]) for trial, excess in seen if math.isfinite(excess[each])]
            if known:
                X, y = self._encoding.encode([setting for setting, _ in known]), np.array([g for _, g in known])
                posterior = gp.fit(X, y, _LIMIT_SD**2 * np.eye(len(y)), rng)
                mean, sd = gp.predict(posterior, Z)
                probability = probability * ndtr(-mean / np.hypot(sd, 1e-6))
        return probability

    def _believe(
        self, trials: Sequence[Trial], pending: Sequence[Setting], luck: float, rng: np.random.Generator
    ) -> gp.Posterior | None:
        """Return the process of the trials, in which those under way came out as expected; None without trials.

        This "kriging believer" keeps settings that are started together apart: Ginsbourger et al. (2010),
        Kriging is well-suited to parallelize optimization, section 4.2.
        """
        posterior = fit(trials, self._encoding, luck, rng)
        if posterior is None or not pending:
            return posterior
        x = self._encoding.encode(pending)
        return gp.condition(
            np.vstack([posterior.X, x]),
            np.concatenate([posterior.y, gp.predict(posterior, x)[0]]),
            block_diag(posterior.N, luck**2 * np.eye(len(pending))),
            posterior.lengthscales,
            posterior.amplitude,
        )


def fit(trials: Sequence[Trial], encoding: Encoding, luck: float, rng: np.random.Generator) -> gp.Posterior | None:
    """Return the Gaussian process of the trials that gave a number, or None if none did.

    `luck` is what two processes of one setting differ by (σ_p, log scale): each trial has its own, and shares that of
    its reference with all others that were compared with it.
    """
    seen = [(t, t.estimate) for t in trials]
    known = [(t, estimate) for t, estimate in seen if estimate is not None]
    if not known:
        return None
    y = np.array([estimate.mean for _, estimate in known])
    references = np.array([t.reference for t, _ in known])
    N = np.diag([estimate.se**2 + luck**2 for _, estimate in known])
    N = N + luck**2 * (references[:, None] == references[None, :])
    return gp.fit(encoding.encode([t.setting for t, _ in known]), y, N, rng)


def _luck(study: optuna.Study) -> float:
    """Return σ_p as the study has measured it."""
    return Noise.from_dict(study.user_attrs.get("noise")).process_sd


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
