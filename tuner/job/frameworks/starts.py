"""What starts tell: whether a model can be made ready, what it computes, and how long it takes to the first answer."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from tuner.errors import BadInputError
from tuner.job.frameworks.contest import Contest
from tuner.job.frameworks.participant import Entry, Kind, Participant
from tuner.job.frameworks.store import CheckedStart
from tuner.machine.pagecache import evict, files_of
from tuner.measure.cell import Cell, CheckedAgainst, checked_cell
from tuner.measure.finals import Contender
from tuner.report.lineup import Loading
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import ReadyReport, Status, TrialFailure

_N_LOADS = 2  # cold and warm starts of each framework


def make_ready(contest: Contest) -> None:
    """Make the model ready for each framework; one that it cannot be converted for drops out."""
    for each in contest.participants:
        contest.say(f"{each.name}: preparing the model")
        try:
            launcher = each.job.launcher(deadline_s=contest.deadline_s)
        except BadInputError as error:
            if each is contest.reference:
                raise
            each.drop_out(Status.FAILED, error.message)
            contest.events.ended(each.name, error.message)
            continue
        assert isinstance(launcher, FreshLauncher)  # it is no command
        each.launcher = launcher


def check(contest: Contest) -> None:
    """Hold outputs and precision of each against the reference's, and know what a start takes.

    Raises BadInputError where the reference does not run.
    """
    for each in contest.running():
        start = contest.store.checked(each)
        if start is None:
            contest.say(f"{each.name}: checking its outputs")
            start = _checked_start(contest, each)
            if start is None:
                continue
            contest.store.put_checked(each, start)
        each.precision, each.deviation, each.start_s = start.cell.precision, start.cell.deviation, start.start_s
        if start.cell.status is not Status.OK:
            each.drop_out(start.cell.status, start.cell.message)
            contest.events.ended(each.name, start.cell.message)


def _checked_start(contest: Contest, participant: Participant) -> CheckedStart | None:
    """Return the first start of a participant's default; None where it failed, which may be over the next time."""
    entry = Entry(participant=participant, kind=Kind.DEFAULT)
    began_s = time.monotonic()
    try:
        facts, peak_memory_bytes = start_once(entry.contender(contest.batch_size))
    except TrialFailure as failure:
        if participant is contest.reference:
            raise BadInputError(
                f"TensorFlow's default does not run: {failure.message}", failure.hint or "", log=failure.log[-2000:]
            ) from failure
        participant.drop_out(failure.status, failure.message)
        contest.events.ended(participant.name, failure.message)
        return None
    cell = cell_of(contest, entry, contest.batch_size, facts)
    return CheckedStart(
        cell=replace(cell, peak_memory_bytes=peak_memory_bytes),
        start_s=time.monotonic() - began_s,
        sample=_sample(facts),
    )


def cell_of(contest: Contest, entry: Entry, batch_size: int, facts: ReadyReport) -> Cell:
    """Return the cell of a process of a setting that is warm, invalid where it computes something else."""
    participant = entry.participant
    precision = participant.job.precision_of(facts)
    if participant is contest.reference:
        against = CheckedAgainst(sample=_sample(facts), precision=precision)
    else:
        start = contest.store.checked(contest.reference)
        assert start is not None  # the reference is checked first
        expected = None if participant.entrant.pins else start.cell.precision
        against = CheckedAgainst(sample=start.sample, precision=expected)
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
        if contest.store.loading(each) is not None or contest.left_s() <= 0:
            continue
        contest.say(f"{each.name}: loading, cold and warm")
        contender = each.contender(Kind.DEFAULT, 1)
        files = files_of(each.entrant.python, each.job.export())
        loading = Loading(cold=[], warm=[])
        try:
            for _ in range(_N_LOADS):
                evict(files)
                loading.cold.append(_first_answer_s(contender))
                loading.warm.append(_first_answer_s(contender))
        except TrialFailure as failure:
            contest.events.ended(each.name, failure.message)
            continue
        contest.store.put_loading(each, loading)


def _first_answer_s(contender: Contender) -> float:
    """Return how long (s) a process takes until its first answer."""
    facts, _ = start_once(contender)
    return facts.context_s + facts.load_s + facts.first_step_s
