"""Several sessions of one search: the first searches, and each of the others measures again what it recommends."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rich.console import Console

from tuner.errors import BadInputError, TunerError
from tuner.job.check import checkup
from tuner.job.request import Request
from tuner.job.run import run
from tuner.report.layout import duration_text
from tuner.report.terminal import speedup_text
from tuner.search.budget import parse_duration
from tuner.search.record import Record

DEFAULT_EVERY = "2h"
_CHECK_BUDGET = "2m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """How many sessions there are to be, and how long (s) after one the next begins."""

    n: int = 1
    every_s: float = 0.0


def make_sessions(n: int, every: str | None) -> Sessions:
    """Return the sessions of the two options; raises BadInputError."""
    if every is not None and n < 2:
        raise BadInputError(f"--every {every} with one session", "give --sessions 2 or more")
    return Sessions(n=n, every_s=parse_duration(every or DEFAULT_EVERY, option="--every"))


def run_sessions(request: Request, sessions: Sessions, console: Console) -> tuple[Record | None, bool]:
    """Search, then check what was found in the other sessions; returns as `tuner.job.run.run` does.

    Between two sessions nothing is held: others may measure on this machine.
    """
    began_s = time.monotonic()
    record, interrupted = run(request, console)
    for number in range(2, sessions.n + 1):
        if record is None or interrupted:
            break
        left_s = max(0.0, began_s + (number - 1) * sessions.every_s - time.monotonic())
        console.print(
            f"session {number} of {sessions.n} begins in {duration_text(left_s)}; Ctrl-C ends here, and "
            f"`tftune check {record.name}` adds one later",
            soft_wrap=True,
        )
        try:
            time.sleep(left_s)
            if not _check(record.name, request, console):
                break
        except KeyboardInterrupt:
            interrupted = True
        except TunerError as error:  # what was found before is to be shown all the same
            console.print(f"no further session: {error.message}", style="red", soft_wrap=True)
            break
    return record, interrupted


def _check(study: str, request: Request, console: Console) -> bool:
    """Add a session; return whether there was anything to measure again."""
    made = checkup(
        study,
        storage_url=request.storage,
        python=request.python,
        budget=_CHECK_BUDGET,
        trial_timeout=request.trial_timeout,
        margin=request.margin,
        wait=True,
        say=lambda line: console.print(line, soft_wrap=True),
        told=lambda n, verdict, _: console.print(f"round {n}: {verdict.word}", style="dim"),
    )
    if made.comparison is None:
        console.print("the study recommends the default: there is nothing to measure again")
        return False
    console.print(f"this session: {speedup_text(made.comparison.verdict.to_dict())}", soft_wrap=True)
    return True
