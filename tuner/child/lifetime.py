"""Ending with the process that asked for this one, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1


def die_with(ancestor: int) -> None:
    """Let the kernel kill this process when its parent ends; end at once if `ancestor` is no longer above it.

    The parent may be a wrapper that the ancestor started: what counts is that it is still there.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    pid = os.getpid()
    while pid != ancestor:
        try:
            with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as stat:
                pid = int(stat.read().rpartition(")")[2].split()[1])
        except OSError:
            os._exit(1)
        if pid == 0:
            os._exit(1)
