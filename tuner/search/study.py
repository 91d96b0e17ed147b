"""The study loop: baselines, suggestions, finals; every finished thing is in the record before the next begins."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import optuna

from tuner.errors import BaselineError, TunerError
from tuner.measure import finals
from tuner.measure.finals import SAME_BATCH, Contender, FinalsPlan, Round
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair, PairPlan, ReferenceLost, log_ratios, measure_pair
from tuner.measure.statistics import Array, Estimate, moderated, pooled_sd
from tuner.measure.verdict import INCUMBENT, decided, judge_all
from tuner.search.budget import Budget
from tuner.search.record import Record, Trial, distributions
from tuner.search.sampler import LatticeSampler
from tuner.space.baseline import DEFAULT, INTEL
from tuner.space.setting import Setting, distinct
from tuner.space.space import Space
from tuner.trial.launcher import Launcher, Process
from tuner.trial.outcome import Facts, Status, TrialFailure

# What a quad of slices scatters by before anything is known of this machine (log scale), and how much that counts.
_PRIOR_SD, _PRIOR_DF = 0.02, 4.0
_MIN_SUGGESTIONS = 4  # before the model's word that nothing better is to be expected counts
_FINALS_SHARE = 0.45  # of the time budget, at most, is kept for the first rounds of the finals


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a study is measured.

    `threshold` is the practical one (0.02 is 2 %); a pair ends when its standard error is at most `target_se`,
    or when it is `hopeless_se` standard errors behind the incumbent; a search ends when the next trial is
    expected to gain less than `least_gain`.
    """

    objective: Objective = Objective.THROUGHPUT
    threshold: float = 0.02
    pair: PairPlan = field(default_factory=PairPlan)
    finals: FinalsPlan = field(default_factory=FinalsPlan)
    target_se: float = 0.006
    hopeless_se: float = 3.0
    least_gain: float = 0.001
    max_pair_s: float = 14.0


class Events(Protocol):
    """Told what happens, between measurements and never during one."""

    def stage(self, text: str) -> None:
        """A new phase begins."""

    def trial_begins(self, number: int, setting: Setting, baselines: Sequence[str], left_s: float | None) -> None:
        """A trial's process is about to be started."""

    def trial_ends(self, trial: Trial, incumbent: Trial | None) -> None:
        """A trial is in the record."""

    def round_ends(self, number: int, round_: Round, left_s: float | None) -> None:
        """A round of the finals is in the record."""


class Study:
    """A search in progress: the record, what it may use, and the live reference process."""

    def __init__(
        self,
        *,
        record: Record,
        space: Space,
        launcher: Launcher,
        sampler: LatticeSampler,
        plan: Plan,
        budget: Budget,
        events: Events,
        seed: int,
        started_s: float | None = None,
    ) -> None:
        """`started_s`, on the launcher's clock, is when the time budget began; now if not given."""
        self.record = record
        self.space = space
        self.plan = plan
        self._launcher = launcher
        self._sampler = sampler
        self._budget = budget
        self._events = events
        self._seed = seed
        self._reference: Process | None = None
        self._reference_start_s = 0.0
        self._reference_step_s = 0.0
        self._began = launcher.now() if started_s is None else started_s
        self._measured_s = 0.0
        self._trials_wall_s = 0.0
        self._trials_timed_s = 0.0
        self._ended_because = ""

    def run(self) -> None:
        """Search, then hold the finals; raises BaselineError where a recommended setting does not run."""
        self.record.abandon_stale()
        try:
            self._search()
            self._release_reference()
            self._finals()
        finally:
            self._release_reference()
            self._close_session()

    # ---- the search ------------------------------------------------------------------------------------------

    def _search(self) -> None:
        while not self._over():
            trial, setting = self.record.begin(distributions(self.space))
            names = tuple(name for name, baseline in self.space.baselines.items() if baseline == setting)
            try:
                self._events.trial_begins(trial.number, setting, names, self._left_s())
                done = self._run_trial(trial, setting, names)
            except BaseException:
                self.record.abandon(trial.number)
                raise
            self.record.finish(trial, done)
            self._measured_s += done.timed_s
            self._trials_timed_s += done.timed_s
            self._trials_wall_s += done.wall_s
            self._events.trial_ends(done, incumbent(self.record.trials()))
            if names and done.status is not Status.OK:
                raise BaselineError(
                    f"baseline {names[0]} ({setting}) {done.status}: {done.message}",
                    "a recommended setting has to run before it can be compared with",
                    log=done.log,
                )

    def _over(self) -> bool:
        """Return whether the search has to end; the baselines are measured whatever the budget."""
        trials = self.record.trials()
        proposal = self._sampler.propose(self.record.study)
        if proposal is None:
            self._ended_because = "every setting of the search space was tried"
            return True
        suggested = sum(1 for trial in trials if not trial.baselines)
        if proposal.setting in self.space.baselines.values():
            return False
        if self._budget.trials is not None and len(trials) >= self._budget.trials:
            self._ended_because = f"{len(trials)} trials were run"
            return True
        left = self._left_s()
        if left is not None and left < self._next_trial_s(trials) + self._finals_reserve_s():
            self._ended_because = "the time budget is used up"
            return True
        if suggested >= _MIN_SUGGESTIONS and proposal.expected_gain < self.plan.least_gain:
            self._ended_because = (
                f"nothing better is to be expected: the next trial would gain {100 * proposal.expected_gain:.2f} %"
            )
            return True
        return False

    def _run_trial(self, running: optuna.Trial, setting: Setting, names: tuple[str, ...]) -> Trial:
        """Run one trial to its end, good or bad; a reference that dies is renewed once."""
        started = self._launcher.now()
        base = Trial(number=running.number, setting=setting, status=Status.OK, baselines=names)
        for attempt in (1, 2):
            reference = self._live_reference()
            process = self._launcher.launch(setting, self.space.env(setting))
            try:
                facts = process.ready()
                process.pause()
                pair = measure_pair(reference, process, self.plan.pair, enough=self._enough(setting))
                return self._measured(base, pair, facts, process, started)
            except TrialFailure as failure:
                return replace(
                    base,
                    status=failure.status,
                    message=failure.message,
                    log=failure.log,
                    wall_s=self._launcher.now() - started,
                )
            except ReferenceLost as lost:
                self._release_reference()
                if attempt == 2:
                    raise TunerError(
                        f"the reference process failed twice beside {setting}: {lost}",
                        "the machine may be short of memory: see its log\n" + lost.failure.log[-2000:],
                    ) from lost
            finally:
                process.close()
        raise AssertionError("a second attempt either returns or raises")

    def _measured(self, base: Trial, pair: Pair, facts: Facts, process: Process, started: float) -> Trial:
        estimate = self._estimate(pair, base.setting)
        peak = process.close().peak_memory_bytes
        return replace(
            base,
            log_ratio=estimate.mean,
            se=estimate.se,
            df=estimate.df,
            pruned=pair.n_quads < self.plan.pair.max_quads and self._hopeless(estimate),
            pair=pair,
            facts=facts.to_dict(),
            peak_memory_bytes=peak,
            wall_s=self._launcher.now() - started,
        )

    def _enough(self, setting: Setting) -> Callable[[Pair], bool]:
        """Return when a pair may end before its time: precise enough, hopeless, or long."""

        def enough(pair: Pair) -> bool:
            estimate = self._estimate(pair, setting)
            return (
                estimate.se <= self.plan.target_se
                or self._hopeless(estimate)
                or pair.timed_s * (1 + 1 / pair.n_quads) > self.plan.max_pair_s
            )

        return enough

    def _estimate(self, pair: Pair, setting: Setting) -> Estimate:
        x = log_ratios(pair, self.plan.objective, batch_sizes=(setting.batch_size, self.space.reference.batch_size))
        return moderated(x, prior_sd=self._quad_sd(), prior_df=_PRIOR_DF)

    def _quad_sd(self) -> float:
        """Return what a quad's log-ratio scatters by in this study so far."""
        reference_batch = self.space.reference.batch_size
        groups = [
            list(log_ratios(t.pair, self.plan.objective, batch_sizes=(t.setting.batch_size, reference_batch)))
            for t in self.record.trials()
            if t.pair
        ]
        return pooled_sd(groups, prior_sd=_PRIOR_SD, prior_df=_PRIOR_DF)

    def _hopeless(self, estimate: Estimate) -> bool:
        best = incumbent(self.record.trials())
        if best is None or best.log_ratio is None or best.se is None:
            return False
        return estimate.mean + self.plan.hopeless_se * math.hypot(estimate.se, best.se) < best.log_ratio

    # ---- the reference ---------------------------------------------------------------------------------------

    def _live_reference(self) -> Process:
        """Return the reference process, warm and paused, starting it if there is none."""
        if self._reference is None:
            started = self._launcher.now()
            process = self._launcher.launch(self.space.reference, self.space.env(self.space.reference))
            try:
                facts = process.ready()
                process.pause()
            except TrialFailure as failure:
                raise BaselineError(
                    f"the reference ({DEFAULT}) {failure.status}: {failure.message}",
                    "the workload has to run with TensorFlow's defaults",
                    log=failure.log,
                ) from failure
            except BaseException:
                process.close()
                raise
            self._reference = process
            self._reference_start_s = self._launcher.now() - started
            self._reference_step_s = facts.warm_up.elapsed_s / facts.warm_up.n_steps
        return self._reference

    def _release_reference(self) -> None:
        if self._reference is not None:
            self._reference.close()
            self._reference = None

    # ---- time ------------------------------------------------------------------------------------------------

    def _left_s(self) -> float | None:
        """Return what is left of the time budget; None if there is none."""
        if self._budget.time_s is None:
            return None
        return self._budget.time_s - (self._launcher.now() - self._began)

    def _next_trial_s(self, trials: Sequence[Trial]) -> float:
        """Return how long the next trial may take: as the longest of the last few did."""
        return max((t.wall_s for t in trials[-4:]), default=0.0)

    def _finals_reserve_s(self) -> float:
        """Return the time that the fewest rounds need, and no more than the finals' share of the budget."""
        n = len(distinct(self.space.baselines.values())) + 3
        needed = self.plan.finals.min_rounds * self._round_s(n)
        return needed if self._budget.time_s is None else min(needed, _FINALS_SHARE * self._budget.time_s)

    def _round_s(self, n: int) -> float:
        """Return about how long a round of `n` contenders takes."""
        starts = math.ceil(n / self.plan.finals.parallel) * self._reference_start_s * 1.2
        slice_s = max(self.plan.finals.slice_s, self._reference_step_s) + self._reference_step_s / 2
        return starts + 2 * self.plan.finals.laps * n * slice_s

    def _close_session(self) -> None:
        """Keep how long this run took, and how much of it was measurement."""
        sessions = self.record.get("sessions", [])
        wall = self._launcher.now() - self._began
        share = self._trials_timed_s / self._trials_wall_s if self._trials_wall_s else None
        sessions.append(
            {
                "wall_s": round(wall, 3),
                "measured_s": round(self._measured_s, 3),
                "search_timed_share": None if share is None else round(share, 4),
                "ended_because": self._ended_because,
            }
        )
        self.record.put("sessions", sessions)

    # ---- the finals ------------------------------------------------------------------------------------------

    def _finals(self) -> None:
        best = incumbent(self.record.trials())
        if best is None:
            raise TunerError("no trial gave a number", "see `tftune show` for the reason of each")
        contenders = line_up(best.setting, self.space)
        rng = np.random.default_rng([self._seed, len(self.record.get("sessions", []))])
        rounds: list[Round] = []
        self._events.stage(f"finals: {len(contenders)} settings, fresh processes, rounds in random order")
        longest = 0.0
        while len(rounds) < self.plan.finals.max_rounds:
            left = self._left_s()
            began = self._launcher.now()
            if len(rounds) >= self.plan.finals.min_rounds:
                verdicts = judge_all(*self._table(rounds, contenders), contenders, self.plan.threshold)
                if decided(verdicts) or (left is not None and left < longest):
                    break
            elif len(rounds) >= 2 and left is not None and left < longest:
                break
            rounds.append(finals.run_round(contenders, self._launcher, self.plan.finals, rng))
            self._measured_s += rounds[-1].timed_s
            longest = max(longest, self._launcher.now() - began)
            self._keep_finals(contenders, rounds)
            self._events.round_ends(len(rounds), rounds[-1], self._left_s())

    def _table(self, rounds: Sequence[Round], contenders: Sequence[Contender]) -> tuple[list[str], Array]:
        return finals.table(rounds, contenders, self.plan.objective)

    def _keep_finals(self, contenders: Sequence[Contender], rounds: Sequence[Round]) -> None:
        """Store the finals so far; half of them are worth more than none if this run is killed."""
        self.record.put(
            "finals",
            {
                "contenders": [
                    {"names": list(c.names), "setting": c.setting.to_dict(), "env": c.env} for c in contenders
                ],
                "rounds": [round_.to_dict() for round_ in rounds],
                "threshold": self.plan.threshold,
            },
        )


def incumbent(trials: Sequence[Trial]) -> Trial | None:
    """Return the best trial: the largest mean log-ratio among those whose pair ran its course."""
    good = [t for t in trials if t.status is Status.OK and t.log_ratio is not None and not t.pruned]
    return max(good, key=lambda t: t.log_ratio or 0.0, default=None)


def line_up(best: Setting, space: Space) -> list[Contender]:
    """Return the contenders of the finals, one for each distinct setting, with all its names.

    The guides say nothing of batch sizes. Where the winner's differs from the default, the default and Intel's
    recommendation stand again at the winner's, so that the gain of the batch and of the threads are told apart.
    """
    named = {INCUMBENT: best} | space.baselines
    if best.batch_size != space.reference.batch_size:
        for name in (DEFAULT, INTEL):
            named[name + SAME_BATCH] = space.baselines[name].with_values(batch_size=best.batch_size)
    return [
        Contender(
            names=tuple(name for name, other in named.items() if other == setting),
            setting=setting,
            env=space.env(setting),
        )
        for setting in distinct(named.values())
    ]
