"""The study loop: baselines, suggestions, finals; every finished thing is in the record before the next begins."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import optuna

from tuner.errors import BaselineError, TunerError
from tuner.measure import finals
from tuner.measure.finals import SAME_BATCH, Contender, FinalsPlan, Round
from tuner.measure.verdict import INCUMBENT, decided, judge_all
from tuner.search.bench import Bench, BenchPlan, incumbent
from tuner.search.budget import Budget
from tuner.search.countdown import Countdown
from tuner.search.record import Record, Trial, distributions
from tuner.search.sampler import LatticeSampler
from tuner.space.baseline import DEFAULT, INTEL
from tuner.space.setting import Setting, distinct
from tuner.space.space import Space
from tuner.trial.launcher import Launcher
from tuner.trial.outcome import Status

_MIN_SUGGESTIONS = 4  # before the model's word that nothing better is to be expected counts
_FINALS_SHARE = 0.45  # of the time budget, at most, is kept for the first rounds of the finals


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a study is measured.

    `threshold` is the practical one (0.02 is 2 %); `together` trials are started at once; a search ends when the
    next trial is expected to gain less than `least_gain` (log-ratio); `free_memory_bytes` tells how much memory is
    left for processes, None if that is not known.
    """

    bench: BenchPlan = field(default_factory=BenchPlan)
    finals: FinalsPlan = field(default_factory=FinalsPlan)
    threshold: float = 0.02
    together: int = 2
    least_gain: float = 0.001
    free_memory_bytes: Callable[[], int | None] = lambda: None


class Events(Protocol):
    """Told what happens, between measurements and never during one."""

    def stage(self, text: str) -> None:
        """A new phase begins."""

    def trials_begin(self, trials: Sequence[Trial], left_s: float | None) -> None:
        """The processes of these trials are about to be started."""

    def trial_ends(self, trial: Trial, best: Trial | None, left_s: float | None) -> None:
        """A trial is in the record; `best` is the incumbent now."""

    def round_ends(self, number: int, round_: Round, left_s: float | None) -> None:
        """A round of the finals is in the record."""


class Study:
    """A search in progress."""

    def __init__(
        self,
        *,
        record: Record,
        space: Space,
        launcher: Launcher,
        finals_launcher: Launcher | None = None,
        sampler: LatticeSampler,
        plan: Plan,
        budget: Budget,
        events: Events,
        seed: int,
        began_s: float | None = None,
    ) -> None:
        """`began_s`, on the launcher's clock, is when the time budget began; now if not given.

        The finals' processes come from `finals_launcher`, from `launcher` if there is none.
        """
        self._record = record
        self._space = space
        self._launcher = launcher
        self._finals_launcher = finals_launcher or launcher
        self._sampler = sampler
        self._plan = plan
        self._budget = budget
        self._events = events
        self._seed = seed
        self._bench = Bench(
            space, launcher, plan.bench, hurried=lambda: self._time.is_short_of(self._finals_reserve_s())
        )
        self._time = Countdown(launcher, launcher.now() if began_s is None else began_s, budget.time_s)
        self._trials: list[Trial] = []
        """The finished trials, of earlier runs too: read once, as no other run may measure meanwhile."""
        self._done: list[Trial] = []
        """Those of this run."""
        self._search_s = 0.0
        self._rounds: list[Round] = []
        self._ended_because = ""

    def run(self) -> None:
        """Search, then hold the finals; raises BaselineError where a recommended setting does not run."""
        self._record.abandon_stale()
        self._trials = self._record.trials()
        try:
            self._search()
            self._finals()
        finally:
            self._close_session()

    def _search(self) -> None:
        began = self._launcher.now()
        try:
            while asked := self._ask():
                self._measure(asked)
        finally:
            self._bench.close()
            self._search_s = self._launcher.now() - began

    def _ask(self) -> list[tuple[optuna.Trial, Trial]]:
        """Return the trials to start together, none if the search is over."""
        asked: list[tuple[optuna.Trial, Trial]] = []
        try:
            while len(asked) < self._plan.together and not self._over(len(asked)):
                running, setting = self._record.begin(distributions(self._space))
                names = tuple(name for name, baseline in self._space.baselines.items() if baseline == setting)
                trial = Trial(
                    number=running.number,
                    setting=setting,
                    status=Status.OK,
                    eligible=self._space.allows(setting),
                    baselines=names,
                )
                asked.append((running, trial))
        except BaseException:
            self._abandon(asked)
            raise
        return asked

    def _measure(self, asked: Sequence[tuple[optuna.Trial, Trial]]) -> None:
        waiting = list(asked)
        try:
            self._events.trials_begin([trial for _, trial in asked], self._time.left_s())
            for done in self._bench.measure([trial for _, trial in asked], self._trials):
                self._record.finish(waiting.pop(0)[0], done)
                self._trials.append(done)
                self._done.append(done)
                self._events.trial_ends(done, incumbent(self._trials), self._time.left_s())
                if done.baselines and done.status is not Status.OK and not done.void:
                    raise BaselineError(
                        f"baseline {done.baselines[0]} ({done.setting}) {done.status}: {done.message}",
                        "a recommended setting has to run before it can be compared with",
                        log=done.log,
                    )
        finally:
            self._abandon(waiting)

    def _abandon(self, asked: Sequence[tuple[optuna.Trial, Trial]]) -> None:
        for running, _ in asked:
            self._record.abandon(running.number)

    def _over(self, n_asked: int) -> bool:
        """Return whether the search has to end before one more trial, `n_asked` being asked for already.

        The baselines are measured whatever the budget.
        """
        proposal = self._sampler.propose(self._record.study)
        if proposal is None:
            self._ended_because = "every setting of the search space was tried"
            return True
        if proposal.setting in self._space.baselines.values():
            return False
        trials = self._trials
        if self._budget.trials is not None and len(trials) + n_asked >= self._budget.trials:
            self._ended_because = f"the study has {len(trials)} trials"
            return True
        if self._time.is_short_of((n_asked + 1) * self._trial_s() + self._finals_reserve_s()):
            self._ended_because = "the time budget is used up"
            return True
        suggested = sum(1 for trial in trials if not trial.baselines) + n_asked
        if suggested >= _MIN_SUGGESTIONS and proposal.expected_gain < self._plan.least_gain:
            gain = 100 * math.expm1(proposal.expected_gain)
            self._ended_because = f"nothing better is to be expected: the next trial would gain {gain:.2f} %"
            return True
        return False

    def _trial_s(self) -> float:
        """Return how long a trial takes: the mean of the last few, or nothing where none was run yet."""
        recent = [trial.wall_s for trial in self._done[-6:]]
        return sum(recent) / len(recent) if recent else 0.0

    def _finals_reserve_s(self) -> float:
        """Return the time that the fewest rounds need, and no more than the finals' share of the budget.

        It counts on three contenders at the incumbent's batch size where that is not the default: see `line_up`.
        """
        plan, best = self._plan.finals, incumbent(self._trials)
        n_default = len(distinct(self._space.baselines.values()))
        moved = best is not None and best.setting.batch_size != self._space.reference.batch_size
        n_best = 3 if moved else 1
        start_s = self._bench.start_s + self._launcher.head_start_s()
        starts = math.ceil((n_default + n_best) / plan.parallel) * start_s
        default_s = n_default * plan.slice_for(self._bench.step_s)
        best_s = n_best * plan.slice_for(_step_s(best) if best else self._bench.step_s)
        needed = plan.min_rounds * (starts + 2 * plan.laps * (default_s + best_s))
        return needed if self._budget.time_s is None else min(needed, _FINALS_SHARE * self._budget.time_s)

    def _finals(self) -> None:
        """Hold rounds until every verdict is decided or the time is used up, but not fewer than the plan's."""
        best = incumbent(self._trials)
        if best is None:
            raise TunerError("no trial gave a number", "`tftune show` has the reason of each")
        contenders = line_up(best.setting, self._space, without=[t.setting for t in self._trials if t.void])
        rng = np.random.default_rng([self._seed, len(self._record.get("sessions", []))])
        self._events.stage(f"finals: {len(contenders)} settings, fresh processes, rounds in random order")
        plan = replace(self._plan.finals, resident=self._resident())
        longest = 0.0
        while not self._finals_over(contenders, longest):
            began = self._launcher.now()
            self._rounds.append(finals.run_round(contenders, self._finals_launcher, plan, rng))
            longest = max(longest, self._launcher.now() - began)
            self._keep_finals(contenders)
            self._events.round_ends(len(self._rounds), self._rounds[-1], self._time.left_s())

    def _resident(self) -> int:
        """Return how many processes fit into the memory, as the trials' peaks tell."""
        peaks = [t.peak_memory_bytes for t in self._trials if t.peak_memory_bytes]
        free = self._plan.free_memory_bytes()
        if not peaks or free is None:
            return self._plan.finals.resident
        return max(1, min(self._plan.finals.resident, int(free / max(peaks))))

    def _finals_over(self, contenders: Sequence[Contender], round_s: float) -> bool:
        plan, n = self._plan.finals, len(self._rounds)
        if n < plan.min_rounds:
            # Two rounds are the fewest that have an interval; a third only where there is time.
            return n >= 2 and self._time.is_short_of(round_s)
        if n >= plan.max_rounds or self._time.is_short_of(round_s):
            return True
        names, y = finals.table(self._rounds, contenders, self._plan.bench.objective)
        return decided(judge_all(names, y, contenders, self._plan.threshold))

    def _keep_finals(self, contenders: Sequence[Contender]) -> None:
        """Store the finals so far, from the second round on: one alone decides nothing.

        A killed run keeps what it had, and earlier finals stay until these can stand in for them.
        """
        if len(self._rounds) < 2:
            return
        self._record.put(
            "finals",
            {
                "contenders": [c.to_dict() for c in contenders],
                "rounds": [round_.to_dict() for round_ in self._rounds],
                "threshold": self._plan.threshold,
            },
        )

    def _close_session(self) -> None:
        """Keep how long this run took, and how much of it was measurement."""
        timed = sum(trial.timed_s for trial in self._done)
        session = {
            "wall_s": round(self._time.passed_s(), 3),
            "measured_s": round(timed + sum(round_.timed_s for round_ in self._rounds), 3),
            "search_timed_share": round(timed / self._search_s, 4) if timed else None,
            "ended_because": self._ended_because,
        }
        self._record.put("sessions", [*self._record.get("sessions", []), session])


def _step_s(trial: Trial) -> float:
    """Return about how long a step of a measured trial takes."""
    assert trial.pair is not None  # an incumbent has one
    last = trial.pair.candidate[-1]
    return last.elapsed_s / last.n_steps


def line_up(best: Setting, space: Space, *, without: Collection[Setting] = ()) -> list[Contender]:
    """Return the contenders of the finals, one for each distinct setting, with all its names.

    The settings in `without` are left out, at another batch size too.

    The guides say nothing of batch sizes. Where the winner's differs from the default, the default and Intel's
    recommendation stand again at the winner's, so that the gain of the batch and of the threads are told apart.
    """
    named = {INCUMBENT: best} | space.baselines
    if best.batch_size != space.reference.batch_size:
        for name in (DEFAULT, INTEL):
            named[name + SAME_BATCH] = space.baselines[name].with_values(batch_size=best.batch_size)
    threads = {setting.without("batch_size") for setting in without}
    named = {name: setting for name, setting in named.items() if setting.without("batch_size") not in threads}
    contenders = []
    for setting in distinct(named.values()):
        names = tuple(name for name, other in named.items() if other == setting)
        is_default = any(name.removesuffix(SAME_BATCH) == DEFAULT for name in names)
        contenders.append(
            Contender(
                names=names,
                setting=setting,
                env=space.env(setting),
                eligible=is_default or space.allows(setting),
            )
        )
    return contenders
