"""The finals as a group-sequential test in two stages, until every comparison is decided or time is up.

    primary   the incumbent against the framework's default, alone, until it is decided or half of the time is spent
    rivals    the incumbent against the other contenders with an open comparison, the most promising first;
              the default runs on beside them where the primary comparison is open

A process is the unit of replication, a round gives one difference for each pair that ran in it, and each comparison is
a paired t-test on its own differences, whose variance is moderated where there is a prior of it (`tuner.stats.noise`).
There is an interim analysis after each round, at group-sequential levels (`tuner.stats.sequential`).

Multiplicity. The fallback procedure (Wiens 2003, Pharmaceutical Statistics 2; Maurer & Bretz 2013, Statistics in
Biopharmaceutical Research 5, for its looks): the error α = 5 % is split in advance,

    α_1 = 0.9 α   for the primary comparison
    α_2 = 0.1 α   for all rivals together, and α where the primary comparison is decided as better or worse

and α_2 is shared by the rivals evenly (Bonferroni). So the probability that any "better" or "worse" is wrong is at most
α, whichever settings are truly equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tuner.measure.budget import NARROWING, PRIMARY
from tuner.measure.interruption import FORKS_DIFFER
from tuner.measure.objective import Objective
from tuner.measure.rates import log_rates
from tuner.measure.recommendation import FinalsEstimates
from tuner.measure.rounds import Contender, Round, Rounds, in_common, is_among, part_of
from tuner.stats.equivalence import DIFFERENCES, MARGIN, UNMEASURED, Verdict, VerdictCode, verdict_on
from tuner.stats.estimate import Array, Estimate, p_of_equal_means
from tuner.stats.noise import PRIOR_NOISE, Noise
from tuner.stats.sequential import AlphaSpending

MIN_ROUNDS = 2
"""The fewest rounds that have an interval."""
ALPHA = 0.05
"""The error of all comparisons of a test together."""
_PRIMARY_ALPHA = 0.9  # of α
# Student's quantiles at the levels of a Brownian motion are a little too small where the variance is estimated from few
# rounds: the real error exceeds the spent one by up to 20 % (200,000 simulated tests of 2 to 40 rounds), so 15 % less
# is spent.
_STUDENT_ALPHA_FACTOR = 0.85
_MAX_INTERRUPTED_ROUNDS = 3
_PLANNED_ROUNDS_FACTOR = 1.1  # plan 10 % more rounds than there seems to be time for
_MIN_RIVAL_ROUNDS = 8  # rounds: rivals for which there is no time for so many are not compared with
_MIN_ONLY_RIVAL_ROUNDS = 4  # rounds of one rival, where nothing else is left to do with the time
_CHECK_ALPHA = 0.01  # the error of saying that forked processes differ from fresh ones
_MIN_FORKED_ROUNDS = 4  # rounds of forked processes
_RHO = 2.0  # how the error is spent over the looks


@dataclass(slots=True, kw_only=True)
class PairwiseTest:
    """The incumbent against one rival: the level of its interval at the last look, and what it says.

    `planned_rounds` is the number of rounds that there was time for at the first look; it and `level` are None before
    that. `is_alpha_spent` tells that all the error is spent; `cannot_run`, that the rival, or the incumbent, does not
    run.
    """

    rival: str
    planned_rounds: int | None = None
    level: float | None = None
    verdict: Verdict = UNMEASURED
    is_alpha_spent: bool = False
    cannot_run: bool = False

    @property
    def is_open(self) -> bool:
        """Return whether another round could still change the verdict."""
        return not self.cannot_run and not self.is_alpha_spent and self.verdict.code is VerdictCode.UNDECIDED

    def is_wide(self, half_width: float | None) -> bool:
        """Return whether another round could still make the interval of a decided comparison as narrow as wanted."""
        low, high = self.verdict.low, self.verdict.high
        if half_width is None or low is None or high is None or self.is_alpha_spent or self.cannot_run:
            return False
        return not self.is_open and math.log(high / low) / 2 > half_width

    def spent(self, alpha: float, n: int) -> float:
        """Return how much of `alpha` the looks so far have spent, the last of them after `n` rounds."""
        if self.planned_rounds is None:
            return 0.0
        return alpha if self.is_alpha_spent else alpha * min(1.0, n / self.planned_rounds) ** _RHO

    def analyse(self, estimate: Estimate, *, first: int, alpha: float, margin: float, last: bool) -> None:
        """Run the interim analysis after one more round; the `last` one spends the rest of `alpha`.

        What was planned stays: error that is spent is spent.
        """
        assert self.planned_rounds is not None  # before a first look it is planned how many there will be
        looks = AlphaSpending(
            first_look=min(first, estimate.n), planned_looks=self.planned_rounds, alpha=alpha, rho=_RHO
        )
        self.level = looks.level(estimate.n, last=last)
        self.is_alpha_spent = last or estimate.n >= self.planned_rounds
        self.verdict = verdict_on(estimate, level=self.level, margin=margin)

    def reset(self) -> None:
        """Forget the verdict, as the rounds behind it were discarded."""
        self.planned_rounds, self.level, self.verdict, self.is_alpha_spent = None, None, UNMEASURED, False


@dataclass(slots=True, kw_only=True)
class SequentialTest:
    """The rounds so far, and what they say.

    The first contender is the incumbent, the second the framework's default: theirs is the primary comparison. The
    others are rivals, in the order in which they are to be compared with. Processes of the first round are fresh; those
    of the others may be forked, and their rounds do not count where the fresh ones contradict them.
    """

    contenders: Sequence[Contender]
    common: Rounds
    """What holds the rounds, for this test alone or for several."""
    objective: Objective
    margin: float = MARGIN
    noise: Noise = PRIOR_NOISE
    """What is known of the noise beside these rounds."""
    alpha: float = ALPHA
    primary_time: float = PRIMARY
    """The share of the time that the primary comparison has for itself, unless it is decided before."""
    leaves_time: bool = False
    """Whether others have a use for the time that is left over."""
    half_width: float | None = None
    """How narrow (log) the interval of the primary comparison has to be before rounds end; None if a verdict is all."""
    min_steps: int = 0
    """How many steps of the incumbent have to be seen before rounds end: a limit on its tail is decided by them."""
    rounds: list[Round] = field(default_factory=list)
    """What the rounds say of these contenders."""
    pairwise: dict[str, PairwiseTest] = field(default_factory=dict)
    """Those that were begun, by the first name of the rival."""
    end_reason: str = ""
    """Why there are no more rounds: "decided", "time", "rounds" or "failed"."""
    _forks_suspected: bool = False
    """Whether one round of fresh interpreters contradicts the forked ones. Drift may cause that, so the next round uses
    fresh interpreters too.
    """

    @property
    def n_rounds(self) -> int:
        """Return the number of rounds that count."""
        return sum(not round_.interruptions for round_ in self.rounds)

    @property
    def levels(self) -> dict[str, float]:
        """Return the level of the interval of each that was looked at, by the first name of the rival."""
        return {name: comparison.level for name, comparison in self.pairwise.items() if comparison.level is not None}

    def estimates(self, objective: Objective | None = None) -> FinalsEstimates:
        """Return the rates so far, by another objective if that is given, and what is asked of claims about them."""
        return FinalsEstimates.of_rounds(
            self.rounds,
            self.contenders,
            objective or self.objective,
            incumbent=self.contenders[0].names[0],
            levels=self.levels,
            margin=self.margin,
            noise=self.noise,
        )

    def verdicts(self) -> Mapping[str, Verdict]:
        """Return what the rounds so far say of the incumbent against each rival, by the rival's first name."""
        by_rival = {name: comparison.verdict for name, comparison in self.pairwise.items()}
        return {c.names[0]: by_rival.get(c.names[0], UNMEASURED) for c in self.contenders[1:]}

    def run(self, after_round: Callable[[], None] = lambda: None, *, n_rounds: int | None = None) -> None:
        """Hold the rounds of both stages for this test alone; see `hold_rounds`."""
        hold_rounds([self], self.common, after_round, n_rounds=n_rounds)

    def begin(self) -> None:
        """Open the primary comparison, or go on with what is open."""
        self.open_comparisons([self.contenders[1]])
        if self.end_reason == "decided" and self._is_wanting:
            self.end_reason = ""
        if self.end_reason == "decided" and len(self.pairwise) < len(self.contenders) - 1:
            self.end_reason = ""  # there are rivals that were not here before
            self.open_comparisons(self._worthwhile_rivals())
            if not self.is_open:
                self.end_reason = "time"

    def look(self) -> None:
        """Run the interim analysis after a round, and decide who runs in the next one, if there is one."""
        self._interim_analysis()
        if not self.end_reason and self._is_time_for_rivals():
            self.open_comparisons(self._worthwhile_rivals())
        is_for_steps = self._has_few_steps and not self.is_open and not self._primary.is_wide(self.half_width)
        if not self.end_reason and (len(self.active_contenders()) == 1 or (is_for_steps and not self.common.n_more())):
            self.end_reason = self._end_reason()

    # ---- who runs ---------------------------------------------------------------------------------------------

    @property
    def _primary(self) -> PairwiseTest:
        return self.pairwise[self.contenders[1].names[0]]

    @property
    def _rivals(self) -> Sequence[Contender]:
        return self.contenders[2:]

    def open_comparisons(self, rivals: Iterable[Contender]) -> None:
        """Open the comparison with each of the rivals, unless it was begun before."""
        for rival in rivals:
            self.pairwise.setdefault(rival.names[0], PairwiseTest(rival=rival.names[0]))

    @property
    def is_primary_open(self) -> bool:
        """Return whether another round could still change the verdict on the default."""
        return not self.end_reason and self._primary.is_open

    @property
    def is_open(self) -> bool:
        """Return whether any comparison that was begun is undecided."""
        return any(comparison.is_open for comparison in self.pairwise.values())

    @property
    def _has_few_steps(self) -> bool:
        """Return whether the incumbent, which runs, has shown fewer steps than a limit on its tail needs."""
        name = self.contenders[0].names[0]
        slices = [each for r in self.rounds if not r.interruptions for each in r.slices.get(name, ())]
        return not self._primary.cannot_run and sum(len(each.latency_samples_s) for each in slices) < self.min_steps

    @property
    def _is_wanting(self) -> bool:
        """Return whether the primary comparison is to go on though it may be decided."""
        return self._primary.is_wide(self.half_width) or self._has_few_steps

    def active_contenders(self) -> list[Contender]:
        """Return the incumbent and those with which its comparison is open, or of the primary too little is known."""
        names = {name for name, comparison in self.pairwise.items() if comparison.is_open}
        if self._is_wanting:
            names.add(self._primary.rival)
        return [self.contenders[0], *(c for c in self.contenders[1:] if c.names[0] in names)]

    def _is_time_for_rivals(self) -> bool:
        """Return whether rivals may begin: nothing is open, or the time of the primary comparison is over.

        Others begin once those that were begun are decided, and once there are the steps that are needed.
        """
        if len(self.pairwise) == len(self.contenders) - 1 or self._has_few_steps:
            return False
        if not self.is_open:
            return True
        if len(self.pairwise) > 1:
            return False
        left_s, at_start_s = self.common.time.left_s(), self.common.left_at_start_s
        if at_start_s == math.inf:
            return len(self.rounds) >= self.primary_time * self.common.plan.max_rounds
        return left_s <= (1 - self.primary_time) * at_start_s

    def _worthwhile_rivals(self) -> Sequence[Contender]:
        """Return as many of the rivals that were not begun, in order, as there is time to learn something of.

        Where nothing is open and nobody else needs the time, one of them: an interval is worth more than none.
        """
        left_s, n_active = self.common.time.left_s(), len(self.active_contenders())
        rivals = [c for c in self._rivals if c.names[0] not in self.pairwise]
        if left_s == math.inf:
            return rivals
        n = sum(_MIN_RIVAL_ROUNDS * self.common.expected_s(n_active + k) <= left_s for k in range(1, len(rivals) + 1))
        if n_active == 1 and not self.leaves_time and _MIN_ONLY_RIVAL_ROUNDS * self.common.expected_s(2) <= left_s:
            n = max(n, 1)
        return rivals[:n]

    # ---- what they say ----------------------------------------------------------------------------------------

    @property
    def needs_fresh(self) -> bool:
        """Return whether the next round has to be of fresh interpreters, which forks are checked against."""
        counted = [each for each in self.rounds if each.fresh and not each.interruptions]
        return self._forks_suspected or not len(self._primary_log_ratios(counted))

    def _interim_analysis(self) -> None:
        """Run the interim analysis of every open comparison, and decide whether this was the last round.

        Where forks are under suspicion there is a fresh round more, whatever the time.
        """
        n_interrupted = sum(bool(each.interruptions) and not each.is_contradicted for each in self.rounds)
        if n_interrupted > _MAX_INTERRUPTED_ROUNDS:
            self.end_reason = "time"
        elif self._forks_suspected:
            return
        finals_estimates = self.estimates()
        waiting = [each for each in self.pairwise.values() if each.is_open or each.is_wide(self.half_width)]
        more, max_rounds = self.common.n_more(), self.common.plan.max_rounds
        estimates = {each.rival: finals_estimates.log_ratio(each.rival, finals_estimates.incumbent) for each in waiting}
        n_rounds = max((0 if estimate is None else estimate.n for estimate in estimates.values()), default=0)
        # Rounds of one pass say nothing of their noise: two that agree may do so by chance.
        first = MIN_ROUNDS if self.noise.n_pairs or self.common.plan.passes > 1 else self.common.plan.min_rounds
        last = not more or n_rounds >= max_rounds or bool(self.end_reason)
        for each in waiting:
            estimate = estimates[each.rival]
            each.cannot_run = estimate is None and self._cannot_run(each.rival)
            n = 0 if estimate is None else estimate.n
            if estimate is None or n < MIN_ROUNDS or (n < first and not last):
                continue
            # A few more than by their duration so far: where more come, their error is spent already.
            planned = min(max_rounds, n + math.ceil(_PLANNED_ROUNDS_FACTOR * more))
            each.planned_rounds = each.planned_rounds or planned
            alpha = _STUDENT_ALPHA_FACTOR * self.alpha_of(each)
            each.analyse(estimate, first=first, alpha=alpha, margin=self.margin, last=last)
        if n_rounds >= MIN_ROUNDS and not more:
            self.end_reason = "time"
        elif n_rounds >= max_rounds and not self._has_few_steps:
            self.end_reason = "rounds"
        if self.end_reason and not self.is_open:
            self.end_reason = self._end_reason()

    def alpha_of(self, pairwise_test: PairwiseTest) -> float:
        """Return the error that a comparison may spend in all; see the module's notes on multiplicity."""
        if not self._rivals:
            return self.alpha
        if pairwise_test is self._primary:
            return _PRIMARY_ALPHA * self.alpha
        rivals_alpha = self.alpha if self._primary.verdict.code in DIFFERENCES else (1 - _PRIMARY_ALPHA) * self.alpha
        return rivals_alpha / len(self._rivals)

    def _cannot_run(self, rival: str) -> bool:
        """Return whether a rival, or the incumbent, failed too often to come to run."""
        return any(
            sum(name in r.failures for r in self.rounds) >= MIN_ROUNDS for name in (rival, self.contenders[0].names[0])
        )

    def _end_reason(self) -> str:
        """Return why no comparison is open: some did not run, some had no time, or all are decided."""
        if all(comparison.cannot_run for comparison in self.pairwise.values()):
            return "failed"
        if any(each.is_alpha_spent and each.verdict.code is VerdictCode.UNDECIDED for each in self.pairwise.values()):
            return self.end_reason or "time"
        return "decided" if len(self.pairwise) == len(self.contenders) - 1 else "time"

    @property
    def spent(self) -> float:
        """Return how much of the error has been spent on the primary comparison: a test that follows has the rest."""
        return self._primary.spent(self.alpha_of(self._primary), self.n_rounds)

    # ---- fresh and forked -------------------------------------------------------------------------------------

    def contradicts_forks(self) -> bool:
        """Return whether forked processes differ from fresh ones; one fresh round alone makes the next one fresh."""
        counted = [round_ for round_ in self.rounds if not round_.interruptions]
        fresh, forked = (
            self._primary_log_ratios([r for r in counted if r.fresh is is_fresh]) for is_fresh in (True, False)
        )
        differs = differ_significantly(fresh, forked)
        self._forks_suspected = differs and len(fresh) == 1
        return differs and not self._forks_suspected

    def discard_forks(self) -> None:
        """Let rounds of forked processes no longer count."""
        for round_ in self.rounds:
            if not round_.fresh and not round_.interruptions:
                round_.interruptions.append(FORKS_DIFFER)
        for comparison in self.pairwise.values():
            comparison.reset()

    def _primary_log_ratios(self, rounds: Sequence[Round]) -> Array:
        """Return the log-ratios of the incumbent to the default in these rounds, shape (n,)."""
        pair = self.contenders[:2]
        names, y = log_rates(rounds, pair, self.objective)
        x = y[:, 0] - y[:, 1] if len(names) == 2 else np.array([])
        return np.asarray(x[~np.isnan(x)])


def hold_rounds(
    tests: Sequence[SequentialTest],
    common: Rounds,
    after_round: Callable[[], None] = lambda: None,
    *,
    n_rounds: int | None = None,
    until: Callable[[], bool] = lambda: False,
) -> None:
    """Hold rounds for all tests together until each has ended; `after_round` is called after each round.

    `n_rounds` are held at most, and none once `until` says so: what is open then can go on in another call.
    """
    n_before = len(common.held)
    common.left_at_start_s = common.time.left_s()
    for test in tests:
        test.begin()
    while (n_rounds is None or len(common.held) < n_before + n_rounds) and not until():
        open_tests = [test for test in tests if not test.end_reason]
        if not open_tests:
            break
        left_s = common.time.left_s()
        undecided = [test for test in open_tests if test.is_open]
        if undecided and NARROWING * common.left_at_start_s < left_s < math.inf:
            open_tests = undecided  # what is decided is made narrower when there is nothing else to do, or later
        contenders = in_common([test.active_contenders() for test in open_tests])
        for test in open_tests:  # what runs anyway costs nothing to be compared with
            test.open_comparisons(rival for rival in test.contenders[1:] if is_among(rival, contenders))
        held = common.hold(contenders, fresh=any(test.needs_fresh for test in open_tests))
        for test in open_tests:
            test.rounds.append(part_of(held, contenders, test.contenders))
        contradicted = [test for test in open_tests if test.contradicts_forks()]  # each one looks
        if contradicted:
            common.fork_launchers = ()
            common.notify(
                f"{FORKS_DIFFER.text}: their rounds are discarded, and the finals continue with fresh interpreters"
            )
            for test in tests:
                test.discard_forks()
        common.n_together = len(contenders)
        for test in tests:
            # Where time is up, this is the last look at who did not run either.
            if not test.end_reason and (test in open_tests or not common.n_more()):
                test.look()
        after_round()


def differ_significantly(fresh: Array, forked: Array) -> bool:
    """Return whether log-ratios of fresh interpreters (m,) and of forks (n,) differ significantly.

    One fresh round, of which nothing scatters, is enough to ask.
    """
    return len(fresh) > 0 and len(forked) >= _MIN_FORKED_ROUNDS and p_of_equal_means(fresh, forked) < _CHECK_ALPHA
