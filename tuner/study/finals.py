"""The finals of a search: who takes part, how much time they need, and what of them is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from tuner.errors import FindingError, TunerError
from tuner.machine.host import node_name
from tuner.measure import interruption
from tuner.measure.budget import GROUP_PRIMARY, LATENCY, PRIMARY, PRIMARY_ROUNDS, Countdown
from tuner.measure.group_sequential import ALPHA, MIN_ROUNDS, SequentialTest, hold_rounds
from tuner.measure.objective import Objective
from tuner.measure.planning import Cost, FinalsPlan, choose_passes, required_time_s, tail_time_s
from tuner.measure.recommendation import MUCH_LONGER
from tuner.measure.rounds import GROUP, SAME_LATENCY, Contender, Rounds, in_common
from tuner.quantity import ratio_text
from tuner.space.groups import INSTANCES
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.values import Value
from tuner.stats.equivalence import VerdictCode
from tuner.stats.estimate import Estimate
from tuner.stats.tail import QUANTILES, samples_needed
from tuner.study.contenders import answer_contenders, choose_contenders
from tuner.study.events import Events
from tuner.study.history import History
from tuner.study.plan import Plan
from tuner.study.processes import Processes
from tuner.study.record import Record, now
from tuner.study.trials import Trial
from tuner.trial.launcher import Launcher
from tuner.trial.outcome import Status

_MIN_GROUP_ROUNDS = 4  # rounds: settings of several processes that there is time for fewer of would stay undecided
_HALF_WIDTH = 0.03  # of the interval (log) against the default: as narrow as that, more rounds are worth little
_MEMORY_MARGIN = 1.1
_ONE, _GROUPS, _SAME_LATENCY = "finals", "group_finals", "latency_finals"  # the keys of the record
_EARLY_ROUNDS, _EARLY_PASSES = 4, 2  # before the search is over; one pass says nothing of its scatter
_MOST_EARLY_ROUNDS = 6  # if they scatter more than expected
_FAR = 1.5  # times what so many rounds find in 90 % of cases: the looks cost something, and the best looks too good
_LEAST_ALPHA = 0.0025  # of a test that takes the place of another
_TARGET_GAIN = 0.03  # the smallest gain that they are given the time to find, as far as the budget goes

Replicas = Callable[[Sequence[Contender]], Sequence[Callable[[], Launcher]]]
"""Returns what forks the processes of contenders, if anything does, each once it is up; whoever gives it ends them."""


@dataclass(slots=True, kw_only=True)
class Finals:
    """The finals of one run of a study: of one process, and of several, in rounds that they have in common.

    They begin before the search is over if a setting is so far ahead that a few rounds prove it, and go on after it.
    Where a call of what is proven takes much longer than the default's, those of the fastest that keeps to that follow.
    Fresh processes come from `launcher`; those of the search, `processes`, tell what a start and a step cost.
    """

    record: Record
    history: History
    space: Space
    launcher: Launcher
    replicas: Replicas
    processes: Processes
    plan: Plan
    time: Countdown
    events: Events
    seed: int
    tests: dict[str, SequentialTest] = field(default_factory=dict)
    """Those that were begun in this run, by the key of the record."""
    _common: Rounds | None = None
    _keepers: dict[str, _Keeper] = field(default_factory=dict)
    _has_asked: bool = False
    """Whether this run has asked for the fastest setting at the default's latency."""
    _told: set[str] = field(default_factory=set)
    """The keys of what was told to be proven."""

    @property
    def timed_s(self) -> float:
        """Return the time spent inside slices."""
        return 0.0 if self._common is None else sum(each.timed_s for each in self._common.held)

    def reserve_s(self) -> float:
        """Return the time that the finals need for a small gain, and no more than their share of the budget."""
        if self.plan.score is not None:  # others measure, and take what there is
            return self.time.finals_s
        contenders = self._contenders()[:2]
        group = self.history.best_group()
        if group is not None and not self._is_proven(_GROUPS):
            contenders = in_common([contenders, answer_contenders(GROUP, group.setting, self.space)])
        if len(contenders) < 2:
            return 0.0
        costs = self._costs(contenders)
        needed_s = required_time_s(self.lived_plan(), self.history.noise(), costs, gain=_TARGET_GAIN) / PRIMARY
        tail_s = tail_time_s(self.lived_plan(), costs, n_steps=self._min_steps)
        return min(max(needed_s, tail_s), self.time.finals_s)

    @property
    def _min_steps(self) -> int:
        """Return how many steps of what is recommended a limit on p99 needs; none where nobody knows what they cost."""
        is_asked = self.plan.evaluation.limits.p99_s is not None and self.time.total_s is not None
        return samples_needed(QUANTILES["p99"]) if is_asked else 0

    def lived_plan(self) -> FinalsPlan:
        """Return the plan as the processes live: together, or one at a time."""
        return replace(self.plan.finals, max_resident=1) if self.processes.are_alone else self.plan.finals

    def least_s(self) -> float:
        """Return how long (s) the fewest rounds that have an interval take, of two settings in the shortest way."""
        plan = replace(self.lived_plan(), passes=1)
        costs = self._costs(self._contenders()[:2])
        return MIN_ROUNDS * plan.round_s(costs) if len(costs) > 1 else 0.0

    def is_decidable(self, group: Setting) -> bool:
        """Return whether there is time for so many rounds of several processes that a verdict is likely."""
        left_s = min(self.time.left_s(), self.time.finals_s)
        return self._is_time_for(answer_contenders(GROUP, group, self.space), left_s, n=_MIN_GROUP_ROUNDS)

    def _is_time_for(self, contenders: Sequence[Contender], left_s: float, *, n: int) -> bool:
        return left_s >= n * self.lived_plan().round_s(self._costs(contenders))

    # ---- before the search is over ----------------------------------------------------------------------------

    def prove(self, *, groups_are_done: bool) -> None:
        """Begin the finals of what is far ahead, in a few rounds: then it is proven early.

        Once no other setting of several processes is left to try, theirs begin if the best is ahead at all: nothing
        that the search still measures is expected to take their place, so these rounds have to be held anyway.
        """
        if self.plan.score is not None or not self._holds_two():
            return
        best, group = self.history.incumbent(), self.history.best_group()
        begun: dict[str, Sequence[Contender]] = {}
        is_far = True
        if group is not None and _GROUPS not in self.tests:
            is_far = self._is_ahead(group, self.history.groups)
            is_last = groups_are_done and self._is_ahead(group, self.history.groups, by=math.log1p(self.plan.margin))
            if is_far or is_last:
                begun[_GROUPS] = answer_contenders(GROUP, group.setting, self.space)
        is_other = best is not None and best.setting != self.space.reference and _ONE not in self.tests
        if best is not None and is_other and self._is_ahead(best, self.history.trials):
            begun[_ONE] = self._contenders()[:2]
        if not begun:
            return
        names = [self._name(key, contenders[0]) for key, contenders in begun.items()]
        verb = "are" if len(begun) > 1 or _GROUPS in begun else "is"
        self.events.stage(f"{' and '.join(names)} {verb} ahead of {self.space.default}, so the proof comes first")
        tests = {key: self._test(key, contenders) for key, contenders in begun.items()}
        common = self._rounds()
        if is_far and self.time.total_s is not None:  # then rounds after the search make the interval narrower
            common.plan = replace(common.plan, passes=min(common.plan.passes, _EARLY_PASSES))
        hold_rounds(list(tests.values()), common, self._keeping(tests), n_rounds=_MOST_EARLY_ROUNDS)

    def is_due(self, trial: Trial, log_ratio: Estimate) -> bool:
        """Return whether a trial under way is so far ahead that its proof should begin, unless one has."""
        key = _GROUPS if trial.is_group else _ONE
        if self.plan.score is not None or self.plan.design:
            return False
        return key not in self.tests and self._is_far(log_ratio) and self._holds_two()

    def _holds_two(self) -> bool:
        """Return whether memory holds two processes more than the search has, as far as that is known."""
        resident = self._resident()
        return resident is None or resident > 1

    def _is_ahead(self, best: Trial, trials: Sequence[Trial], *, by: float | None = None) -> bool:
        """Return whether a setting is surely ahead by a log-ratio; by what a few rounds are likely to find if None."""
        estimates = [each.known(self.history.noise().process_sd) for each in trials if each.setting == best.setting]
        return any(each is not None and self._is_far(each, by=by) for each in estimates)

    def _is_far(self, log_ratio: Estimate, *, by: float | None = None) -> bool:
        """Return whether a log-ratio is surely beyond another, or beyond what a few rounds are likely to find."""
        low = log_ratio.interval()[0]
        if low <= 1:  # as mostly: the noise need not be read for it
            return False
        if by is not None:
            return math.log(low) > by
        slices = self.lived_plan().independent_slices
        gain = self.history.noise().detectable_gain(rounds=_EARLY_ROUNDS, slices=slices, margin=self.plan.margin)
        return math.log(low) > _FAR * math.log1p(gain)

    def _is_proven(self, key: str) -> bool:
        """Return whether finals have shown a setting to be better than the default."""
        test = self.tests.get(key)
        return test is not None and test.verdicts()[test.contenders[1].names[0]].code is VerdictCode.BETTER

    def _still_best(self, key: str, best: Trial, trials: Sequence[Trial]) -> Trial:
        """Return the setting whose finals have begun, unless the best is clearly better and there is error left."""
        begun = self.tests.get(key)
        first = None if begun is None else begun.contenders[0].setting
        for trial in trials:
            difference = best.difference(trial, self.history.noise().process_sd)
            if trial.setting == first and difference is not None and difference.interval()[0] <= 1:
                return trial
        return best

    # ---- after the search -------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Hold rounds until every comparison is decided, and well known, or the time is used up."""
        if self.plan.score is not None:
            if self.history.incumbent() is None:
                raise self._nothing_to_hold()
            return
        contenders: dict[str, Sequence[Contender]] = {}
        # Steps of large batches in several processes take seconds: few rounds of them decide nothing. Of a study that
        # was asked about several in another run, and is not in this one, none are held.
        decidable = {trial.setting for trial in self.history.groups if self.is_decidable(trial.setting)}
        group = self.history.best_group(among=decidable) if self.space.groups else None
        best = self.history.incumbent()
        own = [] if best is None else self._contenders()
        if group is not None:
            group = self._still_best(_GROUPS, group, self.history.groups)
            one_process = None if best is None else own[0].setting
            contenders[_GROUPS] = answer_contenders(GROUP, group.setting, self.space, one_process=one_process)
        if len(own) > 1:
            contenders[_ONE] = own
        tests = {key: self._test(key, of_test) for key, of_test in contenders.items()}
        for key, test in tests.items():
            # Without a time budget nobody knows how much more a narrower interval is worth.
            test.half_width = None if self.time.total_s is None else _HALF_WIDTH
            test.min_steps = self._min_steps
            test.begin()
            self._keepers[key].keep(test)  # with rivals that no early round had, even if there are no more rounds
        going_on = {key: test for key, test in tests.items() if not test.end_reason}
        if going_on:
            names = [self._name(key, test.contenders[0]) for key, test in going_on.items()]
            n_rivals = len(in_common([t.contenders for t in going_on.values()])) - len(going_on) - 1
            self.events.stage(
                f"finals: {' and '.join(names)} against {self.space.default}"
                + (f", then against {n_rivals} more" if n_rivals > 0 else "")
                + f"; differences under {100 * self.plan.margin:g} % are treated as equal"
            )
            self._go_on(going_on, until=self._is_paid_with_latency)
        if self._is_paid_with_latency():
            self._hold_same_latency()
            if going_on:
                self._go_on(going_on)
        if _ONE not in contenders:
            raise self._nothing_to_hold()

    def _nothing_to_hold(self) -> TunerError:
        """Return why there is nothing to hold finals of one process on."""
        measurements = [
            (trial.step_s, trial.peak_memory_bytes, trial.power_w)
            for trial in self.history.trials
            if trial.estimate is not None
        ]
        failed = [trial for trial in self.history.trials if trial.status is not Status.OK]
        if self.history.incumbent() is not None:
            if failed:
                return TunerError(
                    f"no setting but the default ran: {len(failed)} failed, the last one with: {failed[-1].message}",
                    failed[-1].hint or "`tftune show --details` gives the reason of each",
                )
            return TunerError("there is no other setting to compare the default with", self._why_alone())
        if self.plan.evaluation.limits and measurements:
            unmet = self.plan.evaluation.limits.unmet_text(measurements)
            return FindingError(
                f"of {len(measurements)} trials, {unmet}", "raise the limit, or give a longer --time-budget"
            )
        if measurements:
            return TunerError(
                "no setting that keeps to your --set was measured",
                "give a longer --time-budget; the recommended settings come first",
            )
        return TunerError("all trials failed", "`tftune show --details` gives the reason of each")

    # ---- at the latency of the default ------------------------------------------------------------------------

    def _is_paid_with_latency(self) -> bool:
        """Return whether the fastest setting is proven, at the price of calls that take much longer, as it seems.

        While another answer could still be that, it has `PRIMARY` of the time for itself.
        """
        proven = [test for key, test in self.tests.items() if self._is_proven(key)]
        if not proven or not self.plan.same_latency or self._has_asked:
            return False
        share_s = (1 - PRIMARY) * self._rounds().left_at_start_s
        if any(test.is_primary_open for test in self.tests.values()) and not self.time.left_s() <= share_s < math.inf:
            return False
        fastest = max(proven, key=lambda test: test.verdicts()[test.contenders[1].names[0]].speedup or 0.0)
        first, default = (each.names[0] for each in fastest.contenders[:2])
        price = fastest.estimates(Objective.LATENCY).log_ratio(first, default)  # whose rate is the inverse
        return price is not None and price.interval()[0] > MUCH_LONGER

    def _hold_same_latency(self) -> None:
        """Hold rounds of the fastest setting whose call takes no longer than the default's, or keep why there are none.

        As they follow a verdict, they add no wrong one where all settings are equal.
        """
        self._has_asked = True
        known = self.history.at_same_latency()
        why = self._why_no_same_latency(known)
        self.record.put("no_same_latency", {"why": why, "beside": self._answers()} if why else None)
        if known is None or why:
            return
        longer = f"a call of the fastest takes much longer than {self.space.default}'s"
        self.events.stage(f"{longer}: finals of the fastest that keeps the latency")
        contenders = answer_contenders(SAME_LATENCY, known[0], self.space)
        test, common = self._test(_SAME_LATENCY, contenders), self._rounds()
        test.min_steps = self._min_steps
        needed_s = MIN_ROUNDS * self.lived_plan().round_s(self._costs(contenders))
        common.time = self.time.part(max(LATENCY, needed_s / max(self.time.left_s(), needed_s)))
        try:
            hold_rounds([test], common, self._keeping({_SAME_LATENCY: test}))
        finally:
            common.time = self.time

    def _why_no_same_latency(self, known: tuple[Setting, float] | None) -> str:
        """Return why there are no finals at the default's latency, by what is `known` of it in the search."""
        if known is None:
            return "no other setting keeps it"
        setting, log_ratio = known
        for key, answer in ((_ONE, "one process"), (_GROUPS, "several processes")):
            if key in self.tests and self.tests[key].contenders[0].setting == setting:
                return f"the fastest that keeps it is that of {answer}"
        if log_ratio <= 0:
            speed = f"{math.exp(log_ratio):.2f}× the speed of {self.space.default}"
            return f"nothing faster keeps it; the fastest that does, {setting}, ran at {speed} in the search"
        contenders = answer_contenders(SAME_LATENCY, setting, self.space)
        if not self._is_time_for(contenders, self.time.left_s(), n=MIN_ROUNDS):
            return "no time was left for its finals: give a longer --time-budget"
        return ""

    # ---- rounds -----------------------------------------------------------------------------------------------

    def _go_on(self, tests: Mapping[str, SequentialTest], until: Callable[[], bool] = lambda: False) -> None:
        """Hold rounds of tests, as `hold_rounds` does, planned for what each compares first."""
        self._plan_rounds(in_common([test.contenders[:2] for test in tests.values()]))
        hold_rounds(list(tests.values()), self._rounds(), self._keeping(tests), until=until)

    def _test(self, key: str, contenders: Sequence[Contender]) -> SequentialTest:
        """Return the test of these contenders: one of the same two that was begun before goes on.

        One that takes the place of another has what that has left of the error.
        """
        begun = self.tests.get(key)
        if begun is not None and begun.contenders[0].setting == contenders[0].setting:
            begun.contenders = contenders
            return begun
        self._plan_rounds(contenders[:2])
        common = self._rounds()
        common.fork_launchers = common.fork_launchers or self.replicas(contenders)
        test = self.tests[key] = SequentialTest(
            contenders=contenders,
            common=common,
            noise=self.history.noise(),
            objective=self.plan.evaluation.objective,
            margin=self.plan.margin,
            alpha=ALPHA if begun is None else max(ALPHA - begun.spent, _LEAST_ALPHA),
            # Several processes are asked about for the default's sake, and one process runs beside them anyway.
            primary_time=GROUP_PRIMARY if key == _GROUPS else PRIMARY,
            leaves_time=key == _GROUPS,
        )
        # Of this run the finals that it holds last are kept.
        earlier = self.record.get(key) if begun is None else self._keepers[key].earlier
        beside = {"beside": self._answers()} if key == _SAME_LATENCY else {}
        self._keepers[key] = _Keeper(record=self.record, key=key, began=now(), earlier=earlier, beside=beside)
        return test

    def _answers(self) -> dict[str, dict[str, Value]]:
        """Return the settings of the other answers of this run, by their keys of the record."""
        return {key: test.contenders[0].setting.to_dict() for key, test in self.tests.items() if key != _SAME_LATENCY}

    def _rounds(self) -> Rounds:
        """Return what holds the rounds of this run."""
        if self._common is None:
            self._common = Rounds(
                launcher=self.launcher,
                plan=self.plan.finals,
                rng=np.random.default_rng([self.seed, len(self.record.attributes().runs)]),
                time=self.time,
                notify=self.events.stage,
            )
        return self._common

    def _plan_rounds(self, contenders: Sequence[Contender]) -> None:
        """Plan the rounds to come for these contenders."""
        self._rounds().plan = choose_passes(
            self.plan.finals,
            self.history.noise(),
            self._costs(contenders),
            left_s=self.time.left_s(),
            resident=self._resident(),
            primary_time=PRIMARY_ROUNDS,
        )

    def _keeping(self, tests: Mapping[str, SequentialTest]) -> Callable[[], None]:
        """Return what keeps tests in the record after each round."""

        def after_round() -> None:
            for key, test in tests.items():
                self._keepers[key].keep(test)
            held = self._rounds().held
            self.events.round_ended(len(held), held[-1], self.time.left_s())
            for key in tests:
                if key not in self._told and self._is_proven(key):
                    self._told.add(key)
                    self.events.stage(self._proven_text(key))

        return after_round

    def _proven_text(self, key: str) -> str:
        """Return that a setting was shown to be better than the default, and by how much."""
        first, default = self.tests[key].contenders[:2]
        verdict = self.tests[key].verdicts()[default.names[0]]
        ratio = ratio_text(verdict.speedup, verdict.low, verdict.high, "×")
        return f"proven so far: {self._name(key, first)}, {ratio}; Ctrl-C ends the search with it"

    def _name(self, key: str, first: Contender) -> str:
        """Return what the first contender of a test is called in a line."""
        if key == _SAME_LATENCY:
            return "the fastest that keeps the latency"
        return f"{first.setting[INSTANCES]} processes" if key == _GROUPS else "the incumbent"

    def _costs(self, contenders: Sequence[Contender]) -> list[Cost]:
        """Return what each contender costs, as its trial tells, or those of its batch size."""
        # A trial that reused a process for another batch size says nothing about start times.
        starts_s = [
            trial.start_s for trial in self.history.trials if trial.facts is not None and trial.facts["load_s"] > 0
        ]
        start_s = max(starts_s[-6:], default=self.processes.start_s)
        steps_s: dict[Setting | int, float] = {}
        for trial in [*self.history.trials, *self.history.groups]:
            if trial.slices:
                # A slice ends with a whole step, of which those of several processes overlap.
                step_s = median(trial.step_s or [interruption.step_s(trial.slices[-1])])
                steps_s[trial.setting] = step_s
                if not trial.is_group:
                    steps_s[trial.setting.batch_size] = min(step_s, steps_s.get(trial.setting.batch_size, step_s))
        usual_s = self.processes.step_s

        def cost(contender: Contender) -> Cost:
            # What was measured of an ensemble is of all its processes.
            n = 1 if contender.deployment.members else contender.deployment.processes
            setting = contender.setting
            # Of several processes each has its part of the cores.
            step_s = steps_s.get(setting, n * steps_s.get(setting.batch_size, usual_s))
            return Cost(start_s=n * start_s, step_s=step_s)

        return [cost(each) for each in contenders]

    def _why_alone(self) -> str:
        """Return what to do where no setting beside the default was measured."""
        if len(self.space.points) < 2:
            return "drop a --set, or use a larger --space: it has one setting"
        return "give a longer --time-budget, or drop a --set"

    def _contenders(self) -> list[Contender]:
        """Return the contenders of finals that were held now."""
        best = self.history.incumbent()
        return choose_contenders(
            None if best is None else self._still_best(_ONE, best, self.history.trials).setting,
            self.history.trials,
            self.space,
            self.history.noise(),
            self.lived_plan(),
            margin=self.plan.margin,
            posterior=self.history.posterior_means(),
        )

    def _resident(self) -> int | None:
        """Return how many processes fit into the memory, as the trials' peaks tell; None if they do not."""
        if self.processes.are_alone:
            return 1
        peaks = [t.peak_memory_bytes for t in [*self.history.trials, *self.history.groups] if t.peak_memory_bytes]
        free = self.plan.evaluation.free_memory_bytes()
        return None if not peaks or free is None else int(free / (_MEMORY_MARGIN * max(peaks)))


@dataclass(slots=True, kw_only=True)
class _Keeper:
    """Stores finals under a key of the record; those of an earlier session stay until these can stand in for them."""

    record: Record
    key: str
    began: str
    earlier: dict[str, object] | None
    beside: Mapping[str, object]
    """Which answers those at the default's latency are held beside."""

    def keep(self, test: SequentialTest) -> None:
        """Store the finals so far, from the second round on: one alone decides nothing.

        A killed run keeps what it had; earlier finals stay until these have ended.
        """
        if test.n_rounds < MIN_ROUNDS or (self.earlier is not None and not test.end_reason):
            return
        if self.earlier is not None:
            self.record.add(f"earlier_{self.key}", self.earlier)
            self.earlier = None
        self.record.put(
            self.key,
            {
                "began": self.began,
                "node": node_name(),
                "contenders": test.contenders,
                "rounds": test.rounds,
                "margin": test.margin,
                "noise": test.noise,
                "levels": test.levels,
                "ended": test.end_reason,
                **self.beside,
            },
        )
