"""Several sessions of one search: the first searches, and each of the others measures again what it recommends."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tuner.errors import BadInputError, TunerError
from tuner.job.check import check_study
from tuner.job.events import SearchEvents
from tuner.job.request import CheckRequest, SearchRequest
from tuner.job.run import run
from tuner.machine.host import node_name
from tuner.measure.budget import parse_duration
from tuner.measure.objective import Objective
from tuner.quantity import duration_text
from tuner.result.comparison import CheckResult
from tuner.result.document import describe_study
from tuner.result.study import AT_SAME_LATENCY, SEVERAL, StudyResult
from tuner.study.record import Record
from tuner.study.storage import find_in

DEFAULT_EVERY = "2h"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan:
    """How many sessions there are to be, and how long (s) after one the next begins."""

    n: int = 1
    every_s: float = 0.0


def make_sessions(n: int, every: str | None) -> SessionPlan:
    """Return the sessions of the two options; raises BadInputError."""
    if n < 1:
        raise BadInputError(f"--sessions is {n}", "expected 1 or more")
    if every is not None and n < 2:
        raise BadInputError(f"--every {every} needs more than one session", "add --sessions 2 or more")
    return SessionPlan(n=n, every_s=parse_duration(every or DEFAULT_EVERY, option="--every"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsResult:
    """What came of the sessions: the study, whether they were interrupted, and whether one after the first failed."""

    record: Record | None
    interrupted: bool
    failed: bool = False


def run_sessions(
    request: SearchRequest,
    sessions: SessionPlan,
    events: SearchEvents,
    *,
    after_first: Callable[[Record], None] = lambda _: None,
) -> SessionsResult:
    """Search, then check in the other sessions what was found.

    `after_first` is called with what the search found, where other sessions follow: they may be hours away. Between two
    sessions nothing is held: others may measure on this machine. A session that fails does not end the others.
    """
    if sessions.n > 1 and request.objective == Objective.CAPACITY:
        raise BadInputError(
            f"--sessions {sessions.n} with --objective {Objective.CAPACITY}",
            "leave --sessions out; tftune load measures its answer again at another time",
        )
    began_s = time.monotonic()
    record, interrupted = run(request, events)
    if sessions.n == 1 or record is None or interrupted:
        return SessionsResult(record=record, interrupted=interrupted)
    after_first(record)
    failed = False
    check = CheckRequest(
        study=record.name,
        python=request.python,
        storage=request.storage,
        margin=request.margin,
        trial_timeout=request.trial_timeout,
        wait=True,
    )
    for number in range(2, sessions.n + 1):
        answers = answers_to_check(describe_study(record))
        if not answers:
            events.notice("the study recommends the default: there is nothing to measure again")
            break
        left_s = max(0.0, began_s + (number - 1) * sessions.every_s - time.monotonic())
        events.notice(
            f"session {number} of {sessions.n} starts in {duration_text(left_s)}; press Ctrl-C to stop here (`tftune "
            f"check {shlex.quote(record.name)}` adds a session later)"
        )
        try:
            time.sleep(left_s)
            for of in answers:
                check_again(check, events, of=of)
        except KeyboardInterrupt:
            return SessionsResult(record=record, interrupted=True, failed=failed)
        except TunerError as error:
            failed = True
            events.session_failed(number, error)
            if isinstance(error, BadInputError):
                break  # what is another machine or workload now stays so
    return SessionsResult(record=record, interrupted=False, failed=failed)


def check_on_node(check: CheckRequest, events: SearchEvents) -> StudyResult:
    """Add a session on this node of a cluster with each answer of a study that has none here; return the study."""
    record = find_in(check.storage, check.study)
    study = describe_study(record)
    for of in answers_to_check(study):
        if node_name() not in {session.node for session in study.answers[of].recommended.sessions}:
            check_again(check, events, of=of)
    return describe_study(record)


def answers_to_check(study: StudyResult) -> list[str]:
    """Return which answers are something else than the default."""
    return [of for of, answer in study.answers.items() if answer.finals.advice.source != study.default]


def check_again(check: CheckRequest, events: SearchEvents, *, of: str) -> None:
    """Add a session with one of the study's answers."""
    is_latency = of == AT_SAME_LATENCY
    asked = replace(check, instances=None if is_latency else of == SEVERAL, same_latency=is_latency)
    result = check_study(asked, events)
    if isinstance(result, CheckResult):
        events.session_ended(result)
