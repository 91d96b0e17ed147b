"""Racing: after each block of a pair, decide whether to continue the trial.

Notation
    x, s     the trial's mean log-ratio so far, and its standard error
    b, s_b   the incumbent's
    σ_p      what two processes of one setting differ by, however long each is measured
    d = x - b,  s_d² = s² + s_b² + 2σ_p², or 4σ_p² where the two had different reference processes, which have their
             effect too; its interval at look k is Student's at the nominal level α_k

A pair is analysed after every block, so its levels are group-sequential (`tuner.stats.sequential`): the probability
that a setting which is as good as the incumbent looks is called clearly slower at any look is at most α/2. The
incumbent is the best of many, so it looks a little better than it is, and some that are as good are stopped early.

A race over several candidates by confidence intervals: Maron & Moore (1997), The Racing Algorithm, Artificial
Intelligence Review 11.

A trial that is stopped early is not thrown away: it is an observation with a large standard error, and the model takes
it as that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from scipy.special import stdtrit

from tuner.stats.estimate import Estimate
from tuner.stats.sequential import AlphaSpending


class RaceDecision(StrEnum):
    """The decision on a pair after a block."""

    CONTINUE = "go on"
    CLEARLY_SLOWER = "clearly slower"
    """It is worse than the incumbent."""
    NO_GAIN = "no gain"
    """It is not better than the incumbent by what matters in practice."""
    PRECISE = "precise"
    """More slices would not help: between-process variance dominates, or the finals will decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RacePlan:
    """`alpha` is the error of all looks at a pair together, two-sided, spent as t^`rho`; `threshold` what matters.

    A standard error of `precise_se` is enough for choosing what goes into the finals. Without `races`, every pair goes
    on to its end: for comparison. On replayed traces this α cost no quality of the winner, and half of it saved a tenth
    of the slices less.
    """

    alpha: float = 0.20
    rho: float = 0.5
    threshold: float = 0.02
    precise_se: float = 0.008
    races: bool = True


def decide(
    estimate: Estimate,
    best: Estimate | None,
    *,
    process_sd: float,
    max_blocks: int,
    plan: RacePlan,
    shared: bool = True,
) -> RaceDecision:
    """Return what to do after `estimate.n` blocks of at most `max_blocks`; `best` is the incumbent.

    `shared` tells whether the two had the same reference process.
    """
    if not plan.races:
        return RaceDecision.CONTINUE
    if best is not None:
        looks = AlphaSpending(first_look=1, planned_looks=max_blocks, alpha=plan.alpha, rho=plan.rho)
        se = math.sqrt(estimate.se**2 + best.se**2 + (2 if shared else 4) * process_sd**2)
        reach = -float(stdtrit(estimate.df, (1 - looks.level(min(estimate.n, max_blocks))) / 2)) * se
        d = estimate.mean - best.mean
        if d + reach < 0:
            return RaceDecision.CLEARLY_SLOWER
        if d + reach < plan.threshold:
            return RaceDecision.NO_GAIN
    return RaceDecision.PRECISE if estimate.se <= max(process_sd, plan.precise_se) else RaceDecision.CONTINUE
