"""Small `/proc` and `/sys` trees, made to order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tuner.machine.cpulist import format_list


def write(root: Path, path: str, text: str) -> None:
    """Write one file of a tree."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")


def make_machine(
    root: Path,
    *,
    cores: Sequence[Sequence[int]],
    sockets: Sequence[Sequence[int]],
    nodes: Sequence[Sequence[int]] = (),
    mask: Sequence[int] | None = None,
    memory_kb: int = 16 << 20,
) -> Path:
    """Make a tree with these hardware threads of each core, CPUs of each socket and NUMA node."""
    cpus = sorted(cpu for core in cores for cpu in core)
    write(root, "proc/cpuinfo", "\n\n".join(f"processor\t: {cpu}\nmodel name\t: Made  CPU" for cpu in cpus))
    write(root, "proc/meminfo", f"MemTotal: {memory_kb} kB")
    write(root, "proc/self/status", f"Name:\tx\nCpus_allowed_list:\t{format_list(cpus if mask is None else mask)}")
    write(root, "sys/devices/system/cpu/online", format_list(cpus))
    for cpu in cpus:
        folder = f"sys/devices/system/cpu/cpu{cpu}"
        core = next(core for core in cores if cpu in core)
        package = next(i for i, socket in enumerate(sockets) if cpu in socket)
        write(root, f"{folder}/topology/thread_siblings_list", format_list(core))
        write(root, f"{folder}/topology/physical_package_id", str(package))
        write(root, f"{folder}/cache/index0/level", "1")
        write(root, f"{folder}/cache/index0/type", "Data")
        write(root, f"{folder}/cache/index0/size", "32K")
        write(root, f"{folder}/cache/index0/shared_cpu_list", format_list(core))
    for i, node in enumerate(nodes):
        write(root, f"sys/devices/system/node/node{i}/cpulist", format_list(node))
    return root


def add_cgroup_v2(root: Path, group: str, files: dict[str, str], *, mount_root: str = "/") -> None:
    """Put this process into a v2 group; `files` are paths below the mount, such as `a/b/cpu.max`."""
    write(root, "proc/self/cgroup", f"0::{group}")
    write(root, "proc/self/mountinfo", f"30 23 0:26 {mount_root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
    for path, text in files.items():
        write(root, f"sys/fs/cgroup/{path}", text)


def add_cgroup_v1(root: Path, group: str, files: dict[str, str], *, mount_root: str = "/") -> None:
    """Put this process into v1 groups; `files` are paths such as `cpu/a/cpu.cfs_quota_us`."""
    write(root, "proc/self/cgroup", f"4:memory:{group}\n3:cpu,cpuacct:{group}\n0::/")
    write(
        root,
        "proc/self/mountinfo",
        f"32 31 0:29 {mount_root} /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        f"36 31 0:33 {mount_root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
    )
    for path, text in files.items():
        write(root, f"sys/fs/cgroup/{path}", text)


def make_hybrid(root: Path, *, fast: int = 8, slow: int = 16) -> Path:
    """Make a tree as of Intel's: fast cores of two hardware threads first, slow ones of one thread after them."""
    cores = [(2 * i, 2 * i + 1) for i in range(fast)] + [(2 * fast + i,) for i in range(slow)]
    cpus = [cpu for core in cores for cpu in core]
    make_machine(root, cores=cores, sockets=[cpus], nodes=[cpus])
    write(root, "sys/devices/cpu_core/cpus", f"0-{2 * fast - 1}")
    write(root, "sys/devices/cpu_atom/cpus", f"{2 * fast}-{2 * fast + slow - 1}")
    for cpu in cpus:
        # Two of the fast cores reach a little more than the others: they are of one kind all the same.
        mhz = 3900 if cpu >= 2 * fast else 5700 if cpu < 4 else 5500
        write(root, f"sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq", str(mhz * 1000))
    return root
