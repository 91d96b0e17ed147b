"""How the time of a contest is divided between the finals, at one batch size, and the scan of all batch sizes.

Notation, of a setting at batch size b
    s(b)    time (s) of a step: an item takes as long as at the nearest batch size that was measured
    start   time (s) until a process is warm; 2 s(b) more where steps are long
    turns   time (s) for which it takes turns with the reference; of long steps, the second one of a process's start is
            its turn

Order: first the curves that answer the question (`answering`), of all batch sizes; then the others, where time is left.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tuner.job.frameworks.contest import Contest
from tuner.job.frameworks.participant import Entry
from tuner.measure.cell import MAX_PAIR_S, is_long_block
from tuner.measure.finals import Round, log_rates
from tuner.measure.interruption import step_s
from tuner.measure.objective import Objective
from tuner.report.lineup import Kind
from tuner.stats.estimate import paired
from tuner.stats.tail import samples_needed
from tuner.trial.outcome import Status

TAIL_STEPS = (samples_needed(0.95), samples_needed(0.99))  # of one item at a time, whose tail is told
MAX_TAIL_S = 45.0
MAX_ANCHOR_S = 20.0  # of the reference at the batch size of the contest, beside long steps of its own
_LEAST_PAIR_S = 6.0  # of a cell whose steps are short
_WARM_UP_STEPS = 2


def answering(contest: Contest, rounds: Sequence[Round]) -> list[Entry]:
    """Return the settings whose curves come first: each default, and what the finals show to be faster than it.

    The curve of a tuned setting that is not told apart from its default says nothing that the default's does not.
    """
    return [each for each in contest.entries() if each.kind is Kind.DEFAULT or _is_faster(contest, rounds, each)]


def _is_faster(contest: Contest, rounds: Sequence[Round], tuned: Entry) -> bool:
    """Return whether the rounds show that a tuned setting is faster than its default."""
    default = replace(tuned, kind=Kind.DEFAULT)
    both = [each.contender(contest.batch_size) for each in (default, tuned)]
    names, y = log_rates(rounds, both, Objective.THROUGHPUT)
    has_both = names == [default.name, tuned.name] and bool(np.isfinite(y).all(axis=1).any())
    return has_both and paired(y, 0, 1).interval()[0] > 1


def steps_s(rounds: Sequence[Round], name: str) -> list[float]:
    """Return how long a step of a contender took (s), in each of its slices."""
    return [step_s(each) for round_ in rounds for each in round_.slices.get(name, ())]


class Schedule:
    """What the scan lacks of some settings, and about how long that takes, by the steps that were measured so far."""

    def __init__(self, contest: Contest, rounds: Sequence[Round], entries: Sequence[Entry]) -> None:
        """`rounds` are those of the finals."""
        self._contest, self._reference, self._entries = contest, contest.reference_entry, entries
        self._steps_s = {
            (entry.name, contest.batch_size): statistics.median(own_s)
            for entry in contest.entries()
            if (own_s := steps_s(rounds, entry.name))
        }
        """How long steps are (s), by setting and batch size."""
        self.batch_sizes = [size for size in contest.batches if not (rounds and size == contest.batch_size)]
        """Those of the scan: what the finals have measured is known."""

    def waiting(self, batch_size: int) -> list[Entry]:
        """Return the settings of which nothing is known at a batch size, and whose curve has not ended before.

        The reference is first, then those that need little memory: one that memory does not hold may take the
        reference with it. None wait where the reference failed, or was not measured when it was its turn: rates are
        relative to it.
        """
        reference_cell = self._contest.cell(self._reference, batch_size)
        if self._contest.lost_at is not None and self._contest.lost_at <= batch_size:
            has_reference = False
        elif reference_cell is None:
            has_reference = self._reference in self._entries
        else:
            has_reference = reference_cell.status is Status.OK
        waiting = [
            entry
            for entry in self._entries
            if has_reference
            and self._contest.cell(entry, batch_size) is None
            and not self._has_ended(entry, batch_size)
        ]
        return sorted(waiting, key=lambda entry: (entry != self._reference, self._memory_bytes(entry, batch_size)))

    def warm_s(self, entry: Entry, batch_size: int) -> float:
        """Return about how long (s) it takes until a process is warm."""
        return entry.participant.start_s + _WARM_UP_STEPS * self._step_s(entry, batch_size)

    def late_s(self, entry: Entry, batch_size: int) -> float | None:
        """Return about how long (s) a start takes that is not warm by its deadline; None for one that is.

        The start that was timed had warm steps of the contest's batch size.
        """
        needed_s = self.warm_s(entry, batch_size) - _WARM_UP_STEPS * self._step_s(entry, self._contest.batch_size)
        return needed_s if needed_s > entry.participant.job.deadline_s else None

    def cell_s(self, entry: Entry, batch_size: int, pair_s: float) -> float:
        """Return about how long (s) a cell takes beside a live reference, where steps are timed for `pair_s` (s).

        The reference's own takes turns with another process, at the batch size of the contest. Single items go on for
        as long as their tail needs, where that is within reach.
        """
        own_s, reference_s = self._step_s(entry, batch_size), self._step_s(self._reference, batch_size)
        if entry == self._reference:
            anchor_s = max(min(own_s, MAX_ANCHOR_S), self._step_s(entry, self._contest.batch_size))
            warm_s = self.warm_s(entry, batch_size) + self.warm_s(entry, self._contest.batch_size)
            return warm_s + _turns_s(own_s + anchor_s, pair_s)
        # Both have slices of the same length, unless a step is longer.
        slice_s, reference_slice_s = (max(each, entry.participant.job.slice_s) for each in (own_s, reference_s))
        tails_s = [n * own_s * (1 + reference_slice_s / slice_s) for n in TAIL_STEPS if batch_size == 1]
        least_s = max((tail_s for tail_s in tails_s if tail_s <= MAX_TAIL_S), default=0.0)
        if is_long_block(own_s + reference_s) and entry.contender(batch_size).deployment.processes == 1:
            return self.warm_s(entry, batch_size) + reference_s
        return self.warm_s(entry, batch_size) + max(least_s, _turns_s(own_s + reference_s, pair_s))

    def next_s(self, entry: Entry, waiting: Sequence[Entry], batch_size: int, *, has_reference: bool) -> float:
        """Return about how long (s) it takes at least until the next cell of those that wait is worth something.

        The reference's alone is not, where others wait that are to be compared with it.
        """
        needed_s = self.cell_s(entry, batch_size, 0.0)
        if entry == self._reference:
            others_s = (self.cell_s(each, batch_size, 0.0) for each in waiting if each != entry)
            return needed_s + min(others_s, default=0.0)
        return needed_s + (0.0 if has_reference else self.warm_s(self._reference, batch_size))

    def scan_s(self, most_s: float) -> float:
        """Return about how long (s) what the scan lacks takes at least.

        Batch sizes for which there is no time any more, of `most_s` (s), do not count.
        """
        return sum(self._sizes_s(most_s, since=0).values())

    def pair_s(self, batch_size: int) -> float:
        """Return for how long (s) cells of short steps are timed from a batch size on: less where time is short."""
        left_s = self._contest.left_s()
        sizes_s = self._sizes_s(left_s, batch_size)
        if not sizes_s:
            return _LEAST_PAIR_S
        shortest_s, longest_s = sum(sizes_s.values()), sum(self._cells_s(size, MAX_PAIR_S) for size in sizes_s)
        if longest_s <= max(left_s, shortest_s):
            return MAX_PAIR_S
        return _LEAST_PAIR_S + (MAX_PAIR_S - _LEAST_PAIR_S) * (left_s - shortest_s) / (longest_s - shortest_s)

    def _sizes_s(self, most_s: float, since: int) -> dict[int, float]:
        """Return how long (s) the cells take that are missing, by batch size from one on, as far as the time goes."""
        sizes_s: dict[int, float] = {}
        for batch_size in self.batch_sizes:
            if batch_size >= since:
                needed_s = self._cells_s(batch_size, _LEAST_PAIR_S)
                if sum(sizes_s.values()) + needed_s > most_s:
                    break
                sizes_s[batch_size] = needed_s
        return sizes_s

    def _cells_s(self, batch_size: int, pair_s: float) -> float:
        """Return how long (s) the cells take that are missing at a batch size, without those that cannot get warm."""
        all_waiting = self.waiting(batch_size)
        waiting = [entry for entry in all_waiting if self.late_s(entry, batch_size) is None]
        if self._reference in all_waiting and self._reference not in waiting:
            return 0.0  # without it there are none
        needs_reference = bool(waiting) and waiting[0] != self._reference
        beside_s = self.warm_s(self._reference, batch_size) if needs_reference else 0.0
        return beside_s + sum(self.cell_s(entry, batch_size, pair_s) for entry in waiting)

    def _step_s(self, entry: Entry, batch_size: int) -> float:
        """Return s(b) of a setting, 0 where nothing is known."""
        for size in self._contest.batches:
            if (entry.name, size) not in self._steps_s:
                cell = self._contest.cell(entry, size)
                if cell is not None and cell.slices:
                    self._steps_s[entry.name, size] = statistics.median(map(step_s, cell.slices))
        sizes = [size for name, size in self._steps_s if name == entry.name]
        if not sizes:
            return 0.0
        nearest = min(sizes, key=lambda size: max(size / batch_size, batch_size / size))
        return self._steps_s[entry.name, nearest] * batch_size / nearest

    def _memory_bytes(self, entry: Entry, batch_size: int) -> int:
        """Return the peak memory of a setting at the largest batch size below one that was measured, 0 for none."""
        smaller = [size for size in self._contest.batches if size < batch_size]
        cells = [self._contest.cell(entry, size) for size in sorted(smaller, reverse=True)]
        return next((cell.peak_memory_bytes for cell in cells if cell is not None and cell.peak_memory_bytes), 0)

    def _has_ended(self, entry: Entry, batch_size: int) -> bool:
        """Return whether memory or its time ran out at a smaller batch size already, of it or of the reference."""
        smaller = [
            self._contest.cell(each, size)
            for each in (entry, self._reference)
            for size in self._contest.batches
            if size < batch_size
        ]
        return any(cell is not None and cell.status in (Status.OOM, Status.TIMEOUT) for cell in smaller)


def _turns_s(both_s: float, pair_s: float) -> float:
    """Return for how long (s) two take turns whose steps last for `both_s` (s) together; see `CellPlan.pair_of`."""
    return both_s if is_long_block(both_s) else max(pair_s, 2 * both_s)
