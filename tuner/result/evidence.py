"""The context of a study's figures: noise, tail latency, warnings."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace

from tuner.measure import interruption
from tuner.measure.constraint import Limits
from tuner.measure.group_sequential import MIN_ROUNDS
from tuner.measure.interruption import Interruption, Kind
from tuner.measure.objective import Objective, are_quantised, rounding
from tuner.measure.pair import Pair
from tuner.measure.planning import FinalsPlan, noise_floor
from tuner.measure.rates import memory_of
from tuner.measure.recommendation import FinalsEstimates
from tuner.measure.rounds import INCUMBENT, Round
from tuner.measure.warning import (
    Code,
    MeasurementWarning,
    condition_warnings,
    input_warnings,
    merge,
    output_warnings,
    run_warnings,
)
from tuner.quantity import plural
from tuner.result.study import NoiseResult, ShrinkageResult, TailResult
from tuner.space.setting import Setting
from tuner.stats import steady
from tuner.stats.equivalence import MARGIN, Verdict
from tuner.stats.estimate import Estimate
from tuner.stats.noise import Noise
from tuner.stats.tail import QUANTILES, LimitStatus, quantiles, samples_needed
from tuner.study.attributes import Attributes, EndReason, Run
from tuner.study.trials import Trial
from tuner.trial.outcome import Slice, Status, energy_of
from tuner.workload.units import counts_items, is_per_step, is_time, names_items, names_time

_GIB = 1024**3
_ALPHA = 0.05
_FAR = 100  # times: threads make no such difference
_FAR_IN_FINALS = 30  # of the best settings and what others recommend
_GROWING, _MUCH_MORE = 3, 1.5  # runs of each setting, one after another; numbers of the last against the first
_COUNTED = 200  # numbers of a run: of more some are left out
_REFUSED = (Status.FAILED, Status.CRASHED, Status.INVALID)  # by the model or the command, and not by memory or time
_OTHER, _SAME = 2, 0.05  # so many times the threads change the speed of most programs by more than this


def noise_result(noise: Noise, floor: float) -> NoiseResult:
    """Return noise as it is published, with the `floor` of finals of the usual length."""
    return NoiseResult(**asdict(noise.rounded()), floor=floor, assumed=noise.is_mostly_prior)


def tail(rounds: Sequence[Round], name: str, batch_size: int) -> TailResult:
    """Return what a contender's steps of so many items took in all rounds.

    Their quantiles (ms; None for too few samples), the peak memory, and the energy per item (J).
    """
    step_s = steps_of(rounds, name)
    joules, _ = energy_of(_slices_of(rounds, name))
    n_items = batch_size * sum(each.n_steps for each in _slices_of(rounds, name))
    return TailResult(
        **{key: None if value is None else 1000 * value for key, value in quantiles(step_s).items()},
        n_steps=len(step_s),
        peak_memory_bytes=memory_of(rounds, name),
        energy_j=None if joules is None else joules / n_items,
    )


def unit_of(rounds: Sequence[Round], objective: Objective) -> str:
    """Return what rates are shown in: of a command what it prints beside its numbers, if that is one unit."""
    printed = {each.unit for r in rounds for slices in r.slices.values() for each in slices}
    return printed.pop() if objective.is_of_command and len(printed) == 1 and printed != {""} else objective.unit


def steps_of(rounds: Sequence[Round], name: str) -> list[float]:
    """Return the durations (s) of a contender's steps in all rounds that count."""
    return [step for each in _slices_of(rounds, name) for step in each.latency_samples_s]


def power_of(rounds: Sequence[Round], name: str) -> float | None:
    """Return the mean power (W) of the device while a contender ran; None where it does not tell."""
    joules, seconds = energy_of(_slices_of(rounds, name))
    return None if joules is None or not seconds else joules / seconds


def _slices_of(rounds: Sequence[Round], name: str) -> list[Slice]:
    """Return a contender's slices in all rounds that count."""
    return [each for r in rounds if not r.interruptions for each in r.slices.get(name, [])]


def limit_statuses(rounds: Sequence[Round], names: Sequence[str], limits: Limits) -> dict[str, LimitStatus]:
    """Return whether each contender keeps to the limits."""
    return {
        name: limits.status(steps_of(rounds, name), memory_of(rounds, name), power_of(rounds, name)) for name in names
    }


def study_warnings(stored: Attributes, trials: Sequence[Trial]) -> list[MeasurementWarning]:
    """Return all that makes the figures of a study's search less believable."""
    noise = stored.noise
    return merge(
        stored.doubts,
        input_warnings(stored.subject.workload.fed, stored.outputs, stored.batch_note),
        batch_warnings(trials),
        failure_warnings(trials),
        *(condition_warnings(each) for each in stored.conditions),
        _of_noise(noise, trials),
        _of_search(stored.runs, trials),
        _of_trials(trials),
    )


def batch_warnings(trials: Sequence[Trial]) -> list[MeasurementWarning]:
    """Return which batch sizes the model does not run at, whatever the setting, and why, once.

    What memory did not hold is no fault of the model.
    """
    by_size: dict[int, list[Trial]] = {}
    for trial in trials:
        by_size.setdefault(trial.setting.batch_size, []).append(trial)
    works = sorted(size for size, own in by_size.items() if any(trial.status is Status.OK for trial in own))
    refused = {
        size: own[-1].reason for size, own in sorted(by_size.items()) if all(trial.status in _REFUSED for trial in own)
    }
    if not works or not refused:
        return []
    known = f"only batch size{'s' if len(works) > 1 else ''} {', '.join(map(str, works))} of those that were tried"
    sizes = ", ".join(map(str, refused))
    reason = next(iter(refused.values()))
    return [Code.BATCH_SIZES.seen(f"{known} ran: at {sizes}, {reason}")]


def failure_warnings(trials: Sequence[Trial]) -> list[MeasurementWarning]:
    """Return how many settings failed at batch sizes that others run at, and why the last one did.

    One of them may be the fastest: what a command prints under it is perhaps not what a pattern looks for.
    """
    working = {trial.setting.batch_size for trial in trials if trial.status is Status.OK}
    ran = {trial.setting for trial in trials if trial.status is Status.OK}
    tried = [trial for trial in trials if trial.setting.batch_size in working]
    failed = {trial.setting: trial.reason for trial in tried if trial.status in _REFUSED and trial.setting not in ran}
    if not failed:
        return []
    share = f"{len(failed)} of {plural(len({trial.setting for trial in tried}), 'setting')}"
    text = f"{share} failed, the last one with: {list(failed.values())[-1]}"
    return [Code.FAILED_SETTINGS.seen(text)]


def round_warnings(rounds: Sequence[Round], *, decided: bool = False) -> list[MeasurementWarning]:
    """Return what is wrong with finals; of those that are `decided` few rounds were enough."""
    warnings = []
    forked_away = sum(r.is_contradicted for r in rounds)
    if forked_away:
        warnings.append(Code.FORKS.seen(f"{plural(forked_away, 'round')} with forked processes discarded"))
    paused = [each.text for r in rounds for each in r.interruptions if each.kind is not Kind.FORKS_DIFFER]
    if paused:
        warnings.append(Code.ASLEEP.seen(paused[-1]))
    late = _cannot_keep_up(rounds)
    if late:
        warnings.append(Code.OVERLOAD.seen(f"requests came faster than {', '.join(late)} answers them"))
    stalls = [each.text for r in rounds for each in r.repeated]
    if stalls:
        warnings.append(Code.STALLED.seen(stalls[-1]))
    warnings += output_warnings(r.not_finite.get(name, {}) for r in rounds for name in r.slices)
    counted_rounds = [r for r in rounds if not r.interruptions]
    if rounds and not decided and len(counted_rounds) <= MIN_ROUNDS:
        warnings.append(Code.FEW_ROUNDS.seen(f"only {plural(len(counted_rounds), 'round')} of finals"))
    return warnings + _creeping([list(r.slices.values()) for r in counted_rounds], "round")


def settled(
    warnings: Iterable[MeasurementWarning], rounds: Sequence[Round], objective: Objective
) -> list[MeasurementWarning]:
    """Return warnings without the doubt about which numbers are better, if the unit of the numbers shows it."""
    printed = [
        each for round_ in rounds for name in round_.slices for each in _slices_of([round_], name) if each.metrics
    ]
    directions = {is_time(each.unit or each.unit_of_all) for each in printed}
    is_shown = directions == {objective.smaller_is_better}
    return [each for each in warnings if not (is_shown and each.code is Code.WRONG_WAY)]


def number_warnings(
    rounds: Sequence[Round], objective: Objective, batch_sizes: Collection[int]
) -> list[MeasurementWarning]:
    """Return what the numbers of a command cannot show, of settings of these batch sizes."""
    texts: dict[Code, str] = {}
    counts: dict[str, set[float]] = {}
    names = {name for round_ in rounds for name in round_.slices}
    for name in names:
        slices = _slices_of(rounds, name)
        metrics = [value for each in slices for value in each.metrics]
        if not metrics:
            continue
        if rounding(slices) >= math.log1p(MARGIN) / 2:
            resolution = min(each.resolution for each in slices)
            digits = "whole numbers" if resolution == 1 else f"numbers in steps of {resolution:g}"
            typical = f"{statistics.median(metrics):g} {slices[0].unit}".strip()
            texts[Code.FEW_DIGITS] = f"the command prints {digits}, and {100 * MARGIN:g} % of {typical} cannot be seen"
            if are_quantised(slices):
                texts[Code.FEW_DIGITS] = f"every run printed {typical}, as if from a time in whole seconds"
        n_left_out = sum(each.n_left_out for each in slices)
        if n_left_out:
            share = f"{n_left_out} of {n_left_out + len(metrics)} numbers"
            texts[Code.LEFT_OUT] = f"{share} of a setting were 0 or not finite, and do not count"
        unit = slices[0].unit or slices[0].unit_of_all
        label = slices[0].around.partition("#")[0].strip(" \"':=")
        is_smaller_better, are = is_time(unit), f"are in {unit}"
        if not unit and names_time(label) is not None:
            is_smaller_better, are = names_time(slices[0].around), f"stand behind '{label}'"
        if is_smaller_better not in (None, objective.smaller_is_better):
            usual, aim = ("less", "large") if is_smaller_better else ("more", "small")
            texts[Code.WRONG_WAY] = f"the numbers {are}, of which {usual} is better; the best is a {aim} one"
        is_of_items = counts_items(slices[0].unit) or (not slices[0].unit and names_items(slices[0].around))
        if len(batch_sizes) > 1 and not is_of_items:
            sizes = ", ".join(map(str, sorted(batch_sizes)))
            are = f"are in {slices[0].unit}" if slices[0].unit else "have no unit"
            whose = "a step has" if is_per_step(slices[0].unit) else "may be of whole batches, which have"
            texts[Code.PER_STEP] = f"the numbers {are}, and {whose} {sizes} items"
        ordered = sorted(metrics)
        low, high = ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]  # without a slow start
        if high > _FAR * low:
            texts[Code.FAR_APART] = f"a run prints numbers of {low:g} and of {high:g}"
        counts[name] = {(len(each.metrics) + each.n_left_out) / each.n_steps for each in slices}
    known = sorted(set[float]().union(*counts.values()))
    if len(known) > 1 and all(len(each) == 1 for each in counts.values()) and known[-1] < _COUNTED:
        printed = f"a run prints {known[0]:g} numbers under one setting and {known[-1]:g} under another"
        texts[Code.COUNTS] = f"{printed}, and only their median is used"
    warnings = _unlike((_slices_of(rounds, name) for name in names), _FAR_IN_FINALS)
    warnings += [code.seen(text) for code, text in texts.items()]
    return warnings + run_warnings(each for r in rounds for slices in r.slices.values() for each in slices)


def growing_warnings(rounds: Sequence[Round]) -> list[MeasurementWarning]:
    """Return a warning where each run of a command prints more numbers than the one before, as of a log that grows."""
    names = {name for round_ in rounds for name in round_.slices}
    counts = [
        [(len(each.metrics) + each.n_left_out) / each.n_steps for each in _slices_of(rounds, name)] for name in names
    ]
    grow = [len(own) >= _GROWING and all(a < b for a, b in itertools.pairwise(own)) for own in counts]
    if not grow or not all(grow):
        return []
    first, last = min(map(min, counts)), max(map(max, counts))
    if last < _MUCH_MORE * first:  # more fits into a time that is fixed if the machine is quieter
        return []
    text = f"each run prints more numbers than the one before ({first:g} to {last:g}), as if it added to a file"
    return [Code.GROWING.seen(text)]


def _unlike(settings: Iterable[Sequence[Slice]], far: float) -> list[MeasurementWarning]:
    """Return what shows that the numbers of a command are perhaps of several units, or of several figures.

    A unit that is not known may stand anywhere in an output, as a word in any language. Numbers without a known one are
    `far` apart if settings hardly make such a difference.
    """
    printed = [[each for each in slices if each.metrics] for slices in settings]
    medians = [
        statistics.median(value for each in slices for value in each.metrics)
        for slices in printed
        if slices and not slices[0].unit
    ]
    around = sorted({each.around for slices in printed for each in slices if each.around})
    texts = {}
    if medians and max(medians) > far * min(medians):
        texts[Code.FAR_APART] = f"settings have numbers of {min(medians):g} and of {max(medians):g}"
    if len(around) > 1:
        texts[Code.OTHER_WORDS] = (
            f"numbers stand in '{around[0]}' under one setting and in '{around[-1]}' under another"
        )
    figures = [{each.figures for each in slices} for slices in printed if len(slices) > 1]
    for labels in (own.pop() for own in figures if len(own) == 1 and () not in own):
        matched = " and ".join(f"'{each}'" for each in labels)
        texts[Code.TWO_FIGURES] = f"the pattern matches {matched}, which are far apart, and only their median is used"
    return [MeasurementWarning(code=code, observation=text) for code, text in texts.items()]


def common_text(default: Setting, rests: Iterable[Setting]) -> str:
    """Return at what settings are compared, from what they are without their variables; "" if that is the default."""
    others = {each for each in rests if each != default}
    is_batch = all(each.with_values(batch_size=default.batch_size) == default for each in others)
    return "" if not others else " at an equal batch size" if is_batch else " at equal words of the command"


def unseen_warnings(
    others: Sequence[tuple[int, Estimate]], default_threads: int, objective: Objective, *, at: str = ""
) -> list[MeasurementWarning]:
    """Return a warning where nothing shows that the variables of a setting reach the program of a command.

    `others` are the threads of each setting beside the default, and its log-ratio to that; `at` is what they have in
    common, in words. A framework's own processes show their threads.
    """
    if not objective.is_of_command or any(_is_different(ratio, _ALPHA / len(others)) for _, ratio in others):
        return []
    is_changed = any(abs(ratio.mean) > math.log1p(MARGIN) for _, ratio in others)
    changed = "its number is not certain to differ under any setting" if is_changed else "no setting changed its number"
    changed = changed if others else "no other setting was compared with the default"
    changed += at
    text = f"nothing shows that variables reach the program: {changed}"
    threads = [default_threads, *(n_threads for n_threads, _ in others)]
    ends = [end for _, ratio in others for end in ratio.interval()]
    if max(threads) >= _OTHER * min(threads) and all(1 - _SAME <= end <= 1 + _SAME for end in ends):
        text = f"variables may not reach the program: {min(threads)} and {max(threads)} threads gave the same number"
    return [Code.UNSEEN.seen(text)]


def _is_different(ratio: Estimate, alpha: float) -> bool:
    """Return whether a setting surely changes what is printed, however coarse that is."""
    low, high = replace(ratio, rounding=0.0).interval(1 - alpha)
    return abs(ratio.mean) > math.log1p(MARGIN) and not low <= 1 <= high


def _cannot_keep_up(rounds: Sequence[Round]) -> list[str]:
    """Return the contenders that fell behind the requests in most of their slices."""
    slices: dict[str, list[Slice]] = {}
    for round_ in rounds:
        for name, own in round_.slices.items():
            slices.setdefault(name, []).extend(own)
    return [name for name, own in slices.items() if sum(not each.keeps_up for each in own) > len(own) / 2]


def _creeping(groups: Sequence[Sequence[Sequence[Slice]]], what: str) -> list[MeasurementWarning]:
    """Return a warning where every round, or pair, became slower or faster; each has the slices of its processes."""
    changes = [change for processes in groups if (change := _change(processes)) is not None]
    if not steady.has_trend(changes):
        return []
    way = "slower" if changes[0] < 0 else "faster"
    return [Code.NOT_STEADY.seen(f"every {what} ended {way} than it began")]


def _change(processes: Sequence[Sequence[Slice]]) -> float | None:
    """Return how the speed changed from the first two slices of each process to its last two, log scale, on average."""
    each = []
    for slices in processes:
        if len(slices) >= 4:
            first, second, *_, before, last = map(interruption.step_s, slices)
            each.append(math.log(first * second / (before * last)) / 2)
    return sum(each) / len(each) if each else None


def pair_warnings(pairs: Sequence[Pair]) -> list[MeasurementWarning]:
    """Return what is wrong with pairs of one setting with itself."""
    warnings = _of_interruptions([each for pair in pairs for each in pair.interruptions])
    return warnings + _creeping([(pair.reference, pair.candidate) for pair in pairs], "pair")


def _of_noise(noise: Noise | None, trials: Sequence[Trial]) -> list[MeasurementWarning]:
    """Return what the noise of a study does not allow to be believed, or that nothing was measured of it."""
    if noise is not None:
        return noise_warnings(noise, floor_of(noise, trials))
    if not any(trial.slices for trial in trials):
        return []
    return [Code.ASSUMED_NOISE.seen("nothing was measured of it")]


def floor_of(noise: Noise, trials: Sequence[Trial]) -> float:
    """Return the noise floor of finals as a study's processes live: together, or one at a time."""
    return noise_floor(noise, FinalsPlan(max_resident=1) if any(trial.alone for trial in trials) else FinalsPlan())


def noise_warnings(noise: Noise, floor: float) -> list[MeasurementWarning]:
    """Return what the noise floor does not allow to be believed."""
    warnings = []
    if floor > MARGIN:
        warnings.append(Code.NOISY.seen(f"the noise floor is {100 * floor:.1f} %"))
    if noise.is_mostly_prior:
        warnings.append(Code.ASSUMED_NOISE.seen(f"only {plural(noise.n_blocks, 'calibration block')} measured"))
    return warnings


def step_warnings(n_steps: int, objective: Objective, limits: Limits) -> list[MeasurementWarning]:
    """Return a warning where there are too few steps for the tail that was asked about."""
    missing = [name for name, p in QUANTILES.items() if n_steps < samples_needed(p)]
    if not missing or (not objective.has_fixed_batch and limits.p99_s is None):
        return []
    name = missing[0] if limits.p99_s is None else missing[-1]  # what is asked about is p99
    needed = samples_needed(QUANTILES[name])
    return [Code.FEW_SAMPLES.seen(f"only {n_steps} steps; {name} needs {needed}")]


def limit_warnings(answer: LimitStatus, limits: Limits) -> list[MeasurementWarning]:
    """Return a warning where it is open whether what is recommended keeps to the limits."""
    if answer is LimitStatus.MET:
        return []
    return [Code.UNPROVEN_LIMIT.seen(f"{limits_text(limits)}: {answer}")]


def limits_text(limits: Limits) -> str:
    """Return the limits in words."""
    parts = []
    if limits.p99_s is not None:
        parts.append(f"p99 at most {1000 * limits.p99_s:g} ms")
    if limits.memory_bytes is not None:
        parts.append(f"memory at most {limits.memory_bytes / _GIB:.2g} GiB")
    if limits.power_w is not None:
        parts.append(f"power at most {limits.power_w:g} W")
    return ", ".join(parts)


def shrinkage(
    trials: Sequence[Trial], estimates: FinalsEstimates, verdicts: Mapping[str, Verdict], default_name: str
) -> ShrinkageResult | None:
    """Return the finals' incumbent against the default: its figure in the search beside that of the finals (ratios)."""

    def log_ratio_of(name: str) -> float | None:
        setting = next((c.setting for c in estimates.contenders if name in c.names), None)
        return next((t.log_ratio for t in trials if t.setting == setting and t.log_ratio is not None), None)

    if any({INCUMBENT, default_name} <= set(c.names) for c in estimates.contenders):
        return None
    best, default, verdict = log_ratio_of(INCUMBENT), log_ratio_of(default_name), verdicts.get(default_name)
    if best is None or default is None or verdict is None or verdict.speedup is None:
        return None
    return ShrinkageResult(search=math.exp(best - default), finals=verdict.speedup)


def _of_search(runs: Sequence[Run], trials: Sequence[Trial]) -> list[MeasurementWarning]:
    """Return a warning where there was no time for anything but the baselines."""
    if not runs or not trials or any(not t.baselines for t in trials) or runs[-1].end is not EndReason.TIME:
        return []
    return [Code.NO_SEARCH.seen("only the baselines were measured")]


def _of_trials(trials: Sequence[Trial]) -> list[MeasurementWarning]:
    warnings = output_warnings((t.facts or {}).get("not_finite", {}) for t in trials if t.status is Status.OK)
    restless = [t for t in trials if not t.steady]
    if restless:
        warnings.append(Code.NOT_STEADY.seen(f"{plural(len(restless), 'trial')}, last {restless[-1].setting}"))
    if any(t.alone for t in trials):
        warnings.append(Code.ALONE.seen(plural(sum(1 for t in trials if t.alone), "trial")))
    slices = [each for t in trials for turn in t.turns for each in turn.slices]
    warnings += run_warnings(slices) + _unlike((t.slices for t in trials), _FAR)
    return warnings + _of_interruptions([each for t in trials for each in t.interruptions])


def _of_interruptions(interruptions: Sequence[Interruption]) -> list[MeasurementWarning]:
    """Return the last of each kind."""
    codes = {Kind.STALLED: Code.STALLED, Kind.SUSPENDED: Code.ASLEEP, Kind.FORKS_DIFFER: Code.FORKS}
    return merge(codes[each.kind].seen(each.text) for each in interruptions)
