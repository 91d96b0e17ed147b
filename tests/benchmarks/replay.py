"""Replaying recorded traces: processes of made speed in the drift of a real, noisy machine.

A trace is what slices of one setting looked like in many fresh processes, one after another
(`tests.benchmarks.record`). It is taken apart into

    y_k = process effect + w_k        log rate of slice k

where the effect is the process's mean beside its session's other processes, shrunk to the variance that is left when
the slices' own noise is taken off, and w_k is all the rest: drift, spikes, noise, in the order of time. A replay puts
blocks of w one after another, begun at random and of random length, 60 s on average (the stationary bootstrap:
Politis & Romano 1994, JASA 89), so that what belongs together in time stays together; and it draws the effect of each
new process.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.record import FOLDER, N_PROCESSES
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.trial.outcome import ExitStatus, ReadyReport, Slice

BLOCK_S = 60.0
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trace:
    """Drift w (n,), log scale, with the duration (s) of each, and the effects of processes (p,), log scale."""

    w: Array
    duration_s: Array
    process_effects: Array


def load(name: str) -> Trace:
    """Return a recorded trace."""
    with (FOLDER / f"{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    session = np.array([int(row["session"]) for row in rows])
    process = np.array([int(row["process"]) for row in rows])
    elapsed = np.array([float(row["elapsed_s"]) for row in rows])
    y = np.log(np.array([int(row["n_steps"]) for row in rows]) / elapsed)
    process_effects: dict[int, float] = {}
    between, explained = [], []
    for s in np.unique(session):
        in_session = session == s
        means, noise = _means(y[in_session])
        process_effects |= dict(zip(map(int, np.unique(process[in_session])), means - means.mean(), strict=True))
        between.append(float(means.var(ddof=1)))
        explained.append(noise)
    # Of the scatter of the means, what the slices' own noise explains is no process effect.
    shrink = math.sqrt(max(0.0, 1 - float(np.mean(explained)) / float(np.mean(between))))
    # A process was measured beside the mean of its session, of which it is itself a part.
    shrink *= math.sqrt(N_PROCESSES / (N_PROCESSES - 1))
    process_effects = {p: shrink * value for p, value in process_effects.items()}
    w = y - np.array([process_effects[int(p)] for p in process])
    return Trace(w=w - w.mean(), duration_s=elapsed, process_effects=np.array(list(process_effects.values())))


def _means(y: Array) -> tuple[Array, float]:
    """Return the mean of each process of a session, (p,), drift taken out, and the variance that noise gives them.

    There and back is a block: each process has two slices in it, about the same moment. Within blocks, what is left of
    the processes' means is noise: the residual of a randomised complete block design.
    """
    p = N_PROCESSES
    blocks = y[: len(y) // (2 * p) * (2 * p)].reshape(-1, 2 * p)
    z = (blocks[:, :p] + blocks[:, : p - 1 : -1]) / 2
    residual = z - z.mean(axis=0) - z.mean(axis=1, keepdims=True) + z.mean()
    return z.mean(axis=0), float((residual**2).sum()) / ((len(z) - 1) * (p - 1)) / len(z)


class ReplayLauncher:
    """Processes of `rate(setting)` items/s in the drift of a trace; time is the trace's."""

    def __init__(
        self, trace: Trace, rate: Callable[[Setting], float], rng: np.random.Generator, *, start_s: float = 2.5
    ) -> None:
        self._trace = trace
        self.rate = rate
        self.rng = rng
        self.start_s = start_s
        self.clock_s = 0.0
        self.n_slices = 0
        self._usual_s = float(trace.duration_s.mean())
        self._at = int(rng.integers(len(trace.w)))
        """The recorded slice that comes next."""

    def launch(self, setting: Setting, deployment: Deployment) -> ReplayProcess:
        """Start a process; all that start together take `start_s` once, see `ReplayProcess.ready`."""
        del deployment
        return ReplayProcess(self, setting, float(self.rng.choice(self._trace.process_effects)))

    def now(self) -> float:
        """Return the replayed time."""
        return self.clock_s

    def run(self, work_s: float) -> float:
        """Return how long (s) a slice takes that would take `work_s` in average conditions, and let that time pass.

        Whole recorded slices are used up, one at least: what a slice scatters by is its own, and no neighbour's.
        """
        n = max(1, round(work_s / self._usual_s))
        speed = float(np.mean([math.exp(self._trace.w[self._next()]) for _ in range(n)]))
        elapsed_s = work_s / speed
        self.clock_s += elapsed_s
        self.n_slices += 1
        return elapsed_s

    def wait(self, duration_s: float) -> None:
        """Let time pass, and the drift with it."""
        self.clock_s += duration_s
        for _ in range(round(duration_s / self._usual_s)):
            self._next()

    def _next(self) -> int:
        """Return the next recorded slice: the one after the last, or, once in a while, the first of another block."""
        at = self._at
        ends = self.rng.random() < self._usual_s / BLOCK_S
        self._at = int(self.rng.integers(len(self._trace.w))) if ends else (at + 1) % len(self._trace.w)
        return at


class ReplayProcess:
    """One replayed process."""

    peak_memory_bytes = None
    answers_on = ()

    def __init__(self, host: ReplayLauncher, setting: Setting, process_effect: float) -> None:
        self._host = host
        self._setting = setting
        self._process_effect = process_effect

    @property
    def _step_work(self) -> float:
        """Return how long (s) a step takes in average conditions."""
        return self._setting.batch_size / (self._host.rate(self._setting) * math.exp(self._process_effect))

    def ready(self) -> ReadyReport:
        """Take a start's time; two that start together each take half of it."""
        self._host.wait(self._host.start_s / 2)
        return self._warm_up()

    def set_batch_size(self, batch_size: int) -> ReadyReport:
        """Go on with another batch size; the process keeps its effect, and takes one step to warm up."""
        self._setting = self._setting.with_values(batch_size=batch_size)
        self._host.wait(self._step_work)
        return self._warm_up()

    def _warm_up(self) -> ReadyReport:
        warm_up = Slice(start_s=0.0, elapsed_s=self._step_work, n_steps=1, step_s=(self._step_work,))
        return ReadyReport(import_s=0, context_s=0, load_s=0, first_step_s=0, warm_up=warm_up, effective={})

    def slice(self, duration_s: float) -> Slice:
        """Run whole steps for about `duration_s`."""
        start_s = self._host.clock_s
        n_steps = max(1, math.ceil(duration_s / self._step_work))
        elapsed_s = self._host.run(n_steps * self._step_work)
        return Slice(start_s=start_s, elapsed_s=elapsed_s, n_steps=n_steps, step_s=(elapsed_s / n_steps,))

    def pause(self) -> None:
        """Nothing runs in between."""

    def resume(self) -> None:
        """Nothing was stopped."""

    def close(self) -> ExitStatus:
        """End the process."""
        return ExitStatus(returncode=0, peak_memory_bytes=None)
