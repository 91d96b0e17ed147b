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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tuner.errors import TunerError
from tuner.measure import finals
from tuner.measure.finals import Contender, Round
from tuner.measure.interruption import FORKS_DIFFER
from tuner.measure.objective import Objective
from tuner.measure.planning import PRIMARY_TIME, FinalsPlan
from tuner.measure.recommendation import FinalsEstimates
from tuner.stats.equivalence import DIFFERENCES, MARGIN, UNMEASURED, Verdict, VerdictCode, verdict_on
from tuner.stats.estimate import Array, Estimate, p_of_equal_means
from tuner.stats.moderation import Prior
from tuner.stats.sequential import AlphaSpending
from tuner.trial.launcher import Launcher

Notify = Callable[[str], None]

MIN_ROUNDS = 2
"""The fewest rounds that have an interval."""
_ALPHA = 0.05
_PRIMARY_SHARE = 0.9  # of α
# Student's quantiles at the levels of a Brownian motion are a little too small where the variance is estimated from few
# rounds: the real error exceeds the spent one by up to 20 % (200,000 simulated tests of 2 to 40 rounds), so 15 % less
# is spent.
_STUDENT_ALPHA_FACTOR = 0.85
_MAX_INTERRUPTED_ROUNDS = 3
_RHO = 2.0  # how the error is spent over the looks
_PLANNED_ROUNDS_FACTOR = 1.1  # plan 10 % more rounds than there seems to be time for
_MIN_RIVAL_ROUNDS = 8  # rounds: rivals for which there is no time for so many are not compared with
_MIN_ONLY_RIVAL_ROUNDS = 4  # rounds of one rival, where nothing else is left to do with the time
_CHECK_ALPHA = 0.01  # the error of saying that forked processes differ from fresh ones
_MIN_FORKED_ROUNDS = 4  # rounds of forked processes


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
    others are rivals, in the order in which they are to be compared with. Processes of the first round are fresh, from
    `launcher`; those of the others come from the `fork_launchers` in turn, where there are any, and their rounds do not
    count where the fresh ones contradict them. `left_s` gives the time that is left (s, None without a limit).
    """

    contenders: Sequence[Contender]
    launcher: Launcher
    plan: FinalsPlan
    objective: Objective
    rng: np.random.Generator
    left_s: Callable[[], float | None]
    fork_launchers: Sequence[Launcher] = ()
    margin: float = MARGIN
    prior: Prior | None = None
    """What the log-ratio of one round is believed to scatter by. The first look is at two rounds then."""
    primary_time: float = PRIMARY_TIME
    """The share of the time that the primary comparison has for itself, unless it is decided before."""
    leaves_time: bool = False
    """Whether others have a use for the time that is left over."""
    notify: Notify = lambda _: None
    rounds: list[Round] = field(default_factory=list)
    pairwise: dict[str, PairwiseTest] = field(default_factory=dict)
    """Those that were begun, by the first name of the rival."""
    end_reason: str = ""
    """Why there are no more rounds: "decided", "time", "rounds" or "failed"."""
    _forks_suspected: bool = False
    """Whether one round of fresh interpreters contradicts the forked ones. Drift may cause that, so the next round uses
    fresh interpreters too.
    """
    _total_s: float | None = None
    _round_s: dict[int, float] = field(default_factory=dict)
    """How long (s) the longest round lasted, by its number of contenders."""

    @property
    def n_rounds(self) -> int:
        """Return the number of rounds that count."""
        return sum(not round_.interruptions for round_ in self.rounds)

    @property
    def levels(self) -> dict[str, float]:
        """Return the level of the interval of each that was looked at, by the first name of the rival."""
        return {name: match.level for name, match in self.pairwise.items() if match.level is not None}

    def estimates(self) -> FinalsEstimates:
        """Return the rates so far, and what is asked of claims about them."""
        return FinalsEstimates.of_rounds(
            self.rounds,
            self.contenders,
            self.objective,
            incumbent=self.contenders[0].names[0],
            levels=self.levels,
            margin=self.margin,
            prior=self.prior,
        )

    def verdicts(self) -> Mapping[str, Verdict]:
        """Return what the rounds so far say of the incumbent against each rival, by the rival's first name."""
        by_rival = {name: match.verdict for name, match in self.pairwise.items()}
        return {c.names[0]: by_rival.get(c.names[0], UNMEASURED) for c in self.contenders[1:]}

    def run(self, after_round: Callable[[], None] = lambda: None, *, n_rounds: int | None = None) -> None:
        """Hold the rounds of both stages, or go on with them; `after_round` is called after each.

        `n_rounds` are held at most: what is open then can go on in another call.
        """
        n_before = len(self.rounds)
        self._total_s = self.left_s()
        self.open_tests([self.contenders[1]])
        if self.end_reason == "decided" and len(self.pairwise) < len(self.contenders) - 1:
            self.end_reason = ""  # there are rivals that were not here before
            self.open_tests(self._worthwhile_rivals())
            if not any(each.is_open for each in self.pairwise.values()):
                self.end_reason = "time"
        while not self.end_reason and (n_rounds is None or len(self.rounds) < n_before + n_rounds):
            self.run_round(self.active_contenders())
            self._interim_analysis()
            if not self.end_reason and self._is_time_for_rivals():
                self.open_tests(self._worthwhile_rivals())
            if not self.end_reason and not any(each.is_open for each in self.pairwise.values()):
                self.end_reason = self._end_reason()
            after_round()

    # ---- who runs ---------------------------------------------------------------------------------------------

    @property
    def _primary(self) -> PairwiseTest:
        return self.pairwise[self.contenders[1].names[0]]

    @property
    def _rivals(self) -> Sequence[Contender]:
        return self.contenders[2:]

    def open_tests(self, rivals: Sequence[Contender]) -> None:
        for rival in rivals:
            self.pairwise.setdefault(rival.names[0], PairwiseTest(rival=rival.names[0]))

    def active_contenders(self) -> list[Contender]:
        """Return the incumbent and those with which its comparison is open."""
        names = {name for name, match in self.pairwise.items() if match.is_open}
        return [self.contenders[0], *(c for c in self.contenders[1:] if c.names[0] in names)]

    def _is_time_for_rivals(self) -> bool:
        """Return whether rivals may begin: nothing is open, or the time of the primary comparison is over.

        Others begin once those that were begun are decided.
        """
        open_ones = [match for match in self.pairwise.values() if match.is_open]
        if len(self.pairwise) == len(self.contenders) - 1:
            return False
        if not open_ones:
            return True
        if len(self.pairwise) > 1:
            return False
        left_s = self.left_s()
        if self._total_s is None or left_s is None:
            return len(self.rounds) >= self.primary_time * self.plan.max_rounds
        return left_s <= (1 - self.primary_time) * self._total_s

    def _worthwhile_rivals(self) -> Sequence[Contender]:
        """Return as many of the rivals that were not begun, in order, as there is time to learn something of.

        Where nothing is open and nobody else needs the time, one of them: an interval is worth more than none.
        """
        left_s, n_active = self.left_s(), len(self.active_contenders())
        rivals = [c for c in self._rivals if c.names[0] not in self.pairwise]
        if left_s is None:
            return rivals
        n = sum(_MIN_RIVAL_ROUNDS * self._expected_round_s(n_active + k) <= left_s for k in range(1, len(rivals) + 1))
        if n_active == 1 and not self.leaves_time and _MIN_ONLY_RIVAL_ROUNDS * self._expected_round_s(2) <= left_s:
            n = max(n, 1)
        return rivals[:n]

    def _expected_round_s(self, n: int) -> float:
        """Return about how long a round of `n` contenders lasts, by those that were held."""
        return max((seconds * n / k for k, seconds in self._round_s.items()), default=0.0)

    # ---- rounds -----------------------------------------------------------------------------------------------

    def run_round(self, contenders: Sequence[Contender]) -> None:
        began_s = self.launcher.now()
        self.rounds.append(self._run(contenders))
        if self.rounds[-1].one_at_a_time:
            self.plan = replace(self.plan, max_resident=1)
        lasted_s = self.launcher.now() - began_s
        if len(self.rounds) > 1 and self.rounds[-1].fresh != self.rounds[-2].fresh:
            self._round_s.clear()  # fresh interpreters take longer to start than forked ones
        n = len(contenders)
        self._round_s[n] = max(self._round_s.get(n, 0.0), lasted_s)

    def _run(self, contenders: Sequence[Contender]) -> Round:
        """Return a round: fresh interpreters until one of them counts, and where there is nothing to fork from."""
        if self.fork_launchers and self._has_fresh_round() and not self._forks_suspected:
            replica = self.fork_launchers[(len(self.rounds) - 1) % len(self.fork_launchers)]
            try:
                return finals.run_round(contenders, replica, self.plan, self.rng, fresh=False)
            except TunerError as error:  # a fork server that is gone is no reason to end what fresh interpreters can do
                self.fork_launchers = ()
                self.notify(f"the finals continue with fresh interpreters: {error.message}")
        return finals.run_round(contenders, self.launcher, self.plan, self.rng)

    def _has_fresh_round(self) -> bool:
        """Return whether the forks have something to be checked against."""
        return bool(len(self._primary_log_ratios([r for r in self.rounds if r.fresh and not r.interruptions])))

    # ---- what they say ----------------------------------------------------------------------------------------

    def _interim_analysis(self) -> None:
        """Run the interim analysis of every open comparison, and decide whether this was the last round.

        Where forks are under suspicion there is a fresh round more, whatever the time.
        """
        self._check_replicas()
        n_interrupted = len(self.rounds) - self.n_rounds
        if n_interrupted > _MAX_INTERRUPTED_ROUNDS + self._n_discarded_forked_rounds():
            self.end_reason = "time"
        elif self._forks_suspected:
            return
        finals_estimates = self.estimates()
        waiting = [each for each in self.pairwise.values() if each.is_open]
        left_s, round_s = self.left_s(), self._expected_round_s(len(waiting) + 1)
        more = self.plan.max_rounds if left_s is None else max(0, int(left_s / max(round_s, 1e-9)))
        estimates = {each.rival: finals_estimates.log_ratio(each.rival, finals_estimates.incumbent) for each in waiting}
        n_rounds = max((0 if estimate is None else estimate.n for estimate in estimates.values()), default=0)
        last = not more or n_rounds >= self.plan.max_rounds or bool(self.end_reason)
        first = self.plan.min_rounds if self.prior is None else MIN_ROUNDS
        for each in waiting:
            estimate = estimates[each.rival]
            each.cannot_run = estimate is None and self._cannot_run(each.rival)
            n = 0 if estimate is None else estimate.n
            if estimate is None or n < MIN_ROUNDS or (n < first and not last):
                continue
            each.planned_rounds = each.planned_rounds or self._planned(n, left_s)
            alpha = _STUDENT_ALPHA_FACTOR * self.alpha(each)
            each.analyse(estimate, first=first, alpha=alpha, margin=self.margin, last=last)
        if n_rounds >= MIN_ROUNDS and not more:
            self.end_reason = "time"
        elif n_rounds >= self.plan.max_rounds:
            self.end_reason = "rounds"
        if self.end_reason and not any(each.is_open for each in self.pairwise.values()):
            self.end_reason = self._end_reason()

    def _planned(self, n: int, left_s: float | None) -> int:
        """Return how many rounds of two there would be at most, `n` among them.

        A few more than by their duration so far: where more come, their error is spent already.
        """
        if left_s is None:
            return self.plan.max_rounds
        return min(
            self.plan.max_rounds, n + math.ceil(_PLANNED_ROUNDS_FACTOR * left_s / max(self._expected_round_s(2), 1e-9))
        )

    def alpha(self, pairwise_test: PairwiseTest) -> float:
        """Return the error that a match may spend in all; see the module's notes on multiplicity."""
        if not self._rivals:
            return _ALPHA
        if pairwise_test is self._primary:
            return _PRIMARY_SHARE * _ALPHA
        rivals_alpha = _ALPHA if self._primary.verdict.code in DIFFERENCES else (1 - _PRIMARY_SHARE) * _ALPHA
        return rivals_alpha / len(self._rivals)

    def _cannot_run(self, rival: str) -> bool:
        """Return whether a rival, or the incumbent, failed too often to come to run."""
        return any(
            sum(name in r.failures for r in self.rounds) >= MIN_ROUNDS for name in (rival, self.contenders[0].names[0])
        )

    def _end_reason(self) -> str:
        """Return why no comparison is open: some did not run, some had no time, or all are decided."""
        if all(match.cannot_run for match in self.pairwise.values()):
            return "failed"
        if any(
            match.is_alpha_spent and match.verdict.code is VerdictCode.UNDECIDED for match in self.pairwise.values()
        ):
            return self.end_reason or "time"
        return "decided" if len(self.pairwise) == len(self.contenders) - 1 else "time"

    # ---- fresh and forked -------------------------------------------------------------------------------------

    def _check_replicas(self) -> None:
        """Let rounds of forked processes no longer count where the fresh ones contradict them."""
        counted = [round_ for round_ in self.rounds if not round_.interruptions]
        groups = ([r for r in counted if r.fresh], [r for r in counted if not r.fresh])
        fresh, forked = (self._primary_log_ratios(group) for group in groups)
        differs = differ_significantly(fresh, forked)
        self._forks_suspected = differs and len(fresh) == 1
        if differs and not self._forks_suspected:
            self.fork_launchers = ()
            self.notify(
                f"{FORKS_DIFFER.text}: their rounds are discarded, and the finals continue with fresh interpreters"
            )
            for round_ in groups[1]:
                round_.interruptions.append(FORKS_DIFFER)
            for match in self.pairwise.values():
                match.reset()

    def _primary_log_ratios(self, rounds: Sequence[Round]) -> Array:
        """Return the log-ratios of the incumbent to the default in these rounds, shape (n,)."""
        pair = self.contenders[:2]
        names, y = finals.log_rates(rounds, pair, self.objective)
        x = y[:, 0] - y[:, 1] if len(names) == 2 else np.array([])
        return np.asarray(x[~np.isnan(x)])

    def _n_discarded_forked_rounds(self) -> int:
        return sum(round_.is_contradicted for round_ in self.rounds)


def differ_significantly(fresh: Array, forked: Array) -> bool:
    """Return whether log-ratios of fresh interpreters (m,) and of forks (n,) differ significantly.

    One fresh round, of which nothing scatters, is enough to ask.
    """
    return len(fresh) > 0 and len(forked) >= _MIN_FORKED_ROUNDS and p_of_equal_means(fresh, forked) < _CHECK_ALPHA
