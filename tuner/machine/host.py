"""The machine as the rest of the program sees it: what this process may use of the host."""

from __future__ import annotations

import math
import os
import platform
from dataclasses import dataclass, field
from pathlib import Path

from tuner.errors import TunerError
from tuner.identity import digest
from tuner.machine.cgroup import read_limits
from tuner.machine.cpulist import format_list, parse_list
from tuner.machine.topology import Cache, Topology, read_mask, read_topology, text_of

_GIB = 1024**3
NODE_VARIABLE = "TFTUNE_NODE"
_LONGEST = 80  # characters of a fact that is shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Topology and limits of a host, reduced to the affinity mask of this process.

    `sockets`, `physical_cores`, `numa_nodes` and `logical_cpus` count what the mask lets through;
    `online_cpus` is the host. `cpu_quota` (CPUs) and `memory_limit_bytes` are the container's, or None.
    """

    id: str
    cpu_model: str
    architecture: str
    online_cpus: int
    logical_cpus: int
    physical_cores: int
    threads_per_core: int
    sockets: int
    numa_nodes: dict[str, str]
    """NUMA node -> its CPUs inside the mask, as a list such as `0-3`."""
    affinity: str
    cpu_quota: float | None
    memory_bytes: int
    memory_limit_bytes: int | None
    caches: list[Cache] = field(default_factory=list)
    cores: list[str] = field(default_factory=list)
    """The CPUs of each physical core inside the mask, node by node, then by package; earlier studies lack them."""
    core_kinds: list[int] = field(default_factory=list)
    """The kind of each of these cores, 0 for the fastest; empty where all are alike."""
    usable_cpus: int = field(init=False)
    """How many CPUs can be busy at once: the mask's, or the quota's where that is smaller."""

    def __post_init__(self) -> None:
        """Derive what is published with the others."""
        allowed = self.logical_cpus if self.cpu_quota is None else max(1, math.ceil(self.cpu_quota))
        object.__setattr__(self, "usable_cpus", min(self.logical_cpus, allowed))

    @property
    def kind_by_core(self) -> dict[str, int]:
        """Return the kind of each core by its CPUs; empty where all are alike."""
        return dict(zip(self.cores, self.core_kinds, strict=False))

    @property
    def usable_cores(self) -> int:
        """Return the physical cores that the mask and the quota leave."""
        return min(self.physical_cores, self.usable_cpus)


def detect(root: Path = Path("/")) -> Machine:
    """Read the machine below `root`; raises TunerError where this is not Linux."""
    if root == Path("/") and platform.system() != "Linux":
        raise TunerError(
            f"found {platform.system()}, expected Linux", "tftune reads /proc and /sys: run it on Linux or in a VM"
        )
    topology = read_topology(root)
    mask = read_mask(root) or topology.cpus
    limits = read_limits(root)
    memory_bytes = _memory_bytes(root)
    nodes = {str(n): format_list(cpus) for n, cpus in topology.nodes_of(mask).items()}
    cores = topology.ordered_cores(mask)
    return Machine(
        id=_identity(topology, mask, limits.cpu_quota, memory_bytes),
        cpu_model=topology.model_name,
        architecture=platform.machine() if root == Path("/") else "captured",
        online_cpus=len(topology.cpus),
        logical_cpus=len(mask),
        physical_cores=topology.cores_of(mask),
        threads_per_core=max(len(core & mask) for core in topology.cores),
        sockets=topology.sockets_of(mask),
        numa_nodes=nodes,
        affinity=format_list(mask),
        cpu_quota=limits.cpu_quota,
        memory_bytes=memory_bytes,
        memory_limit_bytes=limits.memory_bytes,
        caches=list(topology.caches),
        cores=[format_list(core) for core in cores],
        core_kinds=topology.kinds_of(cores),
    )


def contradiction(machine: Machine) -> str | None:
    """Return which facts of a machine cannot be, or not together; None where all can."""
    n_cores, n_cpus = machine.physical_cores, machine.logical_cpus
    if n_cores < 1 or n_cpus < n_cores:
        return f"physical_cores is {n_cores}, and logical_cpus {n_cpus}"
    if not 1 <= machine.sockets <= n_cores:
        return f"sockets is {machine.sockets}, and physical_cores {n_cores}"
    if machine.threads_per_core < 1:
        return f"threads_per_core is {machine.threads_per_core}"
    if machine.cpu_quota is not None and machine.cpu_quota <= 0:
        return f"cpu_quota is {machine.cpu_quota:g}"
    if machine.cores and len(machine.cores) != n_cores:
        return f"cores lists {len(machine.cores)}, and physical_cores is {n_cores}"
    if machine.core_kinds and len(machine.core_kinds) != len(machine.cores):
        return f"core_kinds lists {len(machine.core_kinds)}, and cores {len(machine.cores)}"
    if any((cache.size_bytes or 0) < 0 or cache.n_instances < 1 for cache in machine.caches):
        return "a cache is smaller than nothing"
    lists = {"affinity": machine.affinity, "cores": machine.cores, "numa_nodes": [*machine.numa_nodes.values()]}
    sets: dict[str, list[frozenset[int]]] = {}
    for name, told in lists.items():
        try:
            sets[name] = [parse_list(text) for text in ([told] if isinstance(told, str) else told)]
        except ValueError:
            return f"{name} is {_short(repr(told))}"
    (allowed,), cores = sets["affinity"], sets["cores"]
    if len(allowed) != n_cpus:
        return f"affinity lists {len(allowed)} CPUs, and logical_cpus is {n_cpus}"
    if cores and frozenset().union(*cores) != allowed:
        return f"cores lists other CPUs than affinity, {_short(machine.affinity)}"
    if sum(map(len, cores)) > n_cpus:
        return "cores lists a CPU twice"
    if not frozenset().union(*sets["numa_nodes"]) <= allowed:
        return f"numa_nodes lists other CPUs than affinity, {_short(machine.affinity)}"
    return None


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def host_of(machine: Machine) -> str:
    """Return what tells hosts apart, whatever part of them was used.

    The caches say what a virtual machine's CPU hides behind a name such as "AMD EPYC".
    """
    sizes = {cache.name: cache.size_bytes for cache in machine.caches}
    caches = [f"{name} {_size_text(size)}" for name in ("L2", "L3") if (size := sizes.get(name))]
    memory = f"{round(machine.memory_bytes / _GIB)} GiB"
    return ", ".join([machine.cpu_model, f"{machine.online_cpus} CPUs", *caches, memory])


def node_name() -> str:
    """Return the name of this machine in a cluster (`TFTUNE_NODE`, which `tftune node` sets), "" outside of one.

    A host name is not enough: each container has one of its own.
    """
    return os.environ.get(NODE_VARIABLE, "")


def _size_text(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:g} MiB" if size_bytes >= 2**20 else f"{size_bytes / 2**10:g} KiB"


def _memory_bytes(root: Path) -> int:
    for line in text_of(root / "proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def _identity(topology: Topology, mask: frozenset[int], quota: float | None, memory_bytes: int) -> str:
    """Name the machine by what changes timings; memory to the GiB, as kernels reserve a little of it."""
    return digest(
        {
            "model": topology.model_name,
            "cores": [sorted(core) for core in topology.cores],
            "sockets": topology.n_sockets,
            "nodes": {str(n): sorted(c) for n, c in topology.nodes.items()},
            "caches": [[c.name, c.size_bytes, c.n_instances] for c in topology.caches],
            "mask": sorted(mask),
            "quota": quota,
            "memory_gib": round(memory_bytes / _GIB),
        }
    )
