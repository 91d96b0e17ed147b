"""Arrivals: calls that come at random times, whether or not the model is ready for them, as users' requests do.

Callers that wait for an answer before they ask again never see a queue: such a closed system answers fast however slow
it is (Schroeder, Wierman & Harchol-Balter 2006, Open versus closed: a cautionary tale, NSDI). In the open system here
requests are due at the times of a Poisson process, and what is reported counts from there:

    tᵢ₊₁ = tᵢ + eᵢ / λ,  eᵢ ~ Exp(1)        due times, at λ requests a second
    rᵢ = (end of request i) − tᵢ            its response time, the wait for those before it included

Requests are answered in the order in which they are due, by as many callers as there are streams. A slice begins with
an empty queue, so those that are due in its first part are answered and not counted. It ends when all are answered, or
after twice its time: what has not begun by then has waited at least so long, and counts with that.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Any, Callable, Dict, List, Sequence

from .adapter import Step
from .callers import CLOCK, MAX_STEP_TIMES, Callers, Report

NOT_COUNTED = 0.2  # of a slice, at its beginning
PATIENCE = 2.0  # a slice is given up after so many times its length


class Arrivals:
    """Requests to the callers of a loaded model."""

    def __init__(self, callers: Callers, rate: float, seed: int) -> None:
        """`rate` is in requests a second; equal seeds give equal due times."""
        self.callers, self.rate = callers, rate
        self.random = random.Random(seed)

    def slices(self, duration_s: float) -> List[Report]:
        """Answer what is due within `duration_s`; return the slice, with the outputs of the last call."""
        first_counted_s = NOT_COUNTED * duration_s
        due_s = self.due_times(duration_s, first_counted_s)
        queue = Queue(due_s, give_up_s=PATIENCE * max(duration_s, due_s[-1]))
        start = CLOCK()
        queue.answer_all(self.callers.steps, self.callers.wait, start)
        counted = [r for due, r in zip(due_s, queue.responses_s) if due >= first_counted_s]
        stride = -(-len(counted) // MAX_STEP_TIMES)
        return [
            {
                "start_s": start,
                "elapsed_s": CLOCK() - start,
                "n_steps": len(counted),
                "step_s": [round(r, 7) for r in counted[::stride]],
                "window_s": max(duration_s, due_s[-1]),
                "outputs": queue.outputs,
            }
        ]

    def due_times(self, duration_s: float, first_counted_s: float) -> List[float]:
        """Return when requests are due (s after the beginning): all until `duration_s`, one that counts at least."""
        due_s: List[float] = []
        at_s = self.random.expovariate(self.rate)
        while at_s < duration_s or not due_s or due_s[-1] < first_counted_s:
            due_s.append(at_s)
            at_s += self.random.expovariate(self.rate)
        return due_s

    def close(self) -> None:
        """End the callers."""
        self.callers.close()


class Queue:
    """The requests of a slice, and how long each took."""

    def __init__(self, due_s: Sequence[float], give_up_s: float) -> None:
        """Both count from the beginning of the slice."""
        self.due_s, self.give_up_s = due_s, give_up_s
        self.responses_s = [0.0] * len(due_s)
        self.outputs: Any = None
        self.next = 0
        self.lock = threading.Lock()
        self.errors: List[BaseException] = []

    def answer_all(self, steps: Sequence[Step], wait: Callable[[], None], start: float) -> None:
        """Let each step's caller answer one request after the other; raises what a call raises."""
        others = [threading.Thread(target=self.answer, args=(step, wait, start)) for step in steps[1:]]
        for other in others:
            other.start()
        self.answer(steps[0], wait, start)
        for other in others:
            other.join()
        if self.errors:
            raise self.errors[0]

    def answer(self, step: Step, wait: Callable[[], None], start: float) -> None:
        """Take the next request, wait until it is due, and call the model, until there is none."""
        while not self.errors:
            with self.lock:
                number, self.next = self.next, self.next + 1
            if number >= len(self.due_s):
                return
            due = start + self.due_s[number]
            early_s = due - CLOCK()
            if early_s > 0:
                time.sleep(early_s)
            try:
                if CLOCK() - start < self.give_up_s:
                    self.outputs = step()
                    wait()
            except BaseException as error:  # it is raised where the slice was asked for
                self.errors.append(error)
            self.responses_s[number] = CLOCK() - due


def of_spec(callers: Callers, spec: Dict[str, Any]) -> Any:
    """Return what a worker with this specification times: requests at a rate where it has one, else the callers."""
    return callers if spec.get("rate") is None else Arrivals(callers, spec["rate"], spec["seed"])
