"""The batch scan of a contest: each setting at each batch size, in turns with the reference's default at that size."""

from __future__ import annotations

from dataclasses import replace

from tuner.job.frameworks.contest import Contest
from tuner.job.frameworks.participant import Entry
from tuner.job.frameworks.schedule import MAX_ANCHOR_S, MAX_TAIL_S, TAIL_STEPS, Schedule, answering
from tuner.job.frameworks.starts import cell_of
from tuner.measure.cell import Cell, CellPlan, Reference, is_enough, measure_cell
from tuner.measure.pair import PairPlan, ReferenceLost, measure_pair
from tuner.report.layout import duration_text
from tuner.report.lineup import OUT_OF_TIME
from tuner.trial.outcome import ReadyReport, Status, TrialFailure

_MAX_BLOCKS_OF_ONE = 60  # one item at a time, whose tail is told


def scan(contest: Contest) -> None:
    """Measure each setting at each batch size, the smallest first, to where memory or the time ends.

    The batch size of the finals is known from these. Where the time does not suffice for all curves, there are those
    that answer the question.
    """
    rounds = contest.store.rounds(contest.entries())
    first = answering(contest, rounds)
    others = [each for each in contest.entries() if each not in first]
    for entries in (first, others):
        schedule = Schedule(contest, rounds, entries)
        for batch_size in schedule.batch_sizes:
            if not _scan_batch(contest, schedule, batch_size):
                contest.ended = OUT_OF_TIME


def _scan_batch(contest: Contest, schedule: Schedule, batch_size: int) -> bool:
    """Measure what is missing at a batch size; returns whether there was time for all of it."""
    reference: Reference | None = None
    pair_s = schedule.pair_s(batch_size)
    waiting = schedule.waiting(batch_size)
    is_complete = True
    try:
        for entry in waiting:
            if contest.left_s() < schedule.next_s(entry, waiting, batch_size, has_reference=reference is not None):
                is_complete = False
                if entry == contest.reference_entry:  # the others' rates are relative to it
                    break
                continue
            late_s = schedule.late_s(entry, batch_size)
            if late_s is not None:
                message = f"it would take {duration_text(late_s)} to get warm: give a longer --trial-timeout"
                cell = Cell(contender=entry.name, batch_size=batch_size, status=Status.TIMEOUT, message=message)
                contest.put_cell(entry, cell)
                contest.events.measured(cell)
                if entry == contest.reference_entry:
                    break
                continue
            contest.say(f"batch {batch_size}: {entry.text}")
            if reference is None:
                reference = _live(contest, batch_size)
            if entry == contest.reference_entry:
                cell = _reference_cell(contest, reference, pair_s)
            else:
                reference, cell = _measured(contest, entry, reference, pair_s)
            contest.put_cell(entry, cell)
            contest.events.measured(cell)
    except _ReferenceFailed as failed:
        # Without a reference nothing is compared: the curves end at this batch size.
        contest.lost_at = batch_size
        entry = contest.reference_entry
        cell = Cell(contender=entry.name, batch_size=batch_size, status=failed.status, message=failed.message)
        if contest.cell(entry, batch_size) is None:
            contest.put_cell(entry, cell)
        if contest.store.cell(entry, batch_size) != cell:  # it may run the next time
            is_complete = False
        contest.events.measured(cell)
    finally:
        if reference is not None:
            reference.process.close()
    return is_complete


def _live(contest: Contest, batch_size: int) -> Reference:
    """Return a live process of the reference's default, paused; raises _ReferenceFailed."""
    contender = contest.reference_entry.contender(batch_size)
    assert contender.launcher is not None  # the model is ready
    process = contender.launcher.launch(contender.setting, contender.deployment)
    try:
        facts = process.ready()
        process.pause()
    except TrialFailure as failure:
        process.close()
        raise _ReferenceFailed(failure.status, failure.message) from failure
    except BaseException:
        process.close()
        raise
    return Reference(process=process, facts=facts, batch_size=batch_size)


def _reference_cell(contest: Contest, reference: Reference, pair_s: float) -> Cell:
    """Return the cell of the reference, in turns with itself at the batch size of the contest.

    So all batch sizes have something in common, and a curve over them shows no drift. Raises _ReferenceFailed.
    """
    batch_size = reference.batch_size
    cell = cell_of(contest, contest.reference_entry, batch_size, reference.facts)
    cell = replace(cell, peak_memory_bytes=reference.process.peak_memory_bytes)
    if batch_size == contest.batch_size:
        return cell
    anchor = _live(contest, contest.batch_size)
    plan = _plan(contest.reference_entry, batch_size, pair_s, is_reference=True)
    # After a pause the first steps are slower: small batches run for about as long as large ones, or would seem slow.
    slice_s = max(plan.pair.slice_s, min(reference.facts.step_s, MAX_ANCHOR_S))
    plan = replace(plan, pair=replace(plan.pair, slice_s=slice_s))
    step_s = (anchor.facts.step_s, reference.facts.step_s)
    try:
        pair = measure_pair(
            anchor.process,
            reference.process,
            plan.pair_of(step_s),
            step_s=step_s,
            enough=lambda pair: is_enough(pair, (batch_size, contest.batch_size), plan),
        )
    except ReferenceLost as lost:
        raise _ReferenceFailed(lost.failure.status, lost.failure.message) from lost
    except TrialFailure as failure:
        raise _ReferenceFailed(failure.status, failure.message) from failure
    finally:
        anchor.process.close()
    return replace(cell, pair=pair, paired_batch_size=contest.batch_size)


def _plan(entry: Entry, batch_size: int, pair_s: float, *, is_reference: bool = False) -> CellPlan:
    """Return how a cell is measured: of single items for so long, if it is not too long, that p99 is known, or p95."""
    slice_s = entry.participant.job.slice_s
    if batch_size == 1 and not is_reference:  # the reference runs beside all others
        most = PairPlan(slice_s=slice_s, max_blocks=_MAX_BLOCKS_OF_ONE)
        return CellPlan(pair=most, max_pair_s=pair_s, tail_steps=TAIL_STEPS, max_tail_s=MAX_TAIL_S)
    return CellPlan(pair=PairPlan(slice_s=slice_s), max_pair_s=pair_s)


def _measured(contest: Contest, entry: Entry, reference: Reference, pair_s: float) -> tuple[Reference | None, Cell]:
    """Return the reference, None where it was lost, and the cell of a setting that was measured beside it."""
    batch_size = reference.batch_size
    contender = entry.contender(batch_size)
    assert contender.launcher is not None  # the model is ready

    def check(facts: ReadyReport) -> Cell:
        return cell_of(contest, entry, batch_size, facts, expected=reference.facts.sample)

    try:
        cell = measure_cell(
            contender,
            contender.launcher,
            reference,
            _plan(entry, batch_size, pair_s),
            check,
        )
    except ReferenceLost as lost:
        reference.process.close()
        message = f"the reference failed beside it: {lost.failure.message}"
        return None, Cell(contender=entry.name, batch_size=batch_size, status=lost.failure.status, message=message)
    return reference, cell


class _ReferenceFailed(Exception):  # noqa: N818  # a state of the contest, not an error of the tool
    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message
