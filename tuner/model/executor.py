"""A simulation of a step: TensorFlow's executor over tasks, event by event.

State between two events: k tasks run, at most one in each of the executor's slots (`inter_op`); the others that are
ready wait in a queue. A task that ends makes others ready: its slot runs the cheap ones of them, one after the other,
else goes on with the first; the rest join the queue. A slot that has nothing to do sleeps, and takes a while until it
begins with what is handed to it; so does the slot that hands it over, for each that it wakes.

    n_E   = max(1, intra_op / k)     threads of an operator on the pool that all share (Eigen's); cheap tasks, which run
                                     on the thread that found them, do not count
    n_O                              threads of a team of OpenMP's, one team for each slot
    n_i   = threads of task i while it runs on several; a_i = the share of T_i(n) in which it runs on one
    O_i   = Σ busy threads of the other tasks, on average + spinning threads of idle teams
    crowd(N) = max(1, N / capacity(N))
            (what a pool loses by too many threads, it loses in the part of them that others wait for: 2 (1 − k / N))
    slow  = (a_i crowd(1 + O_i) + (1 − a_i) crowd(n_i + O_i)) · (1 + m (max(1, D / W_max) − 1))
            the second factor for k > 1 only: T(n) knows what one task does

where D = Σ of the bytes that running tasks move a second, each slowed down by the first factor, and m the share of a
task's time in which data comes from memory. A task's rate is 1 / (T(n) slow), and what is done of it stays done when
rates change. A quota limits the capacity at each moment, and stops threads that others wait for. (That threads run
until the time of a period is used up would gain in steps shorter than that; measured steps do not show it.)
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.model.costs import Operating
from tuner.model.hardware import TERMS, Hardware, Terms
from tuner.model.tasks import Tasks

_TINY = 1e-15
_NEGLIGIBLE = 1e-9  # share of a time

_Row = tuple[list[float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """How a process runs operators: slots of the executor, threads of the shared pool, threads of a team.

    `team` is None where nothing runs on OpenMP; `blocktime_s` is for how long a team's threads spin once there is
    nothing to do. `streams` steps are on their way at once.
    """

    inter_op: int
    intra_op: int
    team: int | None = None
    blocktime_s: float = 0.0
    streams: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What came of `streams` steps at once: until the last ends (s); how many tasks ran on average, and at most.

    `mean_threads` are those that operators had, on average over time. While one of them is serial the others spin.
    """

    makespan_s: float
    mean_running: float
    most_running: int
    mean_threads: float


Alone = Callable[[float], Operating]
"""What tasks take with so many threads of the shared pool each, alone on the machine."""


def simulate(
    tasks: Tasks,
    alone: Alone,
    pools: Pools,
    hardware: Hardware,
    *,
    has_team: Sequence[bool] | None = None,
    dispatch_s: float,
    terms: Terms = TERMS,
) -> Simulated:
    """Return how long steps take; `dispatch_s` (s) is what the executor itself takes for an operator.

    `has_team` tells which tasks have operators that run on a team; all of them if it is not given.
    """
    slots = max(1, pools.inter_op)
    n_tasks = len(tasks)
    missing = list(tasks.n_needed) * pools.streams
    sources = [i for i, needed in enumerate(tasks.n_needed) if not needed]
    ready: deque[int] = deque()
    afterwards: dict[int, deque[int]] = {}  # cheap tasks that the slot of a task runs after it, where there are any
    for first in range(0, pools.streams * n_tasks, n_tasks):
        cheap = deque(first + i for i in sources if tasks.is_cheap[i])
        if cheap:
            ready.append(cheap.popleft())
            afterwards[ready[-1]] = cheap
        ready.extend(first + i for i in sources if not tasks.is_cheap[i])
    left: dict[int, float] = {}  # of each running task, the share that is not done
    waking_s: dict[int, float] = {}  # until its thread begins, of each whose slot wakes, or wakes others first
    idle_since: deque[float] = deque()  # when slots became idle whose teams may still spin
    now_s = busy = worked_s = 0.0
    most = 0
    awake = 1  # slots without a task whose thread is at work: it looks for another one
    rows = _Rows(alone, tasks, dispatch_s)
    tasks_next, is_cheap = tasks.next, tasks.is_cheap

    @functools.cache
    def crowded(n_threads: float, k: int) -> float:
        # Threads of a pool that work on one operator each wait for nobody.
        forked = min(1.0, 2 * (1 - k / max(n_threads, k)))
        switch = forked * terms.eigen_switch if pools.team is None else terms.openmp_switch
        crowd = max(1.0, n_threads / max(_TINY, hardware.capacity(n_threads, switch, terms)))
        if hardware.quota is not None and n_threads > hardware.quota:
            excess_threads = n_threads / hardware.quota - 1
            waits = min(1.0, n_threads - 1)  # a thread that is alone in its process keeps nobody waiting
            crowd = max(crowd, (1 + excess_threads) * (1 + waits * terms.throttle * min(1.0, excess_threads)))
        return crowd

    def slowed(i: int, others: float, k: int) -> float:
        """Return the first factor of `slow` of a task, beside so many threads of others."""
        if most_threads[i] + others <= n_free:
            return 1.0
        return serial[i] * crowded(1 + others, k) + (1 - serial[i]) * crowded(most_threads[i] + others, k)

    n_free = min(hardware.cores, hardware.quota or hardware.cores)
    hand_s = hardware.waking * terms.hand_s
    while ready or left:
        while ready and len(left) < slots:
            task = ready.popleft()
            left[task] = 1.0
            if awake:
                awake -= 1
            else:
                waking_s[task] = hardware.waking * terms.wake_s
            if idle_since:
                idle_since.pop()
        awake = 0
        k = len(left)
        most = max(most, k)
        n_sharing = 1 if k == 1 else max(1, sum(not is_cheap[task % n_tasks] for task in left))
        time_s, serial, threads, most_threads, memory_share, bytes_s = rows.at(max(1.0, pools.intra_op / n_sharing))
        spinning = _spinning(idle_since, now_s, pools) if idle_since else 0
        if k == 1:  # most of a chain
            [task] = left
            i = task % n_tasks
            step_s = left.pop(task) * time_s[i] * slowed(i, spinning, 1) + waking_s.pop(task, 0.0)
            worked_s += most_threads[i] * step_s
            ended = [task]
        else:
            own = [task % n_tasks for task in left]
            all_threads = sum(threads[i] for i in own) + spinning
            crowds = [slowed(i, all_threads - threads[i], k) for i in own]
            demand = sum(bytes_s[i] / crowd for i, crowd in zip(own, crowds, strict=True))
            excess = max(0.0, demand / hardware.most_bytes_s - 1)
            works_s = [
                left[task] * time_s[i] * crowd * (1 + memory_share[i] * excess)
                for task, i, crowd in zip(left, own, crowds, strict=True)
            ]
            needs_s = [work_s + waking_s.get(task, 0.0) for work_s, task in zip(works_s, left, strict=True)]
            step_s = min(needs_s)
            worked_s += sum(most_threads[i] for i in own) * step_s
            ended = []
            for task, work_s, need_s in zip(list(left), works_s, needs_s, strict=True):
                if need_s <= step_s * (1 + 1e-9) + _TINY:
                    ended.append(task)
                    waking_s.pop(task, None)
                    del left[task]
                    continue
                done_s = max(0.0, step_s - waking_s.get(task, 0.0))
                left[task] *= 1 - done_s / work_s
                if task in waking_s:
                    waking_s[task] = max(0.0, waking_s[task] - step_s)
        now_s += step_s
        busy += k * step_s
        for task in ended:
            stream = task - task % n_tasks
            here = afterwards.pop(task, None)
            others: list[int] = []
            for following in tasks_next[task % n_tasks]:
                missing[stream + following] -= 1
                if missing[stream + following]:
                    continue
                if not is_cheap[following]:
                    others.append(stream + following)
                elif here is None:
                    here = deque((stream + following,))
                else:
                    here.append(stream + following)
            if here:  # its own slot is free
                task = here.popleft()
                left[task] = 1.0
                if here:
                    afterwards[task] = here
                ready.extend(others)
                if n_handed := min(len(others), slots - len(left)):
                    waking_s[task] = n_handed * hand_s
                continue
            if others:
                left[others[0]] = 1.0
                ready.extend(others[1:])
                if n_handed := min(len(others) - 1, slots - len(left)):
                    waking_s[others[0]] = n_handed * hand_s
                continue
            awake += 1
            if pools.blocktime_s > 0 and (has_team is None or has_team[task % n_tasks]):
                idle_since.append(now_s)
    over_s = max(now_s, _TINY)
    return Simulated(makespan_s=now_s, mean_running=busy / over_s, most_running=most, mean_threads=worked_s / over_s)


def _spinning(idle_since: deque[float], now_s: float, pools: Pools) -> float:
    """Return how many threads of idle teams still spin, without the one of the executor, which waits for work.

    Teams that have gone to sleep are forgotten.
    """
    while idle_since and now_s - idle_since[0] > pools.blocktime_s:
        idle_since.popleft()
    return len(idle_since) * max(0, (pools.team or 0) - 1)


class _Rows:
    """What tasks take with the shares of the pool that occur, as lists: an event looks at few of them."""

    def __init__(self, alone: Alone, tasks: Tasks, dispatch_s: float) -> None:
        self._alone, self._dispatched_s = alone, dispatch_s * np.array(tasks.n_operators, dtype=float)
        self._known: dict[float, _Row] = {}

    def at(self, n: float) -> _Row:
        """Return what there is to know of each task.

        Its time (s), the share of that in which it runs on one thread, its busy threads on average, those beside each
        other in the rest of the time, the share of time in which data comes from memory, and bytes/s.
        """
        if n not in self._known:
            alone = self._alone(n)
            time_s = np.maximum(_TINY, alone.time_s + self._dispatched_s)
            serial_s = np.minimum(time_s, alone.serial_s + self._dispatched_s)
            busy_s = alone.busy_s + self._dispatched_s
            threads = np.where(alone.time_s > 0, busy_s / time_s, 1.0)
            parallel_s = time_s - serial_s
            is_divided = parallel_s > _NEGLIGIBLE * time_s
            beside = np.where(is_divided, (busy_s - serial_s) / np.where(is_divided, parallel_s, 1.0), 1.0)
            shares_s = alone.memory_s / time_s, alone.moved / time_s
            rows = time_s, serial_s / time_s, threads, np.maximum(1.0, beside), *shares_s
            self._known[n] = tuple(each.tolist() for each in rows)
        return self._known[n]
