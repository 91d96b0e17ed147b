"""Asking a real OpenMP library, in a child and without any framework, what it makes of its variables."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner import inherited
from tuner.errors import TunerError
from tuner.machine.cpulist import format_list
from tuner.machine.exits import captured
from tuner.paths import CHILD, boot_arguments

_TIMEOUT_S = 30.0
_REJECTED = re.compile(
    r"invalid|ignor|no valid|not specified|not using|not supported|unsupported|syntax", re.IGNORECASE
)
_AFFINITY = re.compile(r"KMP_AFFINITY|OMP_PROC_BIND|OMP_PLACES|OS proc|affinity")
VARIABLES = ("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "KMP_AFFINITY", "KMP_BLOCKTIME")
"""The variables that a library is asked about."""
THREADING = (
    # How many threads there are, and of what kind of region.
    "OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "OMP_DYNAMIC", "OMP_NESTED", "OMP_MAX_ACTIVE_LEVELS", "OMP_NUM_TEAMS",
    "OMP_TEAMS_THREAD_LIMIT", "KMP_ALL_THREADS", "KMP_MAX_THREADS", "KMP_DEVICE_THREAD_LIMIT",
    "KMP_TEAMS_THREAD_LIMIT", "KMP_DYNAMIC_MODE", "KMP_HOT_TEAMS", "KMP_NESTED_HOT_TEAMS",
    "KMP_USE_HIDDEN_HELPER_TASK", "KMP_NUM_HIDDEN_HELPER_THREADS",
    # Where they run.
    "OMP_PROC_BIND", "OMP_PLACES", "KMP_AFFINITY", "KMP_HIDDEN_HELPER_AFFINITY", "KMP_HW_SUBSET", "KMP_PLACE_THREADS",
    "KMP_TEAMS_PROC_BIND", "KMP_TOPOLOGY_METHOD", "GOMP_CPU_AFFINITY",
    # How they share work and wait for each other.
    "OMP_SCHEDULE", "OMP_WAIT_POLICY", "KMP_BLOCKTIME", "KMP_LIBRARY", "KMP_SCHEDULE", "KMP_TASKING",
    "KMP_TASK_STEALING", "KMP_ENABLE_TASK_THROTTLING", "KMP_FORKJOIN_BARRIER", "KMP_PLAIN_BARRIER",
    "KMP_REDUCTION_BARRIER", "KMP_SPIN_BACKOFF", "KMP_USE_YIELD", "KMP_YIELD", "KMP_LOCK_KIND", "KMP_USER_LEVEL_MWAIT",
    "KMP_MWAIT_HINTS", "KMP_TPAUSE", "GOMP_SPINCOUNT",
    # What watches each region, which takes time.
    "OMP_TOOL", "KMP_CONSISTENCY_CHECK",
)  # fmt: skip
"""How the variables of OpenMP 5.2, LLVM's and GNU's libraries begin that act on threads or on how long they take.

Others, such as KMP_DUPLICATE_LIB_OK, KMP_WARNINGS, KMP_INIT_AT_FORK or OMP_STACKSIZE, may be what lets a program run.
"""

_BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "KMP_AFFINITY", "GOMP_CPU_AFFINITY")
_UNBOUND = ("false", "none", "disabled")  # as these variables say that threads are not bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The CPUs of each thread, by its number, and what the library had to complain of."""

    cpus: tuple[tuple[int, ...], ...]
    warnings: tuple[str, ...]

    @property
    def places(self) -> frozenset[tuple[int, ...]]:
        """Return the distinct sets of CPUs that threads are bound to."""
        return frozenset(self.cpus)

    def binds(self, allowed: int) -> bool:
        """Return whether any thread is kept to fewer than all `allowed` CPUs."""
        return any(len(cpus) < allowed for cpus in self.cpus)


def asks_to_bind(env: Mapping[str, str]) -> bool:
    """Return whether variables ask OpenMP libraries to bind threads, and with them the main thread."""
    values = [env[name].lower() for name in _BINDING if name in env]
    return any(not value.endswith(_UNBOUND) for value in values)


def bind(library: Path, env: Mapping[str, str], *, n_threads: int, cpus: str | None = None) -> Binding:
    """Return where `library` binds `n_threads` threads under the OMP and KMP variables of `env`.

    `cpus` are those that the process may use, all of this one's if not given. Raises TunerError where the library
    cannot be loaded or asked.
    """
    # A value may ask the library not to warn; here it is asked to.
    variables = tuple(sorted((name, env[name].replace("nowarnings", "warnings")) for name in VARIABLES if name in env))
    return _bind(library, variables, n_threads, cpus or format_list(os.sched_getaffinity(0)))


@functools.cache
def _bind(library: Path, env: tuple[tuple[str, str], ...], n_threads: int, cpus: str) -> Binding:
    ours = ("KMP_", "OMP_", "GOMP_")
    neutral = {name: value for name, value in inherited.environment().items() if not name.startswith(ours)}
    try:
        done = captured(
            [sys.executable, "-I", "-S", *boot_arguments(CHILD, "cpu"), str(library), str(n_threads), cpus],
            env=neutral | dict(env) | {"KMP_WARNINGS": "true"},
            timeout_s=_TIMEOUT_S,
        )
        bound = json.loads(done.stdout.strip().splitlines()[-1])["cpus"]
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError, KeyError) as error:
        raise TunerError(
            f"cannot query the OpenMP library {library}: {error}", "check that the file is an OpenMP library"
        ) from error
    return Binding(cpus=tuple(tuple(each) for each in bound), warnings=complaints(done.stderr))


def complaints(log: str) -> tuple[str, ...]:
    """Return the warnings and errors that an OpenMP library printed, without their numbers."""
    return tuple(re.findall(r"^(?:OMP: (?:Warning|Error) #\d+|libgomp): (.*?)\.?$", log, re.MULTILINE))


def rejections(warnings: Iterable[str]) -> list[str]:
    """Return the warnings that say that an affinity was not taken; others only tell what it was taken for."""
    return [line for line in warnings if _REJECTED.search(line) and _AFFINITY.search(line)]
