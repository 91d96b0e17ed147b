"""Presets: values of word knobs that depend on the machine, under names that a space file can use anywhere."""

from __future__ import annotations

from collections.abc import Callable

from tuner.errors import BadInputError, unknown
from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine

Preset = Callable[[Machine], str | None]
"""Gives the value on a machine, or None where it would be another preset's value again."""


def _first_node(machine: Machine) -> str | None:
    """Return the CPUs of the first NUMA node, None where there is no second one."""
    return next(iter(machine.numa_nodes.values())) if len(machine.numa_nodes) > 1 else None


def _explicit(machine: Machine) -> str | None:
    """Return the first node's CPUs as a list of OpenMP's: as the kernel counts, one thread a core comes first."""
    node = _first_node(machine)
    listed = ",".join(str(cpu) for cpu in sorted(parse_list(node))) if node else ""
    return f"granularity=fine,proclist=[{listed}],explicit" if node else None


PRESETS: dict[str, dict[str, Preset]] = {
    "kmp_affinity": {
        "none": lambda _: "none",
        # Neighbouring threads share a core where cores have several, or stand on neighbouring cores.
        "compact": lambda _: "granularity=fine,compact",
        # One thread a core first.
        "compact_cores": lambda machine: "granularity=fine,compact,1,0" if machine.threads_per_core > 1 else None,
        # Neighbouring threads stand on different sockets.
        "scatter": lambda machine: "granularity=fine,scatter" if machine.sockets > 1 else None,
        "one_node": _explicit,
    },
    "cpus": {"all": lambda machine: machine.affinity, "one_node": _first_node},
}


def expand(knob: str, names: list[object], machine: Machine) -> list[str]:
    """Return the values that a knob's presets have on a machine; raises BadInputError for an unknown one."""
    known = PRESETS.get(knob)
    if known is None:
        raise BadInputError(f"{knob} has no presets", "give its choices")
    for name in names:
        if name not in known:
            raise unknown("preset", str(name), known)
    values = [known[str(name)](machine) for name in names]
    return [value for value in values if value is not None]
