"""How the time of a contest is divided between the finals, at one batch size, and the scan of all batch sizes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tuner.job.frameworks.contest import Contest
from tuner.job.frameworks.participant import Entry
from tuner.measure.cell import MAX_PAIR_S
from tuner.measure.finals import Round
from tuner.measure.interruption import step_s
from tuner.stats.tail import samples_needed
from tuner.trial.outcome import Status

MAX_TAIL_S = 45.0  # of one item at a time, whose tail is told
_MOST_PAIR_S, _LEAST_PAIR_S = MAX_PAIR_S, 10.0  # of a cell whose steps are short
_WARM_UP_STEPS = 2


class Schedule:
    """What the scan lacks, and about how long that takes, by the steps that were measured so far."""

    def __init__(self, contest: Contest, rounds: Sequence[Round]) -> None:
        """`rounds` are those of the finals."""
        self._contest, self._rounds = contest, rounds

    def waiting(self, batch_size: int) -> list[Entry]:
        """Return the settings of which nothing is known at a batch size, and whose curve has not ended before."""
        return [
            entry
            for entry in self._contest.entries()
            if self._contest.cell(entry, batch_size) is None and not self._has_ended(entry, batch_size)
        ]

    def cell_s(self, entry: Entry, batch_size: int, pair_s: float = _MOST_PAIR_S) -> float:
        """Return about how long (s) a cell takes: a start, and steps in turns with the reference.

        These last for `pair_s`, or for one step of either where it is longer; single items for as long as their tail
        needs.
        """
        own_s, reference_s = (self._step_s(each, batch_size) for each in (entry, self._contest.reference_entry))
        in_turns_s = max(pair_s, own_s + reference_s)
        if batch_size == 1:
            in_turns_s = max(in_turns_s, min(MAX_TAIL_S, samples_needed(0.99) * (own_s + reference_s)))
        return entry.participant.start_s + _WARM_UP_STEPS * own_s + in_turns_s

    def scan_s(self, pair_s: float = _LEAST_PAIR_S) -> float:
        """Return about how long (s) it takes to measure what the scan lacks."""
        return sum(
            self.cell_s(entry, batch_size, pair_s)
            for batch_size in self._contest.batches
            if batch_size != self._contest.batch_size
            for entry in self.waiting(batch_size)
        )

    def pair_s(self) -> float:
        """Return for how long (s) a cell of short steps is timed: less where the time would not do for all cells."""
        left_s = self._contest.left_s()
        longest_s, shortest_s = (self.scan_s(each) for each in (_MOST_PAIR_S, _LEAST_PAIR_S))
        if longest_s <= max(left_s, shortest_s):
            return _MOST_PAIR_S
        share = max(0.0, (left_s - shortest_s) / (longest_s - shortest_s))
        return _LEAST_PAIR_S + share * (_MOST_PAIR_S - _LEAST_PAIR_S)

    def _step_s(self, entry: Entry, batch_size: int) -> float:
        """Return about how long (s) a step takes: an item as long as in the batch nearest in size that was measured."""
        steps_s = {
            size: [step_s(each) for each in cell.slices]
            for size in self._contest.batches
            if (cell := self._contest.cell(entry, size)) is not None and cell.slices
        }
        in_finals = [step_s(each) for round_ in self._rounds for each in round_.slices.get(entry.name, ())]
        if in_finals:
            steps_s[self._contest.batch_size] = in_finals
        if not steps_s:
            return 0.0
        nearest = min(steps_s, key=lambda size: max(size / batch_size, batch_size / size))
        return statistics.median(steps_s[nearest]) * batch_size / nearest

    def _has_ended(self, entry: Entry, batch_size: int) -> bool:
        """Return whether memory or its time ran out at a smaller batch size already, of it or of the reference."""
        smaller = [
            self._contest.cell(each, size)
            for each in (entry, self._contest.reference_entry)
            for size in self._contest.batches
            if size < batch_size
        ]
        return any(cell is not None and cell.status in (Status.OOM, Status.TIMEOUT) for cell in smaller)
