"""Finals: the incumbent against the recommended settings, each in a new process every round.

A round starts one process for each contender that runs in it. They start in a random order, a few at a time, and are
stopped as they become ready; then they are timed in passes (`tuner.measure.passes`), so that drift within the round
affects all contenders alike. The process is the unit of replication: a round gives one mean log rate
per contender, however many slices that is the mean of. A round in which the machine was suspended or the tuner stood
still does not count, and a slice that stalled is measured again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tuner.measure.agreement import Sample, moved_text, only_not_finite
from tuner.measure.interruption import Interruption, Kind
from tuner.measure.objective import Objective
from tuner.measure.passes import Live, long_ones, run_pass, waking
from tuner.measure.planning import FinalsPlan
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.stats.estimate import Array
from tuner.trial.launcher import Launcher, Process, start_all
from tuner.trial.outcome import Slice, Status, TrialFailure

INCUMBENT = "incumbent"
SIMPLER = "simpler"
"""The simplest of the settings that the search could not tell apart from the incumbent."""
SAME_BATCH = "@same-batch"
GROUP = "several-processes"
"""The best setting of several processes, where the search is of one."""
ONE_PROCESS = "one-process"
"""The incumbent of that search, as a rival of several processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A setting in the finals, under every name that it has; `deployment` applies it.

    One that is not `eligible` is a baseline that a `--set` rules out: compared with, and not recommended. `launcher`
    starts its processes where it is of another framework than the others; it is not stored.
    """

    names: tuple[str, ...]
    setting: Setting
    deployment: Deployment
    eligible: bool = True
    launcher: Launcher | None = field(default=None, compare=False, repr=False)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Contender:
        """Return the contender of a stored study."""
        return cls(
            names=tuple(data["names"]),
            setting=Setting.of(data["setting"]),
            deployment=Deployment.from_dict(data),
            eligible=data["eligible"],
        )

    def to_dict(self) -> dict[str, object]:
        """Return the contender as plain data."""
        return {
            "names": list(self.names),
            "setting": self.setting.to_dict(),
            **self.deployment.to_dict(),
            "eligible": self.eligible,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The raw slices of each contender, by its first name; a contender that failed has its reason instead."""

    slices: dict[str, list[Slice]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict, compare=False)
    """What to do about a failure, of those where that is known; it is not stored."""
    memory: dict[str, int] = field(default_factory=dict)
    """The peak memory of each process, bytes."""
    interruptions: list[Interruption] = field(default_factory=list)
    """Why the round does not count; empty if it does."""
    repeated: list[Interruption] = field(default_factory=list)
    """Why slices were measured again."""
    n_passes: int = 0
    """How many passes its slices are of; 0 if each pass has two of each, as in rounds of earlier versions."""
    fresh: bool = True
    """Whether its processes were fresh interpreters, and not forks."""
    one_at_a_time: bool = False
    """Whether memory did not hold them together."""
    without_memory: set[str] = field(default_factory=set, compare=False)
    """The contenders whose processes found no memory; it is not stored."""
    samples: dict[str, Sample] = field(default_factory=dict, compare=False)
    """Some outputs of each contender, of those that do not compute at random; they are not stored."""
    not_finite: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    """Of each contender with outputs that are NaN or infinite in part: see `tuner.trial.outcome.ReadyReport`."""

    @property
    def is_contradicted(self) -> bool:
        """Return whether it does not count because forked processes differ from fresh interpreters."""
        return any(each.kind is Kind.FORKS_DIFFER for each in self.interruptions)

    @property
    def timed_s(self) -> float:
        """Return the time spent inside slices."""
        return sum(s.elapsed_s for slices in self.slices.values() for s in slices)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Round:
        """Return the round of a stored study."""
        slices = {name: [Slice.from_dict(s) for s in rows] for name, rows in data["slices"].items()}
        return cls(
            slices=slices,
            failures=dict(data["failures"]),
            memory=dict(data["memory"]),
            interruptions=[Interruption.from_dict(each) for each in data["interruptions"]],
            repeated=[Interruption.from_dict(each) for each in data.get("repeated", [])],
            n_passes=data.get("n_passes", 0),
            fresh=data.get("fresh", True),
            not_finite=data.get("not_finite", {}),
        )

    def to_dict(self) -> dict[str, object]:
        """Return the round as plain data."""
        return {
            "slices": {name: [s.to_dict() for s in rows] for name, rows in self.slices.items()},
            "failures": self.failures,
            "memory": self.memory,
            "interruptions": [each.to_dict() for each in self.interruptions],
            "repeated": [each.to_dict() for each in self.repeated],
            "n_passes": self.n_passes,
            "fresh": self.fresh,
        } | ({"not_finite": self.not_finite} if self.not_finite else {})


def run_round(
    contenders: Sequence[Contender],
    launcher: Launcher,
    plan: FinalsPlan,
    rng: np.random.Generator,
    *,
    fresh: bool = True,
) -> Round:
    """Start, time and end one process for each contender; a failure is kept with its reason.

    `fresh` tells whether the launcher starts fresh interpreters. Where memory does not hold them all, they come in
    groups, in a random order like everything else; where it turns out not to, one at a time.
    """
    result = _held(contenders, launcher, plan, rng, fresh=fresh)
    if plan.max_resident > 1 and result.without_memory and len(contenders) > 1:
        # Memory may hold them one at a time.
        apart = _held(contenders, launcher, replace(plan, max_resident=1), rng, fresh=fresh)
        if not apart.without_memory:  # else one of them is too large in any case
            return replace(apart, one_at_a_time=True)
    return result


def _held(
    contenders: Sequence[Contender], launcher: Launcher, plan: FinalsPlan, rng: np.random.Generator, *, fresh: bool
) -> Round:
    """Hold a round in groups of as many as the plan has live at once."""
    result = Round(n_passes=plan.passes, fresh=fresh)
    order = [contenders[i] for i in rng.permutation(len(contenders))]
    for at in range(0, len(order), plan.max_resident):
        _run_group(order[at : at + plan.max_resident], launcher, plan, rng, result)
    _refuse_strange_outputs(result, contenders[0].names[0])
    return result


def _run_group(
    group: Sequence[Contender], launcher: Launcher, plan: FinalsPlan, rng: np.random.Generator, result: Round
) -> None:
    """Time the contenders that live together."""
    launches = [(c.setting, functools.partial((c.launcher or launcher).launch, c.setting, c.deployment)) for c in group]
    started = start_all(launches, parallel=plan.n_parallel_starts)
    live: dict[str, Live] = {}
    for contender, start in zip(group, started, strict=True):
        name = contender.names[0]
        if start.failure is not None:
            _fail(name, start.failure, start.process, result)
        if start.facts is not None:
            live[name] = Live(process=start.process, usual_s=[start.facts.step_s])
            if start.facts.sample is not None:
                result.samples[name] = start.facts.sample
            if start.facts.not_finite:
                result.not_finite[name] = start.facts.not_finite
    once = long_ones(live, lambda _: plan.slice_s)
    try:
        for _ in range(plan.passes):
            done = run_pass(live, rng, lambda _: plan.slice_s, once=once)
            for name, failure in done.failures.items():
                _fail(name, failure, live.pop(name).process, result)
            for name, slices in done.slices.items():
                result.slices.setdefault(name, []).extend(slices)
            result.repeated.extend(done.repeated)
            result.interruptions.extend([done.interrupted] if done.interrupted else [])
    finally:
        for name, each in live.items():
            peak = each.process.close().peak_memory_bytes
            if peak:
                result.memory[name] = peak


def _refuse_strange_outputs(result: Round, first: str) -> None:
    """Let contenders fail whose outputs are NaN or infinite in part, if another one's are finite.

    Or if the outputs of the `first` are so at other places.
    """
    ran = list(result.slices)
    common = set.intersection(*(set(result.not_finite.get(name, {})) for name in ran)) if ran else set()
    for name in ran:
        strange = only_not_finite(result.not_finite.get(name, {}), common)
        if strange is not None:
            del result.slices[name]
            result.failures[name] = f"{Status.INVALID}: {strange}, and another setting's are finite"
    expected = result.samples.get(first) if first in result.slices else None
    for name in list(result.slices):
        sample = result.samples.get(name)
        if expected is None or sample is None or sample["inputs"] != expected["inputs"]:
            continue
        moved = moved_text(expected, sample, than=f"those of {first}")
        if moved is not None:
            del result.slices[name]
            result.failures[name] = f"{Status.INVALID}: {moved}"


def _fail(name: str, failure: TrialFailure, process: Process, result: Round) -> None:
    process.close()
    result.slices.pop(name, None)
    result.failures[name] = f"{failure.status}: {failure.message}"
    result.hints[name] = failure.hint
    if failure.status is Status.OOM:
        result.without_memory.add(name)


def replicates(reference: Contender, n_others: int) -> list[Contender]:
    """Return the reference under other names: how often more it runs in a round.

    All others are compared with it, so that its own scatter is in every ratio: they are known best where it has √n
    processes beside one of each of n others (Dunnett 1955, J. Am. Stat. Assoc. 50, section 7).
    """
    return [replace(reference, names=(f"{reference.names[0]}#{i}",)) for i in range(2, math.isqrt(n_others) + 1)]


def merged(round_: Round, reference: Contender, more: Sequence[Contender]) -> Round:
    """Return a round in which the slices of all processes of the reference stand under its own name."""
    names = [each.names[0] for each in (reference, *more)]
    slices = {name: own for name, own in round_.slices.items() if name not in names}
    memory = {name: own for name, own in round_.memory.items() if name not in names[1:]}
    failures = {name: reason for name, reason in round_.failures.items() if name not in names}
    own = [each for name in names for each in round_.slices.get(name, ())]
    if own:
        slices[names[0]] = own
    else:
        failures[names[0]] = round_.failures.get(names[0], "")
    return replace(round_, slices=slices, memory=memory, failures=failures)


def memory_of(rounds: Sequence[Round], name: str) -> int | None:
    """Return the most memory that a contender's process took."""
    return max((r.memory[name] for r in rounds if name in r.memory), default=None)


def failures(rounds: Sequence[Round]) -> dict[str, str]:
    """Return why contenders failed, the last reason of each, by first name."""
    return {name: text for round_ in rounds for name, text in round_.failures.items()}


def hint(rounds: Sequence[Round], names: Iterable[str]) -> str:
    """Return what to do about the last failure of contenders, "" where that is not known."""
    known = [text for round_ in rounds for name in names if (text := round_.hints.get(name))]
    return known[-1] if known else ""


def log_rates(
    rounds: Sequence[Round], contenders: Sequence[Contender], objective: Objective
) -> tuple[list[str], Array]:
    """Return (names, y): the contenders that ran, and their mean log rates in the rounds that count, shape (r, c).

    NaN where a contender did not run in a round. One that failed in more than half of its rounds is left out, with no
    figure: so a bad start costs a round, and a setting that does not run costs only itself.
    """
    return mean_log_rates(rounds, contenders, slice_log_rates(rounds, contenders, objective))


def mean_log_rates(
    rounds: Sequence[Round], contenders: Sequence[Contender], of_slices: Sequence[dict[str, Array]]
) -> tuple[list[str], Array]:
    """Return what `log_rates` does, from what `slice_log_rates` returns of the same rounds."""
    counted = [r for r in rounds if not r.interruptions]
    all_names = [contender.names[0] for contender in contenders]
    ran = {name: sum(name in r.slices for r in counted) for name in all_names}
    failed = {name: sum(name in r.failures for r in counted) for name in all_names}
    names = [name for name, n in ran.items() if n and n >= failed[name]]
    y = [[of_round[name].mean() if name in of_round else math.nan for name in names] for of_round in of_slices]
    return names, np.array(y, dtype=float).reshape(len(counted), len(names))


def slice_log_rates(
    rounds: Sequence[Round], contenders: Sequence[Contender], objective: Objective
) -> list[dict[str, Array]]:
    """Return the log rates of each contender's slices in each round that counts and in which it ran."""
    counted = [r for r in rounds if not r.interruptions]
    costs = waking(each for r in counted for slices in r.slices.values() for each in slices)
    batch_sizes = {contender.names[0]: contender.setting.batch_size for contender in contenders}
    return [
        {
            name: np.array([objective.log_rate(each, batch_size, costs) for each in r.slices[name]])
            for name, batch_size in batch_sizes.items()
            if name in r.slices
        }
        for r in counted
    ]


def pass_log_ratios(rounds: Sequence[Round], of_slices: Sequence[dict[str, Array]], a: str, b: str) -> list[Array]:
    """Return the log-ratios of contender `b` to `a` in each round that counts and in which both ran, shapes (passes,).

    `of_slices` is what `slice_log_rates` returns of the rounds. Where the two did not live together, all their slices
    of a round are one pass: a drift between them is in all.
    """
    log_ratios = []
    for round_, rates in zip((r for r in rounds if not r.interruptions), of_slices, strict=True):
        if a in rates and b in rates:
            first, second = round_.slices[a], round_.slices[b]
            n_passes = round_.n_passes or len(first) // 2
            difference = np.subtract(*(rates[name].reshape(n_passes, -1).mean(axis=1) for name in (b, a)))
            lived_together = first[0].start_s < second[-1].start_s and second[0].start_s < first[-1].start_s
            log_ratios.append(difference if lived_together else difference.mean(keepdims=True))
    return log_ratios


def rates(names: Sequence[str], y: Array, incumbent: str) -> dict[str, float]:
    """Return the mean log rate of each contender, adjusted to the rounds of the incumbent.

    Rounds differ by the drift of the machine, so that the rate of another is the incumbent's and their mean difference.
    """
    if incumbent not in names:
        return {name: float(np.nanmean(y[:, j])) for j, name in enumerate(names)}
    incumbent_rates = y[:, names.index(incumbent)]
    differences = {name: y[:, j] - incumbent_rates for j, name in enumerate(names)}
    return {
        name: float(np.nanmean(incumbent_rates) + np.nanmean(each))
        for name, each in differences.items()
        if not np.isnan(each).all()
    }
