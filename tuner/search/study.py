"""The study loop: noise, baselines, suggestions, finals; what is finished is in the record before the next begins."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import optuna
from msgspec import to_builtins

from tuner.errors import BaselineError, TunerError
from tuner.measure.contest import FEWEST, USUAL_ROUNDS, Contest, fit_plan, needed_s
from tuner.measure.finals import Contender, Cost, FinalsPlan, Round
from tuner.measure.noise import UNKNOWN, Noise
from tuner.search.attributes import End, Run
from tuner.search.bench import Bench
from tuner.search.budget import Budget
from tuner.search.countdown import Countdown
from tuner.search.lineup import line_up
from tuner.search.plan import Plan
from tuner.search.record import Record, Trial, distributions, now
from tuner.search.sampler import LatticeSampler, believed
from tuner.search.standing import incumbent
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.trial.launcher import Launcher
from tuner.trial.outcome import Status

_MIN_SUGGESTIONS = 13  # before the model's word that nothing better is to be expected counts
_FINALS_SHARE = 0.5  # of the time budget, at most, is kept for the first rounds of the finals
_MEMORY_MARGIN = 1.1
_SOUGHT_GAIN = 0.03  # the smallest gain that the finals are given the time to find, as far as the budget goes


class Events(Protocol):
    """Told what happens, between measurements and never during one."""

    def stage(self, text: str) -> None:
        """A new phase begins."""

    def noise_known(self, noise: Noise, floor: float) -> None:
        """The noise floor is known; `floor` is the smallest gain that finals of the usual length can believe."""

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
        replicas: Callable[[Sequence[Contender]], Sequence[Launcher]] = lambda _: (),
        sampler: LatticeSampler,
        plan: Plan,
        budget: Budget,
        events: Events,
        seed: int,
        began_s: float | None = None,
    ) -> None:
        """`began_s`, on the launcher's clock, is when the time budget began; now if not given.

        The fresh processes of the finals come from `finals_launcher`, from `launcher` if there is none. `replicas`
        returns what forks the others, the processes of these contenders, if anything does; whoever gives it ends them.
        """
        self._record = record
        self._space = space
        self._launcher = launcher
        self._finals_launcher = finals_launcher or launcher
        self._replicas = replicas
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
        self._believed: tuple[tuple[int, float], dict[Setting, float]] | None = None
        self._done: list[Trial] = []
        """Those of this run."""
        self._search_s = 0.0
        self._rounds: list[Round] = []
        self._finals_began = ""
        self._earlier_finals: dict[str, object] | None = record.get("finals")
        """Those of an earlier session, until these can stand in for them."""
        self._end: tuple[End, str] | None = None

    def run(self) -> None:
        """Search, then hold the finals; raises BaselineError where a recommended setting does not run."""
        self._record.abandon_stale()
        self._trials = self._record.trials()
        try:
            self.search()
            self._finals()
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
        noise, pairs = self._bench.gauge(self._trials)
        if noise.n_pairs:
            self._record.put("noise", noise.to_dict())
        self._record.add("noise_pairs", *(pair.to_dict() for pair in pairs))
        self._events.noise_known(noise, noise_floor(noise, self._plan.finals))

    def _ask(self) -> list[tuple[optuna.Trial, Trial]]:
        """Return the trials that come next, none if the search is over.

        One alone where a live process can run it; else as many as are to be started together.
        """
        asked: list[tuple[optuna.Trial, Trial]] = []
        together = self._bench.room(self._plan.together)
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
                if self._bench.is_live(setting):
                    break
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
                self._events.trial_ends(done, self._incumbent(), self._time.left_s())
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
        trials = self._trials
        if self._budget.trials is not None and len(trials) + n_asked >= self._budget.trials:
            self._end = End.TRIALS, f"the study has {len(trials)} trials"
            return True
        if self._time.is_short_of((n_asked + 1) * self._trial_s() + self._finals_reserve_s()):
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

    def _finals_reserve_s(self) -> float:
        """Return the time that the finals need for a small gain, and no more than their share of the budget."""
        costs = self._costs(self._line_up()[:2])
        if len(costs) < 2:
            return 0.0
        needed = 2 * needed_s(self._plan.finals, self._noise(), costs, gain=_SOUGHT_GAIN)
        return needed if self._budget.time_s is None else min(needed, _FINALS_SHARE * self._budget.time_s)

    def _costs(self, contenders: Sequence[Contender]) -> list[Cost]:
        """Return what each contender costs, as the trials of its batch size tell."""
        # Where another batch size went on in a process, its trial tells nothing of a start.
        starts_s = [trial.start_s for trial in self._trials if trial.facts is not None and trial.facts["load_s"] > 0]
        start_s = max(starts_s[-6:], default=self._bench.start_s)
        steps_s = {
            trial.setting.batch_size: trial.pair.candidate[-1].elapsed_s / trial.pair.candidate[-1].n_steps
            for trial in self._trials
            if trial.pair is not None
        }
        usual_s = self._bench.step_s
        return [Cost(start_s=start_s, step_s=steps_s.get(c.setting.batch_size, usual_s)) for c in contenders]

    def _line_up(self) -> list[Contender]:
        """Return the contenders of finals that were held now."""
        return line_up(
            self._trials, self._space, self._noise(), self._plan.finals, margin=self._plan.margin, belief=self._belief()
        )

    def _belief(self) -> dict[Setting, float]:
        """Return the posterior mean of each setting that was measured; found anew where more is known."""
        knowledge = (len(self._trials), self._noise().process_sd)
        if self._believed is None or self._believed[0] != knowledge:
            self._believed = knowledge, believed(self._trials, self._space.choices(), luck=knowledge[1])
        return self._believed[1]

    def _incumbent(self) -> Trial | None:
        return incumbent(self._trials, self._belief())

    def _noise(self) -> Noise:
        """Return the noise as it was measured last, in an earlier run if not in this one."""
        return self._record.attributes().noise or UNKNOWN

    def _finals(self) -> None:
        """Hold rounds until every comparison is decided or the time is used up."""
        if self._incumbent() is None:
            seen = [(trial.step_s, trial.peak_memory_bytes) for trial in self._trials if trial.estimate is not None]
            if self._plan.bench.limits and seen:
                nearest = self._plan.bench.limits.nearest(seen)
                raise TunerError(
                    f"none of {len(seen)} trials keeps to the limits; the nearest were {nearest}",
                    "raise the limit, or give a longer --time-budget to find what keeps to it",
                )
            raise TunerError("no trial gave a number", "`tftune show` has the reason of each")
        contenders = self._line_up()
        if len(contenders) < 2:
            raise TunerError(
                "there is nothing to compare the default with", "give a --space or --set with more settings"
            )
        self._events.stage(
            f"finals: the incumbent against {contenders[1].names[0]}"
            + (f", then against {len(contenders) - 2} more" if len(contenders) > 2 else "")
            + f"; differences under {100 * self._plan.margin:g} % are treated as equal"
        )
        contest = Contest(
            contenders=contenders,
            launcher=self._finals_launcher,
            replicas=self._replicas(contenders),
            plan=fit_plan(
                self._plan.finals,
                self._noise(),
                self._costs(contenders[:2]),
                left_s=self._time.left_s(),
                resident=self._resident(),
            ),
            objective=self._plan.bench.objective,
            margin=self._plan.margin,
            rng=np.random.default_rng([self._seed, len(self._record.attributes().runs)]),
            left_s=self._time.left_s,
            say=self._events.stage,
        )
        self._rounds, self._finals_began = contest.rounds, now()

        def after_round() -> None:
            self._keep_finals(contest)
            self._events.round_ends(len(contest.rounds), contest.rounds[-1], self._time.left_s())

        contest.hold(after_round)

    def _resident(self) -> int | None:
        """Return how many processes fit into the memory, as the trials' peaks tell; None if they do not."""
        peaks = [t.peak_memory_bytes for t in self._trials if t.peak_memory_bytes]
        free = self._plan.bench.free_memory_bytes()
        return None if not peaks or free is None else int(free / (_MEMORY_MARGIN * max(peaks)))

    def _keep_finals(self, contest: Contest) -> None:
        """Store the finals so far, from the second round on: one alone decides nothing.

        A killed run keeps what it had; earlier finals stay until these have ended.
        """
        if contest.n_rounds < FEWEST or (self._earlier_finals is not None and not contest.ended):
            return
        if self._earlier_finals is not None:
            self._record.add("earlier_finals", self._earlier_finals)
            self._earlier_finals = None
        self._record.put(
            "finals",
            {
                "began": self._finals_began,
                "contenders": [c.to_dict() for c in contest.contenders],
                "rounds": [round_.to_dict() for round_ in contest.rounds],
                "margin": contest.margin,
                "levels": contest.levels,
                "ended": contest.ended,
            },
        )

    def _close_run(self) -> None:
        """Keep how long this run took, and how much of it was measurement."""
        timed = sum(trial.timed_s for trial in self._done)
        run = Run(
            wall_s=round(self._time.passed_s(), 3),
            measured_s=round(timed + sum(round_.timed_s for round_ in self._rounds), 3),
            search_timed_share=round(timed / self._search_s, 4) if timed else None,
            ended=None if self._end is None else self._end[0],
            ended_because="" if self._end is None else self._end[1],
        )
        self._record.put("runs", to_builtins([*self._record.attributes().runs, run]))


def noise_floor(noise: Noise, plan: FinalsPlan, *, rounds: int = USUAL_ROUNDS) -> float:
    """Return what A against A stays below in 95 % of finals of the usual length, as a ratio minus 1."""
    return noise.floor(rounds=rounds, slices=plan.slices)
