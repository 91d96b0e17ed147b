"""The batch scan of a contest: at each batch size all settings beside the reference's default, in common passes."""

from __future__ import annotations

from tuner.job.frameworks.contest import Contest
from tuner.job.frameworks.participant import Entry
from tuner.job.frameworks.schedule import Schedule, answering
from tuner.job.frameworks.starts import cell_of
from tuner.job.servers import parallel_starts
from tuner.measure.agreement import Sample
from tuner.measure.cell import Cell, CellPlan, measure_together
from tuner.measure.finals import Contender
from tuner.report.layout import duration_text, plural
from tuner.report.lineup import OUT_OF_TIME
from tuner.stats.tail import samples_needed
from tuner.trial.outcome import ReadyReport, Status

_TAIL_STEPS = (samples_needed(0.95), samples_needed(0.99))  # of one item at a time
_MAX_TAIL_S = 45.0


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
            needed_s = schedule.expected_s(batch_size)
            if needed_s and contest.left_s() < needed_s:
                contest.ended = OUT_OF_TIME
                break
            if not _scan_batch(contest, schedule, batch_size):
                contest.ended = OUT_OF_TIME


def _scan_batch(contest: Contest, schedule: Schedule, batch_size: int) -> bool:
    """Measure what is missing at a batch size; returns whether nothing is left for another run."""
    for entry in schedule.waiting(batch_size):
        late_s = schedule.late_s(entry, batch_size)
        if late_s is not None:
            message = f"it would take {duration_text(late_s)} to get warm: give a longer --trial-timeout"
            _fail(contest, entry, batch_size, Status.TIMEOUT, message)
            if entry == contest.reference_entry:
                break
    waiting = schedule.waiting(batch_size)
    groups = schedule.groups(waiting, batch_size) if waiting else []
    while groups:
        group = groups.pop(0)
        if contest.left_s() <= 0:
            return False
        contest.say(f"batch {batch_size}: {plural(1 + len(group), 'setting')}")
        if not _measure_group(contest, schedule, batch_size, group, retry=groups):
            return False
    return not schedule.waiting(batch_size) or contest.lost_at == batch_size


def _measure_group(
    contest: Contest, schedule: Schedule, batch_size: int, group: list[Entry], *, retry: list[list[Entry]]
) -> bool:
    """Measure settings together; returns False where the reference failed, and may not do so in another run.

    What runs out of memory beside others is put to `retry`, to run alone beside the reference.
    """
    reference, job = contest.reference_entry, contest.reference.job
    entries = {each.name: each for each in [reference, *group]}
    is_known = contest.cell(reference, batch_size) is not None
    needs_anchor = not is_known and batch_size != contest.batch_size

    def check(contender: Contender, facts: ReadyReport, expected: Sample | None) -> Cell:
        return cell_of(contest, entries[contender.names[0]], batch_size, facts, expected=expected)

    def ended(cell: Cell) -> None:
        if cell.status is Status.OOM and len(group) > 1:
            retry.append([entries[cell.contender]])
        elif cell.contender != reference.name or not is_known:
            contest.put_cell(entries[cell.contender], cell)
            contest.events.measured(cell)

    lost = measure_together(
        reference.contender(batch_size),
        [each.contender(batch_size) for each in group],
        CellPlan(
            slice_s=job.slice_s,
            tail_steps=_TAIL_STEPS if batch_size == 1 else (),
            max_tail_s=_MAX_TAIL_S,
            n_parallel_starts=parallel_starts(job.machine),
            once=schedule.is_long(group, batch_size),
            warm_up_counts=job.device.why_no_energy() is not None,  # of a warm-up nobody has read the meter
        ),
        anchor=reference.contender(contest.batch_size) if needs_anchor else None,
        check=check,
        ended=ended,
        is_over=lambda: contest.left_s() <= 0,
    )
    if lost is None:
        return True
    status, message = lost.failure.status, lost.failure.message
    unfinished = [each for each in group if contest.cell(each, batch_size) is None]
    if status is Status.OOM and not lost.was_alone and unfinished:
        if len(group) > 1:
            retry[:] = [[each] for each in unfinished] + [each for each in retry if each[0] not in unfinished]
            return True
        _fail(contest, unfinished[0], batch_size, status, f"the reference failed beside it: {message}")
        retry.extend([] if contest.cell(reference, batch_size) is not None or retry else [[]])
        return True
    # Without a reference nothing is compared: the curves end at this batch size.
    contest.lost_at = batch_size
    if contest.cell(reference, batch_size) is None:
        _fail(contest, reference, batch_size, status, message)
    retry.clear()
    stored = contest.store.cell(reference, batch_size)
    return stored is not None and (stored.status is not Status.OK or not unfinished)


def _fail(contest: Contest, entry: Entry, batch_size: int, status: Status, message: str) -> None:
    cell = Cell(contender=entry.name, batch_size=batch_size, status=status, message=message)
    contest.put_cell(entry, cell)
    contest.events.measured(cell)
