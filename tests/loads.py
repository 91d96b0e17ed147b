"""Settings under load on a scripted machine: workers whose batches take what a queue says, and what they come to."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tests.conftest import setting
from tuner.child import arrivals
from tuner.machine.conditions import Conditions
from tuner.measure.load import LoadCandidate, LoadRound, run_round
from tuner.model.queueing import Batching, Queue, ServiceTimes
from tuner.result.load import LoadResult, curve_results
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.trial.load import Batch, Load, Served, together
from tuner.trial.outcome import ExitStatus, ReadyReport, Slice, Status, TrialFailure

ONE = Batching(sizes=(1,), wait_s=0.0, processes=1, callers=1)
SERVICE_S = {1: 0.010, 2: 0.014, 4: 0.022, 8: 0.038}
"""6 ms, and 4 ms per item."""


def times_of(service_s: dict[int, float], rest: Sequence[float] = (0.0,)) -> ServiceTimes:
    return ServiceTimes(
        sizes=np.array([*service_s], float),
        log_s=np.log([*service_s.values()]),
        rates=np.array([1.0]),
        shift=np.zeros(1),
        round_log=np.zeros(2),
        rest=((np.array(rest),),) * len(service_s),
    )


TRUE = Queue(batching=replace(ONE, sizes=(1, 2, 4, 8)), times=times_of(SERVICE_S))


def served_by(
    queue: Queue,
    rate: float,
    rng: np.random.Generator,
    *,
    factor: float = 1.0,
    noise: float = 0.05,
    seed: int = 0,
    stall_s: float = 0.0,
) -> Served:
    """Return what processes would answer whose service times are those of a queue, with noise.

    One batch of twenty, of whatever size, takes `stall_s` (s) longer.
    """
    of = queue.batching
    load = Load(rate=rate, seed=seed, duration_s=20.0, sizes=of.sizes, wait_s=of.wait_s)
    service_s = (factor * queue.times.service_s(of.sizes, rate)).tolist()
    members = []
    for number in range(of.processes):
        own = load.of(number, of.processes) if of.processes > 1 else load
        due_s = arrivals.due_times(random.Random(own.seed), own.rate, own.duration_s)
        factors = np.exp(noise * rng.standard_normal(len(due_s))).tolist()
        log: list[Batch] = []
        stalls_s = (stall_s * (rng.random(len(due_s)) < 0.05)).tolist() if stall_s else [0.0] * len(due_s)
        simulated = _replayed(due_s, of, service_s, factors, stalls_s, log)
        counted = [r for due, r in zip(due_s, simulated, strict=True) if due >= 4.0]
        members.append(
            Served(
                load=own, elapsed_s=20.0, window_s=20.0, n_requests=len(counted), responses_s=tuple(counted),
                batches=(tuple(log),),
            )
        )  # fmt: skip
    return together(load, members)


def _replayed(
    due_s: Sequence[float],
    of: Batching,
    service_s: Sequence[float],
    factors: Sequence[float],
    stalls_s: Sequence[float],
    log: list[Batch],
) -> list[float]:
    """Return the responses of one process with one caller; its batches are added to a log."""
    first, free_s, responses_s = 0, 0.0, []
    while first < len(due_s):
        complete_s = due_s[first] + of.wait_s
        if first + of.sizes[-1] <= len(due_s):
            complete_s = min(complete_s, max(due_s[first], due_s[first + of.sizes[-1] - 1]))
        begin_s = max(free_s, complete_s)
        taken = [due for due in due_s[first : first + of.sizes[-1]] if due <= begin_s]
        at = next(i for i, size in enumerate(of.sizes) if size >= len(taken))
        seconds = service_s[at] * factors[len(log)] + stalls_s[len(log)]
        free_s = begin_s + seconds
        log.append(Batch(n_requests=len(taken), size=of.sizes[at], service_s=seconds))
        responses_s += [free_s - due for due in taken]
        first += len(taken)
    return responses_s


class ScriptedWorker:
    """A worker whose batches take what a queue says."""

    peak_memory_bytes: int | None = 1 << 30
    answers_on: Sequence[int] = ()

    def __init__(self, host: ScriptedWorkers, queue: Queue) -> None:
        self.host, self.queue, self.is_closed, self.is_paused = host, queue, False, False

    def ready(self) -> ReadyReport:
        steps = Slice(start_s=0.0, elapsed_s=1.0, n_steps=10, step_s=(0.1,) * 10)
        return ReadyReport(import_s=0, context_s=0, load_s=0, first_step_s=0, warm_up=steps, effective={})

    def set_batch_size(self, batch_size: int) -> ReadyReport:
        raise NotImplementedError

    def slice(self, duration_s: float) -> Slice:
        self.host.happened.append("slice")
        step_s = self.queue.batching.sizes[-1] / self.queue.saturation
        n = math.ceil(duration_s / step_s)
        return Slice(start_s=0.0, elapsed_s=n * step_s, n_steps=n, step_s=(step_s,) * n)

    def load(self, load: Load) -> Served:
        assert not self.is_paused
        assert sum(not each.is_paused and not each.is_closed for each in self.host.workers) == 1
        self.host.happened.append(f"{load.rate:.0f}" if load.duration_s else "warm")
        if load.duration_s and self.host.fails_at == len(self.host.happened):
            raise TrialFailure(Status.CRASHED, "the process was killed by signal 9")
        if not load.duration_s:
            return Served.from_report(load, {})
        return served_by(self.queue, load.rate, self.host.rng, seed=load.seed)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def close(self) -> ExitStatus:
        self.is_closed = True
        return ExitStatus(returncode=0, peak_memory_bytes=None)


class ScriptedWorkers:
    """Starts them, of each setting those of its queue."""

    def __init__(self, queues: dict[Setting, Queue], fails_at: int = -1) -> None:
        self.queues, self.fails_at = queues, fails_at
        self.rng = np.random.default_rng(0)
        self.happened: list[str] = []
        self.workers: list[ScriptedWorker] = []

    def launch(self, setting: Setting, deployment: Deployment) -> ScriptedWorker:
        del deployment
        self.workers.append(ScriptedWorker(self, self.queues[setting]))
        return self.workers[-1]

    def now(self) -> float:
        return 0.0


QUIET = Conditions(
    elapsed_s=240.0, n_cpus=2, steal_share=0.0, foreign_cpus=0.0, pressure_share=0.0, throttled_share=0.0, hot=None,
    mhz=None, asleep_s=0.0,
)  # fmt: skip
DEFAULT, FASTER = setting(intra_op=2, batch_size=8), setting(intra_op=1, batch_size=8)
FAST = Queue(batching=TRUE.batching, times=times_of({n: s / 1.5 for n, s in SERVICE_S.items()}))
CANDIDATES = [
    LoadCandidate(name=name, setting=each, deployment=Deployment(), sizes=(1, 2, 4, 8), wait_s=0.0)
    for name, each in (("tf-default", DEFAULT), ("one process", FASTER))
]


def held(n: int = 4, fails_at: int = -1) -> tuple[list[LoadRound], ScriptedWorkers]:
    host, saturation = ScriptedWorkers({DEFAULT: TRUE, FASTER: FAST}, fails_at), {}
    rng = np.random.default_rng(1)
    rounds = [run_round(CANDIDATES, host, saturation, rng, number=i, n_parallel_starts=2) for i in range(n)]
    return rounds, host


def result_of(rounds: list[LoadRound], limit_ms: float | None = 80.0) -> LoadResult:
    limit_s = None if limit_ms is None else limit_ms / 1000
    return LoadResult(
        study="made-1",
        workload="made",
        item="image",
        limit_ms=limit_ms,
        curves=curve_results(CANDIDATES, rounds, limit_s=limit_s, margin=0.02, tunes=False),
        rounds=len(rounds),
        timed_s=240.0,
        failures={},
        measured_at="2026-11-28T20:00:00+00:00",
        conditions=QUIET,
        warnings=(),
    )
