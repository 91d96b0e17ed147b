"""The pair: two live processes that take turns in slices, so that both see the same weather.

The order is ABBA (reference, candidate, candidate, reference), which cancels a drift that is linear over a
quad, and BAAB in every other quad, so that both resume equally often: the first slice after a turn of the other is
a little slower than the second. The idle process is stopped, so that its spinning threads cannot interfere. One
quad gives one log-ratio.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tuner.measure.objective import Objective
from tuner.measure.statistics import Array
from tuner.trial.launcher import Process
from tuner.trial.outcome import Slice, TrialFailure


class ReferenceLost(Exception):  # noqa: N818  # as TrialFailure: a state of the study, not an error of the tool
    """The reference process failed; the candidate is not to blame."""

    def __init__(self, failure: TrialFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPlan:
    """How long a pair goes on: `slice_s` a slice, and at least, at most so many quads."""

    slice_s: float = 0.5
    min_quads: int = 2
    max_quads: int = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The raw slices of a pair: 2 of the reference and 2 of the candidate a quad, each in order of time."""

    reference: list[Slice] = field(default_factory=list)
    candidate: list[Slice] = field(default_factory=list)

    @property
    def n_quads(self) -> int:
        """Return the number of complete quads."""
        return len(self.reference) // 2

    @property
    def timed_s(self) -> float:
        """Return the time spent inside slices."""
        return sum(s.elapsed_s for s in self.reference) + sum(s.elapsed_s for s in self.candidate)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Pair:
        """Return the pair of a stored trial."""
        return cls(
            reference=[Slice.from_dict(s) for s in data["reference"]],
            candidate=[Slice.from_dict(s) for s in data["candidate"]],
        )

    def to_dict(self) -> dict[str, object]:
        """Return the pair as plain data."""
        return {"reference": [s.to_dict() for s in self.reference], "candidate": [s.to_dict() for s in self.candidate]}


def log_ratios(pair: Pair, objective: Objective, *, batch_sizes: tuple[int, int]) -> Array:
    """Return the log-ratio candidate/reference of each quad, shape (n_quads,); `batch_sizes` in that order too."""
    candidate_batch, reference_batch = batch_sizes
    a = np.array([objective.log_rate(s, reference_batch) for s in pair.reference]).reshape(-1, 2).mean(axis=1)
    b = np.array([objective.log_rate(s, candidate_batch) for s in pair.candidate]).reshape(-1, 2).mean(axis=1)
    return np.asarray(b - a, dtype=float)


def measure_pair(reference: Process, candidate: Process, plan: PairPlan, *, enough: Callable[[Pair], bool]) -> Pair:
    """Return the slices of a warm pair; both processes are paused before and after.

    After `min_quads` the pair ends as soon as `enough` says so. Raises TrialFailure for the candidate's failure,
    ReferenceLost for the reference's.
    """
    pair = Pair()
    while pair.n_quads < plan.max_quads:
        if pair.n_quads % 2 == 0:
            before = _reference_slices(reference, plan, 1)
            pair.candidate.extend(_slices(candidate, plan, 2))
            pair.reference.extend(before + _reference_slices(reference, plan, 1))
        else:
            before = _slices(candidate, plan, 1)
            pair.reference.extend(_reference_slices(reference, plan, 2))
            pair.candidate.extend(before + _slices(candidate, plan, 1))
        if pair.n_quads >= plan.min_quads and enough(pair):
            break
    return pair


def _slices(process: Process, plan: PairPlan, n: int) -> list[Slice]:
    process.resume()
    slices = [process.slice(plan.slice_s) for _ in range(n)]
    process.pause()
    return slices


def _reference_slices(reference: Process, plan: PairPlan, n: int) -> list[Slice]:
    try:
        return _slices(reference, plan, n)
    except TrialFailure as failure:
        raise ReferenceLost(failure) from failure
