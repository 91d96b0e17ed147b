"""Measure the noise of a machine, for `tftune noise`: the default setting against itself (A/A test)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import convert

from tuner.errors import TunerError
from tuner.job.events import NoiseEvents
from tuner.job.job import feasible, prepare
from tuner.job.parsed import parse_request
from tuner.job.request import NoiseRequest
from tuner.machine.conditions import Conditions
from tuner.machine.locks import machine_lock
from tuner.measure.budget import Countdown
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair, ReferenceLost, estimate_noise, log_ratios, run_pair, slice_sd
from tuner.measure.passes import Live
from tuner.measure.planning import TYPICAL_ROUNDS, FinalsPlan
from tuner.measure.warning import MeasurementWarning, condition_warnings, merge
from tuner.quantity import ratio_text
from tuner.result import evidence
from tuner.result.comparison import NoiseReport, PairResult
from tuner.result.study import WarningResult
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.stats.equivalence import MARGIN
from tuner.stats.estimate import Estimate, estimate
from tuner.trial.launcher import Launcher, start_together
from tuner.trial.outcome import TrialFailure
from tuner.trial.running import CommandLauncher
from tuner.workload.feed import InputFacts

PAIR_S = 10.0
"""Slices of a pair of new processes, about."""
FEWEST_PAIRS, MOST_PAIRS = 2, 12


def calibrate(request: NoiseRequest, events: NoiseEvents) -> NoiseReport:
    """Measure A against A in fresh pairs until the budget ends."""
    checked = parse_request(request, stores=False)
    pairs: list[Pair] = []
    with machine_lock(wait=request.wait, on_wait=events.waiting):
        job = feasible(prepare(checked), notify=events.notice)
        job.device.check_idle()
        events.prepared(job)
        job.tell_notes(events.notice)
        setting = job.space.reference
        default = (setting, job.space.deployment(setting))
        countdown = Countdown(total_s=job.budget.time_s)
        launcher = job.launcher(notify=events.notice)
        watch = job.device.watch(job.machine)
        longest_s = 0.0
        while len(pairs) < MOST_PAIRS:
            if len(pairs) >= FEWEST_PAIRS and countdown.is_short_of(longest_s):
                break
            began_s = countdown.elapsed_s()
            pairs.append(_pair(launcher, default, job.slice_s))
            longest_s = max(longest_s, countdown.elapsed_s() - began_s)
            ratio = _ratio(pairs[-1], job.objective, setting.batch_size)
            events.progress(f"pair {len(pairs)}: {ratio_text(ratio.ratio, *ratio.interval())}")
        conditions = job.seen.added_to(watch.conditions())
    return noise_report(
        pairs,
        job.objective,
        batch_size=setting.batch_size,
        conditions=conditions,
        inputs=job.inputs,
        workload_warnings=job.workload_warnings,
        device_advice=job.device.advice,
    )


def _ratio(pair: Pair, objective: Objective, batch_size: int) -> Estimate:
    return estimate(log_ratios(pair, objective, batch_sizes=(batch_size, batch_size)))


def noise_report(
    pairs: Sequence[Pair],
    objective: Objective,
    *,
    batch_size: int,
    conditions: Conditions,
    inputs: tuple[InputFacts, ...] = (),
    workload_warnings: Sequence[MeasurementWarning] = (),
    device_advice: Mapping[str, str] | None = None,
) -> NoiseReport:
    """Return what pairs of new processes of one setting show: the noise, and what finals of the default budget can.

    Equal settings differ by less than the floor there, and the smallest detectable gain is found in 90 % of cases.
    """
    noise, slices = estimate_noise(pairs, objective, batch_size=batch_size), FinalsPlan().slices_per_round
    floor = noise.floor(rounds=TYPICAL_ROUNDS, slices=slices)
    ratios = [_ratio(pair, objective, batch_size) for pair in pairs]
    warnings = merge(
        workload_warnings,
        condition_warnings(conditions),
        evidence.noise_warnings(noise, floor),
        evidence.pair_warnings(pairs),
    )
    return NoiseReport(
        noise=noise.rounded(),
        unpaired_sd=slice_sd(pairs, objective, batch_size=batch_size),
        between_sd=float(np.std([each.mean for each in ratios], ddof=1)),
        pairs=tuple(
            PairResult(ratio=each.ratio, low=low, high=high, se=each.se, n_blocks=each.n)
            for each, (low, high) in ((ratio, ratio.interval()) for ratio in ratios)
        ),
        rounds=TYPICAL_ROUNDS,
        floor=floor,
        detectable=noise.detectable_gain(rounds=TYPICAL_ROUNDS, slices=slices, margin=MARGIN),
        inputs=inputs,
        conditions=convert(conditions.to_dict(), Conditions),
        warnings=tuple(WarningResult.of(warning, device_advice) for warning in warnings),
        timed_s=round(sum(pair.timed_s for pair in pairs), 3),
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
