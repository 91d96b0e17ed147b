"""The calibration of a search: the default against itself, in one pair, before anything else is measured.

Where memory holds one process, those of that pair live one at a time, as all that come after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuner.errors import TunerError
from tuner.measure.agreement import outputs_differ
from tuner.measure.noise import estimate_noise, noise_alone
from tuner.measure.pair import Pair, ReferenceLost, measure_pair
from tuner.space.setting import Setting
from tuner.stats.noise import PRIOR_NOISE, Noise
from tuner.study.plan import EvaluatorPlan
from tuner.study.pool import LiveProcess
from tuner.study.processes import Processes
from tuner.trial.launcher import Process, StartResult
from tuner.trial.outcome import Status, TrialFailure

_ROOMY_BYTES = 4 << 30  # with this much free memory, the first processes start together, whatever their size


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was found; where a process failed, nothing, and the noise is a guess.

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
    free = plan.free_memory_bytes()
    roomy = free is None or free > _ROOMY_BYTES
    started = processes.launch([default] * (2 if roomy else 1))
    # There may have been no memory for both: one that started is enough.
    first = next((each for each in started if each.facts is not None), started[0])
    others = [each for each in started if each is not first]
    try:
        processes.set_reference(first)
        if not others and processes.fits():
            others = processes.launch([default])
        is_scarce = free is not None and not processes.fits()
        if not others or any(_lacks_memory(each, is_scarce=is_scarce) for each in others):
            sample = None if first.facts is None else first.facts.sample
            return _calibrate_alone(processes, default, plan, is_time_short, sample=sample)
        second = next((each for each in others if each.facts is not None), None)
        if second is None or second.facts is None:
            return Calibration()
        try:
            steps = processes.step_s, second.facts.step_s
            pair = _pair(processes, second.process, plan, is_time_short, steps=steps)
        except (TrialFailure, ReferenceLost):
            second.process.close()
            return Calibration()
    except BaseException:
        for other in others:
            other.process.close()
        raise
    return Calibration(
        noise=estimate_noise([pair], plan.objective, batch_size=default.batch_size),
        begun=(processes.launch_new(second.setting, second.process, second.facts), pair),
        random=first.facts is not None and outputs_differ(first.facts.sample, second.facts.sample),
    )


def _lacks_memory(start: StartResult, *, is_scarce: bool) -> bool:
    """Return whether a process failed for lack of memory: where that is scarce, some allocators just end it."""
    failed_as = None if start.failure is None else start.failure.status
    return failed_as is Status.OOM or (failed_as is Status.CRASHED and is_scarce)


def _calibrate_alone(
    processes: Processes,
    default: Setting,
    plan: EvaluatorPlan,
    is_time_short: Callable[[], bool],
    *,
    sample: dict[str, Any] | None,
) -> Calibration:
    """Measure the default against itself in processes that live one at a time; `sample` is of one before them."""
    second = processes.live_alone()
    try:
        pair = _pair(processes, second, plan, is_time_short, steps=(processes.step_s, processes.step_s))
    except (TrialFailure, ReferenceLost) as failure:
        hint = "there may be too little memory for one process: free some memory"
        raise TunerError(f"the default setting failed: {failure}", hint) from failure
    finally:
        second.close()
    assert second.facts is not None  # a pair has a block
    return Calibration(
        noise=noise_alone(pair, plan.objective, batch_size=default.batch_size),
        begun=(processes.launch_new(default, second, second.facts), pair),
        random=outputs_differ(sample, second.facts.sample),
    )


def _pair(
    processes: Processes,
    second: Process,
    plan: EvaluatorPlan,
    is_time_short: Callable[[], bool],
    *,
    steps: tuple[float, float],
) -> Pair:
    """Return the pair of the reference and another process of its setting; raises TrialFailure, or ReferenceLost."""
    reference = processes.reference
    assert reference is not None
    limit_s = processes.stretch * plan.calibration_s

    def enough(pair: Pair) -> bool:
        return is_time_short() or pair.n_blocks >= plan.calibration_blocks or pair.is_long(limit_s)

    return measure_pair(reference.process, second, processes.pair_plan, step_s=steps, enough=enough)
