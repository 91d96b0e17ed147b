"""What settings carry within a limit, from how long their steps took: the score of a search for capacity.

A setting of n processes with c calls at once each, whose batches are all run at its size b, is n queues with c servers.
Its service times are the steps that its trial measured. So the simulation of the queue (`tuner.model.queueing`) gives
the rate at which its p99 meets the limit.

Notation
    s      service time of a batch (s): n c b over the rate of the setting, that of the default times the trial's ratio
    e      scatter of the trial's steps about their mean
    C(s)   capacity (1/s) at the limit L. From the curve of steps of 1 s it follows for all s: C(L; s) = C(L/s; 1) / s
    κ      elasticity −d log C / d log s, which turns the error of a ratio into that of a capacity
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tuner.model.queueing import Batching, Queue, ServiceTimes, kept_rate
from tuner.space.common import STREAMS
from tuner.space.groups import INSTANCES, in_flight
from tuner.space.setting import Setting
from tuner.stats.estimate import Array
from tuner.study.trials import Trial

_N_REQUESTS = 10_000
_RARE = np.array([0.0005, 0.002, 0.006])  # of the saturation: where a limit lies near the step, little more is carried
_STEP = 0.03  # log, of a derivative
_MOST_ELASTIC = 20.0  # near the limit a capacity ends, and its derivative says nothing


@dataclass(frozen=True, kw_only=True)
class CapacityScore:
    """Scores the trials of a study by what their settings carry with a p99 of at most `limit_s` (s)."""

    limit_s: float
    default: Setting
    _curves: dict[int, tuple[Array, Array]] = field(default_factory=dict, repr=False)
    """By the number of a trial: rates, and the p99 (log) at them, of steps that take 1 s."""

    def __call__(self, trials: Sequence[Trial]) -> list[Trial]:
        """Return trials whose log-ratios are of capacities; one that carries nothing is over the limit, without one."""
        rates = rates_of(trials)
        carried = {t.number: self._log_capacity(t, rates[t.number]) for t in trials if t.number in rates}
        elastic = {t.number: self._elasticity(t, rates[t.number]) for t in trials if t.number in rates}
        finite = [
            (t.setting == self.default, c) for t in trials if math.isfinite(c := carried.get(t.number, -math.inf))
        ]
        # Where the default carries nothing, what is best takes its place.
        base = max(finite, default=(False, 0.0))[1]

        def scored(trial: Trial) -> Trial:
            if trial.number not in carried or trial.se is None:
                return trial
            if not math.isfinite(carried[trial.number]):
                return replace(trial, log_ratio=None, se=None, over_limit=True)
            own = elastic[trial.number]
            shared = trial.covariance or {}
            covariance = {n: own * elastic[n] * value for n, value in shared.items() if n in elastic}
            return replace(
                trial, log_ratio=carried[trial.number] - base, se=own * trial.se, covariance=covariance or None
            )

        return [scored(trial) for trial in trials]

    def capacity(self, trial: Trial, rate: float) -> float:
        """Return what a trial's setting carries (1/s) that has a rate (items/s); 0 if nothing."""
        return math.exp(self._log_capacity(trial, rate))

    def _log_capacity(self, trial: Trial, rate: float, slower: float = 0.0) -> float:
        """Return log C of a trial at a rate (items/s); −∞ if it keeps to the limit at no rate."""
        rates, logs = self._curve(trial)
        log_s = math.log(in_flight(trial.setting) / rate) + slower
        kept = kept_rate(rates, logs, math.log(self.limit_s) - log_s)
        return math.log(kept) - log_s if kept else -math.inf

    def _elasticity(self, trial: Trial, rate: float) -> float:
        fast, slow = (self._log_capacity(trial, rate, slower) for slower in (-_STEP, _STEP))
        return min((fast - slow) / (2 * _STEP), _MOST_ELASTIC) if math.isfinite(fast) else 1.0

    def _curve(self, trial: Trial) -> tuple[Array, Array]:
        """Return the curve of a trial's setting as if its steps took 1 s; it is simulated once."""
        if trial.number not in self._curves:
            values = trial.setting.to_dict()
            step_s = np.array(trial.step_s or [1.0])
            batch_size = trial.setting.batch_size
            times = ServiceTimes(
                sizes=np.array([float(batch_size)]),
                log_s=np.zeros(1),
                rates=np.ones(1),
                shift=np.zeros(1),
                round_log=np.zeros(2),
                rest=((np.log(step_s / step_s.mean()),),),
            )
            processes, callers = int(values.get(INSTANCES, 1)), int(values.get(STREAMS.name, 1))
            batching = Batching(sizes=(batch_size,), wait_s=0.0, processes=processes, callers=callers)
            queue = Queue(batching=batching, times=times, n_requests=_N_REQUESTS)
            rates = np.concatenate([_RARE * queue.saturation, queue.rates()])
            logs = np.log([queue.quantile(float(rate), 0.99) for rate in rates])
            self._curves[trial.number] = rates, np.maximum.accumulate(logs)
        return self._curves[trial.number]


def rates_of(trials: Sequence[Trial]) -> dict[int, float]:
    """Return the rate (items/s) of each trial that gave a figure, as if all had run while the machine was the same."""
    known = [trial for trial in trials if trial.log_ratio is not None and trial.slices]
    if not known:
        return {}
    log_ratios = np.array([trial.log_ratio or 0.0 for trial in known])
    of_default = float(np.median(np.log([_own_rate(trial) for trial in known]) - log_ratios))
    return {trial.number: math.exp(of_default + value) for trial, value in zip(known, log_ratios, strict=True)}


def _own_rate(trial: Trial) -> float:
    n_steps, elapsed_s = (sum(each) for each in zip(*((s.n_steps, s.elapsed_s) for s in trial.slices), strict=True))
    return float(trial.setting.batch_size * n_steps / elapsed_s)


def most_promising(trials: Sequence[Trial], score: CapacityScore, n: int) -> list[Trial]:
    """Return at most `n` scored trials to measure under load: those that carry most, each with other threads.

    The default is not among them, nor what a pin or a limit rules out, nor what clearly carries less than the best.
    """
    allowed = [trial for trial in score(trials) if trial.eligible and not trial.over_limit]
    scored = [trial for trial in allowed if trial.estimate is not None]
    best_of: dict[Setting, Trial] = {}
    for trial in sorted(scored, key=lambda trial: -(trial.log_ratio or 0.0)):
        best_of.setdefault(trial.setting.without("batch_size"), trial)
    best_of.pop(score.default.without("batch_size"), None)
    ranked = list(best_of.values())
    return [
        trial
        for trial in ranked
        if (behind := ranked[0].difference(trial, 0.0)) is not None and behind.interval()[0] <= 1
    ][:n]
