"""The pair: two live processes that take turns in slices, so that drift affects both alike.

The order is ABBA (reference, candidate, candidate, reference), which cancels a drift that is linear over a
block, and BAAB in every other block, so that both resume equally often: the first slice after a turn of the other is
a little slower than the second. The idle process is stopped, so that its spinning threads cannot interfere. One
block gives one log-ratio. Where a step lasts so long that even one block of these takes too much time, a block is one
turn of each, AB or BA: a drift is not cancelled within it, but a slice has averaged over more of it. Where only the
candidate's steps are long, half of the reference's come before them and half after, ABA. A candidate that has just
begun has taken the last step of its warm-up while the reference was paused: that can be its first turn.

Where memory holds one process only, the two live one at a time instead: each block is of a new process of both, AABB or
BBAA in turns, so that what processes differ by and what the machine drifts by within a block are in the scatter of the
blocks, which is what the interval is from.

A block in which the machine was suspended or a slice stalled is measured again and recorded. All clocks are monotonic.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tuner.machine.conditions import suspended_s
from tuner.measure import interruption
from tuner.measure.interruption import Interruption, Kind
from tuner.measure.objective import Objective
from tuner.measure.planning import SLICE_S
from tuner.stats.estimate import Array
from tuner.trial.launcher import Process
from tuner.trial.outcome import Slice, TrialFailure, joined

_MAX_SUSPENDED_BLOCKS = 20  # accept the data in the end, even if the machine keeps suspending


class ReferenceLost(Exception):  # noqa: N818  # as TrialFailure: a state of the study, not an error of the tool
    """The reference process failed; the candidate is not to blame."""

    def __init__(self, failure: TrialFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPlan:
    """How long a pair goes on: about `slice_s` a slice, and at least, at most so many blocks.

    A block has `slices_per_block` slices of each: two (ABBA), or one (AB). At most `max_repeated_blocks` blocks are
    measured again. With `one_at_a_time` the two never live at once.
    """

    slice_s: float = SLICE_S
    slices_per_block: int = 2
    min_blocks: int = 1
    max_blocks: int = 8
    max_repeated_blocks: int = 3
    one_at_a_time: bool = False

    def request_s(self, step_s: float) -> float:
        """Return for how long (s) to ask, so that a slice is the whole number of steps nearest to `slice_s`.

        A slice ends with the first step that ends after the time asked for, so half a step less is asked for.
        """
        return (max(1, round(self.slice_s / step_s)) - 0.5) * step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The raw slices of a pair, of the reference and of the candidate, each in order of time.

    A block has `slices_per_block` of either. `interruptions` says why blocks were measured again.
    """

    reference: list[Slice] = field(default_factory=list)
    candidate: list[Slice] = field(default_factory=list)
    interruptions: list[Interruption] = field(default_factory=list)
    slices_per_block: int = 2

    @property
    def n_blocks(self) -> int:
        """Return the number of complete blocks."""
        return len(self.reference) // self.slices_per_block

    def block_means(self, values: Array) -> Array:
        """Return the mean of each block, shape (n_blocks,), of what each slice of a side has."""
        return np.asarray(values.reshape(-1, self.slices_per_block).mean(axis=1), dtype=float)

    @property
    def timed_s(self) -> float:
        """Return the time spent inside slices."""
        return sum(s.elapsed_s for s in self.reference) + sum(s.elapsed_s for s in self.candidate)

    def is_long(self, limit_s: float) -> bool:
        """Return whether one more block would make its slices last for more than `limit_s`."""
        return self.timed_s * (1 + 1 / max(self.n_blocks, 1)) > limit_s

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Pair:
        """Return the pair of a stored trial."""
        return cls(
            reference=[Slice.from_dict(s) for s in data["reference"]],
            candidate=[Slice.from_dict(s) for s in data["candidate"]],
            interruptions=[Interruption.from_dict(each) for each in data.get("interruptions", [])],
            slices_per_block=data.get("slices_per_block", 2),
        )

    def to_dict(self) -> dict[str, object]:
        """Return the pair as plain data."""
        data: dict[str, object] = {
            "reference": [s.to_dict() for s in self.reference],
            "candidate": [s.to_dict() for s in self.candidate],
            "interruptions": [each.to_dict() for each in self.interruptions],
        }
        return data | ({} if self.slices_per_block == 2 else {"slices_per_block": self.slices_per_block})


def log_ratios(pair: Pair, objective: Objective, *, batch_sizes: tuple[int, int]) -> Array:
    """Return the log-ratio candidate/reference of each block, shape (n_blocks,); `batch_sizes` in that order too."""
    candidate_batch, reference_batch = batch_sizes
    a = np.array([objective.log_rate(s, reference_batch) for s in pair.reference])
    b = np.array([objective.log_rate(s, candidate_batch) for s in pair.candidate])
    return pair.block_means(b - a)


def measure_pair(
    reference: Process,
    candidate: Process,
    plan: PairPlan,
    *,
    step_s: tuple[float, float] | None = None,
    enough: Callable[[Pair], bool],
    turn: Slice | None = None,
    pair: Pair | None = None,
    slept: Callable[[], float] = suspended_s,
) -> Pair:
    """Return the slices of a warm pair, after those of an earlier `pair` of the two if one is given.

    Both processes are paused before and after. `step_s` is about how long a step of the reference and of the candidate
    takes, if that is known; `turn` what the candidate has just run while the reference was paused, if that can be its
    first slice of a block of one; `slept` tells for how long the machine has slept. After `min_blocks` the pair ends as
    soon as `enough` says so. Raises TrialFailure for the candidate's failure, ReferenceLost for the reference's.
    """
    pair = pair or Pair(slices_per_block=plan.slices_per_block)
    while pair.n_blocks < plan.max_blocks:
        ask = _request_s(pair, plan, step_s)
        slept_s = slept()
        mirrored = pair.n_blocks % 2 == 1
        if turn is not None and pair.slices_per_block == 1:
            block = _measure_after(turn, reference, candidate, ask)
            turn = None
        elif not plan.one_at_a_time and _can_be_halved(pair, ask[0], step_s):
            block = _measure_between(reference, candidate, ask)
        elif plan.one_at_a_time or pair.slices_per_block == 1:
            # One at a time the candidate is first, as the first of its processes is there already.
            is_first = mirrored == plan.one_at_a_time
            block = _measure_turns(reference, candidate, ask, pair.slices_per_block, reference_first=is_first)
        else:
            block = _measure_block(reference, candidate, ask, mirrored=mirrored)
        why = _interruption(pair, block, slept() - slept_s, step_s, waits=plan.one_at_a_time)
        if why is not None and len(pair.interruptions) < (
            plan.max_repeated_blocks if why.kind is Kind.STALLED else _MAX_SUSPENDED_BLOCKS
        ):
            pair.interruptions.append(why)
            continue
        pair.reference.extend(block[0])
        pair.candidate.extend(block[1])
        if pair.n_blocks >= plan.min_blocks and enough(pair):
            break
    return pair


def _request_s(pair: Pair, plan: PairPlan, step_s: tuple[float, float] | None) -> tuple[float, float]:
    """Return for how long (s) to ask the reference and the candidate: by the steps seen, before any by `step_s`.

    What a process told of its warm-up may be one step, with tracing in it, beside others that started too.
    """
    if pair.n_blocks:
        steps = (statistics.median(map(interruption.step_s, side)) for side in (pair.reference, pair.candidate))
        reference, candidate = (plan.request_s(step) for step in steps)
        return reference, candidate
    return (plan.slice_s, plan.slice_s) if step_s is None else (plan.request_s(step_s[0]), plan.request_s(step_s[1]))


def _measure_block(
    reference: Process, candidate: Process, ask: tuple[float, float], *, mirrored: bool
) -> tuple[list[Slice], list[Slice]]:
    """Return two slices of the reference and two of the candidate: ABBA, or BAAB if mirrored."""
    if mirrored:
        first = _slices(candidate, ask[1], 1)
        middle = _reference_slices(reference, ask[0], 2)
        return middle, first + _slices(candidate, ask[1], 1)
    first = _reference_slices(reference, ask[0], 1)
    middle = _slices(candidate, ask[1], 2)
    return first + _reference_slices(reference, ask[0], 1), middle


def _measure_turns(
    reference: Process, candidate: Process, ask: tuple[float, float], n: int, *, reference_first: bool
) -> tuple[list[Slice], list[Slice]]:
    """Return n slices of the reference and n of the candidate, in one turn of each."""
    if reference_first:
        before = _reference_slices(reference, ask[0], n)
        return before, _slices(candidate, ask[1], n)
    first = _slices(candidate, ask[1], n)
    return _reference_slices(reference, ask[0], n), first


def _can_be_halved(pair: Pair, ask_s: float, step_s: tuple[float, float] | None) -> bool:
    """Return whether the reference's only slice of a block, for which `ask_s` (s) are asked, has several steps."""
    if pair.slices_per_block > 1 or (step_s is None and not pair.n_blocks):
        return False
    own_s = statistics.median(map(interruption.step_s, pair.reference)) if step_s is None else step_s[0]
    return ask_s >= 2 * own_s


def _measure_between(
    reference: Process, candidate: Process, ask: tuple[float, float]
) -> tuple[list[Slice], list[Slice]]:
    """Return a slice of the candidate, and one of the reference: a half before it and a half after it."""
    [before] = _reference_slices(reference, ask[0] / 2, 1)
    middle = _slices(candidate, ask[1], 1)
    [after] = _reference_slices(reference, ask[0] / 2, 1)
    return [joined(before, after)], middle


def _measure_after(
    turn: Slice, reference: Process, candidate: Process, ask: tuple[float, float]
) -> tuple[list[Slice], list[Slice]]:
    """Return a slice of the candidate, its `turn`, and one of the reference.

    Where the device tells what it takes, the candidate has another one: of a warm-up nobody has read that.
    """
    after = _reference_slices(reference, ask[0], 1)
    return after, [turn] if after[0].energy_j is None else _slices(candidate, ask[1], 1)


def _interruption(
    pair: Pair,
    block: tuple[list[Slice], list[Slice]],
    slept_s: float,
    warm_step_s: tuple[float, float] | None,
    *,
    waits: bool,
) -> Interruption | None:
    """Return why a block does not count, None if it does; `waits` tells that processes start within it.

    A slice is held against the others of its process; against its warm-up (s), where it is the only one.
    """
    usual_s = [[interruption.step_s(each) for each in side] for side in (pair.reference, pair.candidate)]
    if pair.slices_per_block == 1 and pair.n_blocks == 0 and warm_step_s is not None:
        usual_s = [[each] for each in warm_step_s]
    stalls = (interruption.stalled(usual, new) for usual, new in zip(usual_s, block, strict=True))
    reasons = (
        interruption.suspended(slept_s),
        None if waits else interruption.idle(block[0] + block[1], "a block"),
        *stalls,
    )
    return next((reason for reason in reasons if reason is not None), None)


def _slices(process: Process, ask_s: float, n: int) -> list[Slice]:
    process.resume()
    slices = [process.slice(ask_s) for _ in range(n)]
    process.pause()
    return slices


def _reference_slices(reference: Process, ask_s: float, n: int) -> list[Slice]:
    try:
        return _slices(reference, ask_s, n)
    except TrialFailure as failure:
        raise ReferenceLost(failure) from failure
