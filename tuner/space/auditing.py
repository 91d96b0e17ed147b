"""Audit checks: did a knob take effect in a process, according to the process's own report (`tuner.child.effective`)?

Where a process does not tell, the answer is unknown and never "yes".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.machine.cpulist import format_list, parse_list
from tuner.machine.host import Machine
from tuner.space.deployment import Deployment
from tuner.space.values import Value

Effective = Mapping[str, Any]
AuditAnswer = tuple[bool | None, str]
"""Whether it took effect (None: unknown), and what was seen, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCase:
    """What a knob is audited by: the setting's values, what deploys them, what the process reports, and where it is.

    `build` is the framework's own, and `libraries` what can be preloaded, by the value that asks for it.
    """

    values: Mapping[str, Value]
    deployment: Deployment
    effective: Effective
    build: Any
    machine: Machine
    libraries: Mapping[str, str]
    device: str = "cpu"
    """The kind of what computes."""


Audit = Callable[[AuditCase], AuditAnswer]


def mask(case: AuditCase) -> AuditAnswer:
    """Audit the CPUs that the process may use."""
    seen = pinned(case.effective) or f"the process may use CPUs {case.effective['mask']}"
    return case.effective["mask"] == case.values["cpus"], seen


def core_set(case: AuditCase) -> AuditAnswer:
    """Audit that a process of several is kept to the cores of its own."""
    if not case.deployment.cpu_sets:
        return None, "the processes are not kept apart"
    mask, own = case.effective["mask"], case.effective.get("given")
    right = mask in case.deployment.cpu_sets if own is None else mask == own
    return right, pinned(case.effective) or f"a process may use CPUs {mask}"


def pinned(effective: Effective) -> str | None:
    """Return how a process has changed the CPUs that it was given, in words; None where nothing shows that it has.

    What an OpenMP library binds by a setting is no such change: it leaves the threads of others as they are.
    """
    if "given" not in effective or "main" not in effective:  # a command, or a process of an earlier version
        return None
    given = parse_list(effective["given"])
    before, main = parse_list(effective["mask"]), parse_list(effective["main"])
    everyone = frozenset().union(*map(parse_list, effective["masks"]))
    for cpus in (before, everyone):
        if (moved := moved_text(cpus, given)) is not None:
            return moved
    if main < given and not binds_threads(effective):
        return f"the workload itself pins the main thread to {_cpus(main)}, {len(main)} of {len(given)} CPUs"
    return None


def moved_text(cpus: frozenset[int], given: frozenset[int]) -> str | None:
    """Return in words that a process may use other CPUs than it was given, None if it may use these."""
    if cpus - given:
        return f"the workload itself lets the process use {_cpus(cpus)}, and it was given {_cpus(given)}"
    if cpus < given:
        return f"the workload itself pins the process to {_cpus(cpus)}, {len(cpus)} of {len(given)} CPUs"
    return None


def cpus_pinned(moved: str) -> str | None:
    """Return the list of CPUs that a text of `moved_text` names as all that a process uses; None of any other."""
    found = re.search(r" pins the process to CPUs? ([0-9,-]+), ", moved)
    return found and found[1]


def binds_threads(effective: Effective) -> bool:
    """Return whether an OpenMP library is loaded that may have bound threads by a setting: Intel's or LLVM's.

    GNU's does so only if its own variables are set, which no trial inherits.
    """
    return any("/libiomp" in path or "/libomp" in path for path in effective["openmp"]["libraries"])


def _cpus(cpus: frozenset[int]) -> str:
    return f"CPU{'' if len(cpus) == 1 else 's'} {format_list(cpus)}"


def changes(variables: Mapping[str, str | None]) -> str:
    """Return in words what code does to variables of its environment: their values, None of those that it removes."""
    words = [f"removes {name}" if value is None else f"sets {name}={value}" for name, value in variables.items()]
    return " and ".join(words)


def malloc(case: AuditCase) -> AuditAnswer:
    """Audit the allocator by the files that are mapped into the process."""
    loaded = case.effective["malloc"]
    return any(str(case.values["malloc"]) in path for path in loaded), f"loaded: {', '.join(loaded) or 'none'}"


def unobservable(_: AuditCase) -> AuditAnswer:
    """Return that the process does not report it."""
    return None, "the process does not report it"
