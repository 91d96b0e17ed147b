"""The CPU in the target interpreter; see `adapter.Device`."""

from __future__ import annotations

import contextlib
import resource
from typing import Optional


def wait() -> None:
    """Do nothing: a step that has returned has been computed."""


def peak_memory() -> Optional[int]:
    """Return the most memory (bytes) that this process has held since it began or `reset_peak` was called."""
    try:
        with open("/proc/self/status", encoding="utf-8") as status:
            line = next(line for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1024 * int(line.split()[1])


def shared_memory() -> Optional[int]:
    """Return how much memory (bytes) of this process is shared with others just now; None where unknown."""
    try:
        with open("/proc/self/smaps_rollup", encoding="utf-8") as rollup:
            amounts = [int(line.split()[1]) for line in rollup if line.startswith("Shared_")]
    except (OSError, ValueError):
        return None
    return 1024 * sum(amounts)


def reset_peak() -> None:
    """Count the peak of memory from what is held now; a kernel that refuses leaves it as it is."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="utf-8") as file:
        file.write("5")
