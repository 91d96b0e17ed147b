"""Launchers: how a setting becomes a process that times slices on request.

A process is asked through `Process` and made by a `Launcher`. There are three launchers: fresh interpreters
(`tuner.trial.fresh`), forks of one that has imported the framework (`tuner.trial.forking`), and runs of a command
(`tuner.trial.running`).
"""

from __future__ import annotations

import functools
import itertools
import select
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tuner.machine.cpulist import format_list
from tuner.machine.topology import read_mask
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.trial.load import Load, Served
from tuner.trial.outcome import EnergyMeter, ExitStatus, ReadyReport, Slice, TrialFailure, no_meter
from tuner.workload.workload import Workload

_LONGEST_WAIT_S = 30.0  # for any of several processes: then for the first, which knows its deadline


class Process(Protocol):
    """A live process that has one setting applied."""

    @property
    def peak_memory_bytes(self) -> int | None:
        """Return the most that it has held at its batch size; None where that is not known."""

    @property
    def answers_on(self) -> Sequence[int]:
        """Return the file descriptors that its answers come on; none if `ready` does what it waits for itself."""

    def ready(self) -> ReadyReport:
        """Wait until the workload is loaded and warm; raises TrialFailure."""

    def set_batch_size(self, batch_size: int) -> ReadyReport:
        """Go on with another batch size, and wait until that is warm; raises TrialFailure."""

    def slice(self, duration_s: float) -> Slice:
        """Run whole steps for at least `duration_s`; raises TrialFailure."""

    def pause(self) -> None:
        """Stop the process: nothing of it runs until `resume`."""

    def resume(self) -> None:
        """Let a paused process go on."""

    def close(self) -> ExitStatus:
        """End the process and everything it started; may be called twice."""


class Worker(Process, Protocol):
    """A live process, or a group of them, that can answer requests: a worker of ours."""

    def load(self, load: Load) -> Served:
        """Answer requests at random times; raises TrialFailure."""


class Launcher(Protocol):
    """Makes processes, and owns the clock that they live by."""

    def launch(self, setting: Setting, deployment: Deployment) -> Process:
        """Start a process with the `deployment` that applies the setting; it is not ready yet."""

    def now(self) -> float:
        """Return the time in seconds on a clock that never goes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The properties that all processes of a study share.

    `deadline_s` bounds each thing that is asked of a process: becoming ready, or one slice. `audit_failure` tells why a
    setting, deployed so, does not hold in a process that is ready, None if it does. `framework` is the folder of the
    framework's child code, `device` the file of the device's, `out_of_memory` what that one's libraries say where its
    memory is full, and `is_early` tells which variables a process has to begin with. `feed` says where the inputs of a
    step are, None on the CPU, and `energy_j` what the device has taken (J). The processes of an ensemble have
    properties of their own, in `members`.
    """

    python: Path
    framework: Path
    device: Path
    base_env: dict[str, str]
    workload: Workload
    folder: Path
    deadline_s: float = 120.0
    audit_failure: Callable[[Setting, Deployment, ReadyReport], str | None] = lambda *_: None
    is_early: Callable[[str], bool] = lambda _: False
    feed: str | None = None
    energy_j: EnergyMeter = no_meter
    members: tuple[Target, ...] = ()
    out_of_memory: tuple[str, ...] = ()

    def of(self, number: int) -> Target:
        """Return the properties of the process of that number, counted from 0."""
        return self.members[number] if self.members else self

    def child_spec(self, setting: Setting, deployment: Deployment, number: int, *, seed: int) -> dict[str, object]:
        """Return what a worker is told, of several the one of that number; `seed` is for what comes at random times."""
        request: dict[str, object] = {
            "do": "time",
            "framework": str(self.framework),
            "device": str(self.device),
            "out_of_memory": list(self.out_of_memory),
            "folder": str(self.folder),
            "batch_size": setting.batch_size,
            "cpus": deployment.cpus_of(number),
            "given": deployment.cpus_of(number) or format_list(read_mask()),
            "streams": deployment.streams,
            "options": dict(deployment.options),
            "feed": self.feed,
        }
        if self.workload.rate is not None:
            # Requests are dealt out at random: what each process gets is a Poisson process again.
            request |= {"rate": self.workload.rate / deployment.processes, "seed": seed}
        return request | self.workload.child_spec()


_launcher_numbers = itertools.count()


@dataclass(slots=True)
class ArrivalSeeds:
    """The seeds of the times at which requests come to the processes of one launcher, the same in every run.

    The processes that are each setting's k-th have the same, so that all contenders of a round, who are started once
    each, answer the same requests, and those of the next round others: what is random in them averages out.
    """

    launcher: int = field(default_factory=_launcher_numbers.__next__)
    starts: Counter[tuple[Setting, int]] = field(default_factory=Counter)

    def next(self, setting: Setting, number: int) -> int:
        """Return the seed of one more process of a setting, of several the one of that number."""
        self.starts[setting, number] += 1
        return (self.launcher << 40) + (self.starts[setting, number] << 16) + number


@dataclass(frozen=True, slots=True, kw_only=True)
class StartResult:
    """A process that is warm and paused, or, where `failure` is set, already closed."""

    setting: Setting
    process: Process
    facts: ReadyReport | None = None
    failure: TrialFailure | None = None


class WorkerLauncher(Launcher, Protocol):
    """Makes processes that can answer requests."""

    def launch(self, setting: Setting, deployment: Deployment) -> Worker:
        """Start them; they are not ready yet."""


def start_together(
    launcher: Launcher, requests: Sequence[tuple[Setting, Deployment]], *, parallel: int
) -> list[StartResult]:
    """Start a process for each (setting, deployment), as `start_all` does."""
    return start_all([(each[0], functools.partial(launcher.launch, *each)) for each in requests], parallel=parallel)


def start_all(launches: Sequence[tuple[Setting, Callable[[], Process]]], *, parallel: int) -> list[StartResult]:
    """Start a process for each (setting, launch), at most `parallel` at once, and wait until all are warm.

    A few at a time, as most of a start is one thread that imports and loads. The next one starts as soon as one is
    warm, which is paused. Nothing may be timed meanwhile. A process that fails is closed and told of; if anything else
    goes wrong, all are closed.
    """
    started: dict[int, StartResult] = {}
    starting: dict[int, Process] = {}
    launched: list[Process] = []
    try:
        for number, (_, launch) in enumerate(launches):
            starting[number] = launch()
            launched.append(starting[number])
            while starting and (len(starting) == parallel or number == len(launches) - 1):
                first = _first_to_answer(starting)
                started[first] = _await(launches[first][0], starting.pop(first))
    except BaseException:
        for process in launched:
            process.close()
        raise
    return [started[number] for number in range(len(launches))]


def _first_to_answer(starting: Mapping[int, Process]) -> int:
    """Return the number of a process that has answered, or that has to be waited for."""
    numbers = {descriptor: number for number, process in starting.items() for descriptor in process.answers_on}
    if {*numbers.values()} != {*starting}:
        return min(starting)
    readable, _, _ = select.select(list(numbers), [], [], _LONGEST_WAIT_S)
    return min((numbers[descriptor] for descriptor in readable), default=min(starting))  # whose deadline is first


def _await(setting: Setting, process: Process) -> StartResult:
    try:
        facts = process.ready()
        process.pause()
    except TrialFailure as failure:
        process.close()
        return StartResult(setting=setting, process=process, failure=failure)
    return StartResult(setting=setting, process=process, facts=facts)
