"""What the scan of batch sizes lacks, in which order it is measured, and about how long that takes.

Notation, of a setting at batch size b
    s(b)    time (s) of a step: an item takes as long as at the nearest batch size that was measured
    start   time (s) until a process is warm; 2 s(b) more where steps are long

Order: first the curves that answer the question (`answering`), of all batch sizes; then the others, where time is left.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tuner.job.frameworks.contest import Contest
from tuner.job.frameworks.participant import Entry
from tuner.measure.cell import MAX_ANCHOR_S, MAX_PASS_S
from tuner.measure.finals import Round, log_rates
from tuner.measure.interruption import step_s
from tuner.measure.objective import Objective
from tuner.report.lineup import Kind
from tuner.stats.estimate import paired
from tuner.trial.outcome import Status

_OWN_S = 3.0  # of slices of short steps, until a ratio is known
_MAX_TOGETHER = 10  # processes beside the reference and its anchor
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

        The reference is first, then those that need little memory. None wait where the reference failed, or was not
        measured when it was its turn: rates are relative to it.
        """
        contest, own = self._contest, self._contest.cell(self._reference, batch_size)
        is_lost = contest.lost_at is not None and contest.lost_at <= batch_size
        is_missing = own is None and self._reference not in self._entries
        if is_lost or is_missing or (own is not None and own.status is not Status.OK):
            return []
        ended = {each.name for each in self._entries if self._has_ended(each, batch_size)}
        waiting = [e for e in self._entries if contest.cell(e, batch_size) is None and e.name not in ended]
        return sorted(waiting, key=lambda each: (each != self._reference, self._memory_bytes(each, batch_size)))

    def groups(self, waiting: Sequence[Entry], batch_size: int) -> list[list[Entry]]:
        """Return those that wait, but for the reference, in groups that memory holds together beside that one."""
        free_bytes = self._contest.free_memory_bytes()
        groups: list[list[Entry]] = [[]]
        used_bytes = reference_bytes = self._memory_bytes(self._reference, batch_size)
        for entry in waiting:
            if entry == self._reference:
                continue
            own_bytes = self._memory_bytes(entry, batch_size)
            is_full = len(groups[-1]) == _MAX_TOGETHER or (free_bytes or own_bytes) < used_bytes + own_bytes
            if groups[-1] and is_full:
                groups.append([])
                used_bytes = reference_bytes
            groups[-1].append(entry)
            used_bytes += own_bytes
        return groups

    def is_long(self, live: Sequence[Entry], batch_size: int) -> bool:
        """Return whether a pass of two slices of each, the reference among them, lasts too long."""
        others = [each for each in live if each != self._reference]
        return 2 * sum(self._slice_s(each, batch_size) for each in [self._reference, *others]) > MAX_PASS_S

    def warm_s(self, entry: Entry, batch_size: int) -> float:
        """Return about how long (s) it takes until a process is warm."""
        return entry.participant.start_s + _WARM_UP_STEPS * self._step_s(entry, batch_size)

    def late_s(self, entry: Entry, batch_size: int) -> float | None:
        """Return about how long (s) a start takes that is not warm by its deadline; None for one that is.

        The start that was timed had warm steps of the contest's batch size.
        """
        needed_s = self.warm_s(entry, batch_size) - _WARM_UP_STEPS * self._step_s(entry, self._contest.batch_size)
        return needed_s if needed_s > entry.participant.job.deadline_s else None

    def expected_s(self, batch_size: int) -> float:
        """Return about how long (s) it takes to measure what waits at a batch size, without what starts too late.

        Of long steps the end of a warm-up is the only slice, but for the reference.
        """
        all_waiting = self.waiting(batch_size)
        waiting = [each for each in all_waiting if self.late_s(each, batch_size) is None]
        if not waiting or (self._reference in all_waiting and self._reference not in waiting):
            return 0.0
        live = [self._reference, *(each for each in waiting if each != self._reference)]
        warm_s = sum(self.warm_s(each, batch_size) for each in live)
        is_long = self.is_long(live, batch_size)
        anchor_s = 0.0
        if self._reference in waiting and batch_size != self._contest.batch_size:
            warm_s += self.warm_s(self._reference, self._contest.batch_size)
            anchor_s = max(min(self._step_s(self._reference, batch_size), MAX_ANCHOR_S), 0.0 if is_long else _OWN_S)
        if is_long:
            return warm_s + anchor_s + self._slice_s(self._reference, batch_size)
        return warm_s + anchor_s + sum(max(_OWN_S, 2 * self._step_s(each, batch_size)) for each in live)

    def scan_s(self, most_s: float) -> float:
        """Return about how long (s) what the scan lacks takes.

        Batch sizes for which there is no time any more, of `most_s` (s), do not count.
        """
        total_s = 0.0
        for batch_size in self.batch_sizes:
            needed_s = self.expected_s(batch_size)
            if total_s + needed_s > most_s:
                break
            total_s += needed_s
        return total_s

    def _slice_s(self, entry: Entry, batch_size: int) -> float:
        return max(self._step_s(entry, batch_size), entry.participant.job.slice_s)

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

    def _memory_bytes(self, entry: Entry, batch_size: int) -> float:
        """Return about the most memory that a setting needs: of more items, that much more; 0 where nothing is known.

        By the largest batch size below one that was measured, or else by its first start.
        """
        cells = [self._contest.cell(entry, size) for size in self._contest.batches if size < batch_size]
        cells.append(entry.participant.starts.get(entry.kind))
        known = {each.batch_size: each.peak_memory_bytes for each in cells if each is not None}
        sizes = sorted(size for size, peak_bytes in known.items() if peak_bytes)
        nearest = max((size for size in sizes if size <= batch_size), default=min(sizes, default=batch_size))
        return (known.get(nearest) or 0) * max(1.0, batch_size / nearest)

    def _has_ended(self, entry: Entry, batch_size: int) -> bool:
        """Return whether memory or its time ran out at a smaller batch size already, of it or of the reference."""
        smaller = [
            self._contest.cell(each, size)
            for each in (entry, self._reference)
            for size in self._contest.batches
            if size < batch_size
        ]
        return any(cell is not None and cell.status in (Status.OOM, Status.TIMEOUT) for cell in smaller)
