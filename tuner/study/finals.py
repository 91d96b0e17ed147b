"""The finals of a search: who takes part, how much time they need, and what of them is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median

import numpy as np

from tuner.errors import TunerError
from tuner.measure import interruption
from tuner.measure.finals import Contender, Round
from tuner.measure.group_sequential import MIN_ROUNDS, SequentialTest
from tuner.measure.planning import PRIMARY_TIME, Cost, FinalsPlan, choose_passes, required_time_s
from tuner.space.groups import INSTANCES
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.stats.equivalence import VerdictCode
from tuner.study.budget import Countdown
from tuner.study.contenders import choose_contenders, group_contenders
from tuner.study.events import Events
from tuner.study.history import History
from tuner.study.plan import Plan
from tuner.study.processes import Processes
from tuner.study.record import Record, now
from tuner.study.trials import Trial
from tuner.trial.launcher import Launcher
from tuner.trial.outcome import Status

_SHARE = 0.5  # of the time budget, at most, is kept for their first rounds
_SHARE_WITH_GROUPS = 0.55  # the same where several processes have finals of their own
_GROUP_SHARE = 0.6  # of the time of all finals, at most, is for those on several processes
_MIN_GROUP_ROUNDS = 6  # rounds: settings of several processes that there is time for fewer of would stay undecided
_MEMORY_MARGIN = 1.1
_ONE, _GROUPS = "finals", "group_finals"  # the keys of the record
_EARLY_ROUNDS = 4  # before the search is over
_FAR = 1.5  # times what so many rounds find in 90 % of cases: the looks cost something, and the best looks too good
_TARGET_GAIN = 0.03  # the smallest gain that they are given the time to find, as far as the budget goes

Replicas = Callable[[Sequence[Contender]], Sequence[Launcher]]
"""Returns what forks the processes of contenders, if anything does; whoever gives it ends them."""


@dataclass(slots=True, kw_only=True)
class Finals:
    """The finals of one run of a study: of one process, and of several.

    They begin before the search is over if a setting is so far ahead that a few rounds prove it, and go on after it.
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
    rounds: list[Round] = field(default_factory=list)
    group_rounds: list[Round] = field(default_factory=list)
    """The rounds of the finals on several processes."""
    tests: dict[str, SequentialTest] = field(default_factory=dict)
    """Those that were begun in this run, by the key of the record."""
    _keepers: dict[str, _Keeper] = field(default_factory=dict)

    def reserve_s(self) -> float:
        """Return the time that the finals need for a small gain, and no more than their share of the budget."""
        costs = self._costs(self._contenders()[:2])
        if len(costs) < 2:
            return 0.0
        needed = 2 * required_time_s(self.lived_plan(), self.history.noise(), costs, gain=_TARGET_GAIN)
        if self.plan.n_groups and self.space.groups and not self._is_proven(_GROUPS):
            needed, share = 2 * needed, _SHARE_WITH_GROUPS
        else:
            share = _SHARE
        return needed if self.time.total_s is None else min(needed, share * self.time.total_s)

    def lived_plan(self) -> FinalsPlan:
        """Return the plan as the processes live: together, or one at a time."""
        return replace(self.plan.finals, max_resident=1) if self.processes.are_alone else self.plan.finals

    def least_s(self) -> float:
        """Return how long (s) the fewest rounds that have an interval take, of two settings in the shortest way."""
        plan = replace(self.lived_plan(), passes=1)
        costs = self._costs(self._contenders()[:2])
        return MIN_ROUNDS * plan.round_s(costs) if len(costs) > 1 else 0.0

    def hold(self) -> None:
        """Hold rounds until every comparison is decided or the time is used up."""
        if self.history.incumbent() is None:
            measurements = [
                (trial.step_s, trial.peak_memory_bytes, trial.power_w)
                for trial in self.history.trials
                if trial.estimate is not None
            ]
            if self.plan.evaluation.limits and measurements:
                unmet = self.plan.evaluation.limits.unmet_text(measurements)
                raise TunerError(
                    f"of {len(measurements)} trials, {unmet}", "raise the limit, or give a longer --time-budget"
                )
            if measurements:
                raise TunerError(
                    "no setting that keeps to your --set was measured",
                    "give a longer --time-budget; the recommended settings come first",
                )
            raise TunerError("all trials failed", "`tftune show --details` gives the reason of each")
        contenders = self._contenders()
        if len(contenders) < 2:
            failed = [trial for trial in self.history.trials if trial.status is not Status.OK]
            if failed:
                raise TunerError(
                    f"no setting but the default ran: {len(failed)} failed, the last one with: {failed[-1].message}",
                    "`tftune show --details` gives the reason of each",
                )
            raise TunerError("there is no other setting to compare the default with", self._why_alone())
        self.events.stage(
            f"finals: the incumbent against {contenders[1].names[0]}"
            + (f", then against {len(contenders) - 2} more" if len(contenders) > 2 else "")
            + f"; differences under {100 * self.plan.margin:g} % are treated as equal"
        )
        self._run(contenders, self.rounds, self.time.left_s, key=_ONE)

    def prove(self) -> None:
        """Begin the finals of several processes in a few rounds if these are far ahead: then they are proven early."""
        best = self.history.best_group()
        if best is None or _GROUPS in self.tests or not self._is_far_ahead(best.setting):
            return
        contenders = group_contenders(best.setting, None, self.space)
        what, default = f"{best.setting[INSTANCES]} processes", contenders[1].names[0]
        self.events.stage(f"{what} against {default}: far ahead, so the proof comes first")
        left_s = self.time.left_s
        self._run(contenders, self.group_rounds, left_s, key=_GROUPS, primary_time=1.0, n_rounds=_EARLY_ROUNDS)
        if self._is_proven(_GROUPS):
            verdict = self.tests[_GROUPS].verdicts()[default]
            proven = f"{verdict.speedup:.2f}× [{verdict.low:.2f}–{verdict.high:.2f}]"
            self.events.stage(f"proven so far: {what}, {proven}; Ctrl-C ends the search with it")

    def _still_best(self, best: Trial) -> Trial:
        """Return the setting of several processes whose finals have begun, unless the best is clearly better."""
        begun = self.tests.get(_GROUPS)
        first = None if begun is None else begun.contenders[0].setting
        for trial in self.history.groups:
            difference = best.difference(trial, self.history.noise().process_sd)
            if trial.setting == first and difference is not None and difference.interval()[0] <= 1:
                return trial
        return best

    def _is_far_ahead(self, setting: Setting) -> bool:
        """Return whether a few rounds are likely to prove a setting of several processes."""
        noise = self.history.noise()
        estimates = [each.known(noise.process_sd) for each in self.history.groups if each.setting == setting]
        lows = [math.log(max(each.interval()[0], 1e-9)) for each in estimates if each is not None]
        slices = self.lived_plan().independent_slices
        gain = noise.detectable_gain(rounds=_EARLY_ROUNDS, slices=slices, margin=self.plan.margin)
        return bool(lows) and max(lows) > _FAR * math.log1p(gain)

    def _is_proven(self, key: str) -> bool:
        """Return whether finals have shown a setting to be better than the default."""
        test = self.tests.get(key)
        return test is not None and test.verdicts()[test.contenders[1].names[0]].code is VerdictCode.BETTER

    def hold_of_groups(self) -> None:
        """Hold rounds of the best setting of several processes until it is decided, or its share of the time is over.

        The default is its rival first, then the best setting of one process: whether several are worth their memory.
        Of a study that was asked about several in another run, and is not in this one, none are held.
        """
        if not self.space.groups:
            return
        # Steps of large batches in several processes take seconds: few rounds of them decide nothing.
        decidable = {trial.setting for trial in self.history.groups if self.is_decidable(trial.setting)}
        best, one_process = self.history.best_group(among=decidable), self.history.incumbent()
        if best is None:
            return
        best = self._still_best(best)
        contenders = group_contenders(best.setting, None if one_process is None else one_process.setting, self.space)
        self.events.stage(
            f"finals: {best.setting[INSTANCES]} processes against "
            + ", then ".join(each.names[0] for each in contenders[1:])
        )
        all_left_s = self.time.left_s()
        kept_s = 0.0 if all_left_s is None else (1 - _GROUP_SHARE) * all_left_s

        def own_left_s() -> float | None:
            left_s = self.time.left_s()
            return None if left_s is None else left_s - kept_s

        # What the other rivals need is left over, if anything is: this question is the one that was asked.
        self._run(contenders, self.group_rounds, own_left_s, key=_GROUPS, primary_time=1.0, leaves_time=True)

    def is_decidable(self, group: Setting) -> bool:
        """Return whether there is time for so many rounds of several processes that a verdict is likely."""
        left_s = self.time.left_s()
        if left_s is None or self.time.total_s is None:
            return True
        own_s = _GROUP_SHARE * min(left_s, _SHARE_WITH_GROUPS * self.time.total_s)
        costs = self._costs(group_contenders(group, None, self.space))
        return own_s >= _MIN_GROUP_ROUNDS * self.lived_plan().round_s(costs)

    def _run(
        self,
        contenders: Sequence[Contender],
        rounds: list[Round],
        left_s: Callable[[], float | None],
        *,
        key: str,
        primary_time: float = PRIMARY_TIME,
        leaves_time: bool = False,
        n_rounds: int | None = None,
    ) -> None:
        """Hold rounds into `rounds`, and keep them in the record under `key`; see `choose_passes`, `SequentialTest`.

        A test of the same two that was begun before goes on. `n_rounds` are held at most.
        """
        begun = self.tests.get(key)
        if begun is not None and begun.contenders[0].setting == contenders[0].setting:
            begun.contenders, begun.left_s, begun.leaves_time = contenders, left_s, leaves_time
            begun.primary_time = primary_time
            begun.run(self._keeping(begun, key), n_rounds=n_rounds)
            return
        if begun is not None:
            rounds.clear()
        plan = choose_passes(
            self.plan.finals,
            self.history.noise(),
            self._costs(contenders[:2]),
            left_s=left_s(),
            resident=self._resident(),
            primary_time=primary_time,
        )
        sequential_test = self.tests[key] = SequentialTest(
            contenders=contenders,
            launcher=self.launcher,
            fork_launchers=self.replicas(contenders),
            plan=plan,
            prior=self.history.noise().round_prior(slices=plan.independent_slices),
            objective=self.plan.evaluation.objective,
            margin=self.plan.margin,
            primary_time=primary_time,
            leaves_time=leaves_time,
            rng=np.random.default_rng([self.seed, len(self.record.attributes().runs)]),
            left_s=left_s,
            notify=self.events.stage,
            rounds=rounds,
        )
        self._keepers[key] = _Keeper(record=self.record, key=key, began=now(), earlier=self.record.get(key))
        sequential_test.run(self._keeping(sequential_test, key), n_rounds=n_rounds)

    def _keeping(self, test: SequentialTest, key: str) -> Callable[[], None]:
        """Return what keeps a test in the record after each round."""

        def after_round() -> None:
            self._keepers[key].keep(test)
            self.events.round_ended(len(test.rounds), test.rounds[-1], self.time.left_s())

        return after_round

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
        return choose_contenders(
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
                "contenders": [c.to_dict() for c in test.contenders],
                "rounds": [round_.to_dict() for round_ in test.rounds],
                "margin": test.margin,
                "prior": None if test.prior is None else asdict(test.prior),
                "levels": test.levels,
                "ended": test.end_reason,
            },
        )
