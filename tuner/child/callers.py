"""Callers: threads of this process that run steps of one model at the same time, as a server's requests do.

A framework may run calls one after another though they came together: of two that take T alone, one then ends after T
and the other after 2 T, and only from then on each takes 2 T. So a slice of several callers counts from each one's
first step on, and lasts until each has had another while all were at work:

    rate = Σᵢ (mᵢ − 1) / (tᵢ,mᵢ − tᵢ,₁)        tᵢ,ⱼ the end of step j of caller i, mᵢ steps until all have two
"""

from __future__ import annotations

import math
import queue
import threading
import time
from typing import Any, Callable, Dict, List, Sequence

from .adapter import Step

MAX_STEP_TIMES = 400  # of one slice; a slice of more steps reports every k-th, so that a report stays small
CLOCK = time.perf_counter

Report = Dict[str, Any]


class Callers:
    """Some callers; the only one is the thread that asks."""

    def __init__(self, steps: Sequence[Step], wait: Callable[[], None]) -> None:
        """Each caller has a step of its own; `wait` waits for the device."""
        self.steps, self.wait = steps, wait
        self.requests: List["queue.SimpleQueue[float]"] = []
        self.answers: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self.together = threading.Barrier(len(steps))
        self.ends: List[List[float]] = []
        """When each caller's steps of this slice ended."""
        self.n_counted: List[int] = []
        """How many of them had ended when the slice was over."""
        self.stopped = threading.Event()
        for number in range(len(steps) if len(steps) > 1 else 0):
            requests: "queue.SimpleQueue[float]" = queue.SimpleQueue()
            self.requests.append(requests)
            threading.Thread(target=self._serve, args=(number, requests), name="caller", daemon=True).start()

    def slices(self, duration_s: float) -> List[Report]:
        """Let all run whole steps until `duration_s` has passed; return the slice of each, with its last outputs."""
        if len(self.steps) == 1:
            return [time_slice(self.steps[0], self.wait, duration_s)]
        self.ends = [[] for _ in self.steps]
        self.stopped.clear()
        for requests in self.requests:
            requests.put(duration_s)
        answers = [self.answers.get() for _ in self.steps]
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        counted = [ends[:n] for n, ends in zip(self.n_counted, self.ends)]
        return [dict(slice_of(ends[0], ends[1:]), outputs=outputs) for ends, outputs in zip(counted, answers)]

    def close(self) -> None:
        """End the threads."""
        for requests in self.requests:
            requests.put(math.nan)

    def _serve(self, number: int, requests: "queue.SimpleQueue[float]") -> None:
        while not math.isnan(duration_s := requests.get()):
            self.together.wait()
            self.answers.put(self._run(number, duration_s))

    def _run(self, number: int, duration_s: float) -> Any:
        """Run a caller's steps of a slice; return its last outputs, or the exception that ended it."""
        step, ends = self.steps[number], self.ends[number]
        stop = CLOCK() + duration_s
        outputs = None
        try:
            while not self.stopped.is_set():
                outputs = step()
                self.wait()
                ends.append(CLOCK())
                # Whoever sees it first decides for all; later steps run beside idle callers and do not count.
                if ends[-1] >= stop and all(len(each) >= 2 for each in self.ends) and not self.stopped.is_set():
                    self.n_counted = [len(each) for each in self.ends]
                    self.stopped.set()
            return outputs
        except BaseException as error:  # it is raised where the slice was asked for
            self.stopped.set()
            return error


def report_of(slices: List[Report]) -> Report:
    """Return the slice of the only caller as it is, or those of several under `callers`."""
    return slices[0] if len(slices) == 1 else {"callers": slices}


def step_time(slices: List[Report]) -> float:
    """Return about how long a step takes of all callers together: the inverse of the sum of their rates."""
    rate: float = sum(each["n_steps"] / each["elapsed_s"] for each in slices)
    return 1 / rate


def time_slice(step: Step, wait: Callable[[], None], duration_s: float) -> Report:
    """Run whole steps until `duration_s` has passed, and wait for what the device has not done yet.

    The clock is read once a step and nothing else is done.
    """
    ends = []
    start = CLOCK()
    stop = start + duration_s
    now = start
    while now < stop:
        outputs = step()
        now = CLOCK()
        ends.append(now)
    wait()
    ends[-1] = CLOCK()
    return dict(slice_of(start, ends), outputs=outputs)


def slice_of(start: float, ends: List[float]) -> Report:
    """Return the slice of the steps that ended at `ends`."""
    times = [after - before for before, after in zip([start] + ends, ends)]
    stride = -(-len(times) // MAX_STEP_TIMES)
    return {
        "start_s": start,
        "elapsed_s": ends[-1] - start,
        "n_steps": len(times),
        "step_s": [round(t, 7) for t in times[::stride]],
    }
