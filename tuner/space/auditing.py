"""Audit checks: did a knob take effect in a process, according to the process's own report (`tuner.child.effective`)?

Where a process does not tell, the answer is unknown and never "yes".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

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
    return case.effective["mask"] == case.values["cpus"], f"the process may use CPUs {case.effective['mask']}"


def core_set(case: AuditCase) -> AuditAnswer:
    """Audit that a process of several is kept to the cores of one of them."""
    if not case.deployment.cpu_sets:
        return None, "the processes are not kept apart"
    mask = case.effective["mask"]
    return mask in case.deployment.cpu_sets, f"a process may use CPUs {mask}"


def malloc(case: AuditCase) -> AuditAnswer:
    """Audit the allocator by the files that are mapped into the process."""
    loaded = case.effective["malloc"]
    return any(str(case.values["malloc"]) in path for path in loaded), f"loaded: {', '.join(loaded) or 'none'}"


def unobservable(_: AuditCase) -> AuditAnswer:
    """Return that the process does not report it."""
    return None, "the process does not report it"
