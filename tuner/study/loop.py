"""The study loop: noise, baselines, suggestions, groups, finals; what is finished is recorded before the next begins.

A search answers two questions: which setting of one process is best, and, where the plan has groups, whether several
processes side by side use the machine better. The second is asked when the first search has shown what one process does
with a share of the cores, and each has finals of its own. A third one follows where a call of the fastest takes much
longer than the default's: which setting is the fastest of those that keep the latency.

Where the settings are planned, it answers none of them: all are measured alike, and what they differ by is the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import optuna

from tuner.errors import BaselineError
from tuner.measure.budget import Budget, Countdown, duration_option
from tuner.measure.planning import noise_floor
from tuner.space.groups import INSTANCES, in_flight, is_group, one_of
from tuner.space.setting import Setting, distinct
from tuner.space.space import Space
from tuner.study.attributes import EndReason, Run, stored_noise
from tuner.study.evaluator import Evaluator
from tuner.study.events import Events
from tuner.study.finals import Finals, Replicas
from tuner.study.history import History
from tuner.study.plan import Plan
from tuner.study.record import Record, distributions
from tuner.study.sampler import LatticeSampler
from tuner.study.surrogate import PriorMean
from tuner.study.trials import Trial
from tuner.trial.launcher import Launcher
from tuner.trial.outcome import Status, way_out

_RUN_IT = "run the workload without tftune, with what this setting sets, to see why"
_GROUP_COST = 2.0  # times what the others of a batch cost, with a setting of several processes among them
_LONGEST_STEP_S = 3.0  # of a planned setting at a larger batch size, as expected: others have the time of several
_FIRST_PLANNED = 2  # settings that a run measures even where they overrun its time
_WARM_UP_S = 1.0  # of a process, about, until it is timed at another batch size
_MIN_SUGGESTIONS = 13  # minimum number of proposals before the search may stop because the model expects no gain


class Search:
    """A search in progress."""

    def __init__(
        self,
        *,
        record: Record,
        space: Space,
        launcher: Launcher,
        finals_launcher: Launcher | None = None,
        fork_launchers: Replicas = lambda _: (),
        sampler: LatticeSampler,
        plan: Plan,
        budget: Budget,
        events: Events,
        seed: int,
        began_s: float | None = None,
    ) -> None:
        """`began_s`, on the launcher's clock, is when the time budget began; now if not given.

        The new processes of the finals come from `finals_launcher`, from `launcher` if there is none; the others
        from `fork_launchers`.
        """
        self._record = record
        self._space = space
        self._launcher = launcher
        self._sampler = sampler
        self._plan = plan
        self._budget = budget
        self._events = events
        self._history = History(record, space, plan.score or list)
        self._evaluator = Evaluator(
            space,
            launcher,
            plan.evaluation,
            is_time_short=self._is_turn_over
            if plan.design
            else lambda: self._time.is_short_of(self._finals.reserve_s()),
            is_proof_due=lambda trial, log_ratio: self._finals.is_due(trial, log_ratio),
            seed=seed,
        )
        self._time = Countdown(
            total_s=budget.time_s, now=launcher.now, began_s=launcher.now() if began_s is None else began_s
        )
        self._finals = Finals(
            record=record,
            history=self._history,
            space=space,
            launcher=finals_launcher or launcher,
            replicas=fork_launchers,
            processes=self._evaluator.processes,
            plan=plan,
            time=self._time,
            events=events,
            seed=seed,
        )
        self._done: list[Trial] = []
        """Those of this run."""
        self._search_s = 0.0
        self._turn = _Turn()
        self._end: tuple[EndReason, str] | None = None

    def run(self) -> None:
        """Search, then hold the finals; raises BaselineError where a recommended setting does not run."""
        self._record.abandon_stale()
        self._history.read()
        try:
            self.search()
            if not self._plan.design:
                self._finals.hold()
        finally:
            self._close_run()

    def search(self) -> None:
        """Search without finals: noise, baselines, suggestions."""
        began = self._launcher.now()
        try:
            if self._plan.design:
                self._measure_planned()
                return
            if not self._is_over([]) or self._n_groups_due():
                self._begin_evaluator()
                self._forecast()
            while requested := self._next_trials():
                self._measure(requested)
                self._finals.prove(groups_are_done=not self._n_usual_groups_due())
            self._measure_groups()
        finally:
            self._evaluator.close()
            self._search_s = self._launcher.now() - began

    def _begin_evaluator(self) -> None:
        """Start the default's processes, with what earlier runs have measured."""
        self._evaluator.begin([*self._history.trials, *self._history.groups], self._record.attributes().noise)

    def _take_noise(self) -> None:
        """Keep the noise once it is known: after the first trials."""
        shown = self._evaluator.take_noise()
        if shown is None:
            return
        noise, pair = shown
        self._record.put("noise", stored_noise(noise))
        self._record.add("noise_pairs", pair)
        self._events.calibrated(noise, noise_floor(noise, self._finals.lived_plan()))

    def _forecast(self) -> None:
        """Say what the least sensible time budget is, where the recommended settings do not fit into this one."""
        measured = {trial.setting for trial in self._history.trials} | {self._space.reference}
        owed = [each for each in distinct(self._space.baselines.values()) if each not in measured]
        if not owed or self._time.total_s is None:
            return
        needed_s = sum(map(self._least_s, owed)) + self._finals.least_s()
        if self._time.is_overrun_by(needed_s):
            least = duration_option(self._time.elapsed_s() + needed_s)
            start_s, step_s = self._evaluator.processes.start_s, self._evaluator.processes.step_s
            what = f"a step takes {step_s:.1f} s" if 4 * step_s > start_s else f"a process starts in {start_s:.0f} s"
            self._events.stage(
                f"{what}: some of the recommended settings are left out; "
                f"there is time for all with --time-budget {least}"
            )

    def _least_s(self, setting: Setting) -> float:
        """Return about how long (s) the shortest trial of a setting takes."""
        return self._evaluator.processes.cost_s(setting, n_passes=self._evaluator.processes.min_passes)

    def _next_trials(self) -> list[tuple[optuna.Trial, Trial]]:
        """Return the trials that come next, none if the search is over.

        As many as memory has room for, each with a process of its own; one of them is of several, as long as such
        settings are to be tried.
        """
        requested: list[tuple[optuna.Trial, Trial]] = []
        together, processes = self._evaluator.n_together(), self._evaluator.processes
        # Which batch sizes keep to a limit is for one process to show.
        is_open = self._history.incumbent() is not None or not self._plan.evaluation.limits
        with_group = together > 1 and is_open and bool(self._n_groups_due())
        try:
            while len(requested) < together - with_group and not self._is_over([trial for _, trial in requested]):
                proposal = self._sampler.propose(self._record.study)
                if requested and proposal is not None and proposal.is_poor:
                    break
                requested.append(self._begin())
                if len({processes.key(each.setting) for _, each in requested}) < len(requested):
                    break  # it waits until the process that it shares is free
            others_s = sum(self._least_s(trial.setting) for _, trial in requested)
            if requested and with_group and not self._time.is_short_of(_GROUP_COST * others_s + self._finals.least_s()):
                requested.append(self._next_group())
        except BaseException:
            self._abandon(running for running, _ in requested)
            raise
        return requested

    def _begin(self, setting: Setting | None = None) -> tuple[optuna.Trial, Trial]:
        """Return a trial of one process that begins: of what the sampler proposes if no setting is given."""
        running, setting = self._record.begin(distributions(self._space), setting)
        names = tuple(name for name, baseline in self._space.baselines.items() if baseline == setting)
        return running, Trial(
            number=running.number,
            setting=setting,
            status=Status.OK,
            eligible=self._space.satisfies_pins(setting),
            baselines=names,
        )

    def _begin_group(self, setting: Setting) -> tuple[optuna.Trial, Trial]:
        """Return a trial of several processes that begins."""
        groups = self._space.groups
        counts = sorted({int(each[INSTANCES]) for each in groups})
        running = self._record.begin_group(distributions(self._space), setting, counts)
        return running, Trial(
            number=running.number, setting=setting, status=Status.OK, baselines=groups[setting], is_group=True
        )

    def _measure(self, requested: Sequence[tuple[optuna.Trial, Trial]]) -> None:
        waiting = {trial.number: running for running, trial in requested}
        try:
            self._events.trials_started([trial for _, trial in requested], self._time.left_s())
            for done in self._evaluator.measure([trial for _, trial in requested], self._history.trials):
                self._record.finish(waiting.pop(done.number), done)
                (self._history.groups if done.is_group else self._history.trials).append(done)
                self._done.append(done)
                best = None if done.is_group else self._history.incumbent()
                self._events.trial_ended(done, best, self._time.left_s())
                if self._is_missed(done):
                    raise BaselineError(
                        f"baseline {done.baselines[0]} ({done.setting}) {done.status}: {done.message}",
                        f"{done.hint or way_out(done.status, done.message, otherwise=_RUN_IT)}; then run the same "
                        "command again",
                        log=done.log,
                    )
            self._take_noise()
            self._history.learn(self._evaluator.estimates)
        finally:
            self._abandon(waiting.values())

    def _is_missed(self, done: Trial) -> bool:
        """Return whether a search cannot do without a trial that failed: a baseline that ought to run.

        What is advised of several processes is for machines that hold so many, and some guides want a compiler. Where
        nothing is searched for, that it failed is a result.
        """
        is_failed = done.status is not Status.OK and not done.is_inapplicable and not self._plan.design
        return is_failed and not is_group(done.setting) and self._space.catalogue.must_run(done.baselines)

    def _measure_groups(self) -> None:
        """Measure the settings of several processes that promise most, as many as there is time for."""
        if not self._n_groups_due():
            return
        if self._time.is_short_of(self._trial_s()):
            if self._n_usual_groups_due():
                self._events.stage("no time is left for several processes side by side: give a longer --time-budget")
            return
        self._events.stage("several processes side by side, each with cores of its own")
        # Without a single one there is nothing to hold finals on.
        while self._n_groups_due() and not (
            self._history.groups and self._time.is_short_of(self._trial_s() + self._finals.reserve_s())
        ):
            self._measure([self._next_group()])

    def _next_group(self) -> tuple[optuna.Trial, Trial]:
        """Return the setting of several processes that promises most, of those that were not tried."""
        groups, tried = self._space.groups, {trial.setting for trial in self._history.groups}
        batch_sizes = self._history.batch_sizes() or {self._usual_batch()}
        candidates = [each for each in groups if each.batch_size in batch_sizes or each in tried]
        decidable = [each for each in candidates if self._finals.is_decidable(each) or each in tried]
        chosen = choose_groups(
            decidable if set(decidable) - tried else candidates,
            self._history.predictions,
            n=len(groups),
            usual_batch=self._usual_batch(),
            expected=None if tried else self._sampler.prior_mean,
        )
        setting = None if self._n_usual_groups_due() else self._group_at_same_latency()
        return self._begin_group(setting or next(each for each in [*chosen, *groups] if each not in tried))

    def _n_groups_due(self) -> int:
        """Return how many settings of several processes are to be tried yet."""
        return self._n_usual_groups_due() + (self._group_at_same_latency() is not None)

    def _group_at_same_latency(self) -> Setting | None:
        """Return the setting of several processes to try for its latency: the fastest number, with smaller batches.

        By Little's law a call takes no longer than the default's with as many items in flight and as many a second.
        None where that is not asked, nothing gains, or one was tried.
        """
        n_default, tried = in_flight(self._space.reference), self._history.groups
        gains = {each.setting[INSTANCES]: each.log_ratio for each in tried if (each.log_ratio or 0.0) > 0}
        short = [each for each in self._space.groups if in_flight(each) <= n_default and each[INSTANCES] in gains]
        if not self._plan.same_latency or any(in_flight(each.setting) <= n_default for each in tried):
            return None
        return max(short, key=lambda each: (gains[each[INSTANCES]], each.batch_size), default=None)

    def _n_usual_groups_due(self) -> int:
        """Return how many are to be tried at the usual batch sizes."""
        n_tried = len({trial.setting for trial in self._history.groups})
        return max(0, min(self._plan.n_groups, len(self._space.groups)) - n_tried)

    def _usual_batch(self) -> int:
        """Return the batch size at which numbers of processes are compared: the default, or one within the limits."""
        best = self._history.incumbent()
        if not self._plan.evaluation.limits or best is None:
            return self._space.reference.batch_size
        return best.setting.batch_size

    def _abandon(self, requested: Iterable[optuna.Trial]) -> None:
        for running in requested:
            self._record.abandon(running.number)

    def _is_over(self, requested: Sequence[Trial]) -> bool:
        """Return whether the search has to end before one more trial beside those that are `requested` already.

        The baselines are measured even where they overrun the budget a little; beyond that, the default is.
        """
        proposal = self._sampler.propose(self._record.study, cost_s=self._evaluator.processes.cost_s)
        if proposal is None:
            self._end = EndReason.SPACE, "every setting of the search space was tried"
            return True
        trials, n_asked = self._history.trials, len(requested)
        if proposal.setting in self._space.baselines.values():
            cost_s = (n_asked + 1) * self._least_s(proposal.setting)
            # Where the default may not be chosen, another has to be measured that may.
            is_enough = self._history.incumbent() is not None or any(each.eligible for each in requested)
            if is_enough and self._time.is_overrun_by(cost_s + self._finals.least_s()):
                self._end = EndReason.TIME, "the remaining time is needed for the finals of two settings"
                return True
            return False
        if self._budget.trials is not None and len(trials) + n_asked >= self._budget.trials:
            self._end = EndReason.TRIALS, f"the study has {len(trials)} trials"
            return True
        # Until a setting was measured that may be recommended, there is nothing to hold finals on.
        reserve_s = self._finals.reserve_s() + self._groups_s() if self._history.incumbent() is not None else 0.0
        if self._time.is_short_of((n_asked + 1) * self._trial_s() + reserve_s):
            self._end = EndReason.TIME, "the remaining time is reserved for the finals"
            return True
        suggested = sum(1 for trial in trials if not trial.baselines) + n_asked
        if suggested >= _MIN_SUGGESTIONS and proposal.expected_gain < self._plan.min_gain:
            gain = 100 * math.expm1(proposal.expected_gain)
            self._end = EndReason.NO_GAIN, f"no further gain is expected (at most {gain:.2f} %)"
            return True
        return False

    def _groups_s(self) -> float:
        """Return about how long the trials of several processes will take that are still to come."""
        return self._n_groups_due() * self._trial_s()

    def _trial_s(self) -> float:
        """Return how long a trial takes: the mean of the last few, or nothing where none was run yet."""
        recent = [trial.wall_s for trial in self._done[-6:]]
        return sum(recent) / len(recent) if recent else 0.0

    # ---- what is planned ---------------------------------------------------------------------------------------------

    def _measure_planned(self) -> None:
        """Measure the settings of the design, as long as there is time."""
        if self._unmeasured():
            self._begin_evaluator()
        while requested := self._next_planned():
            self._measure(requested)

    def _next_planned(self) -> list[tuple[optuna.Trial, Trial]]:
        """Return the settings of the design that come next, none if there are no more, or there is no time.

        As many as memory has room for, each with a process of its own. The first two of a run may overrun the time a
        little, as the default alone says nothing.
        """
        left, processes = self._unmeasured(), self._evaluator.processes
        first_of = {processes.key(each): each for each in reversed(left)}
        chosen = [each for each in left if first_of[processes.key(each)] == each][: self._evaluator.n_together()]
        while chosen:
            may_overrun = not self._done and len(chosen) <= _FIRST_PLANNED
            is_too_much = self._time.is_overrun_by if may_overrun else self._time.is_short_of
            if not is_too_much(sum(map(self._least_s, chosen))):
                break
            chosen.pop()
        if not chosen:
            self._end = (EndReason.TIME, "the time is used up") if left else (EndReason.SPACE, "all that was planned")
            return []
        others = [each for each in left if each not in chosen]
        self._turn = _Turn(
            share=len(chosen) / len(left),
            pass_s=sum(map(self._pass_s, chosen)),
            others_s=sum(self._pass_s(each) + _WARM_UP_S for each in others),
        )
        groups = self._space.groups
        return [self._begin_group(each) if each in groups else self._begin(each) for each in chosen]

    def _unmeasured(self) -> list[Setting]:
        """Return the settings of the design without a trial yet; of larger batches only those with steps of seconds."""
        tried = {trial.setting for trial in [*self._history.trials, *self._history.groups]}
        largest = self._space.reference.batch_size
        left = [each for each in self._plan.design if each not in tried]
        return [each for each in left if each.batch_size <= largest or self._step_s(each) <= _LONGEST_STEP_S]

    def _step_s(self, setting: Setting) -> float:
        """Return about how long a step of a setting takes, by what one of the default does."""
        return self._evaluator.processes.step_s * in_flight(setting) / self._space.reference.batch_size

    def _pass_s(self, setting: Setting) -> float:
        """Return about how long the two slices of a setting take."""
        return 2 * max(self._plan.evaluation.slice_s, self._step_s(setting))

    def _is_turn_over(self) -> bool:
        """Return whether another pass is more than the share of the planned settings under way."""
        turn, now_s = self._turn, self._time.elapsed_s()
        if turn.ends_s is None:  # their first pass has just ended
            turn.ends_s = now_s + turn.share * max(0.0, self._time.left_s() - turn.others_s)
        return now_s + turn.pass_s / 2 >= turn.ends_s

    def _close_run(self) -> None:
        """Keep how long this run took, and how much of it was measurement."""
        timed = sum(trial.timed_s for trial in self._done)
        best = self._history.incumbent()
        run = Run(
            wall_s=round(self._time.elapsed_s(), 3),
            measured_s=round(timed + self._finals.timed_s, 3),
            search_timed_share=round(timed / self._search_s, 4) if timed else None,
            ended=None if self._end is None else self._end[0],
            ended_because="" if self._end is None else self._end[1],
            n_trials=len(self._history.trials),
            incumbent=None if best is None else best.number,
        )
        self._record.put("runs", [*self._record.attributes().runs, run])


@dataclass(slots=True, kw_only=True)
class _Turn:
    """The time of planned settings that are under way: `share` of what is left once all others have had a pass.

    A pass of them takes about `pass_s` (s), and one of all others with their warm-ups `others_s`. It ends at `ends_s`
    on the clock of the budget; None before their first pass.
    """

    share: float = 1.0
    pass_s: float = 0.0
    others_s: float = 0.0
    ends_s: float | None = None


# ---- which settings of several processes to try ---------------------------------------------------------------------

Predict = Callable[[Sequence[Setting]], Mapping[Setting, float]]
"""Returns the log-ratio to the default that is expected of settings of one process."""


def choose_groups(
    groups: Collection[Setting],
    predict: Predict,
    *,
    n: int,
    usual_batch: int,
    expected: PriorMean | None = None,
) -> list[Setting]:
    """Return at most `n` of the `groups` to try, the most promising first.

    n processes that did not slow each other down would do n times what one of them does alone, on as many threads. That
    bound ranks them: first each number of processes at the batch size nearest to `usual_batch`, as what the processes
    gain is then seen by itself, and last the most promising of the others. Where a model of the machine says what is
    `expected` of them, that ranks them instead.
    """
    one_process = predict(distinct(one_of(each) for each in groups))
    promise = {each: math.log(int(each[INSTANCES])) + one_process.get(one_of(each), 0.0) for each in groups}
    if expected is not None:
        promise = dict(zip(groups, expected(list(groups)).tolist(), strict=True))
    ranked = sorted(groups, key=lambda each: -promise[each])
    first = {
        count: min(
            (each for each in ranked if each[INSTANCES] == count),
            key=lambda each: abs(math.log(each.batch_size / usual_batch)),
        )
        for count in dict.fromkeys(each[INSTANCES] for each in ranked)
    }
    alike = [each for each in ranked if each == first[each[INSTANCES]]]
    return [*alike, *[each for each in ranked if each not in alike]][:n]
