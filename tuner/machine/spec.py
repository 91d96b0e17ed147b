"""A machine in words, such as `sockets=2,cores=28,smt=2`: one that is not here, to ask what would be."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tuner.errors import BadInputError, unknown_name
from tuner.identity import digest
from tuner.machine.cpulist import format_list
from tuner.machine.host import Machine
from tuner.machine.topology import Cache

EXAMPLE = "sockets=2,cores=28,smt=2"
_GIB = 1024**3
_MOST = {"sockets": 8, "cores": 256, "smt": 8, "quota": 4096, "memory": 1 << 16, "l3": 4096}
_WHOLE = ("sockets", "cores", "smt")
_DEFAULTS = {"sockets": 1.0, "smt": 1.0, "memory": 256.0, "l3": 32.0}
_UNIT = re.compile(r"(?i)\s*(gib|gb|mib|mb|cpus?)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpec:
    """Sockets, physical cores of each, hardware threads of each core; quota (CPUs), memory (GiB), L3 a socket (MiB)."""

    sockets: int
    cores: int
    smt: int
    quota: float | None
    memory: float
    l3: float

    def __str__(self) -> str:
        quota = "" if self.quota is None else f",quota={self.quota:g}"
        return f"sockets={self.sockets},cores={self.cores},smt={self.smt}{quota},memory={self.memory:g},l3={self.l3:g}"


def parse_machine(text: str) -> Machine:
    """Return the machine that a description is of; raises BadInputError.

    CPUs are numbered as Linux does on most servers: a thread of each core first, socket by socket, then the second
    threads.
    """
    spec = parse_spec(text)
    n_cores = spec.sockets * spec.cores
    cores = [[core + thread * n_cores for thread in range(spec.smt)] for core in range(n_cores)]
    nodes = {
        str(socket): format_list(cpu for core in cores[socket * spec.cores : (socket + 1) * spec.cores] for cpu in core)
        for socket in range(spec.sockets)
    }
    return Machine(
        id=digest(str(spec)),
        cpu_model=str(spec),
        architecture="described",
        online_cpus=n_cores * spec.smt,
        logical_cpus=n_cores * spec.smt,
        physical_cores=n_cores,
        threads_per_core=spec.smt,
        sockets=spec.sockets,
        numa_nodes=nodes,
        affinity=format_list(range(n_cores * spec.smt)),
        cpu_quota=spec.quota,
        memory_bytes=round(spec.memory * _GIB),
        memory_limit_bytes=None,
        caches=[Cache(name="L3", size_bytes=round(spec.l3 * 2**20), n_instances=spec.sockets)],
        cores=[format_list(core) for core in cores],
    )


def parse_spec(text: str) -> MachineSpec:
    """Return what a description says; raises BadInputError for what it cannot mean."""
    values: dict[str, float] = dict(_DEFAULTS)
    given: set[str] = set()
    for part in text.split(","):
        name, sign, number = (each.strip() for each in part.partition("="))
        if not sign:
            raise BadInputError(f"--machine says '{part}'", f"expected e.g. {EXAMPLE}, or the file of a machine")
        if name not in _MOST:
            raise unknown_name("word of --machine", name, tuple(_MOST))
        if name in given:
            raise BadInputError(f"--machine says {name} twice", "give it once")
        values[name] = _number(name, number)
        given.add(name)
    if "cores" not in given:
        raise BadInputError("--machine says nothing of cores", f"expected e.g. {EXAMPLE}")
    quota = values.get("quota")
    n_cpus = values["sockets"] * values["cores"] * values["smt"]
    if quota is not None and quota > n_cpus:
        raise BadInputError(f"--machine has a quota of {quota:g} on {n_cpus:g} CPUs", "expected no more than there are")
    return MachineSpec(
        sockets=int(values["sockets"]),
        cores=int(values["cores"]),
        smt=int(values["smt"]),
        quota=quota,
        memory=values["memory"],
        l3=values["l3"],
    )


def _number(name: str, text: str) -> float:
    expected = f"expected {'a whole number' if name in _WHOLE else 'a number'} from {0 if name == 'quota' else 1}"
    hint = f"{expected} to {_MOST[name]}" if name != "quota" else f"expected a number of CPUs above 0, to {_MOST[name]}"
    try:
        value = float(_UNIT.sub("", text))
    except ValueError:
        raise BadInputError(f"--machine says {name}={text}", hint) from None
    if not (0 < value <= _MOST[name]) or (name in _WHOLE and value != int(value)) or (name != "quota" and value < 1):
        raise BadInputError(f"--machine says {name}={text}", hint)
    return value
