"""The clock of a profile: a process with one thread, in turns with which processes with more threads are timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

from tuner.measure.interruption import step_s
from tuner.measure.objective import Objective
from tuner.measure.pair import ReferenceLost, log_ratios, run_pair
from tuner.measure.passes import Live
from tuner.trial.outcome import Slice, TrialFailure
from tuner.trial.process import ChildProcess

_SLICE_S = 0.5
_MAX_PASSES, _MAX_PAIR_S = 2, 8.0


class Resized:
    """A process that is ready, with the batch size that it has: each other one is a warm-up more."""

    def __init__(self, process: ChildProcess, batch_size: int) -> None:
        """Take a process that was launched with a batch size; raises TrialFailure."""
        self.process, self._batch_size = process, batch_size
        self._step_s = process.ready().step_s

    def at(self, batch_size: int) -> ChildProcess:
        """Return the process, warm at a batch size; raises TrialFailure."""
        if batch_size != self._batch_size:
            self._step_s = self.process.set_batch_size(batch_size).step_s
            self._batch_size = batch_size
        return self.process

    @property
    def live(self) -> Live:
        """Return the process as one of a pass; it is paused."""
        return Live(process=self.process, usual_s=[self._step_s])


class Clock:
    """A process with one thread that others are timed in turns with."""

    def __init__(self, resized: Resized, batch_sizes: Sequence[int]) -> None:
        """Take a paused process at the largest of some batch sizes."""
        self._resized = resized
        self.batch_sizes = sorted(batch_sizes, reverse=True)
        self._slices: dict[int, list[Slice]] = {size: [] for size in self.batch_sizes}

    def fill(self, *, n_slices: int) -> None:
        """Time so many slices of its own at each batch size at which there are none; raises TrialFailure."""
        self._resized.process.resume()
        for size in self.batch_sizes:
            if not self._slices[size]:
                self._slices[size] += [self._resized.at(size).slice(_SLICE_S) for _ in range(n_slices)]
        self._resized.process.pause()

    def step_s(self, batch_size: int) -> float:
        """Return how long its own step takes (s) at a batch size: the median of all slices."""
        return median(map(step_s, self._slices[batch_size]))

    def time(self, other: Resized, is_late: Callable[[], bool], *, max_passes: int = _MAX_PASSES) -> dict[int, float]:
        """Return how many times as long a step of another takes at each batch size, in turns with its own.

        Batch sizes for which there is no time are left out. Raises TrialFailure, or ReferenceLost where its own process
        failed.
        """
        own = self._resized.process
        times: dict[int, float] = {}
        for batch_size in self.batch_sizes:
            if is_late():
                break
            other.at(batch_size).pause()
            try:
                own.resume()
                self._resized.at(batch_size).pause()
            except TrialFailure as failure:
                raise ReferenceLost(failure) from failure
            both = self._resized.live, other.live
            pair = run_pair(*both, enough=lambda pair: pair.is_long(_MAX_PAIR_S), max_passes=max_passes)
            self._slices[batch_size] += pair.reference
            ratios = log_ratios(pair, Objective.THROUGHPUT, batch_sizes=(batch_size, batch_size))
            times[batch_size] = math.exp(-float(ratios.mean()))
            other.process.resume()
        return times
