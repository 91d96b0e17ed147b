"""Rounds of the finals: each contender in a new process, all timed together.

A round starts one process for each contender that runs in it. They start in a random order, a few at a time, and are
stopped as they become ready; then they are timed in passes (`tuner.measure.passes`), so that drift within the round
affects all contenders alike. The process is the unit of replication: a round gives one mean log rate
per contender, however many slices that is the mean of. A round in which the machine was suspended or the tuner stood
still does not count, and a slice that stalled is measured again.

Several tests may have rounds in common: a contender runs once for all that ask for it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tuner.errors import TunerError
from tuner.measure.agreement import Sample, moved_text, only_not_finite
from tuner.measure.budget import Countdown
from tuner.measure.interruption import Interruption, Kind
from tuner.measure.passes import Live, long_ones, run_pass
from tuner.measure.planning import FinalsPlan
from tuner.plain import SPARSE, UNSTORED
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
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
SAME_LATENCY = "same-latency"
"""The fastest setting of a search whose call takes no longer than the default's."""


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
    hints: dict[str, str] = field(default_factory=dict, compare=False, metadata=UNSTORED)
    """What to do about a failure, of those where that is known."""
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
    one_at_a_time: bool = field(default=False, metadata=UNSTORED)
    """Whether memory did not hold them together."""
    without_memory: set[str] = field(default_factory=set, compare=False, metadata=UNSTORED)
    """The contenders whose processes found no memory."""
    samples: dict[str, Sample] = field(default_factory=dict, compare=False, metadata=UNSTORED)
    """Some outputs of each contender, of those that do not compute at random."""
    not_finite: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict, metadata=SPARSE)
    """Of each contender with outputs that are NaN or infinite in part: see `tuner.trial.outcome.ReadyReport`."""

    @property
    def is_contradicted(self) -> bool:
        """Return whether it does not count because forked processes differ from fresh interpreters."""
        return any(each.kind is Kind.FORKS_DIFFER for each in self.interruptions)

    @property
    def timed_s(self) -> float:
        """Return the time spent inside slices."""
        return sum(s.elapsed_s for slices in self.slices.values() for s in slices)


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


# ---- one round after another ----------------------------------------------------------------------------------------

Notify = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Rounds:
    """The rounds that were held, and what holds them.

    Processes are fresh interpreters from `launcher`, or come from the `fork_launchers` in turn where there are any and
    nothing asks for fresh ones. Each of those is asked for when it is needed first, and is up when it is returned, so
    that two rounds do not wait for servers of later ones. `time` is the clock of the run.
    """

    launcher: Launcher
    plan: FinalsPlan
    rng: np.random.Generator
    time: Countdown
    fork_launchers: Sequence[Callable[[], Launcher]] = ()
    notify: Notify = lambda _: None
    held: list[Round] = field(default_factory=list)
    left_at_start_s: float = math.inf
    """The time that was left (s) when these rounds were begun, or went on."""
    n_together: int = 2
    """How many contenders the next round has, as far as is known."""
    _round_s: dict[int, float] = field(default_factory=dict)
    """How long (s) the longest round lasted, by its number of contenders."""

    def hold(self, contenders: Sequence[Contender], *, fresh: bool) -> Round:
        """Hold one round more; `fresh` tells whether forks would not do."""
        forks = None if fresh else self._forks()
        began_s, n = self.time.elapsed_s(), len(contenders)
        self.held.append(self._run(contenders, forks))
        if self.held[-1].one_at_a_time:
            self.plan = replace(self.plan, max_resident=1)
        if len(self.held) > 1 and self.held[-1].fresh != self.held[-2].fresh:
            self._round_s.clear()  # fresh interpreters take longer to start than forked ones
        self._round_s[n] = max(self._round_s.get(n, 0.0), self.time.elapsed_s() - began_s)
        return self.held[-1]

    def expected_s(self, n: int) -> float:
        """Return about how long a round of `n` contenders lasts, by those that were held."""
        return max((seconds * n / k for k, seconds in self._round_s.items()), default=0.0)

    def n_more(self) -> int:
        """Return for how many more rounds like the next one there is time; as many as are planned without a limit."""
        left_s = self.time.left_s()
        if left_s == math.inf:
            return self.plan.max_rounds
        return max(0, int(left_s / max(self.expected_s(self.n_together), 1e-9)))

    def _forks(self) -> Launcher | None:
        """Return what the next round is forked from; None if nothing can be."""
        if not self.fork_launchers:
            return None
        try:
            return self.fork_launchers[(len(self.held) - 1) % len(self.fork_launchers)]()
        except TunerError as error:
            self._go_on_with_fresh(error)
            return None

    def _run(self, contenders: Sequence[Contender], forks: Launcher | None) -> Round:
        if forks is not None:
            try:
                return run_round(contenders, forks, self.plan, self.rng, fresh=False)
            except TunerError as error:
                self._go_on_with_fresh(error)
        return run_round(contenders, self.launcher, self.plan, self.rng)

    def _go_on_with_fresh(self, error: TunerError) -> None:
        """Use no forks any more: a server that is gone is no reason to end what fresh interpreters can do."""
        self.fork_launchers = ()
        self.notify(f"the finals continue with fresh interpreters: {error.message}")


def in_common(of_tests: Sequence[Sequence[Contender]]) -> list[Contender]:
    """Return the contenders of several tests, one for each setting and deployment that more than one of them has."""
    contenders: list[Contender] = []
    for of_test in of_tests:  # the two of one test may be equal, as in A against A
        contenders += [each for each in of_test if not is_among(each, contenders)]
    return contenders


def is_among(contender: Contender, others: Sequence[Contender]) -> bool:
    """Return whether a contender is one of the others, under whatever name."""
    return any(_is_same(contender, other) for other in others)


def part_of(held: Round, ran: Sequence[Contender], contenders: Sequence[Contender]) -> Round:
    """Return what a round, in which `ran` took part, says of these contenders, under their own names."""
    names: dict[str, str] = {}
    for own in contenders:
        same = [other.names[0] for other in ran if _is_same(own, other)]
        names |= {own.names[0]: own.names[0] if own.names[0] in same else same[0]} if same else {}

    def renamed(by_name: Mapping[str, Any]) -> dict[str, Any]:
        return {own: by_name[name] for own, name in names.items() if name in by_name}

    return replace(
        held,
        slices=renamed(held.slices),
        failures=renamed(held.failures),
        hints=renamed(held.hints),
        memory=renamed(held.memory),
        not_finite=renamed(held.not_finite),
        interruptions=list(held.interruptions),
    )


def _is_same(a: Contender, b: Contender) -> bool:
    return a.setting == b.setting and a.deployment == b.deployment
