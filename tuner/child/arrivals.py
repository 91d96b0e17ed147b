"""Arrivals: calls that come at random times, whether or not the model is ready for them, as users' requests do.

Callers that wait for an answer before they ask again never see a queue: such a closed system answers fast however slow
it is (Schroeder, Wierman & Harchol-Balter 2006, Open versus closed: a cautionary tale, NSDI). In the open system here
requests are due at the times of a Poisson process, and what is reported counts from there:

    tᵢ₊₁ = tᵢ + eᵢ / λ,  eᵢ ~ Exp(1)        due times, at λ requests per second
    rᵢ = (end of request i) − tᵢ            its response time, the wait for those before it included

Requests are answered in the order in which they are due, by as many callers as there are streams. A caller takes a
batch of them: it goes when it is full, or `wait_s` after its first request was due, or else as soon as a caller is
free. A slice begins with an empty queue, so those that are due in its first part are answered and not counted. It ends
when all are answered, or after twice its time: what has not begun by then has waited at least so long, and counts with
that.
"""

from __future__ import annotations

import bisect
import random
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from .adapter import Step
from .callers import CLOCK, MAX_STEP_TIMES, Callers, Report

NOT_COUNTED = 0.2  # of a slice, at its beginning
PATIENCE = 2.0  # a slice is given up after so many times its length
MAX_REPORTED = 2000  # responses and batches of one slice under load


class Arrivals:
    """Requests to the callers of a loaded model, a call each."""

    def __init__(self, callers: Callers, rate: float, seed: int) -> None:
        """`rate` is in requests per second; equal seeds give equal due times."""
        self.callers, self.rate = callers, rate
        self.random = random.Random(seed)

    def slices(self, duration_s: float) -> List[Report]:
        """Answer what is due within `duration_s`; return the slice, with the outputs of the last call."""
        queue = Queue(due_times(self.random, self.rate, duration_s), duration_s)
        queue.answer_all([{1: step} for step in self.callers.steps], self.callers.wait)
        counted = queue.counted()
        stride = -(-len(counted) // MAX_STEP_TIMES)
        return [
            {
                "start_s": queue.start,
                "elapsed_s": queue.elapsed_s,
                "n_steps": len(counted),
                "step_s": [round(r, 7) for r in counted[::stride]],
                "window_s": queue.window_s,
                "outputs": queue.outputs[1],
            }
        ]

    def close(self) -> None:
        """End the callers."""
        self.callers.close()


def due_times(random_: random.Random, rate: float, duration_s: float) -> List[float]:
    """Return when requests are due (s after the beginning): all until `duration_s`, one that counts at least."""
    due_s: List[float] = []
    at_s = random_.expovariate(rate)
    while at_s < duration_s or not due_s or due_s[-1] < NOT_COUNTED * duration_s:
        due_s.append(at_s)
        at_s += random_.expovariate(rate)
    return due_s


def under_load(by_size: Mapping[int, Callers], wait: Callable[[], None], load: Dict[str, Any]) -> Report:
    """Answer requests of one item each; return their responses and batches, with the last outputs of each batch size.

    `by_size` are the callers of each batch size, of which a batch takes the smallest that it fits in, as servers do.
    `load` has the `rate` (1/s) of requests, their `seed`, the `duration_s`, and how long (s) a batch waits, `wait_s`. A
    batch is the number of its requests, its size, and its service time (s): from when it could begin until its end.
    """
    duration_s: float = load["duration_s"]
    queue = Queue(due_times(random.Random(load["seed"]), load["rate"], duration_s), duration_s, load["wait_s"])
    queue.answer_all(list(map(dict, zip(*([(n, step) for step in of.steps] for n, of in by_size.items())))), wait)
    counted = queue.counted()
    stride = -(-len(counted) // MAX_REPORTED)
    return {
        "elapsed_s": queue.elapsed_s,
        "window_s": queue.window_s,
        "n_requests": len(counted),
        "responses_s": [round(r, 6) for r in counted[::stride]],
        "batches": [(n, size, round(seconds, 6)) for n, size, seconds in queue.batches[:MAX_REPORTED]],
        "outputs": queue.outputs,
    }


class Queue:
    """The requests of a slice, the batches that they were answered in, and how long each took."""

    def __init__(self, due_s: Sequence[float], duration_s: float, wait_s: float = 0.0) -> None:
        """Times count from the beginning of the slice."""
        self.due_s, self.wait_s = due_s, wait_s
        self.first_counted_s = NOT_COUNTED * duration_s
        self.window_s = max(duration_s, due_s[-1])
        self.responses_s = [0.0] * len(due_s)
        self.batches: List[Tuple[int, int, float]] = []
        self.outputs: Dict[int, Any] = {}
        """The last of each batch size."""
        self.start = self.elapsed_s = 0.0
        self.next = 0
        self.lock = threading.Lock()
        self.errors: List[BaseException] = []

    def answer_all(self, callers: Sequence[Mapping[int, Step]], wait: Callable[[], None]) -> None:
        """Let each caller answer one batch after the other, with a step for each size; raises what a call raises."""
        self.start = CLOCK()
        others = [threading.Thread(target=self.answer, args=(steps, wait)) for steps in callers[1:]]
        for other in others:
            other.start()
        self.answer(callers[0], wait)
        for other in others:
            other.join()
        if self.errors:
            raise self.errors[0]
        self.elapsed_s = CLOCK() - self.start

    def answer(self, steps: Mapping[int, Step], wait: Callable[[], None]) -> None:
        """Take the next batch when it is complete, and call the model, until there is none."""
        sizes, free_s = sorted(steps), 0.0
        while not self.errors:
            with self.lock:  # whoever waits for a batch to fill is the next to go
                first = self.next
                if first >= len(self.due_s):
                    return
                begin_s = max(free_s, self.complete_s(first, sizes[-1]))
                early_s = self.start + begin_s - CLOCK()
                if early_s > 0:
                    time.sleep(early_s)
                now_s = CLOCK() - self.start
                last = min(first + sizes[-1], len(self.due_s))
                end = max(first + 1, bisect.bisect_right(self.due_s, now_s, first, last))
                self.next = end
            size = sizes[bisect.bisect_left(sizes, end - first)]
            is_answered = now_s < PATIENCE * self.window_s
            try:
                if is_answered:
                    self.outputs[size] = steps[size]()
                    wait()
            except BaseException as error:  # it is raised where the slice was asked for
                self.errors.append(error)
            free_s = CLOCK() - self.start
            if is_answered:
                self.batches.append((end - first, size, free_s - begin_s))
            for number in range(first, end):
                self.responses_s[number] = free_s - self.due_s[number]

    def complete_s(self, first: int, size: int) -> float:
        """Return when the batch that begins with a request waits no longer: it is full then, or has waited enough."""
        until_s = self.due_s[first] + self.wait_s
        last = first + size - 1
        return min(until_s, self.due_s[last]) if last < len(self.due_s) else until_s

    def counted(self) -> List[float]:
        """Return the responses (s) of the requests that count."""
        return [r for due_s, r in zip(self.due_s, self.responses_s) if due_s >= self.first_counted_s]


def of_spec(callers: Callers, spec: Dict[str, Any]) -> Any:
    """Return what a worker with this specification times: requests at a rate where it has one, else the callers."""
    return callers if spec.get("rate") is None else Arrivals(callers, spec["rate"], spec["seed"])
