"""The CPUs that running processes may use: a program may pin itself, and does not tell whoever started it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tuner.child.guard import descendants, stat_fields

_BUSY = 0.1  # of the CPU time of the busiest process: a shell, or `tee`, only waits beside it


def cpus_in_use(root: int) -> frozenset[int]:
    """Return the CPUs that the busy processes below `root` may run on; none before one has used any CPU time."""
    used = {pid: _clock_ticks(pid) for pid in descendants(root)}
    least = max(1.0, _BUSY * max(used.values(), default=0))
    cpus: set[int] = set()
    for pid in (pid for pid, ticks in used.items() if ticks >= least):
        with contextlib.suppress(OSError):  # it may end in between, and its threads too
            for task in Path(f"/proc/{pid}/task").iterdir():
                cpus |= os.sched_getaffinity(int(task.name))
    return frozenset(cpus)


def _clock_ticks(pid: int) -> int:
    """Return the CPU time of a process in the kernel's ticks; 0 if it has ended."""
    try:
        user, system = stat_fields(pid)[11:13]
    except OSError:
        return 0
    return int(user) + int(system)
