"""Settings under load, in turns: each answers requests at rates that are shares of what it can do at most.

A round starts new processes of all settings. These first run batches one after another, which shows the rate that each
saturates at; then each answers requests for a while at every rate, and the others are stopped meanwhile. At equal
shares the settings follow one another at once, and the requests come in the same pattern.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from tuner.machine.conditions import suspended_s
from tuner.measure.interruption import suspended
from tuner.measure.planning import slice_s
from tuner.plain import UNSTORED
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.trial.launcher import Worker, WorkerLauncher, start_all
from tuner.trial.load import Load, Served
from tuner.trial.outcome import TrialFailure

T = TypeVar("T")

SHARES = (0.3, 0.6, 0.85)
"""Of the rate of saturation. Nearer to it a queue takes minutes to become what it is on average."""
_SATURATION_S = 1.0
# A queue forgets how it began in s / (1 − ρ)² seconds: so many of them are waited for, and so many seconds at most.
_RELAXATIONS, _MOST_S = 5.0, 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCandidate:
    """A setting under load, and how requests become its batches: of one of `sizes`, waiting at most `wait_s` (s)."""

    name: str
    setting: Setting
    deployment: Deployment
    sizes: tuple[int, ...]
    wait_s: float

    def load(self, *, rate: float, seed: int, duration_s: float) -> Load:
        """Return requests at a rate (1/s)."""
        return Load(rate=rate, seed=seed, duration_s=duration_s, sizes=self.sizes, wait_s=self.wait_s)

    def to_dict(self) -> dict[str, Any]:
        """Return the candidate as plain data."""
        own = {"name": self.name, "sizes": list(self.sizes), "wait_s": self.wait_s}
        return own | {"setting": self.setting.to_dict(), **self.deployment.to_dict()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRound:
    """What each candidate answered, by its name: one `Served` for each of `SHARES`; one that failed has its reason."""

    served: dict[str, list[Served]] = field(default_factory=dict)
    failures: dict[str, TrialFailure] = field(default_factory=dict, metadata=UNSTORED)
    memory: dict[str, int] = field(default_factory=dict)
    """The peak memory of all processes of each candidate (bytes)."""
    interrupted: bool = field(default=False, metadata=UNSTORED)
    """Whether the machine was suspended meanwhile, so that the round does not count."""

    @property
    def timed_s(self) -> float:
        """Return the time spent under load (s)."""
        return sum(each.elapsed_s for served in self.served.values() for each in served)


def run_round(
    candidates: Sequence[LoadCandidate],
    launcher: WorkerLauncher,
    saturation: dict[str, float],
    rng: np.random.Generator,
    *,
    number: int,
    n_parallel_starts: int,
    most_s: float = math.inf,
) -> LoadRound:
    """Start, load and end the processes of each candidate; `saturation` (1/s) is measured for those who lack it.

    `number` is that of the round: rounds of other numbers have other requests. No load lasts longer than `most_s` (s).
    """
    workers: dict[str, Worker] = {}
    failures: dict[str, TrialFailure] = {}
    served: dict[str, list[Served]] = {}
    slept_s = suspended_s()

    def launch(candidate: LoadCandidate) -> Worker:
        workers[candidate.name] = worker = launcher.launch(candidate.setting, candidate.deployment)
        return worker

    def ask(candidate: LoadCandidate, task: Callable[[LoadCandidate, Worker], T]) -> T | None:
        """Let a candidate do something while all others are stopped; one that fails is not asked again."""
        if candidate.name in failures:
            return None
        worker = workers[candidate.name]
        try:
            worker.resume()
            result = task(candidate, worker)
            worker.pause()
        except TrialFailure as failure:
            failures[candidate.name] = failure
            worker.close()
            return None
        return result

    def warm_up(candidate: LoadCandidate, worker: Worker) -> None:
        worker.load(candidate.load(rate=1.0, seed=0, duration_s=0.0))
        if candidate.name not in saturation:
            n_steps, elapsed_s = worker.slice(_SATURATION_S).counted_steps
            saturation[candidate.name] = n_steps * candidate.setting.batch_size / elapsed_s

    def answer(at: int, candidate: LoadCandidate, worker: Worker) -> Served:
        most = saturation[candidate.name]
        rate = SHARES[at] * most
        seconds = min(duration_s(rate, most, candidate.deployment.processes), most_s)
        return worker.load(candidate.load(rate=rate, seed=len(SHARES) * number + at, duration_s=seconds))

    try:
        launches = [(candidate.setting, functools.partial(launch, candidate)) for candidate in candidates]
        for candidate, started in zip(candidates, start_all(launches, parallel=n_parallel_starts), strict=True):
            failures |= {} if started.failure is None else {candidate.name: started.failure}
        for candidate in candidates:
            ask(candidate, warm_up)
        for at in rng.permutation(len(SHARES)).tolist():
            for i in rng.permutation(len(candidates)).tolist():
                answered = ask(candidates[i], functools.partial(answer, at))
                if answered is not None:
                    served.setdefault(candidates[i].name, []).append(answered)
    finally:
        for worker in workers.values():
            worker.close()
    return LoadRound(
        served=served,
        failures=failures,
        memory={name: peak for name, worker in workers.items() if (peak := worker.peak_memory_bytes) is not None},
        interrupted=suspended(suspended_s() - slept_s) is not None,
    )


def duration_s(rate: float, saturation: float, processes: int) -> float:
    """Return how long (s) requests come at a rate (1/s): until enough have come, and the queue is what it stays."""
    relaxation_s = processes / saturation / (1 - min(rate / saturation, 0.99)) ** 2
    return max(slice_s(rate), min(_RELAXATIONS * relaxation_s, _MOST_S))


def round_s(candidates: Sequence[LoadCandidate], saturation: Mapping[str, float]) -> float:
    """Return about how long the loads of a round last (s)."""
    return sum(
        duration_s(share * saturation[candidate.name], saturation[candidate.name], candidate.deployment.processes)
        for candidate in candidates
        for share in SHARES
    )
