"""The calibration of a search: the default against itself, in one pair, before anything else is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tuner.measure.agreement import outputs_differ
from tuner.measure.noise import estimate_noise
from tuner.measure.pair import Pair, ReferenceLost, measure_pair
from tuner.space.setting import Setting
from tuner.stats.noise import PRIOR_NOISE, Noise
from tuner.study.plan import EvaluatorPlan
from tuner.study.pool import LiveProcess
from tuner.study.processes import Processes
from tuner.trial.launcher import StartResult
from tuner.trial.outcome import TrialFailure

_ROOMY_BYTES = 4 << 30  # with this much free memory, the first processes start together, whatever their size


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was found; without room for two processes, or where one failed, nothing, and the noise is a guess.

    `begun` is another process of the reference's setting and its pair so far: the default's own trial goes on with it.
    """

    noise: Noise = PRIOR_NOISE
    begun: tuple[LiveProcess, Pair] | None = None
    random: bool = False
    """Whether the model is random, so that outputs cannot be compared."""


def calibrate(
    processes: Processes, default: Setting, plan: EvaluatorPlan, *, is_time_short: Callable[[], bool] = lambda: False
) -> Calibration:
    """Measure the default against itself; its first process stays as the reference. Raises BaselineError."""

    def enough(pair: Pair) -> bool:
        return is_time_short() or pair.n_blocks >= plan.calibration_blocks or pair.is_long(plan.calibration_s)

    free = plan.free_memory_bytes()
    roomy = free is None or free > _ROOMY_BYTES
    started = processes.launch([default] * (2 if roomy else 1))
    # There may have been no memory for both: one that started is enough.
    first = next((each for each in started if each.facts is not None), started[0])
    others = [each for each in started if each is not first]
    try:
        processes.set_reference(first)
        if not roomy and processes.fits():
            others = processes.launch([default])
        elif not roomy:
            processes.use_drift_probe(enough, PRIOR_NOISE.block_sd)
        second = next((each for each in others if each.facts is not None), None)
        pair = None if second is None else _pair(processes, second, plan, enough)
    except BaseException:
        for other in others:
            other.process.close()
        raise
    if second is None or second.facts is None or pair is None:
        return Calibration()
    return Calibration(
        noise=estimate_noise([pair], plan.objective, batch_size=default.batch_size),
        begun=(processes.launch_new(second.setting, second.process, second.facts), pair),
        random=first.facts is not None and outputs_differ(first.facts.sample, second.facts.sample),
    )


def _pair(
    processes: Processes, second: StartResult, plan: EvaluatorPlan, enough: Callable[[Pair], bool]
) -> Pair | None:
    """Return the pair of the reference and another process of its setting; None where that failed."""
    reference = processes.reference
    assert reference is not None
    assert second.facts is not None
    steps = reference.step_s, second.facts.step_s
    try:
        return measure_pair(reference.process, second.process, plan.pair, step_s=steps, enough=enough)
    except (TrialFailure, ReferenceLost):
        second.process.close()
        return None
