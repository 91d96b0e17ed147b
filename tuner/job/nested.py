"""A search or a check in a process of its own, as another task runs it; nothing of the parent is awake meanwhile."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from tuner.child.guard import PR_SET_PDEATHSIG
from tuner.job.request import CheckRequest, SearchRequest
from tuner.machine.exits import ended_text, last_words
from tuner.paths import COMMAND
from tuner.result.study import StudyResult

INTERRUPTED = "interrupted"
INTERRUPTED_CODE = 130
_LIBC = ctypes.CDLL(None)  # loaded before there is a child to call it
_OWN = "tftune: "  # how the line of a search begins that says why it failed


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedSearch:
    """How a search ended: its study, or why there is none; an interrupted one of planned settings has both."""

    study: StudyResult | None = None
    failure: str = ""
    interrupted: bool = False


def run_nested(request: SearchRequest | CheckRequest, *, enter: Callable[[], None] | None = None) -> EndedSearch:
    """Search or check as requested in a process of its own (`tuner.cli.nested`), and return what it found.

    The process ends when this one does. `enter` is called in the new process before anything else, as
    `tuner.machine.confine` gives it, and sees to that itself. Ctrl-C is handed on.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stderr_file:
        child = subprocess.Popen(
            _command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr_file,
            start_new_session=True,  # Ctrl-C reaches the parent alone, which hands it on once
            preexec_fn=enter or end_with_parent,  # other threads hold no locks that this needs
        )
        interrupted = False
        try:
            out, _ = child.communicate(pickle.dumps(request))
        except KeyboardInterrupt:
            interrupted = True
            child.terminate()
            out, _ = child.communicate()
        stderr_file.seek(0)
        log = stderr_file.read()
    if interrupted or child.returncode == INTERRUPTED_CODE:
        study = None
        if isinstance(request, SearchRequest) and request.planned:  # of a search, what has no finals is nothing yet
            with contextlib.suppress(msgspec.MsgspecError):
                study = msgspec.json.decode(out, type=StudyResult)
        return EndedSearch(study=study, interrupted=True, failure=INTERRUPTED)
    what = "the search" if isinstance(request, SearchRequest) else "the check"
    if child.returncode != 0:
        return EndedSearch(failure=reason_of(child.returncode, log, what))
    try:
        return EndedSearch(study=msgspec.json.decode(out, type=StudyResult))
    except msgspec.MsgspecError as error:
        return EndedSearch(failure=f"{what} printed no result: {error}")


def end_with_parent() -> None:
    """Let the new process end, as by Ctrl-C, when the thread that has started it does."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def end_with_stdin(take: Callable[[bytes], object] = lambda _: None) -> None:
    """Let `take` have what comes on stdin, and end as Ctrl-C does when whoever writes to it is gone."""
    while data := os.read(0, 1 << 20):  # the buffer's own lock would be held while the process ends
        take(data)
    os.kill(os.getpid(), signal.SIGTERM)


def reason_of(returncode: int, log: str, what: str) -> str:
    """Return why a process of ours has failed: its own line in the log, else how `what` has ended."""
    lines = [line for line in log.splitlines() if line.strip()]
    reason = next((line.removeprefix(_OWN) for line in reversed(lines) if line.startswith(_OWN)), None)
    if reason is not None:
        return reason
    last = f": {last_words(log)}" if returncode > 0 and lines else ""
    return f"{what} {ended_text(returncode, log)}{last}"


def own_command(module: str) -> list[str]:
    """Return the words that run a module of this package, whatever `tuner.py` the folder or PYTHONPATH has."""
    return [sys.executable, "-P", str(COMMAND), "-m", module]


def _command() -> list[str]:
    return own_command("tuner.cli.nested")
