"""The machine reader against made trees and against captures of real machines, where it must agree with lscpu."""

from __future__ import annotations

import os
import re
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import DATA
from tests.trees import add_cgroup_v1, add_cgroup_v2, make_machine, write
from tuner.machine.cgroup import oom_kills, read_limits, used_memory_bytes
from tuner.machine.cpulist import format_list, parse_list, parse_mask
from tuner.machine.host import Machine, detect, host_of
from tuner.machine.topology import Cache, read_topology

CAPTURES = DATA / "machines"
CAPTURED = sorted(path.name.removesuffix(".tar.gz") for path in CAPTURES.glob("*.tar.gz"))


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,8", {0, 1, 2, 3, 8}), ("0-6:2", {0, 2, 4, 6}), ("5", {5}), ("", set()), ("0-1\n", {0, 1})],
)
def test_cpu_lists(text: str, cpus: set[int]) -> None:
    assert parse_list(text) == cpus


def test_cpu_masks() -> None:
    assert parse_mask("00000001,80000003") == {0, 1, 31, 32}
    assert parse_mask("ff") == set(range(8))


@given(st.sets(st.integers(0, 300)))
def test_formatting_a_list_is_undone_by_parsing_it(cpus: set[int]) -> None:
    assert parse_list(format_list(cpus)) == cpus


def test_two_sockets_with_numa_and_smt(tmp_path: Path) -> None:
    root = make_machine(
        tmp_path,
        cores=[(0, 4), (1, 5), (2, 6), (3, 7)],
        sockets=[(0, 1, 4, 5), (2, 3, 6, 7)],
        nodes=[(0, 1, 4, 5), (2, 3, 6, 7)],
    )
    machine = detect(root)
    assert (machine.sockets, machine.physical_cores, machine.logical_cpus, machine.threads_per_core) == (2, 4, 8, 2)
    assert machine.numa_nodes == {"0": "0-1,4-5", "1": "2-3,6-7"}
    assert machine.cpu_quota is None
    assert machine.usable_cpus == 8


def test_smt_off(tmp_path: Path) -> None:
    machine = detect(make_machine(tmp_path, cores=[(0,), (1,)], sockets=[(0, 1)]))
    assert (machine.physical_cores, machine.logical_cpus, machine.threads_per_core) == (2, 2, 1)


def test_a_mask_hides_cores_sockets_and_nodes(tmp_path: Path) -> None:
    root = make_machine(
        tmp_path,
        cores=[(0, 4), (1, 5), (2, 6), (3, 7)],
        sockets=[(0, 1, 4, 5), (2, 3, 6, 7)],
        nodes=[(0, 1, 4, 5), (2, 3, 6, 7)],
        mask=(0, 1, 4),
    )
    machine = detect(root)
    assert (machine.sockets, machine.physical_cores, machine.logical_cpus, machine.online_cpus) == (1, 2, 3, 8)
    assert machine.numa_nodes == {"0": "0-1,4"}
    assert machine.threads_per_core == 2


@pytest.mark.parametrize(("mask", "online"), [((8, 9, 10, 11), "0-3"), ((2, 3, 4, 5), "0-3"), ((0, 1, 2, 3), "0-1")])
def test_of_two_lists_of_cpus_the_mask_wins(tmp_path: Path, mask: tuple[int, ...], online: str) -> None:
    """A container whose /sys shows as many CPUs as it has, from 0 on, whatever their numbers are."""
    root = make_machine(tmp_path, cores=[(cpu,) for cpu in range(16)], sockets=[range(16)], mask=mask)
    write(root, "sys/devices/system/cpu/online", online)
    write(root, "proc/cpuinfo", "\n\n".join(f"processor\t: {cpu}\nmodel name\t: Made CPU" for cpu in range(4)))
    machine = detect(root)
    assert parse_list(machine.affinity) == set(mask)
    assert (machine.logical_cpus, machine.physical_cores, machine.online_cpus) == (4, 4, 4)
    assert machine.cpu_model == "Made CPU"


def test_a_container_may_show_the_whole_host_in_sys(tmp_path: Path) -> None:
    root = make_machine(tmp_path, cores=[(cpu,) for cpu in range(16)], sockets=[range(16)], mask=(8, 9))
    write(root, "proc/cpuinfo", "processor\t: 0\nmodel name\t: Made CPU\n\nprocessor\t: 1\nmodel name\t: Made CPU")
    machine = detect(root)
    assert (machine.affinity, machine.logical_cpus, machine.online_cpus) == ("8-9", 2, 16)


def test_cpus_that_are_off_do_not_count_though_the_kernel_lists_them(tmp_path: Path) -> None:
    root = make_machine(tmp_path, cores=[(0,), (1,)], sockets=[(0, 1)], mask=range(64))
    assert detect(root).affinity == "0-1"


def test_the_id_is_stable_and_changes_with_what_changes_timings(tmp_path: Path) -> None:
    plain = detect(make_machine(tmp_path / "a", cores=[(0,), (1,)], sockets=[(0, 1)]))
    again = detect(make_machine(tmp_path / "b", cores=[(0,), (1,)], sockets=[(0, 1)], memory_kb=(16 << 20) - 900))
    masked = detect(make_machine(tmp_path / "c", cores=[(0,), (1,)], sockets=[(0, 1)], mask=(0,)))
    assert plain.id == again.id
    assert plain.id != masked.id


QUOTAS_V2 = [
    ("/box", {"box/cpu.max": "150000 100000"}, "/", 1.5),
    ("/box", {"box/cpu.max": "max 100000"}, "/", None),
    ("/a/b", {"a/cpu.max": "50000 100000", "a/b/cpu.max": "400000 100000"}, "/", 0.5),
    ("/", {"cpu.max": "200000 100000"}, "/", 2.0),  # a container with its own namespace
    ("/docker/1", {"cpu.max": "100000 100000"}, "/docker/1", 1.0),  # the mount begins at the group
    ("/../x", {"cpu.max": "100000 100000"}, "/", 1.0),  # outside of the namespace
]


@pytest.mark.parametrize(("group", "files", "mount_root", "quota"), QUOTAS_V2)
def test_quota_v2(tmp_path: Path, group: str, files: dict[str, str], mount_root: str, quota: float | None) -> None:
    add_cgroup_v2(tmp_path, group, files, mount_root=mount_root)
    assert read_limits(tmp_path).cpu_quota == quota


@pytest.mark.parametrize(
    ("files", "mount_root", "quota"),
    [
        ({"cpu/box/cpu.cfs_quota_us": "50000", "cpu/box/cpu.cfs_period_us": "100000"}, "/", 0.5),
        ({"cpu/box/cpu.cfs_quota_us": "-1", "cpu/box/cpu.cfs_period_us": "100000"}, "/", None),
        ({"cpu/cpu.cfs_quota_us": "150000", "cpu/cpu.cfs_period_us": "50000"}, "/box", 3.0),
    ],
)
def test_quota_v1(tmp_path: Path, files: dict[str, str], mount_root: str, quota: float | None) -> None:
    add_cgroup_v1(tmp_path, "/box", files, mount_root=mount_root)
    assert read_limits(tmp_path).cpu_quota == quota


@pytest.mark.parametrize("version", [1, 2])
def test_the_memory_that_a_container_has_taken(tmp_path: Path, version: int) -> None:
    assert used_memory_bytes(tmp_path) is None
    if version == 2:
        add_cgroup_v2(tmp_path, "/a/b", {"a/b/memory.stat": "anon 5000\nfile 9000", "a/memory.stat": "anon 7"})
    else:
        add_cgroup_v1(tmp_path, "/a", {"memory/a/memory.stat": "cache 9000\nrss 3\ntotal_rss 5000"})
    assert used_memory_bytes(tmp_path) == 5000


@pytest.mark.parametrize("version", [0, 1, 2, "outside"])
def test_kills_for_memory_are_those_of_the_own_group(tmp_path: Path, version: int | str) -> None:
    """A neighbour's do not count, but where nothing tells of the group."""
    assert oom_kills(tmp_path) == 0
    write(tmp_path, "proc/vmstat", "nr_free_pages 7\noom_kill 9")
    if version == 2:
        add_cgroup_v2(tmp_path, "/a/b", {"a/b/memory.events": "oom 3\noom_kill 2", "a/memory.events": "oom_kill 5"})
    if version == 1:
        add_cgroup_v1(tmp_path, "/a", {"memory/a/memory.oom_control": "under_oom 0\noom_kill 2"})
    if version == "outside":
        add_cgroup_v2(tmp_path, "/../x", {"memory.events": "oom_kill 5"})
    assert oom_kills(tmp_path) == (2 if version in (1, 2) else 9)


def test_memory_limits(tmp_path: Path) -> None:
    add_cgroup_v2(tmp_path / "two", "/box", {"box/memory.max": str(2 << 30)})
    add_cgroup_v1(tmp_path / "one", "/box", {"memory/box/memory.limit_in_bytes": str(3 << 30)})
    add_cgroup_v1(tmp_path / "none", "/box", {"memory/box/memory.limit_in_bytes": "9223372036854771712"})
    assert read_limits(tmp_path / "two").memory_bytes == 2 << 30
    assert read_limits(tmp_path / "one").memory_bytes == 3 << 30
    assert read_limits(tmp_path / "none").memory_bytes is None


@pytest.mark.parametrize(("quota", "usable"), [("50000", 1), ("150000", 2), ("400000", 2)])
def test_a_quota_lowers_the_usable_cpus(tmp_path: Path, quota: str, usable: int) -> None:
    make_machine(tmp_path, cores=[(0,), (1,)], sockets=[(0, 1)])
    add_cgroup_v2(tmp_path, "/box", {"box/cpu.max": f"{quota} 100000"})
    machine = detect(tmp_path)
    assert (machine.logical_cpus, machine.usable_cpus) == (2, usable)


def test_this_machine_agrees_with_the_kernel() -> None:
    machine = detect()
    assert machine.logical_cpus == len(os.sched_getaffinity(0))
    assert 1 <= machine.sockets <= machine.physical_cores <= machine.online_cpus
    assert machine.memory_bytes > 0


def test_hosts_are_told_apart_by_their_caches_where_the_model_says_nothing(machine: Machine) -> None:
    def host(*sizes: tuple[str, int | None]) -> str:
        caches = [Cache(name=name, size_bytes=size, n_instances=1) for name, size in sizes]
        memory = 25276063744
        return host_of(replace(machine, cpu_model="AMD EPYC", online_cpus=2, memory_bytes=memory, caches=caches))

    assert host(("L1d", 32 << 10), ("L2", 512 << 10)) == "AMD EPYC, 2 CPUs, L2 512 KiB, 24 GiB"
    newer = (("L1d", 32 << 10), ("L2", 1 << 20), ("L3", 32 << 20))
    assert host(*newer) == "AMD EPYC, 2 CPUs, L2 1 MiB, L3 32 MiB, 24 GiB"
    assert host(("L2", None)) == "AMD EPYC, 2 CPUs, 24 GiB"


def test_there_are_captures() -> None:
    assert len(CAPTURED) >= 5


@pytest.mark.parametrize("name", CAPTURED)
def test_captures_agree_with_lscpu(name: str, tmp_path: Path) -> None:
    with tarfile.open(CAPTURES / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="fully_trusted")
    tree = read_topology(tmp_path / name)
    said = (CAPTURES / f"{name}.lscpu.txt").read_text().partition("\n# ")[0]
    assert tree.cpus == parse_list(_said(said, "On-line CPU(s) list")[0])
    threads, per_socket, sockets = (
        [int(n) for n in _said(said, key)] for key in ("Thread(s) per core", "Core(s) per socket", "Socket(s)")
    )
    assert max(map(len, tree.cores)) == max(threads)
    assert tree.n_sockets == max(sockets)
    # A hybrid machine has a block for each core type; elsewhere there is one.
    assert len(tree.cores) == sum(c * s for c, s in zip(per_socket, sockets, strict=True))
    nodes = {int(n): parse_list(cpus) for n, cpus in re.findall(r"NUMA node(\d+) CPU\(s\):\s*(\S+)", said)}
    assert tree.nodes == nodes
    caches = {
        cache: (int(float(size) * {"KiB": 1 << 10, "MiB": 1 << 20}[unit]), int(n))
        for cache, size, unit, n in re.findall(r"(L\w+) cache:\s*([\d.]+) (\w+) \((\d+) instance", said)
    }
    for cache in tree.caches:
        if cache.size_bytes is not None:
            assert caches.pop(cache.name) == (cache.size_bytes * cache.n_instances, cache.n_instances)
    assert not caches


def _said(text: str, key: str) -> list[str]:
    return re.findall(rf"^{re.escape(key)}:\s*(.+?)\s*$", text, flags=re.MULTILINE)
