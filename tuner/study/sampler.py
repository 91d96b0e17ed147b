"""The sampler: proposes the next setting. `LatticeSampler.propose` is its only entry point.

The baselines come first, then what is hinted at: by a model of the machine, by rules, and by the graph's width; then a
small design that shows the surrogate each regime. Then the setting of the lattice, not yet tried, whose expected
improvement under Gaussian processes is largest, or largest for the time that it takes (Snoek, Larochelle & Adams 2012,
Practical Bayesian optimization of machine learning algorithms, section 3.2). Each trial's own noise is in the
surrogate, and no setting is suggested twice.
Under limits the improvement is weighted by the probability that they are kept (Schonlau, Welch & Jones 1998, Global
versus local search in constrained optimization of computer models, section 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial
from scipy.special import ndtr

from tuner.machine.blas import one_blas_thread
from tuner.measure.constraint import Limits
from tuner.space.groups import is_group
from tuner.space.setting import Setting, distinct
from tuner.space.space import Space
from tuner.stats import gp
from tuner.stats.estimate import Array
from tuner.study.attributes import Attributes
from tuner.study.lattice import Encoding, Indices, Lattice, thinned
from tuner.study.record import distributions, pending_of, trials_of
from tuner.study.surrogate import PriorMean, fit, fit_with_pending
from tuner.study.trials import Score, Trial
from tuner.trial.outcome import Status

_LIMIT_SD = 0.05  # what a measured p99 or peak memory is believed to within (log scale)
_MAX_SCORED = 20_000  # points of a large lattice that are looked at for one suggestion, drawn at random
_LEADERS = 4  # tried settings whose neighbours on a large lattice are looked at too
_CLIMBS = 5  # of the points looked at on a large lattice, from which better neighbours are sought
_MIN_COST_S = 0.1
_LEAST_GAIN = 1e-4  # (log) that any setting may have: where the model expects nothing any more, cheap ones come first
_LEAST_SHARE = 0.25  # of the gain a second that others promise: less is not worth a place among those timed together

CostS = Callable[[Setting], float]
"""The seconds that a trial of a setting is expected to take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A setting to try, and what is expected to be gained over the best so far (log-ratio; infinite: unknown).

    The setting has the largest expected gain a second; `expected_gain` is the largest of any that is left, at any cost.
    It `is_poor` if far better ones wait for a process that a trial under way has.
    """

    setting: Setting
    expected_gain: float
    is_poor: bool = False


class LatticeSampler(BaseSampler):
    """An Optuna sampler over the points of a space."""

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        limits: Limits | None = None,
        initial_design: Sequence[Setting] = (),
        prior_mean: PriorMean | None = None,
        memory_ends_batches: bool = False,
        score: Score = list,
    ) -> None:
        """`initial_design` are settings of the space to try before the model has a say.

        With `memory_ends_batches` no batch size is tried from the first on that memory did not hold, as on a device
        whose memory nobody else has a part of.

        `prior_mean` is what a model of the machine expects; the trials say how much it is believed.

        `score` gives the trials the log-ratios of what is to be improved.
        """
        self._space = space
        self._initial_design = distinct(initial_design)
        self._limits = limits or Limits()
        self._seed = seed
        self._encoding = Encoding(space.choices(), additive=space.additive())
        self.prior_mean = prior_mean
        self._memory_ends_batches = memory_ends_batches
        self._score = score
        self._lattice: Lattice | None = None
        self._points_threads: Sequence[Setting] | None = None
        self._last: tuple[tuple[int, ...], Proposal | None] | None = None

    def propose(self, study: optuna.Study, *, cost_s: CostS | None = None) -> Proposal | None:
        """Return the next setting for what the study knows now, or None if every setting was tried.

        With `cost_s` it is the setting that gains most per second. Asked again without, for the same knowledge, it is
        the proposal that was given last: what Optuna is told is what the study has decided on.
        """
        trials, pending = trials_of(study), pending_of(study)
        knowledge = (len(trials), len(pending))
        if cost_s is not None or self._last is None or self._last[0] != knowledge:
            with one_blas_thread():
                self._last = knowledge, self._propose(trials, pending, _process_sd(study), cost_s)
        return self._last[1]

    def trust(self, study: optuna.Study) -> float | None:
        """Return how much the prior mean is believed after the trials, from 0 to 1; None where none gave a number."""
        with one_blas_thread():
            mixture = fit(trials_of(study), self._encoding, _process_sd(study), prior_mean=self.prior_mean)
        return None if mixture is None else gp.trust(mixture)

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

    def _propose(
        self, trials: Sequence[Trial], pending: Sequence[Setting], process_sd: float, cost_s: CostS | None
    ) -> Proposal | None:
        tried = {trial.setting for trial in trials} | set(pending)
        # A failed baseline stops the study, so if the study continues, the cause may have been fixed: but not one of
        # several processes, which the search does without.
        measured = {t.setting for t in trials if t.status is Status.OK or t.is_inapplicable} | set(pending)
        names = {setting: name for name, setting in self._space.baselines.items()}
        must_run = self._space.catalogue.must_run
        measured |= {each for each in tried if is_group(each) or (each in names and not must_run([names[each]]))}
        for setting in distinct(self._space.baselines.values()):
            if setting not in measured:
                return Proposal(setting=setting, expected_gain=math.inf)
        limit = too_large_batch(trials) if self._memory_ends_batches else math.inf
        for setting in self._initial_design:
            if setting not in tried and setting.batch_size < limit:
                return Proposal(setting=setting, expected_gain=math.inf)
        if self._lattice is None:
            self._lattice = Lattice(self._space.points, self._encoding, self._space.choices())
        lattice, points = self._lattice, self._space.points
        free = np.ones(len(points), dtype=bool)
        free[lattice.numbers(tried)] = False
        if limit < math.inf:
            free &= np.array([point.batch_size < limit for point in points])
        apart = free
        if pending:  # who shares a process with a trial under way would wait for it
            busy = {each.without("batch_size") for each in pending}
            apart = free & np.array([threads not in busy for threads in self._threads(points)])
            apart = apart if apart.any() else free
        left = np.flatnonzero(free)
        if not len(left):
            return None
        if self.prior_mean is not None:
            few = np.intersect1d(left, thinned(len(points)))
            left = few if len(few) else left
        rng = np.random.default_rng([self._seed, len(trials), len(pending)])
        scored = self._score(trials)
        posterior = fit_with_pending(scored, pending, self._encoding, process_sd, prior_mean=self.prior_mean)
        beside = left[apart[left]] if apart[left].any() else np.flatnonzero(apart)
        excesses = self._limit_models(trials)
        if posterior is None and not excesses:
            return Proposal(setting=points[beside[rng.integers(len(beside))]], expected_gain=math.inf)
        allowed = [t.setting for t in scored if t.estimate is not None and t.eligible and not t.over_limit]
        mean = self._mean(posterior, allowed) if posterior and allowed else np.array([])

        def score(numbers: Indices) -> Scored:
            Z = lattice.encode(numbers)
            settings = [points[i] for i in numbers] if cost_s or self.prior_mean else []
            feasibility = _feasibility(excesses, Z)
            # Where nothing keeps to the limits yet, find what does.
            gain = feasibility
            if posterior and len(mean):
                trend = self.prior_mean(settings) if self.prior_mean else 0.0
                gain = feasibility * gp.improvement_of(posterior, Z, float(mean.max()), trend)
            seconds = np.array([max(cost_s(s), _MIN_COST_S) for s in settings]) if cost_s else 1.0
            return Scored(numbers=numbers, gain=gain, rate=(gain + _LEAST_GAIN) / seconds)

        leaders = [allowed[i] for i in np.argsort(-mean)[:_LEADERS]]
        best, largest_gain = _search(lattice, free, left, leaders, score, rng)
        if apart[best.numbers[0]]:
            return Proposal(setting=points[best.numbers[0]], expected_gain=largest_gain)
        second, _ = _search(lattice, apart, beside, leaders, score, rng)
        is_poor = float(second.rate[0]) < _LEAST_SHARE * float(best.rate[0])
        return Proposal(setting=points[second.numbers[0]], expected_gain=largest_gain, is_poor=is_poor)

    def _threads(self, points: Sequence[Setting]) -> Sequence[Setting]:
        """Return what each point needs a process of its own for: all but its batch size."""
        if self._points_threads is None:
            self._points_threads = [point.without("batch_size") for point in points]
        return self._points_threads

    def _mean(self, posterior: gp.Mixture, settings: Sequence[Setting]) -> Array:
        """Return the posterior mean of settings."""
        trend = self.prior_mean(settings) if self.prior_mean else 0.0
        return gp.moments_of(posterior, self._encoding.encode(settings), trend)[0]

    def _limit_models(self, trials: Sequence[Trial]) -> list[gp.Posterior]:
        """Return the process of what each limit is exceeded by (log-ratio)."""
        if not self._limits:
            return []
        trial_excesses = [
            (t, self._limits.excess(t.step_s, t.peak_memory_bytes, t.power_w)) for t in trials if t.estimate is not None
        ]
        posteriors = []
        for each in range(len(trial_excesses[0][1]) if trial_excesses else 0):
            finite = [(trial.setting, excess[each]) for trial, excess in trial_excesses if math.isfinite(excess[each])]
            if finite:
                X, y = self._encoding.encode([setting for setting, _ in finite]), np.array([g for _, g in finite])
                posteriors.append(gp.fit(X, y, _LIMIT_SD**2 * np.eye(len(y))))
        return posteriors


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Points of the lattice by number, the gain that is expected of each, and the gain per second."""

    numbers: Indices
    gain: Array
    rate: Array

    def at(self, i: int) -> Scored:
        """Return one of them."""
        return Scored(numbers=self.numbers[[i]], gain=self.gain[[i]], rate=self.rate[[i]])


def _search(
    lattice: Lattice,
    free: Array,
    left: Indices,
    leaders: Sequence[Setting],
    score: Callable[[Indices], Scored],
    rng: np.random.Generator,
) -> tuple[Scored, float]:
    """Return the free point with the largest rate: of all, or on a large lattice of those that can be looked at.

    With it comes the largest gain of any of them, which may be another point's.

    On a large lattice these are some of those that are `left`, drawn at random, and the neighbours of the `leaders`;
    from the best of them it goes from neighbour to better neighbour.
    """
    large = len(left) > _MAX_SCORED or len(left) < np.count_nonzero(free)
    if large:
        near = lattice.neighbours(leaders)
        some = rng.choice(left, _MAX_SCORED, replace=False) if len(left) > _MAX_SCORED else left
        left = np.union1d(some, near[free[near]])
    scored = score(left)
    # Equal points are taken in a random order, so that no corner of the lattice is favoured.
    order = np.lexsort((rng.random(len(left)), -scored.rate))
    starts = [scored.at(i) for i in order[: _CLIMBS if large else 1]]
    if large:
        starts = [_climb(top, lattice, free, score) for top in starts]
    best = max(starts, key=lambda top: float(top.rate[0]))
    return best, max(float(scored.gain.max()), float(best.gain[0]))


def _climb(top: Scored, lattice: Lattice, free: Array, score: Callable[[Indices], Scored]) -> Scored:
    """Go on to the best neighbour while that is better."""
    while True:
        near = lattice.neighbours([lattice.points[top.numbers[0]]])
        near = near[free[near]]
        scored = score(near)
        better = scored.at(int(scored.rate.argmax()))
        if better.rate[0] <= top.rate[0]:
            return top
        top = better


def _feasibility(excesses: Sequence[gp.Posterior], Z: Array) -> Array:
    """Return the probability that each point of Z (m, d) keeps to all limits, shape (m,); 1 without limits."""
    probability = np.ones(len(Z))
    for posterior in excesses:
        mean, sd = gp.predict(posterior, Z)
        probability = probability * ndtr(-mean / np.hypot(sd, 1e-6))
    return probability


def too_large_batch(trials: Sequence[Trial]) -> float:
    """Return the smallest batch size at which memory has run out in one process; infinite where it never has."""
    sizes = [t.setting.batch_size for t in trials if t.status is Status.OOM and not is_group(t.setting)]
    return min(sizes, default=math.inf)


def _process_sd(study: optuna.Study) -> float:
    """Return σ_p as the study has measured it."""
    return Attributes(study.study_name, study.user_attrs).process_sd
