"""The CPU in the target interpreter: what it computes is there at once (`adapter.Device`); which CPUs a process has.

    cpu LIBRARY N_THREADS [CPUS]

asks an OpenMP library where it binds its threads, without any framework. CPUS are those that the process may use. The
variables of the environment are what is asked about. Prints one JSON object, {"cpus": [[...], ...]}: for each thread of
a parallel region, in the order of their numbers, the CPUs that the kernel lets it run on. What the library has to
complain of is on stderr.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
from typing import Dict, List, Optional, Set


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


class CpusLostError(Exception):
    """The CPUs that this process may use are not those that it is to use."""


def keep_to(cpus: str) -> None:
    """Let this process run on the CPUs of a list such as 0-3,8 only, as `taskset -c` does; raises CpusLostError."""
    ends = [[int(end) for end in part.split("-")] for part in cpus.split(",")]
    wanted = {cpu for end in ends for cpu in range(end[0], end[-1] + 1)}
    try:
        os.sched_setaffinity(0, wanted)
    except OSError:  # none of them is in the cpuset any more
        raise CpusLostError("CPUs %s cannot be used any more: a cpuset has taken them away" % cpus) from None
    check_cpus(wanted)


def check_cpus(wanted: Set[int]) -> None:
    """Raise CpusLostError where this process may no longer run on the CPUs that it began with.

    The kernel moves it elsewhere without a word when a cpuset becomes smaller, and its figures mean nothing then.
    """
    allowed = os.sched_getaffinity(0)
    if allowed != wanted:
        lost, here = (",".join(map(str, sorted(cpus))) for cpus in (wanted - allowed, allowed))
        raise CpusLostError(
            "the CPUs of the process changed while it ran: %s; a cpuset or the workload itself did that"
            % ("lost %s" % lost if lost else "now %s" % here)
        )


def main(arguments: List[str]) -> None:
    """Run one parallel region, in which each thread writes down its CPUs."""
    if arguments[2:]:
        keep_to(arguments[2])
    library = ctypes.CDLL(arguments[0])
    cpus: Dict[int, List[int]] = {}

    def body(_: object) -> None:
        cpus[library.omp_get_thread_num()] = sorted(os.sched_getaffinity(0))

    # What GCC compiles a parallel region to; the libraries of Intel, LLVM and GNU all have it.
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(body)
    library.GOMP_parallel(callback, None, int(arguments[1]), 0)
    print(json.dumps({"cpus": [cpus[thread] for thread in sorted(cpus)]}), flush=True)
    os._exit(0)
