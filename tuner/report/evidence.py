"""What stands behind a study's figures: its noise, its tails, its warnings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tuner.measure import interruption
from tuner.measure.constraint import Limits
from tuner.measure.contest import FEWEST
from tuner.measure.finals import INCUMBENT, Round
from tuner.measure.interruption import FORKS_DIFFER, Interruption, Kind
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair
from tuner.measure.planning import FinalsPlan, noise_floor
from tuner.measure.recommendation import Standing
from tuner.measure.warning import Code, Warning, merge, of_conditions
from tuner.report.layout import plural
from tuner.report.result.study import NoiseResult, ShrinkageResult, TailResult
from tuner.search.attributes import Attributes, End, Run
from tuner.search.record import Trial
from tuner.stats import steady
from tuner.stats.equivalence import MARGIN, Verdict
from tuner.stats.noise import Noise
from tuner.stats.tail import QUANTILES, Kept, quantiles, samples_needed
from tuner.trial.outcome import Slice

_GIB = 1024**3


def noise_result(noise: Noise, floor: float) -> NoiseResult:
    """Return noise as it is published, with the `floor` of finals of the usual length."""
    return NoiseResult(**noise.to_dict(), floor=floor, assumed=noise.assumed)


def tail(rounds: Sequence[Round], name: str) -> TailResult:
    """Return the steps' quantiles (ms; None for too few samples) and the peak memory of a contender in all rounds."""
    found = quantiles(steps_of(rounds, name))
    return TailResult(
        **{key: None if value is None else 1000 * value for key, value in found.items()},
        n_steps=sum(s.n_steps for r in rounds if not r.interruptions for s in r.slices.get(name, [])),
        peak_memory_bytes=memory_of(rounds, name),
    )


def steps_of(rounds: Sequence[Round], name: str) -> list[float]:
    """Return the durations (s) of a contender's steps in all rounds that count."""
    whole = [r.slices[name] for r in rounds if name in r.slices and not r.interruptions]
    return [step for slices in whole for each in slices for step in each.undisturbed_s]


def memory_of(rounds: Sequence[Round], name: str) -> int | None:
    """Return the most memory that a contender's process took."""
    return max((r.memory[name] for r in rounds if name in r.memory), default=None)


def kept(rounds: Sequence[Round], names: Sequence[str], limits: Limits) -> dict[str, Kept]:
    """Return whether each contender keeps to the limits."""
    return {name: limits.kept(steps_of(rounds, name), memory_of(rounds, name)) for name in names}


def study_warnings(stored: Attributes, trials: Sequence[Trial], rounds: Sequence[Round]) -> list[Warning]:
    """Return all that makes a study's figures less believable."""
    noise = stored.noise
    return merge(
        *(of_conditions(each) for each in stored.conditions),
        [] if noise is None else of_noise(noise, noise_floor(noise, FinalsPlan())),
        _of_search(stored.runs, trials),
        _of_trials(trials),
        of_rounds(rounds),
    )


def of_rounds(rounds: Sequence[Round]) -> list[Warning]:
    """Return what is wrong with finals."""
    found = []
    forked_away = sum(FORKS_DIFFER in r.interruptions for r in rounds)
    if forked_away:
        found.append(
            Warning(code=Code.FORKS, found=f"{plural(forked_away, 'round')} of forked processes did not count")
        )
    paused = [each.text for r in rounds for each in r.interruptions if each != FORKS_DIFFER]
    if paused:
        found.append(Warning(code=Code.ASLEEP, found=paused[-1]))
    stalls = [each.text for r in rounds for each in r.repeated]
    if stalls:
        found.append(Warning(code=Code.STALLED, found=stalls[-1]))
    whole = [r for r in rounds if not r.interruptions]
    if rounds and len(whole) <= FEWEST:
        found.append(Warning(code=Code.FEW_ROUNDS, found=f"{len(whole)} rounds of finals"))
    return found + _creeping([list(r.slices.values()) for r in whole], "round")


def _creeping(groups: Sequence[Sequence[Sequence[Slice]]], what: str) -> list[Warning]:
    """Return whether every round, or pair, became slower or faster; each has the slices of its processes."""
    changes = [change for processes in groups if (change := _change(processes)) is not None]
    if not steady.creeps(changes):
        return []
    way = "slower" if changes[0] < 0 else "faster"
    return [Warning(code=Code.NOT_STEADY, found=f"every {what} ended {way} than it began")]


def _change(processes: Sequence[Sequence[Slice]]) -> float | None:
    """Return how the speed changed from the first two slices of each process to its last two, log scale, on average."""
    each = []
    for slices in processes:
        if len(slices) >= 4:
            first, second, *_, before, last = map(interruption.step_s, slices)
            each.append(math.log(first * second / (before * last)) / 2)
    return sum(each) / len(each) if each else None


def of_pairs(pairs: Sequence[Pair]) -> list[Warning]:
    """Return what is wrong with pairs of one setting with itself."""
    found = _of_interruptions([each for pair in pairs for each in pair.interruptions])
    return found + _creeping([(pair.reference, pair.candidate) for pair in pairs], "pair")


def of_noise(noise: Noise, floor: float) -> list[Warning]:
    """Return what the noise floor does not allow to be believed."""
    found = []
    if floor > MARGIN:
        found.append(Warning(code=Code.NOISY, found=f"the noise floor is {100 * floor:.1f} %"))
    if noise.assumed:
        found.append(Warning(code=Code.ASSUMED_NOISE, found=f"only {noise.n_quads} quads of A against A were measured"))
    return found


def of_steps(n_steps: int, objective: Objective, limits: Limits) -> list[Warning]:
    """Return whether there are too few steps for the tail that was asked about."""
    missing = [name for name, p in QUANTILES.items() if n_steps < samples_needed(p)]
    if not missing or (objective is not Objective.LATENCY and limits.p99_s is None):
        return []
    needed = samples_needed(QUANTILES[missing[0]])
    return [Warning(code=Code.FEW_SAMPLES, found=f"{n_steps} steps; {missing[0]} needs {needed}")]


def of_limits(answer: Kept, limits: Limits) -> list[Warning]:
    """Return whether it is open that what is recommended keeps to the limits."""
    if answer is Kept.YES:
        return []
    return [Warning(code=Code.UNPROVEN_LIMIT, found=f"{limits_text(limits)}: {answer}")]


def limits_text(limits: Limits) -> str:
    """Return the limits in words."""
    parts = []
    if limits.p99_s is not None:
        parts.append(f"p99 at most {1000 * limits.p99_s:g} ms")
    if limits.memory_bytes is not None:
        parts.append(f"memory at most {limits.memory_bytes / _GIB:.2g} GiB")
    return ", ".join(parts)


def shrinkage(
    trials: Sequence[Trial], standing: Standing, verdicts: Mapping[str, Verdict], default_name: str
) -> ShrinkageResult | None:
    """Return the finals' incumbent against the default: its figure in the search beside that of the finals (ratios)."""

    def found(name: str) -> float | None:
        setting = next((c.setting for c in standing.contenders if name in c.names), None)
        return next((t.log_ratio for t in trials if t.setting == setting and t.log_ratio is not None), None)

    if any({INCUMBENT, default_name} <= set(c.names) for c in standing.contenders):
        return None
    best, default, verdict = found(INCUMBENT), found(default_name), verdicts.get(default_name)
    if best is None or default is None or verdict is None or verdict.speedup is None:
        return None
    return ShrinkageResult(search=math.exp(best - default), finals=verdict.speedup)


def _of_search(runs: Sequence[Run], trials: Sequence[Trial]) -> list[Warning]:
    """Return whether there was no time for anything but the baselines."""
    if not runs or not trials or any(not t.baselines for t in trials) or runs[-1].end is not End.TIME:
        return []
    return [Warning(code=Code.NO_SEARCH, found="only the baselines were measured")]


def _of_trials(trials: Sequence[Trial]) -> list[Warning]:
    found = []
    restless = [t for t in trials if not t.steady]
    if restless:
        found.append(
            Warning(code=Code.NOT_STEADY, found=f"{plural(len(restless), 'trial')}, last {restless[-1].setting}")
        )
    if any(t.alone for t in trials):
        found.append(Warning(code=Code.ALONE, found=plural(sum(1 for t in trials if t.alone), "trial")))
    return found + _of_interruptions([each for t in trials if t.pair for each in t.pair.interruptions])


def _of_interruptions(interruptions: Sequence[Interruption]) -> list[Warning]:
    """Return the last of each kind."""
    codes = {Kind.STALLED: Code.STALLED, Kind.ASLEEP: Code.ASLEEP, Kind.FORKS_DIFFER: Code.FORKS}
    return merge(Warning(code=codes[each.kind], found=each.text) for each in interruptions)
