"""What a scheduler would reach that knows the best number of threads of each operator.

That is Liu et al.'s question (Runtime Concurrency Control and Operation Scheduling for High Performance Neural Network
Training on Manycore Architectures, IPDPS 2019), answered by list scheduling over the same tasks and costs:

    n_i*   the fewest threads with which task i takes at most a share h more than its least time
    order  the longest path to the end first, with times at n_i*
    a ready task starts with min(n_i*, idle cores), or with no more than its part of these where others are ready too,
    and keeps them to its end: counts do not flap;
    a task of no more than `_SMALL_S` runs beside others on second hardware threads where all cores are busy

The best of several h, and of taking all idle cores or a part of them, counts: an estimate of what such a scheduler
reaches, and no proof that none is faster. Their order is by arrival. Tasks beside each other take what they take on the
cores that each has; memory is shared as in `tuner.model.executor`.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from tuner.model.hardware import Hardware
from tuner.model.predictor import Predictor, profiled
from tuner.model.tasks import Tasks
from tuner.stats.estimate import Array

_SLACKS = (0.05, 0.25, 0.75)  # h
_SMALL_S = 100e-6
_TINY = 1e-15


def ideal_makespan_s(predictor: Predictor, batch_size: int, hardware: Hardware) -> float:
    """Return how long a step of that scheduler lasts (s); uncalibrated, so that it compares with simulations."""
    alone = _Alone.of(predictor, batch_size, hardware)
    makespan_s = min(
        _makespan_s(predictor, predictor.tasks(batch_size), alone, hardware, slack=slack, shares=shares)
        for slack in _SLACKS
        for shares in (False, True)
    )
    # No scheduler has more CPU time than the quota.
    return makespan_s if hardware.quota is None else max(makespan_s, alone.cpu_s / hardware.quota)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alone:
    """What tasks take with each of some numbers of threads.

    Times (s), the parts of them in which data comes from memory (s), and the bytes that do.
    """

    counts: list[int]
    times_s: Array
    memory_s: Array
    moved: Array
    cpu_s: float
    """CPU time of a step with one thread for each task."""

    @classmethod
    def of(cls, predictor: Predictor, batch_size: int, hardware: Hardware) -> _Alone:
        """Return what tasks take on up to all cores, arrays of shape (counts, tasks) and (tasks,)."""
        limit = hardware.cores if hardware.quota is None else min(hardware.cores, math.ceil(hardware.quota))
        counts = _counts(limit)
        dispatched_s = predictor.dispatch_s * np.array(predictor.tasks(batch_size).n_operators)
        rows = [predictor.alone(profiled(n, batch_size, predictor), hardware, float(n)) for n in counts]
        return cls(
            counts=counts,
            times_s=np.array([each.time_s + dispatched_s for each in rows]),
            memory_s=np.array([each.memory_s for each in rows]),
            moved=rows[0].moved,
            cpu_s=float(rows[0].busy_s.sum() + dispatched_s.sum()),
        )


def _makespan_s(
    predictor: Predictor, tasks: Tasks, alone: _Alone, hardware: Hardware, *, slack: float, shares: bool
) -> float:
    """Return how long a step lasts (s) with a slack h; `shares` tells whether a task leaves idle cores to others."""
    counts, times_s, memory_s, moved = alone.counts, alone.times_s, alone.memory_s, alone.moved
    best = np.argmax(times_s <= (1 + slack) * times_s.min(axis=0), axis=0)  # the first that is hardly slower
    best_s = times_s[best, np.arange(len(tasks))]
    urgency = best_s.copy()  # the longest path to the end
    for i in range(len(tasks) - 1, -1, -1):
        urgency[i] += max((urgency[j] for j in tasks.next[i]), default=0.0)
    missing = list(tasks.n_needed)
    ready = [(-urgency[i], i) for i, needed in enumerate(missing) if not needed]
    heapq.heapify(ready)
    running: list[tuple[float, int, int]] = []  # when it ends, the task, its cores
    demand: dict[int, float] = {}  # bytes/s of what runs
    # As in simulations, no third thread of a core adds anything.
    now_s, idle, spare = 0.0, counts[-1], int(counts[-1] * (min(hardware.smt, 2.0) - 1))
    while ready or running:
        while ready and (idle or (spare and best_s[ready[0][1]] <= _SMALL_S)):
            _, i = heapq.heappop(ready)
            if idle:
                free = max(1, idle // (1 + len(ready))) if shares else idle
                at = int(np.searchsorted(counts, min(counts[best[i]], free), side="right")) - 1
                cores, threads = int(counts[at]), 0
                seconds = times_s[at, i]
            else:
                at, cores, threads = 0, 0, 1
                seconds = times_s[0, i] / predictor.terms.smt_yield
            demand[i] = moved[i] / max(_TINY, seconds)
            excess = max(0.0, sum(demand.values()) / hardware.most_bytes_s - 1) if len(demand) > 1 else 0.0
            seconds *= 1 + excess * memory_s[at, i] / max(_TINY, times_s[at, i])
            idle, spare = idle - cores, spare - threads
            heapq.heappush(running, (now_s + float(seconds), i, cores))
        now_s, ended, cores = heapq.heappop(running)
        del demand[ended]
        idle, spare = idle + cores, spare + (cores == 0)
        for following in tasks.next[ended]:
            missing[following] -= 1
            if not missing[following]:
                heapq.heappush(ready, (-urgency[following], following))
    return now_s


def _counts(cores: int) -> list[int]:
    """Return the thread counts that a task may have: each up to 8, then steps of about a quarter, and all cores."""
    counts = list(range(1, min(cores, 8) + 1))
    while counts[-1] < cores:
        counts.append(min(cores, counts[-1] + max(1, counts[-1] // 4)))
    return counts
