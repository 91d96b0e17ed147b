"""Forks of a process that has imported much, and ending with the process that asked for this one, however that ends."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import warnings
from typing import Any, Callable

from . import guard

TIMEOUT_S = 60.0


def die_with(ancestor: int) -> None:
    """Let the kernel kill this process when its parent ends; end at once if `ancestor` is no longer above it.

    The parent may be a wrapper that the ancestor started: what counts is that it is still there.
    """
    ctypes.CDLL(None).prctl(guard.PR_SET_PDEATHSIG, signal.SIGKILL)
    pid = os.getpid()
    while pid != ancestor:
        try:
            pid = int(guard.stat_fields(pid)[1])
        except OSError:
            os._exit(1)
        if pid == 0:
            os._exit(1)


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
            die_with(asking)
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
