"""The study loop: noise, baselines, suggestions, finals; what is finished is in the record before the next begins."""

from __future__ import annotations

import math
from collections.abc import Sequence

import optuna
from msgspec import to_builtins

from tuner.errors import BaselineError
from tuner.measure.planning import noise_floor
from tuner.search.attributes import End, Run
from tuner.search.bench import Bench
from tuner.search.budget import Budget, Countdown
from tuner.search.events import Events
from tuner.search.finals import Finals, Replicas
from tuner.search.history import History
from tuner.search.plan import Plan
from tuner.search.record import Record, Trial, distributions
from tuner.search.sampler import LatticeSampler
from tuner.space.space import Space
from tuner.trial.launcher import Launcher
from tuner.trial.outcome import Status

_MIN_SUGGESTIONS = 13  # before the model's word that nothing better is to be expected counts


class Study:
    """A search in progress."""

    def __init__(
        self,
        *,
        record: Record,
        space: Space,
        launcher: Launcher,
        finals_launcher: Launcher | None = None,
        replicas: Replicas = lambda _: (),
        sampler: LatticeSampler,
        plan: Plan,
        budget: Budget,
        events: Events,
        seed: int,
        began_s: float | None = None,
    ) -> None:
        """`began_s`, on the launcher's clock, is when the time budget began; now if not given.

        The fresh processes of the finals come from `finals_launcher`, from `launcher` if there is none; the others
        from `replicas`.
        """
        self._record = record
        self._space = space
        self._launcher = launcher
        self._sampler = sampler
        self._plan = plan
        self._budget = budget
        self._events = events
        self._history = History(record, space)
        self._bench = Bench(
            space, launcher, plan.bench, hurried=lambda: self._time.is_short_of(self._finals.reserve_s())
        )
        self._time = Countdown(launcher, launcher.now() if began_s is None else began_s, budget.time_s)
        self._finals = Finals(
            record=record,
            history=self._history,
            space=space,
            launcher=finals_launcher or launcher,
            replicas=replicas,
            processes=self._bench.processes,
            plan=plan,
            time=self._time,
            events=events,
            seed=seed,
        )
        self._done: list[Trial] = []
        """Those of this run."""
        self._search_s = 0.0
        self._end: tuple[End, str] | None = None

    def run(self) -> None:
        """Search, then hold the finals; raises BaselineError where a recommended setting does not run."""
        self._record.abandon_stale()
        self._history.read()
        try:
            self.search()
            self._finals.hold()
        finally:
            self._close_run()

    def search(self) -> None:
        """Search without finals: noise, baselines, suggestions."""
        began = self._launcher.now()
        try:
            if not self._over(0):
                self._gauge()
            while asked := self._ask():
                self._measure(asked)
        finally:
            self._bench.close()
            self._search_s = self._launcher.now() - began

    def _gauge(self) -> None:
        """Take the noise floor, before the budget is spent."""
        noise, pairs = self._bench.gauge(self._history.trials)
        if noise.n_pairs:
            self._record.put("noise", noise.to_dict())
        self._record.add("noise_pairs", *(pair.to_dict() for pair in pairs))
        self._events.noise_known(noise, noise_floor(noise, self._plan.finals))

    def _ask(self) -> list[tuple[optuna.Trial, Trial]]:
        """Return the trials that come next, none if the search is over.

        One alone where a live process can run it; else as many as are to be started together.
        """
        asked: list[tuple[optuna.Trial, Trial]] = []
        together = self._bench.processes.room(self._plan.together)
        try:
            while len(asked) < together and not self._over(len(asked)):
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
                if setting in self._bench.processes:
                    break
        except BaseException:
            self._abandon(asked)
            raise
        return asked

    def _measure(self, asked: Sequence[tuple[optuna.Trial, Trial]]) -> None:
        waiting = list(asked)
        try:
            self._events.trials_begin([trial for _, trial in asked], self._time.left_s())
            for done in self._bench.measure([trial for _, trial in asked], self._history.trials):
                self._record.finish(waiting.pop(0)[0], done)
                self._history.trials.append(done)
                self._done.append(done)
                self._events.trial_ends(done, self._history.incumbent(), self._time.left_s())
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
        proposal = self._sampler.propose(self._record.study, cost_s=self._bench.cost_s)
        if proposal is None:
            self._end = End.SPACE, "every setting of the search space was tried"
            return True
        if proposal.setting in self._space.baselines.values():
            return False
        trials = self._history.trials
        if self._budget.trials is not None and len(trials) + n_asked >= self._budget.trials:
            self._end = End.TRIALS, f"the study has {len(trials)} trials"
            return True
        if self._time.is_short_of((n_asked + 1) * self._trial_s() + self._finals.reserve_s()):
            self._end = End.TIME, "the rest of the time is for the finals"
            return True
        suggested = sum(1 for trial in trials if not trial.baselines) + n_asked
        if suggested >= _MIN_SUGGESTIONS and proposal.expected_gain < self._plan.least_gain:
            gain = 100 * math.expm1(proposal.expected_gain)
            self._end = End.NO_GAIN, f"nothing better is to be expected: {gain:.2f} % at most"
            return True
        return False

    def _trial_s(self) -> float:
        """Return how long a trial takes: the mean of the last few, or nothing where none was run yet."""
        recent = [trial.wall_s for trial in self._done[-6:]]
        return sum(recent) / len(recent) if recent else 0.0

    def _close_run(self) -> None:
        """Keep how long this run took, and how much of it was measurement."""
        timed = sum(trial.timed_s for trial in self._done)
        run = Run(
            wall_s=round(self._time.passed_s(), 3),
            measured_s=round(timed + sum(round_.timed_s for round_ in self._finals.rounds), 3),
            search_timed_share=round(timed / self._search_s, 4) if timed else None,
            ended=None if self._end is None else self._end[0],
            ended_because="" if self._end is None else self._end[1],
        )
        self._record.put("runs", to_builtins([*self._record.attributes().runs, run]))
