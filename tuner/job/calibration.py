"""Measure the noise of a machine, for `tftune noise`: the default setting against itself (A/A test)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import convert

from tuner.errors import TunerError
from tuner.job.events import NoiseEvents
from tuner.job.feasible import feasible
from tuner.job.job import prepare
from tuner.job.request import ParsedRequest
from tuner.machine.conditions import Conditions
from tuner.machine.locks import machine_lock
from tuner.measure.countdown import Countdown
from tuner.measure.pair import Pair, ReferenceLost, estimate_noise, log_ratios, run_pair, slice_sd
from tuner.measure.passes import Live
from tuner.measure.planning import TYPICAL_ROUNDS, FinalsPlan
from tuner.measure.warning import MeasurementWarning, condition_warnings, merge
from tuner.result import evidence
from tuner.result.comparison import NoiseReport, PairResult
from tuner.result.study import WarningResult
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.stats.equivalence import MARGIN
from tuner.stats.estimate import Estimate, estimate
from tuner.stats.noise import Noise
from tuner.trial.launcher import Launcher, start_together
from tuner.trial.outcome import TrialFailure
from tuner.trial.running import CommandLauncher
from tuner.workload.feed import InputFacts

PAIR_S = 10.0
"""Slices of a pair of new processes, about."""
FEWEST_PAIRS, MOST_PAIRS = 2, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was found: pairs of new processes, each pair's own ratio, and the noise that they show together.

    `floor` is what A against A stays below in finals of the default budget, and `detectable_gain` the smallest gain
    that these find in 90 % of cases, both as ratios minus 1; `unpaired_sd` what a slice scatters by where nothing is
    paired.
    """

    noise: Noise
    pair_ratios: list[Estimate]
    unpaired_sd: float
    floor: float
    detectable_gain: float
    rounds: int
    conditions: Conditions
    pairs: list[Pair]
    inputs: tuple[InputFacts, ...] = ()
    """What tftune feeds to the models."""
    input_warnings: Sequence[MeasurementWarning] = ()


def calibrate(
    checked: ParsedRequest,
    *,
    wait: bool,
    events: NoiseEvents,
) -> Calibration:
    """Measure A against A in fresh pairs until the budget ends."""
    pairs: list[Pair] = []
    ratios: list[Estimate] = []
    with machine_lock(wait=wait, on_wait=events.waiting):
        job = feasible(prepare(checked), checked, notify=events.notice)
        job.device.check_idle()
        events.prepared(job)
        job.tell_notes(events.notice)
        setting = job.space.reference
        default = (setting, job.space.deployment(setting))
        countdown = Countdown(total_s=checked.budget.time_s)
        launcher = job.launcher(notify=events.notice)
        watch = job.device.watch(job.machine)
        longest_s = 0.0
        while len(pairs) < MOST_PAIRS:
            if len(pairs) >= FEWEST_PAIRS and countdown.is_short_of(longest_s):
                break
            began_s = countdown.elapsed_s()
            pairs.append(_pair(launcher, default, job.slice_s))
            longest_s = max(longest_s, countdown.elapsed_s() - began_s)
            batch_sizes = (setting.batch_size, setting.batch_size)
            ratios.append(estimate(log_ratios(pairs[-1], job.objective, batch_sizes=batch_sizes)))
            events.pair_ended(len(pairs), ratios[-1])
        conditions = job.seen.added_to(watch.conditions())
    noise, slices = estimate_noise(pairs, job.objective, batch_size=setting.batch_size), FinalsPlan().slices_per_round
    return Calibration(
        noise=noise,
        pair_ratios=ratios,
        unpaired_sd=slice_sd(pairs, job.objective, batch_size=setting.batch_size),
        floor=noise.floor(rounds=TYPICAL_ROUNDS, slices=slices),
        detectable_gain=noise.detectable_gain(rounds=TYPICAL_ROUNDS, slices=slices, margin=MARGIN),
        rounds=TYPICAL_ROUNDS,
        conditions=conditions,
        pairs=pairs,
        inputs=job.inputs,
        input_warnings=job.input_warnings,
    )


def _pair(launcher: Launcher, default: tuple[Setting, Deployment], slice_s: float) -> Pair:
    """Return the pair of two new processes of one setting."""
    started = start_together(launcher, [default, default], parallel=2)
    try:
        failed = next((each.failure for each in started if each.failure is not None), None)
        if failed is not None:
            raise TunerError(
                f"the default setting {failed.status}: {failed.message}",
                failed.hint or "make sure that the workload runs without tftune",
            )
        a, b = (Live(process=each.process, usual_s=[each.facts.step_s]) for each in started if each.facts is not None)
        return run_pair(
            a,
            b,
            enough=lambda pair: pair.is_long(max(PAIR_S, 8 * slice_s)),
            slice_s=slice_s,
            min_passes=1 if isinstance(launcher, CommandLauncher) else 2,
            max_passes=99,
        )
    except (TrialFailure, ReferenceLost) as failure:
        raise TunerError(
            f"a process of the default setting failed: {failure}", "make sure that the workload runs without tftune"
        ) from failure
    finally:
        for each in started:
            each.process.close()


def describe(calibration: Calibration) -> NoiseReport:
    """Return what is published of the noise of a machine."""
    pairs = []
    for each in calibration.pair_ratios:
        low, high = each.interval()
        pairs.append(PairResult(ratio=each.ratio, low=low, high=high, se=each.se, n_blocks=each.n))
    warnings = merge(
        calibration.input_warnings,
        condition_warnings(calibration.conditions),
        evidence.noise_warnings(calibration.noise, calibration.floor),
        evidence.pair_warnings(calibration.pairs),
    )
    return NoiseReport(
        noise=calibration.noise.rounded(),
        unpaired_sd=calibration.unpaired_sd,
        between_sd=float(np.std([each.mean for each in calibration.pair_ratios], ddof=1)),
        pairs=tuple(pairs),
        rounds=calibration.rounds,
        floor=calibration.floor,
        detectable=calibration.detectable_gain,
        inputs=calibration.inputs,
        conditions=convert(calibration.conditions.to_dict(), Conditions),
        warnings=tuple(WarningResult.of(warning) for warning in warnings),
        timed_s=round(sum(pair.timed_s for pair in calibration.pairs), 3),
    )
