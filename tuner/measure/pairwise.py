"""One comparison of a sequential test: what its looks have spent, and what they say."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.stats.equivalence import UNMEASURED, Verdict, VerdictCode, verdict_on
from tuner.stats.estimate import Estimate
from tuner.stats.sequential import AlphaSpending

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
