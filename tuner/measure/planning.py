"""Planning the finals: how many rounds, of how many slices, their time allows, and how much time they need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuner.measure.budget import PRIMARY
from tuner.measure.passes import are_long
from tuner.stats.equivalence import MARGIN
from tuner.stats.noise import Noise

SLICE_S = 0.5
"""Seconds of a slice of whole steps."""
ENERGY_S = 2.0
"""Of a slice whose energy counts: a GPU's counter moves on some ten times a second."""
_MIN_REQUESTS, _MIN_OPEN_S = 30, 2.0  # of a slice of requests: a queue takes a while to become what it is on average
TYPICAL_ROUNDS = 10
"""Rounds that the default budget of a search has time for: the noise floor is that of these."""
_MIN_PASSES, _MAX_PASSES = 2, 6
_FEWEST_ROUNDS = 2  # that have an interval, as their passes tell of the noise
_FRESH_S = 10.0  # so much longer a round of fresh interpreters takes, about: they import the framework


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """About how long a contender's process takes until it is ready, others starting beside it, and for a step (s)."""

    start_s: float
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalsPlan:
    """A round has `passes` passes (see `tuner.measure.passes`), in slices of `slice_s` (s).

    At most `n_parallel_starts` processes start at once, and at most `max_resident` live at once. Time is planned for
    `min_rounds` at least, and the first look is at so many where nothing is known of what a round scatters by.
    """

    slice_s: float = SLICE_S
    passes: int = 2
    n_parallel_starts: int = 2
    max_resident: int = 12
    min_rounds: int = 3
    max_rounds: int = 40

    @property
    def slices_per_round(self) -> int:
        """Return how many slices of each contender a round has; one with long steps has half as many."""
        return 2 * self.passes

    @property
    def independent_slices(self) -> int:
        """Return how many slices of a contender in a round scatter as slices of several processes do.

        Where processes live one at a time, drift between these is in all slices of one: they count for one block, which
        is two.
        """
        return self.slices_per_round if self.max_resident > 1 else 2

    def round_s(self, costs: Sequence[Cost]) -> float:
        """Return about how long a round lasts."""
        starts = sum(cost.start_s for cost in costs) / min(self.n_parallel_starts, self.max_resident, len(costs))
        steps_s = [cost.step_s for cost in costs]
        are = are_long(steps_s, [self.slice_s] * len(costs))
        pass_s = sum((2 - is_long) * self.slice_for(s) for s, is_long in zip(steps_s, are, strict=True))
        return starts + self.passes * pass_s

    def slice_for(self, step_s: float) -> float:
        """Return how long a slice lasts on average when a step takes `step_s`: it ends with a whole step."""
        return max(step_s, self.slice_s + step_s / 2)


def slice_s(rate: float | None) -> float:
    """Return how long a slice lasts: of steps, or of so many requests per second that come at random times."""
    return SLICE_S if rate is None else max(_MIN_OPEN_S, _MIN_REQUESTS / rate)


def choose_passes(
    plan: FinalsPlan,
    noise: Noise,
    costs: Sequence[Cost],
    *,
    left_s: float,
    resident: int | None,
    primary_time: float = PRIMARY,
) -> FinalsPlan:
    """Return the plan with the number of passes that makes the primary comparison's interval narrowest.

    n rounds of m slices of each give the variance 2 (σ_p² + σ_w²/m) / n: more slices a process cost less time than more
    processes, and do not reduce the variance between these. One pass is not enough where there is time for two: drift
    that lasts for longer than a slice is in all slices of it. `costs` are those of the two that are compared;
    `resident` is the number of processes that memory holds, None if that is not known. The two have `primary_time` of
    the time for themselves.
    """
    fitting = plan.max_resident if resident is None else max(1, min(plan.max_resident, resident))
    plan = replace(plan, max_resident=fitting)
    time_s = TYPICAL_ROUNDS * plan.round_s(costs) if left_s == math.inf else primary_time * left_s - _FRESH_S

    def half_width(passes: int) -> float:
        candidate = replace(plan, passes=passes)
        n = min(plan.max_rounds, int(time_s / candidate.round_s(costs)))
        if n < _FEWEST_ROUNDS:
            return math.inf
        return noise.half_width(rounds=n, slices=candidate.independent_slices)

    feasible = [passes for passes in range(_MIN_PASSES, _MAX_PASSES + 1) if math.isfinite(half_width(passes))]
    return replace(plan, passes=min(feasible, key=half_width, default=1))


def required_time_s(plan: FinalsPlan, noise: Noise, costs: Sequence[Cost], *, gain: float) -> float:
    """Return the time (s) in which the primary comparison finds a true `gain` in 90 % of cases, by the noise.

    As many rounds at most as the plan has; `costs` are those of the two that are compared.
    """
    rounds = plan.min_rounds
    while (
        rounds < plan.max_rounds
        and noise.detectable_gain(rounds=rounds, slices=plan.independent_slices, margin=MARGIN) > gain
    ):
        rounds += 1
    return rounds * plan.round_s(costs)


def tail_time_s(plan: FinalsPlan, costs: Sequence[Cost], *, n_steps: int) -> float:
    """Return about the time (s) of rounds in which the first of these contenders runs so many steps."""
    steps_a_round = max(1.0, plan.slices_per_round * plan.slice_s / costs[0].step_s)
    return math.ceil(n_steps / steps_a_round) * plan.round_s(costs)


def noise_floor(noise: Noise, plan: FinalsPlan) -> float:
    """Return what A against A stays below in 95 % of finals of the usual length, as a ratio minus 1."""
    return noise.floor(rounds=TYPICAL_ROUNDS, slices=plan.independent_slices)
