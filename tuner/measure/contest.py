"""A contest: rounds of the finals, until every verdict is decided or the budget ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tuner.measure import finals
from tuner.measure.finals import Contender, Cost, FinalsPlan, Round
from tuner.measure.noise import Noise
from tuner.measure.objective import Objective
from tuner.measure.sequential import Looks
from tuner.measure.statistics import Array
from tuner.measure.verdict import Standard, Verdict, decided
from tuner.trial.launcher import Launcher

FEWEST = 2
"""The fewest rounds that have an interval."""
USUAL_ROUNDS = 5
"""Rounds that the default budget of a search has time for: the noise floor is that of these."""
# The error of all looks together. Two contenders have only the rounds less one as degrees of freedom, and with so few
# Student's quantiles at the levels of a Brownian motion are wrong in 5.6 to 6.0 % where 5 % are spent (200,000
# simulated contests of 5, 10 and 16 rounds); 4.2 % keep it below 5 %.
_ALPHA, _ALPHA_OF_TWO = 0.05, 0.042
_MOST_INTERRUPTED = 3
_MOST_LAPS = 4

Judges = Callable[[Sequence[str], Array, Standard], Mapping[str, Verdict]]


@dataclass(slots=True, kw_only=True)
class Contest:
    """The rounds so far, and the level of the intervals after them.

    `judge` gives the verdicts, `left_s` the time that is left (s, None without a limit). It is looked after each round
    from the plan's fewest on whether all is decided; the levels of these looks are group-sequential
    (`tuner.measure.sequential`), so that looking often makes no claim that is not there.
    """

    contenders: Sequence[Contender]
    launcher: Launcher
    plan: FinalsPlan
    objective: Objective
    threshold: float
    judge: Judges
    rng: np.random.Generator
    left_s: Callable[[], float | None]
    rounds: list[Round] = field(default_factory=list)
    level: float = 0.95
    ended: str = ""
    """Why there are no more rounds: "decided", "time", "rounds" or "failed"."""

    @property
    def n_rounds(self) -> int:
        """Return the number of rounds that count: whole ones, of all contenders that run."""
        return len(self._table()[1])

    def _table(self) -> tuple[list[str], Array]:
        """Return the contenders that run, and their mean log rates in the rounds that count."""
        return finals.table(self.rounds, self.contenders, self.objective)

    def verdicts(self) -> Mapping[str, Verdict]:
        """Return what the rounds so far say."""
        names, y = self._table()
        return self.judge(names, y, self.standard(len(names)))

    def standard(self, n_measured: int) -> Standard:
        """Return what is asked of a claim now, with so many contenders measured."""
        return Standard(threshold=self.threshold, level=self.level, comparisons=max(1, n_measured - 1))

    def hold(self, told: Callable[[], None] = lambda: None) -> None:
        """Hold the rounds; `told` is called after each."""
        planned = self.plan.max_rounds
        longest_s = 0.0
        while not self.ended:
            began_s = self.launcher.now()
            self.rounds.append(finals.run_round(self.contenders, self.launcher, self.plan, self.rng))
            longest_s = max(longest_s, self.launcher.now() - began_s)
            left_s, n = self.left_s(), self.n_rounds
            if len(self.rounds) == 1 and left_s is not None:
                planned = min(planned, max(FEWEST, n + int(left_s / longest_s)))
            short = left_s is not None and left_s < longest_s
            self.ended = self._ended(n, planned, short=short)
            if n >= FEWEST:
                alpha = _ALPHA_OF_TWO if len(self.contenders) == 2 else _ALPHA
                looks = Looks(first=min(self.plan.min_rounds, planned), planned=planned, alpha=alpha)
                self.level = looks.level(max(n, looks.first), last=bool(self.ended))
                if not self.ended and n >= looks.first and self._decided():
                    self.ended = "decided"
            told()

    def _decided(self) -> bool:
        """Return whether nothing is open of those that run; one that does not will not come to run either."""
        running = self._table()[0]
        names = {name for c in self.contenders if c.names[0] in running for name in c.names}
        return decided({name: verdict for name, verdict in self.verdicts().items() if name in names})

    def _ended(self, n: int, planned: int, *, short: bool) -> str:
        if n >= FEWEST and len(self._table()[0]) < 2:
            return "failed"  # there is nothing left to compare
        if len(self.rounds) - n > _MOST_INTERRUPTED:
            return "time"
        if n < FEWEST:
            return ""
        if n >= planned:
            return "time" if planned < self.plan.max_rounds else "rounds"
        return "time" if short else ""


def fit_plan(
    plan: FinalsPlan, noise: Noise, costs: Sequence[Cost], *, left_s: float | None, resident: int | None
) -> FinalsPlan:
    """Return the plan with as many laps as are worth a start, but so that the usual rounds fit into the time.

    `costs` are the contenders'; `resident` is the number of processes that memory holds, None if that is not known.
    """
    start_s = sum(cost.start_s for cost in costs) / len(costs) / plan.parallel
    slice_s = sum(plan.slice_for(cost.step_s) for cost in costs) / len(costs)
    wanted = round(noise.best_slices(start_s=start_s, slice_s=slice_s) / 2)
    laps = max(1, min(_MOST_LAPS, wanted))
    while laps > 1 and not usual_rounds_fit(replace(plan, laps=laps), costs, left_s):
        laps -= 1
    fitting = plan.resident if resident is None else max(1, min(plan.resident, resident))
    return replace(plan, laps=laps, resident=fitting)


def usual_rounds_fit(plan: FinalsPlan, costs: Sequence[Cost], left_s: float | None) -> bool:
    """Return whether there is time for the usual number of rounds."""
    return left_s is None or USUAL_ROUNDS * plan.round_s(costs) <= left_s
