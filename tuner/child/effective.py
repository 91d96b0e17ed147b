"""The effective state of a process: threads and their CPUs, loaded libraries, and the report of its OpenMP library.

Everything here only looks: no call into an OpenMP library, which would make the calling thread one of its own and
bind it, and no verbose mode of oneDNN, which would slow every step down.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import re
from typing import Any, Dict, FrozenSet, Iterable, List, Optional, Tuple

Threads = Dict[str, Tuple[str, str]]
"""Thread id -> (name, CPUs that it may run on, as the kernel lists them)."""

_OPENMP = re.compile(r"/lib(iomp5|gomp|omp)[^/]*\.so[^/]*$")
_MALLOC = re.compile(r"/lib(jemalloc|tcmalloc)[^/]*\.so[^/]*$")
_LOG_BYTES = 1 << 20


def variables() -> Dict[str, str]:
    """Return the environment as libraries see it: os.environ does not show what os.putenv and C code change."""
    block = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    entries: List[bytes] = []
    while block and block[len(entries)] is not None:  # it ends with a null pointer
        entries.append(block[len(entries)])
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    return {name: value for name, _, value in pairs}


def changed_variables(before: Dict[str, str]) -> Dict[str, Optional[str]]:
    """Return the variables that are no longer what they were, with their values; None of those that were removed."""
    now = variables()
    return {name: now.get(name) for name in {**before, **now} if before.get(name) != now.get(name)}


def affinities() -> FrozenSet[str]:
    """Return the different sets of CPUs that threads of this process may run on."""
    masks = set()
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # a thread may end in between
            masks.add(frozenset(os.sched_getaffinity(int(task))))
    return frozenset(map(spans, masks))


def threads() -> Threads:
    """Return the threads of this process."""
    by_task = {}
    for task in os.listdir("/proc/self/task"):
        # A thread may end in between.
        with (
            contextlib.suppress(OSError),
            open("/proc/self/task/%s/comm" % task, encoding="utf-8", errors="replace") as name,
        ):
            by_task[task] = (name.read().strip(), spans(os.sched_getaffinity(int(task))))
    return by_task


def spans(cpus: Iterable[int]) -> str:
    """Return CPUs as the kernel lists them: {0, 1, 2, 5} gives 0-2,5."""
    ranges: List[List[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join("%d" % a if a == b else "%d-%d" % (a, b) for a, b in ranges)


def count(strings: Iterable[str]) -> Dict[str, int]:
    """Return how often each string occurs."""
    return dict(collections.Counter(strings))


def names(tasks: Threads, without: Threads) -> Dict[str, int]:
    """Return the number of threads by name, those in `without` left out."""
    return count(name for task, (name, _) in tasks.items() if task not in without)


def masks(tasks: Threads, without: Threads) -> Dict[str, int]:
    """Return the number of threads by the CPUs that they may run on, those in `without` left out."""
    return count(mask for task, (_, mask) in tasks.items() if task not in without)


def mapped() -> List[str]:
    """Return the paths of the files that are mapped into this process."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return sorted({line.split(None, 5)[5].strip() for line in maps if len(line.split(None, 5)) > 5})


def openmp_libraries() -> List[str]:
    """Return the paths of the OpenMP libraries that are mapped into this process."""
    return [path for path in mapped() if _OPENMP.search(path)]


def malloc_libraries() -> List[str]:
    """Return the paths of the replacements of malloc that are mapped into this process."""
    return [path for path in mapped() if _MALLOC.search(path)]


def log_size() -> int:
    """Return how much this process has printed on stderr, 0 where that is no file."""
    return os.fstat(2).st_size


def own_log(since: int) -> str:
    """Return what this process printed on stderr, "" where that cannot be read back.

    Of a long log these are the beginning and what came after `since` bytes: a workload may print a lot, and the
    libraries speak when a framework starts its threads and the first operators run.
    """
    try:
        head = os.pread(2, _LOG_BYTES, 0)
        return (head + os.pread(2, _LOG_BYTES, max(since, len(head)))).decode(errors="replace")
    except OSError:
        return ""


def openmp_words(log: str) -> Dict[str, Any]:
    """Return what an OpenMP library printed: its warnings, and its settings if KMP_SETTINGS=1 made it tell them."""
    warnings = re.findall(r"^OMP: Warning #\d+: (.*)$", log, re.MULTILINE)
    _, _, block = log.partition("Effective settings:")
    settings = dict(re.findall(r"^ {3}(?:\[\w+\] )?((?:KMP|OMP)_\w+)='?([^'\n]*)'?$", block, re.MULTILINE))
    reported_names = ("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "KMP_BLOCKTIME", "KMP_AFFINITY")
    return {"warnings": warnings, "settings": {name: settings[name] for name in reported_names if name in settings}}


def state(alone: Threads, before: Threads, after: Threads, log: str) -> Dict[str, Any]:
    """Return the effective state of a process that has run its first steps.

    `alone` are the threads after the framework's import, `before` and `after` those around the start of its own
    threads, `log` what the process printed since (`own_log`). `mask` is what the workload's own code has left of the
    CPUs, and `main` those of the main thread now, which an OpenMP library may have bound.
    """
    now = threads()
    created = after.keys() - before.keys()
    # What a workload's own code started could be taken for the framework's threads, and what has ended is not counted.
    countable = before.keys() == alone.keys() and created <= now.keys()
    return {
        "mask": before[str(os.getpid())][1],
        "main": now[str(os.getpid())][1],
        "threads": names(now, {}),
        "masks": masks(now, {}),
        "context": {
            "created": len(created) if countable else None,
            "names": count(now[task][0] for task in created & now.keys()),
        },
        "pools": {
            "interpreter": masks({t: now[t] for t in before if t in now}, {}),
            "framework": masks({t: now[t] for t in after if t in now}, before),
            "later": masks(now, after),
        },
        "openmp": dict(openmp_words(log), libraries=openmp_libraries()),
        "malloc": malloc_libraries(),
    }
