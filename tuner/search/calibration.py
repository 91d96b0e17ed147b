"""The calibration of a search: the default against itself, in one pair, before anything else is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tuner.measure.agreement import computes_apart
from tuner.measure.noise import gauge
from tuner.measure.pair import Pair, ReferenceLost, measure_pair
from tuner.search.plan import BenchPlan
from tuner.search.pool import Live
from tuner.search.processes import Processes
from tuner.space.setting import Setting
from tuner.stats.noise import UNKNOWN, Noise
from tuner.trial.launcher import Started
from tuner.trial.outcome import TrialFailure

_ROOMY_BYTES = 4 << 30  # with this much free, the first processes start together without a look at their size


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was found; without room for two processes, or where one failed, nothing, and the noise is a guess.

    `begun` is another process of the reference's setting and its pair so far: the default's own trial goes on with it.
    """

    noise: Noise = UNKNOWN
    begun: tuple[Live, Pair] | None = None
    random: bool = False
    """Whether processes of one setting compute different things, so that outputs tell nothing."""


def calibrate(
    processes: Processes, default: Setting, plan: BenchPlan, *, hurried: Callable[[], bool] = lambda: False
) -> Calibration:
    """Measure the default against itself; its first process stays as the reference. Raises BaselineError."""

    def enough(pair: Pair) -> bool:
        return hurried() or pair.n_quads >= plan.gauge_quads or pair.is_long(plan.gauge_s)

    free = plan.free_memory_bytes()
    roomy = free is None or free > _ROOMY_BYTES
    started = processes.launch([default] * (2 if roomy else 1))
    # Together they may have been too many: one that came up is enough.
    first = next((each for each in started if each.facts is not None), started[0])
    others = [each for each in started if each is not first]
    try:
        processes.adopt(first)
        if not roomy and processes.fits():
            others = processes.launch([default])
        elif not roomy:
            processes.take_canary(enough, UNKNOWN.quad_sd)
        twin = next((each for each in others if each.facts is not None), None)
        pair = None if twin is None else _pair(processes, twin, plan, enough)
    except BaseException:
        for other in others:
            other.process.close()
        raise
    if twin is None or twin.facts is None or pair is None:
        return Calibration()
    return Calibration(
        noise=gauge([pair], plan.objective, batch_size=default.batch_size),
        begun=(processes.own(twin.setting, twin.process, twin.facts), pair),
        random=first.facts is not None and computes_apart(first.facts.sample, twin.facts.sample),
    )


def _pair(processes: Processes, twin: Started, plan: BenchPlan, enough: Callable[[Pair], bool]) -> Pair | None:
    """Return the pair of the reference and another process of its setting; None where that failed."""
    reference = processes.reference
    assert reference is not None
    assert twin.facts is not None
    steps = reference.step_s, twin.facts.step_s
    try:
        return measure_pair(reference.process, twin.process, plan.pair, step_s=steps, enough=enough)
    except (TrialFailure, ReferenceLost):
        twin.process.close()
        return None
