"""CPUs, cores, sockets, NUMA nodes and caches, read from `/proc` and `/sys` below a root path.

The root is a parameter so that captured trees of other machines can be read; the words mean what they
mean in `lscpu`.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.machine.cpulist import parse_list, parse_mask

_CPUS = "sys/devices/system/cpu"
_TYPES = ("cpu_core", "cpu_atom", "cpu_lowpower")  # of Intel's hybrids, the fastest first: devices that list their CPUs
# CPUs of one type differ by some percent: the firmware names a few of them that reach a higher clock.
_SAME_SPEED = 0.9
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
    kinds: dict[int, int] = field(default_factory=dict)
    """The kind of each CPU by its speed, 0 for the fastest; empty where the kernel tells of no difference."""

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

    def kinds_of(self, cores: Sequence[frozenset[int]]) -> list[int]:
        """Return the kind of each core, 0 for the fastest; empty where all are alike.

        Of two cores with CPUs of one kind the one with fewer hardware threads is another kind.
        """
        described = [(self.kinds.get(min(core), 0), -len(core)) for core in cores]
        known = sorted(set(described))
        return [known.index(each) for each in described] if len(known) > 1 else []

    def sockets_of(self, cpus: frozenset[int]) -> int:
        """Return the number of sockets that have at least one of `cpus`."""
        return min(self.n_sockets, sum(1 for package in self.packages if package & cpus))

    def nodes_of(self, cpus: frozenset[int]) -> dict[int, frozenset[int]]:
        """Return the NUMA nodes that have at least one of `cpus`, reduced to these."""
        return {node: members & cpus for node, members in self.nodes.items() if members & cpus}


def read_topology(root: Path = Path("/")) -> Topology:
    """Read the topology below `root`; raises FileNotFoundError where `/proc/cpuinfo` is missing."""
    info = _read_cpuinfo(root)
    cpus = _online(root, info)
    mask = read_mask(root)
    if not mask <= cpus:  # a container whose list of online CPUs has other numbers than the kernel
        cpus = mask
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
        kinds=_read_kinds(root, cpus),
    )


def read_mask(root: Path = Path("/")) -> frozenset[int]:
    """Return the CPUs that this process may run on; empty where a captured tree does not tell."""
    if root == Path("/"):
        return frozenset(os.sched_getaffinity(0))
    for line in text_of(root / "proc/self/status").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            listed = parse_list(line.partition(":")[2])
            # The kernel lists CPUs that are off there, too, and those have no topology.
            return frozenset(cpu for cpu in listed if (root / _CPUS / f"cpu{cpu}" / "topology").is_dir())
    return frozenset()


def _read_kinds(root: Path, cpus: frozenset[int]) -> dict[int, int]:
    """Return `Topology.kinds`.

    Sources: the kernel's `Documentation/ABI/testing/sysfs-devices-system-cpu` (`cpu_capacity`: 1024 for the fastest),
    `admin-guide/pm/cpufreq.rst` (`cpuinfo_max_freq`), and Intel's devices `cpu_core` and `cpu_atom`.
    """
    types = {
        cpu: number
        for number, name in enumerate(_TYPES)
        for cpu in parse_list(text_of(root / "sys/devices" / name / "cpus"))
    }
    speeds = _speeds(root, cpus, "cpu_capacity")
    if len(set(speeds.values())) < 2:
        speeds = _speeds(root, cpus, "cpufreq/cpuinfo_max_freq")
    described: dict[int, tuple[int, int]] = {}
    group, top = 0, 0
    for cpu in sorted(cpus, key=lambda cpu: (types.get(cpu, 0), -speeds.get(cpu, 0), cpu)):
        speed = speeds.get(cpu, 0)
        if not described or speed < _SAME_SPEED * top:
            group, top = group + 1, speed
        described[cpu] = (types.get(cpu, 0), group)
    known = sorted(set(described.values()))
    return {cpu: known.index(each) for cpu, each in described.items()} if len(known) > 1 else {}


def _speeds(root: Path, cpus: frozenset[int], file: str) -> dict[int, int]:
    """Return the number that a file of each CPU holds; nothing where not all have one."""
    texts = {cpu: text_of(root / _CPUS / f"cpu{cpu}" / file) for cpu in cpus}
    return {cpu: int(text) for cpu, text in texts.items()} if all(text.isdigit() for text in texts.values()) else {}


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
    listed = text_of(root / _CPUS / "online")
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
    listed = text_of(folder / list_name)
    if listed:
        return parse_list(listed)
    mask = text_of(folder / mask_name)
    return parse_mask(mask) if mask else frozenset()


def _package(root: Path, cpu: int) -> int:
    text = text_of(root / _CPUS / f"cpu{cpu}" / "topology/physical_package_id")
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
            level, kind = text_of(folder / "level"), text_of(folder / "type")
            name = f"L{level}" + {"Data": "d", "Instruction": "i"}.get(kind, "")
            shared = _cpu_set(folder, "shared_cpu_list", "shared_cpu_map") & cpus
            instances[name].add(shared or frozenset({cpu}))
            sizes.setdefault(name, _bytes(text_of(folder / "size")))
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


def text_of(path: Path) -> str:
    """Return a file's text, or nothing: what a kernel does not tell is not there."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
