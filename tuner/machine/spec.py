"""A machine in words, such as `sockets=2,cores=28,smt=2`: one that is not here, to ask what would be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from tuner.errors import BadInputError, unknown_name
from tuner.identity import digest
from tuner.machine.cpulist import format_list
from tuner.machine.host import Machine
from tuner.machine.topology import Cache
from tuner.quantity import CPUS, Quantity

EXAMPLE = "sockets=2,cores=28,smt=2"
_GIB = 1024**3
_MOST_CPUS = 8192
"""As many as Linux is built for on the largest servers (NR_CPUS)."""


class _Word(NamedTuple):
    """What a word may be: its least and most, whether it is whole, what it is where it is not given, and its units.

    The first unit is the usual one.
    """

    least: float
    most: float
    is_whole: bool = False
    default: float | None = None
    units: Mapping[str, float] = MappingProxyType({})

    @property
    def unit(self) -> str:
        """Return the unit of a plain number, "" where it is a count."""
        return next(iter(self.units), "")


_MEMORY = {"GiB": 1.0, "G": 1.0, "GB": 1e9 / _GIB, "MiB": 1 / 1024, "TiB": 1024.0, "T": 1024.0}
_WORDS = {
    "sockets": _Word(1, 64, is_whole=True, default=1),
    "cores": _Word(1, 4096, is_whole=True),
    "smt": _Word(1, 8, is_whole=True, default=1),
    "quota": _Word(0.01, 4096, units={"CPUs": 1.0, **CPUS.units}),
    "memory": _Word(
        0.1,
        65536,
        default=256,
        units=_MEMORY,
    ),
    "l3": _Word(0.1, 4096, default=32, units={"MiB": 1.0, "M": 1.0, "MB": 1e6 / 2**20, "KiB": 1 / 1024, "GiB": 1024.0}),
    "bandwidth": _Word(1, 10000, units={"GB/s": 1.0, "MB/s": 0.001, "GiB/s": _GIB / 1e9, "TB/s": 1000.0}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpec:
    """Sockets, physical cores of each, hardware threads of each core, a quota (CPUs), and memory (GiB).

    `l3` (MiB) and `bandwidth` (GB/s) are of a socket; what is None is not known.
    """

    sockets: int
    cores: int
    smt: int
    quota: float | None
    memory: float
    l3: float
    bandwidth: float | None

    def __str__(self) -> str:
        values = ((name, getattr(self, name)) for name in _WORDS)
        return ",".join(f"{name}={value:g}" for name, value in values if value is not None)

    def machine(self) -> Machine:
        """Return the machine.

        CPUs are numbered as Linux does on most servers: a thread of each core first, socket by socket, then the second
        threads.
        """
        n_cores = self.sockets * self.cores
        cores = [[core + thread * n_cores for thread in range(self.smt)] for core in range(n_cores)]
        nodes = {
            str(node): format_list(cpu for core in cores[node * self.cores : (node + 1) * self.cores] for cpu in core)
            for node in range(self.sockets)
        }
        return Machine(
            id=digest(str(self)),
            cpu_model=str(self),
            architecture="described",
            online_cpus=n_cores * self.smt,
            logical_cpus=n_cores * self.smt,
            physical_cores=n_cores,
            threads_per_core=self.smt,
            sockets=self.sockets,
            numa_nodes=nodes,
            affinity=format_list(range(n_cores * self.smt)),
            cpu_quota=self.quota,
            memory_bytes=round(self.memory * _GIB),
            memory_limit_bytes=None,
            caches=[Cache(name="L3", size_bytes=round(self.l3 * 2**20), n_instances=self.sockets)],
            cores=[format_list(core) for core in cores],
        )


def parse_spec(text: str) -> MachineSpec:
    """Return what a description says; raises BadInputError for what it cannot mean."""
    values: dict[str, float | None] = {}
    for part in text.split(","):
        name, sign, number = (each.strip() for each in part.partition("="))
        if not sign:
            raise BadInputError(f"--machine has '{part}'", f"expected e.g. {EXAMPLE}, or the file of a machine")
        if name not in _WORDS:
            raise unknown_name("word of --machine", name, _WORDS)
        if name in values:
            raise BadInputError(f"--machine has {name} twice", "give it once")
        values[name] = _number(name, number)
    if "cores" not in values:
        raise BadInputError("--machine does not name cores", f"expected e.g. {EXAMPLE}")
    known = {name: values.get(name, word.default) for name, word in _WORDS.items()}
    whole = {name: int(known[name] or 1) for name, word in _WORDS.items() if word.is_whole}
    n_cpus, quota = math.prod(whole.values()), known["quota"]
    if n_cpus > _MOST_CPUS:
        raise BadInputError(f"--machine has {n_cpus:,} CPUs", f"expected at most {_MOST_CPUS:,}")
    if whole["sockets"] > whole["cores"]:
        raise BadInputError(
            f"--machine has more sockets ({whole['sockets']}) than each of them has cores ({whole['cores']})",
            "expected in cores those of one socket; of a virtual machine, whose sockets are made up, leave sockets out",
        )
    if quota is not None and quota > n_cpus:
        raise BadInputError(f"--machine has a quota of {quota:g} on {n_cpus} CPUs", "expected no more than there are")
    return MachineSpec(**{**known, **whole})  # type: ignore[arg-type]  # each by its own name


def _number(name: str, text: str) -> float:
    """Return the number of a word; raises BadInputError for one that it cannot be."""
    word = _WORDS[name]
    kind = "a whole number" if word.is_whole else "a number"
    if name == "smt" and text.lower() in ("on", "off"):
        raise BadInputError(
            f"--machine has smt={text}", "expected the threads per core, e.g. smt=2 for on, smt=1 for off"
        )
    hint = f"expected {kind} from {word.least:g} to {word.most:g}{f', in {word.unit}' if word.unit else ''}"
    try:
        value = Quantity(what=kind, units=word.units, example="").parse(text, name)
    except BadInputError:
        raise BadInputError(f"--machine has {name}={text}", hint) from None
    if not word.least <= value <= word.most or (word.is_whole and value != int(value)):
        raise BadInputError(f"--machine has {name}={text}", hint)
    return value
