"""Forking a process that has imported much, and asking something in a fork that leaves no trace here."""

from __future__ import annotations

import json
import os
import select
import signal
import warnings
from typing import Any, Callable

from . import lifetime

TIMEOUT_S = 60.0


def fork() -> int:
    """Fork; newer Pythons warn that the idle threads of NumPy's BLAS are not in the child, which is what we want."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_a_fork(ask: Callable[[], Any], timeout_s: float = TIMEOUT_S) -> Any:
    """Return what `ask` returns in a forked child (plain data), None if the child does not come to an end."""
    read, write = os.pipe()
    asking = os.getpid()
    pid = fork()
    if pid == 0:
        try:
            os.close(read)
            lifetime.die_with(asking)
            with os.fdopen(write, "w") as out:
                json.dump(ask(), out)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answers:
        ready = select.select([answers], [], [], timeout_s)[0]
        answer = answers.read() if ready else ""
    if not ready:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        return json.loads(answer)
    except ValueError:
        return None
