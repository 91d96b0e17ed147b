"""Racing: after each pass, decide whether a trial stays.

Notation
    d, s_d   log-ratio of a trial to the best so far, and its standard error, with the luck of processes
             (`tuner.stats.mixed`); its interval at look k is Student's at the nominal level α_k, wider by what the few
             digits of a command do not show
    σ_p      what two processes of one setting differ by, however long each is measured

A trial is looked at after every pass, so its levels are group-sequential (`tuner.stats.sequential`): the probability
that a setting which is as good as the best looks is called clearly slower at any look is at most α/2. The
best of many looks a little better than it is, and some that are as good are stopped early.

A race over several candidates by confidence intervals: Maron & Moore (1997), The Racing Algorithm, Artificial
Intelligence Review 11.

A trial that is stopped early is not thrown away: it is an observation with a large standard error, and the model takes
it as that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scipy.special import stdtrit

from tuner.stats.estimate import Estimate
from tuner.stats.sequential import AlphaSpending


class RaceDecision(StrEnum):
    """The decision on a trial after a pass."""

    CONTINUE = "go on"
    CLEARLY_SLOWER = "clearly slower"
    """It is worse than the incumbent."""
    NO_GAIN = "no gain"
    """It is not better than the incumbent by what matters in practice."""
    PRECISE = "precise"
    """More slices would not help: between-process variance dominates, or the finals will decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RacePlan:
    """`alpha` is the error of all looks at a trial together, two-sided, spent as t^`rho`; `threshold` what matters.

    A standard error of `precise_se` is enough for choosing what goes into the finals. Without `races`, every trial goes
    on to its end: for comparison. On replayed traces this α cost no quality of the winner, and half of it saved a tenth
    of the slices less. Without `ranks`, none ends for being slower than another: each goes on until it is known.
    """

    alpha: float = 0.20
    rho: float = 0.5
    threshold: float = 0.02
    precise_se: float = 0.008
    races: bool = True
    ranks: bool = True


def decide(
    own: Estimate, behind: Estimate | None, *, process_sd: float, max_passes: int, plan: RacePlan
) -> RaceDecision:
    """Return what to do after `own.n` passes of at most `max_passes`.

    `own` is the trial's log-ratio to the reference, `behind` that to the best, None if there is no other.
    """
    if not plan.races:
        return RaceDecision.CONTINUE
    if behind is not None:
        looks = AlphaSpending(first_look=1, planned_looks=max_passes, alpha=plan.alpha, rho=plan.rho)
        level = looks.level(min(own.n, max_passes))
        reach = -float(stdtrit(behind.df, (1 - level) / 2)) * behind.se + behind.rounding
        if behind.mean + reach < 0:
            return RaceDecision.CLEARLY_SLOWER
        if behind.mean + reach < plan.threshold:
            return RaceDecision.NO_GAIN
    luck = 2 * process_sd**2  # of the two processes, which more passes do not reduce
    is_precise = own.se**2 <= luck + max(process_sd, plan.precise_se) ** 2
    return RaceDecision.PRECISE if is_precise else RaceDecision.CONTINUE
