"""The bench: settings beside a live reference process, and what their pairs say.

The reference is TensorFlow's default at the default batch size. It is started once, is stopped whenever it is
not its turn, and every trial of the study is a ratio to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.errors import BaselineError, TunerError
from tuner.measure.agreement import TOLERANCE, deviation
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair, PairPlan, ReferenceLost, log_ratios, measure_pair
from tuner.measure.statistics import Estimate, moderated, pooled_sd
from tuner.search.record import Trial
from tuner.space.baseline import DEFAULT
from tuner.space.space import Space
from tuner.trial.launcher import Launcher, Process
from tuner.trial.outcome import Facts, Status, TrialFailure
from tuner.trial.starting import Started, start_together

# What a quad of slices scatters by before anything is known of this machine (log scale), and how much that counts.
_PRIOR_SD, _PRIOR_DF = 0.02, 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """How a trial is measured.

    A pair ends when its standard error is at most `target_se`, when it is `hopeless_se` standard errors behind
    the incumbent, or before it lasts longer than `max_pair_s`. At most `parallel` processes start at once.
    """

    objective: Objective = Objective.THROUGHPUT
    pair: PairPlan = field(default_factory=PairPlan)
    target_se: float = 0.006
    hopeless_se: float = 3.0
    max_pair_s: float = 14.0
    parallel: int = 2


class Bench:
    """Measures trials; holds the reference process between them."""

    def __init__(
        self, space: Space, launcher: Launcher, plan: BenchPlan, *, hurried: Callable[[], bool] = lambda: False
    ) -> None:
        """`hurried` tells that time is short: pairs then end with their fewest quads."""
        self._space = space
        self._launcher = launcher
        self._plan = plan
        self._hurried = hurried
        self._reference: Process | None = None
        self._sample: dict[str, Any] | None = None
        """What the reference computes."""
        self.start_s = 0.0
        """How long the last start of processes took."""
        self.step_s = 0.0
        """About how long a step of the reference takes."""

    def measure(self, asked: Sequence[Trial], known: Sequence[Trial]) -> Iterator[Trial]:
        """Yield each asked trial with its result, good or bad, in turn.

        `asked` trials have a number and a setting; they are started together, then measured one after another
        while the others are stopped. `known` are the finished trials; the caller adds each yielded one to them.
        """
        began = self._launcher.now()
        started = self._start(asked)
        try:
            for trial, start in zip(asked, started, strict=True):
                done = self._run(trial, start, known)
                now = self._launcher.now()
                yield replace(done, wall_s=now - began)
                began = self._launcher.now()
        finally:
            for start in started:
                start.process.close()

    def close(self) -> None:
        """End the reference process."""
        if self._reference is not None:
            self._reference.close()
            self._reference = None

    def _start(self, asked: Sequence[Trial]) -> list[Started]:
        """Start the asked trials, and the reference before them if there is none."""
        settings = [trial.setting for trial in asked]
        if self._reference is None:
            settings = [self._space.reference, *settings]
        began = self._launcher.now()
        started = start_together(
            self._launcher,
            [(setting, self._space.env(setting)) for setting in settings],
            parallel=self._plan.parallel,
        )
        self.start_s = (self._launcher.now() - began) / math.ceil(len(settings) / self._plan.parallel)
        if self._reference is None:
            self._adopt(started[0], started[1:])
            return started[1:]
        return started

    def _adopt(self, start: Started, others: Sequence[Started]) -> None:
        """Make a started process the reference."""
        if start.facts is None:
            for other in others:
                other.process.close()
            assert start.failure is not None  # Started has one of the two
            raise BaselineError(
                f"the reference ({DEFAULT}) {start.failure.status}: {start.failure.message}",
                "the workload has to run with TensorFlow's defaults",
                log=start.failure.log,
            ) from start.failure
        self._reference, self._sample = start.process, start.facts.sample
        self.step_s = start.facts.warm_up.elapsed_s / start.facts.warm_up.n_steps

    def _run(self, trial: Trial, start: Started, known: Sequence[Trial]) -> Trial:
        """Pair a started process with the reference; a reference that dies is renewed once."""
        if start.facts is None:
            assert start.failure is not None  # Started has one of the two
            return _failed(trial, start.failure)
        apart = self._deviation(trial, start.facts)
        if apart is not None and apart > TOLERANCE:
            start.process.close()
            return replace(
                trial,
                status=Status.INVALID,
                message=f"its outputs differ from the reference's by {100 * apart:.3g} %",
                deviation=apart,
            )
        sd, best = self._quad_sd(known), incumbent(known)
        for attempt in (1, 2):
            if self._reference is None:
                self._start([])
            assert self._reference is not None  # _start adopts one or raises
            try:
                pair = measure_pair(
                    self._reference, start.process, self._plan.pair, enough=self._enough(trial, sd, best)
                )
            except TrialFailure as failure:
                return _failed(trial, failure)
            except ReferenceLost as lost:
                self.close()
                start.process.pause()
                if attempt == 2:
                    raise TunerError(
                        f"the reference process failed twice beside {trial.setting}: {lost}",
                        "the machine may be short of memory; the end of its log:\n" + lost.failure.log[-2000:],
                    ) from lost
                continue
            self.step_s = pair.reference[-1].elapsed_s / pair.reference[-1].n_steps
            estimate = self._estimate(trial, pair, sd)
            return replace(
                trial,
                log_ratio=estimate.mean,
                se=estimate.se,
                df=estimate.df,
                pruned=pair.n_quads < self._plan.pair.max_quads and self._hopeless(estimate, best),
                pair=pair,
                facts=start.facts.to_dict(),
                deviation=apart,
                peak_memory_bytes=start.process.close().peak_memory_bytes,
            )
        raise AssertionError("the second attempt returns or raises")

    def _deviation(self, trial: Trial, facts: Facts) -> float | None:
        """Return how far the outputs lie from the reference's; a batch of another size may compute another thing."""
        if trial.setting.batch_size != self._space.reference.batch_size:
            return None
        return deviation(self._sample, facts.sample)

    def _enough(self, trial: Trial, sd: float, best: Trial | None) -> Callable[[Pair], bool]:
        def enough(pair: Pair) -> bool:
            estimate = self._estimate(trial, pair, sd)
            return (
                estimate.se <= self._plan.target_se
                or self._hopeless(estimate, best)
                or self._hurried()
                or pair.timed_s * (1 + 1 / pair.n_quads) > self._plan.max_pair_s
            )

        return enough

    def _quad_sd(self, known: Sequence[Trial]) -> float:
        """Return what a quad's log-ratio scatters by in this study so far."""
        groups = [self._log_ratios(other, other.pair) for other in known if other.pair]
        return pooled_sd(groups, prior_sd=_PRIOR_SD, prior_df=_PRIOR_DF)

    def _estimate(self, trial: Trial, pair: Pair, sd: float) -> Estimate:
        return moderated(self._log_ratios(trial, pair), prior_sd=sd, prior_df=_PRIOR_DF)

    def _log_ratios(self, trial: Trial, pair: Pair) -> Sequence[float]:
        batch_sizes = (trial.setting.batch_size, self._space.reference.batch_size)
        return [float(x) for x in log_ratios(pair, self._plan.objective, batch_sizes=batch_sizes)]

    def _hopeless(self, estimate: Estimate, best: Trial | None) -> bool:
        if best is None or best.log_ratio is None or best.se is None:
            return False
        return estimate.mean + self._plan.hopeless_se * math.hypot(estimate.se, best.se) < best.log_ratio


def incumbent(trials: Sequence[Trial]) -> Trial | None:
    """Return the best trial: the largest mean log-ratio among those whose pair ran its course.

    A baseline that a `--set` rules out is compared with and not chosen.
    """
    good = [t for t in trials if t.status is Status.OK and t.log_ratio is not None and not t.pruned and t.eligible]
    return max(good, key=lambda t: t.log_ratio or 0.0, default=None)


def _failed(trial: Trial, failure: TrialFailure) -> Trial:
    return replace(trial, status=failure.status, message=failure.message, log=failure.log)
