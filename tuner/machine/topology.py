"""CPUs, cores, sockets, NUMA nodes and caches, read from `/proc` and `/sys` below a root path.

The root is a parameter so that captured trees of other machines can be read; the words mean what they
mean in `lscpu`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tuner.machine.cpulist import parse_list, parse_mask

_CPUS = "sys/devices/system/cpu"
_NODES = "sys/devices/system/node"
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """One kind of cache: `size_bytes` of a single instance (None where the kernel does not say)."""

    name: str
    size_bytes: int | None
    n_instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The online CPUs of a host and how they hang together."""

    cpus: frozenset[int]
    cores: tuple[frozenset[int], ...]
    """The hardware threads of each physical core."""
    packages: tuple[frozenset[int], ...]
    """The CPUs of each physical package, as the kernel numbers them."""
    n_sockets: int
    """Sockets as `lscpu` counts them; see `_count_sockets`."""
    nodes: dict[int, frozenset[int]]
    """The CPUs of each NUMA node; empty where the kernel has no NUMA."""
    caches: tuple[Cache, ...]
    model_name: str

    def cores_of(self, cpus: frozenset[int]) -> int:
        """Return the number of physical cores that have at least one of `cpus`."""
        return sum(1 for core in self.cores if core & cpus)

    def ordered_cores(self, cpus: frozenset[int]) -> list[frozenset[int]]:
        """Return the physical cores that have at least one of `cpus`, reduced to these: node by node, then by package.

        So that neighbours in the list share as much as they can.
        """
        node_of = {cpu: node for node, members in self.nodes.items() for cpu in members}
        package_of = {cpu: number for number, members in enumerate(self.packages) for cpu in members}
        cores = [core & cpus for core in self.cores if core & cpus]
        return sorted(cores, key=lambda core: (node_of.get(min(core), 0), package_of.get(min(core), 0), min(core)))

    def sockets_of(self, cpus: frozenset[int]) -> int:
        """Return the number of sockets that have at least one of `cpus`."""
        return min(self.n_sockets, sum(1 for package in self.packages if package & cpus))

    def nodes_of(self, cpus: frozenset[int]) -> dict[int, frozenset[int]]:
        """Return the NUMA nodes that have at least one of `cpus`, reduced to these."""
        return {node: members & cpus for node, members in self.nodes.items() if members & cpus}

    @property
    def threads_per_core(self) -> int:
        """Return the largest number of hardware threads that share a core."""
        return max(len(core) for core in self.cores)


def read_topology(root: Path = Path("/")) -> Topology:
    """Read the topology below `root`; raises FileNotFoundError where `/proc/cpuinfo` is missing."""
    info = _read_cpuinfo(root)
    cpus = _online(root, info)
    cores = {_siblings(root, cpu, ("core_cpus", "thread_siblings")) & cpus or frozenset({cpu}) for cpu in cpus}
    packages: dict[int, set[int]] = defaultdict(set)
    for cpu in cpus:
        packages[_package(root, cpu)].add(cpu)
    groups = tuple(sorted((frozenset(p) for p in packages.values()), key=min))
    return Topology(
        cpus=cpus,
        cores=tuple(sorted(cores, key=min)),
        packages=groups,
        n_sockets=_count_sockets(groups, info),
        nodes=_read_nodes(root, cpus),
        caches=_read_caches(root, cpus),
        model_name=_model_name(info),
    )


def _read_cpuinfo(root: Path) -> dict[int, dict[str, str]]:
    """Return the fields of each processor in `/proc/cpuinfo`."""
    blocks: dict[int, dict[str, str]] = {}
    fields: dict[str, str] = {}
    for line in (root / "proc/cpuinfo").read_text(errors="replace").splitlines():
        key, separator, value = line.partition(":")
        if not separator:
            continue
        if key.strip() == "processor" and value.strip().isdigit():
            fields = blocks.setdefault(int(value), {})
        fields[key.strip()] = value.strip()
    return blocks


def _online(root: Path, info: dict[int, dict[str, str]]) -> frozenset[int]:
    listed = _text(root / _CPUS / "online")
    if listed:
        return parse_list(listed)
    return frozenset(info) or frozenset({0})


def _siblings(root: Path, cpu: int, names: tuple[str, ...]) -> frozenset[int]:
    """Return the set that the first existing file of `names` gives, as a list or as a mask."""
    folder = root / _CPUS / f"cpu{cpu}" / "topology"
    for name in names:
        cpus = _cpu_set(folder, f"{name}_list", name)
        if cpus:
            return cpus
    return frozenset({cpu})


def _cpu_set(folder: Path, list_name: str, mask_name: str) -> frozenset[int]:
    listed = _text(folder / list_name)
    if listed:
        return parse_list(listed)
    mask = _text(folder / mask_name)
    return parse_mask(mask) if mask else frozenset()


def _package(root: Path, cpu: int) -> int:
    text = _text(root / _CPUS / f"cpu{cpu}" / "topology/physical_package_id")
    return max(int(text), 0) if text else 0


def _count_sockets(packages: tuple[frozenset[int], ...], info: dict[int, dict[str, str]]) -> int:
    """Return the largest number of packages that any one core type spans.

    Arm kernels before 5.16 number the clusters of one chip as packages. `lscpu` counts sockets by core
    type, so a cluster of another type is not another socket; on x86 there is one type and this is the
    number of packages.
    """
    types: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for index, package in enumerate(packages):
        for cpu in package:
            fields = info.get(cpu, {})
            types[tuple(fields.get(key, "") for key in ("CPU implementer", "CPU part"))].add(index)
    return max((len(spanned) for spanned in types.values()), default=1)


def _read_nodes(root: Path, cpus: frozenset[int]) -> dict[int, frozenset[int]]:
    nodes: dict[int, frozenset[int]] = {}
    for folder in (root / _NODES).glob("node[0-9]*"):
        members = _cpu_set(folder, "cpulist", "cpumap") & cpus
        if members:
            nodes[int(folder.name.removeprefix("node"))] = members
    return dict(sorted(nodes.items()))


def _read_caches(root: Path, cpus: frozenset[int]) -> tuple[Cache, ...]:
    instances: dict[str, set[frozenset[int]]] = defaultdict(set)
    sizes: dict[str, int | None] = {}
    for cpu in sorted(cpus):
        for folder in sorted((root / _CPUS / f"cpu{cpu}" / "cache").glob("index[0-9]*")):
            level, kind = _text(folder / "level"), _text(folder / "type")
            name = f"L{level}" + {"Data": "d", "Instruction": "i"}.get(kind, "")
            shared = _cpu_set(folder, "shared_cpu_list", "shared_cpu_map") & cpus
            instances[name].add(shared or frozenset({cpu}))
            sizes.setdefault(name, _bytes(_text(folder / "size")))
    return tuple(
        Cache(name=name, size_bytes=sizes[name], n_instances=len(instances[name])) for name in sorted(instances)
    )


def _model_name(info: dict[int, dict[str, str]]) -> str:
    first = info.get(min(info, default=0), {})
    for key in ("model name", "Processor", "cpu model", "CPU part"):
        if first.get(key):
            return re.sub(r"\s+", " ", first[key])
    return "unknown"


def _bytes(text: str) -> int | None:
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(match[1]) * _UNITS[match[2]] if match else None


def _text(path: Path) -> str:
    """Return a file's text, or nothing: what a kernel does not tell is not there."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
