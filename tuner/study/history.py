"""The history of a search: its finished trials, the best of them, and those that may be as good."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from scipy.special import ndtr

from tuner.measure.passes import PassEstimates
from tuner.space.groups import in_flight
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.stats.noise import PRIOR_NOISE, Noise
from tuner.study.record import Record
from tuner.study.surrogate import posterior_means, posterior_moments
from tuner.study.trials import Score, Trial, estimated

_LEAST_SD = 1e-9  # of what is known without error
Posterior = Mapping[Setting, float]
"""What a model of the trials expects of settings: log-ratios to the default."""


def incumbent(trials: Sequence[Trial], posterior: Posterior | None = None) -> Trial | None:
    """Return the best trial among those that were not stopped early: the largest posterior mean.

    `posterior` is the posterior mean (log-ratio) of each setting, as `tuner.study.surrogate.posterior_means` has it.
    The largest of many noisy means is too high on average; without them the largest estimate is taken all the same. A
    baseline that a `--set` rules out is compared with and not chosen, nor is what breaks a limit.
    """
    candidates = [t for t in trials if t.estimate is not None and not t.pruned and t.eligible and not t.over_limit]
    means = posterior or {}
    return max(candidates, key=lambda t: means.get(t.setting, t.log_ratio or 0.0), default=None)


def tied(trials: Sequence[Trial], *, process_sd: float, posterior: Posterior | None = None) -> list[Trial]:
    """Return the trials that are statistically tied with the incumbent, including itself.

    `process_sd` is σ_p (log scale); `posterior` as for `incumbent`.
    """
    best = incumbent(trials, posterior)
    if best is None:
        return []
    differences = [(t, t.difference(best, process_sd)) for t in trials if t.eligible and not t.over_limit]
    return [t for t, each in differences if each is not None and (t is best or each.interval()[1] >= 1.0)]


class History:
    """The finished trials of a study, and what they say together."""

    def __init__(self, record: Record, space: Space, score: Score = list) -> None:
        """`score` is what the best is chosen by: by itself it is what the trials have measured."""
        self._record = record
        self._space = space
        self._score = score
        self._posterior_means: tuple[tuple[int, float], dict[Setting, float]] | None = None
        self.trials: list[Trial] = []
        self.groups: list[Trial] = []
        """The finished trials of several processes, where the space is of one."""

    def read(self) -> None:
        """Take over the trials of earlier runs: once, as no other run may measure meanwhile."""
        self.trials, self.groups = self._record.trials(), self._record.groups()

    def learn(self, now: PassEstimates | None) -> None:
        """Take what all passes say of the trials, and keep it in the record."""
        if now is None:
            return
        together = estimated([*self.trials, *self.groups], now, self._space.reference)
        self.trials, self.groups = together[: len(self.trials)], together[len(self.trials) :]
        self._record.put_estimates(together)
        self._posterior_means = None

    def noise(self) -> Noise:
        """Return the noise as it was measured last, in an earlier run if not in this one."""
        return self._record.attributes().noise or PRIOR_NOISE

    def posterior_means(self) -> dict[Setting, float]:
        """Return the posterior mean (log-ratio) of each setting that was measured; found anew where more is known."""
        knowledge = (len(self.trials), self.noise().process_sd)
        if self._posterior_means is None or self._posterior_means[0] != knowledge:
            self._posterior_means = (
                knowledge,
                posterior_means(
                    self._score(self.trials),
                    self._space.choices(),
                    process_sd=knowledge[1],
                    additive=self._space.additive(),
                ),
            )
        return self._posterior_means[1]

    def predictions(self, settings: Sequence[Setting]) -> dict[Setting, float]:
        """Return the posterior mean (log-ratio) of settings of the space's knobs; none before anything was measured."""
        return {setting: mean for setting, (mean, _) in self._moments(settings).items()}

    def _moments(self, settings: Sequence[Setting]) -> dict[Setting, tuple[float, float]]:
        """Return the posterior mean (log-ratio) of settings, as `predictions` does, and its standard deviation."""
        return posterior_moments(
            self._score(self.trials),
            self._space.choices(),
            process_sd=self.noise().process_sd,
            additive=self._space.additive(),
            at=settings,
        )

    def batch_sizes(self) -> set[int]:
        """Return the batch sizes at which one process ran, and kept to the limits if any size does.

        Processes that share a machine are slower, each by itself, than one that has it all.
        """
        measured = [trial for trial in self.trials if trial.estimate is not None]
        within = {trial.setting.batch_size for trial in measured if not trial.over_limit}
        return within or {trial.setting.batch_size for trial in measured}

    def best_group(self, *, among: Collection[Setting] = ()) -> Trial | None:
        """Return the best trial of several processes, one that was stopped early if there is no other.

        If any of the settings `among` ran, it is the best of these.
        """
        allowed = [trial for trial in self.groups if trial.estimate is not None and not trial.over_limit]
        allowed = [trial for trial in allowed if trial.setting in among] or allowed
        return incumbent(allowed) or max(allowed, key=lambda trial: trial.log_ratio or 0.0, default=None)

    def at_same_latency(self) -> tuple[Setting, float] | None:
        """Return a setting that promises most at the default's latency, and its log-ratio to the default.

        By Little's law a call takes as long as the items in flight take at the rate. Known are the settings that were
        measured, and by the posterior the incumbent's threads at other batch sizes. None if no call is expected to take
        as little time as the default's.
        """
        tried, best, process_sd = [*self.trials, *self.groups], self.incumbent(), self.noise().process_sd
        usable = [each for each in tried if each.estimate is not None and each.eligible and not each.over_limit]
        estimates = {trial.setting: trial.known(process_sd) for trial in usable}
        known = {setting: (own.mean, own.se) for setting, own in estimates.items() if own is not None}
        threads, settings = None if best is None else best.setting.without("batch_size"), {t.setting for t in tried}
        own_threads = [each for each in self._space.points if each.without("batch_size") == threads]
        modelled = [each for each in own_threads if each not in settings]
        modelled += [each.setting for each in usable if not each.is_group]
        known |= self._moments(modelled) if modelled else {}
        n_default = in_flight(self._space.reference)

        def spare(setting: Setting) -> float:
            """Return by how much (log) a call is expected to take less time than the default's."""
            return known[setting][0] - math.log(in_flight(setting) / n_default)

        def promise(setting: Setting) -> float:
            """Return the gain (log), times the probability that a call takes no longer: else it is none.

            Of many settings whose calls are expected to be just short enough, the fastest one is so by luck.
            """
            log_ratio, sd = known[setting]
            return log_ratio * float(ndtr(spare(setting) / max(sd, _LEAST_SD))) if log_ratio > 0 else log_ratio

        short = [each for each in known if each != self._space.reference and spare(each) >= 0]
        chosen = max(short, key=promise, default=None)
        return None if chosen is None else (chosen, known[chosen][0])

    def incumbent(self) -> Trial | None:
        """Return the best trial of the space so far."""
        return incumbent(self._score(self.trials), self.posterior_means())
