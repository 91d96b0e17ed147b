"""What starts tell: whether a model can be made ready, what it computes, and how long it takes to the first answer."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from tuner.errors import BadInputError
from tuner.job.frameworks.contest import Contest
from tuner.job.frameworks.participant import Entry, Failure
from tuner.job.frameworks.store import CheckedStart
from tuner.machine.pagecache import evict, files_of
from tuner.measure.agreement import Sample
from tuner.measure.cell import Cell, CheckedAgainst, checked_cell
from tuner.measure.finals import Contender
from tuner.report.lineup import OUT_OF_TIME, Kind, Loading
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import ReadyReport, Status, TrialFailure

_N_LOADS = 2  # cold and warm starts of each framework


def make_ready(contest: Contest) -> None:
    """Make the model ready for each framework; one that it cannot be converted for drops out."""
    for each in contest.participants:
        contest.say(f"{each.name}: preparing the model")
        try:
            launcher = each.job.launcher()
        except BadInputError as error:
            if each is contest.reference:
                raise
            each.failure = Failure(status=Status.FAILED, message=error.message, hint=error.hint or "")
            contest.store.put_failure(each)
            contest.events.ended(each.name, error.message)
            continue
        assert isinstance(launcher, FreshLauncher)  # it is no command
        each.launcher = launcher
        contest.store.put_failure(each)
    if contest.reference.job.has_fixed_batch() and [*contest.batches] != [contest.batch_size]:
        contest.batches = [contest.batch_size]
        contest.events.notice(f"the model takes batches of {contest.batch_size} only: no other batch size is measured")


def check(contest: Contest) -> None:
    """Hold outputs and precision of each default against the reference's, and know what a start takes.

    Raises BadInputError where the reference does not run.
    """
    for each in contest.running():
        start = each.starts.get(Kind.DEFAULT)
        # Outputs that could not be compared may be comparable now.
        if start is None or (start.deviation is None and each is not contest.reference):
            _check(contest, Entry(participant=each, kind=Kind.DEFAULT))


def check_tuned(contest: Contest) -> None:
    """Hold what the tuned settings compute against the reference, too; one that computes something else is given up."""
    for entry in contest.entries():
        if entry.kind is Kind.TUNED and Kind.TUNED not in entry.participant.starts:
            _check(contest, entry)


def _check(contest: Contest, entry: Entry) -> None:
    """Start a setting once. What comes of it is stored, unless it failed: that may be over the next time."""
    participant = entry.participant
    contest.say(f"{entry.text}: checking its outputs")
    began_s = time.monotonic()
    try:
        facts, peak_memory_bytes = start_once(entry.contender(contest.batch_size))
    except TrialFailure as failure:
        if entry == contest.reference_entry:
            raise BadInputError(
                f"TensorFlow's default does not run: {failure.message}", failure.hint or "", log=failure.evidence(2000)
            ) from failure
        name, batch_size = entry.name, contest.batch_size
        cell = Cell(contender=name, batch_size=batch_size, status=failure.status, message=failure.message)
    else:
        cell = cell_of(contest, entry, contest.batch_size, facts, expected=_reference_sample(contest))
        start = CheckedStart(
            cell=replace(cell, peak_memory_bytes=peak_memory_bytes),
            start_s=time.monotonic() - began_s,
            sample=_sample(facts),
        )
        contest.store.put_checked(entry, start)
        participant.start_s = start.start_s
    participant.learn(entry.kind, cell)
    contest.store.put_failure(participant)
    if cell.status is not Status.OK:
        contest.events.ended(entry.text, cell.message)


def _reference_sample(contest: Contest) -> Sample | None:
    """Return what the reference computed in its first start; None where it did not have one, or told none."""
    start = contest.store.checked(contest.reference_entry)
    return None if start is None else start.sample


def cell_of(
    contest: Contest, entry: Entry, batch_size: int, facts: ReadyReport, *, expected: Sample | None = None
) -> Cell:
    """Return the cell of a process of a setting that is warm, invalid where it computes something else.

    `expected` is what the reference computed, from the same batch if each item is to be compared.
    """
    participant = entry.participant
    precision = participant.job.precision_of(facts)
    if entry == contest.reference_entry:
        against = CheckedAgainst(sample=None, precision=None)
    else:
        reference = contest.reference.starts[Kind.DEFAULT]  # it is checked first
        same_precision = None if participant.entrant.pins else reference.precision
        against = CheckedAgainst(sample=expected, precision=same_precision)
    return checked_cell(entry.name, batch_size, facts, precision, against, limit=participant.entrant.limit(precision))


def _sample(facts: ReadyReport) -> dict[str, Any] | None:
    return None if facts.sample is None else dict(facts.sample)


def start_once(contender: Contender) -> tuple[ReadyReport, int | None]:
    """Start a process of a contender, end it when it is warm; return what it tells, and its peak memory (bytes).

    Raises TrialFailure.
    """
    assert contender.launcher is not None  # the model is ready
    process = contender.launcher.launch(contender.setting, contender.deployment)
    try:
        facts = process.ready()
    except BaseException:
        process.close()
        raise
    return facts, process.close().peak_memory_bytes


def time_loading(contest: Contest) -> None:
    """Start each framework's default with its files in the page cache and without, at batch size 1."""
    for each in contest.running():
        if contest.store.loading(each) is not None:
            continue
        if contest.left_s() <= 0:
            contest.ended = OUT_OF_TIME
            return
        contest.say(f"{each.name}: loading, cold and warm")
        contender = each.contender(Kind.DEFAULT, 1)
        files = files_of(each.entrant.python, each.job.export())
        loading = Loading(cold=[], warm=[])
        try:
            start_once(contender)  # whatever is made once and kept
            for _ in range(_N_LOADS):
                evict(files)
                loading.cold.append(_loading_s(contender))
                loading.warm.append(_loading_s(contender))
        except TrialFailure as failure:
            contest.events.ended(each.name, failure.message)
            continue
        contest.store.put_loading(each, loading)


def loading_s(contest: Contest) -> float:
    """Return about how long (s) it takes to time the starts that were not timed yet."""
    waiting = [each for each in contest.running() if contest.store.loading(each) is None]
    return (1 + 2 * _N_LOADS) * sum(each.start_s for each in waiting)


def _loading_s(contender: Contender) -> tuple[float, float]:
    """Return how long (s) a process takes until its model is there, and from then until its first answer."""
    facts, _ = start_once(contender)
    return facts.context_s + facts.load_s, facts.first_step_s
