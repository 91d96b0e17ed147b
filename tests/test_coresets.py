"""Core sets: disjoint, whole, alike and near to memory; on made machines and on captures of real ones."""

from __future__ import annotations

import itertools
import tarfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.conftest import DATA
from tests.trees import make_hybrid, make_machine, write
from tuner.machine.coresets import core_sets, unlike
from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine, detect


def sets_of(machine: Machine, n: int) -> list[frozenset[int]]:
    sets = core_sets(machine.cores, list(machine.numa_nodes.values()), n, machine.kind_by_core)
    return [parse_list(text) for text in sets]


def capture(name: str, folder: Path) -> Machine:
    """Return a captured machine, unpacked into a folder."""
    with tarfile.open(DATA / "machines" / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return detect(next(path for path in (folder, *folder.iterdir()) if (path / "proc").is_dir()))


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A captured machine of four sockets and two threads per core, with three nodes of 16, 8 and 8 cores."""
    return capture("x86_64-64cpu", tmp_path_factory.mktemp("machine"))


def test_two_processes_of_a_captured_machine_of_two_sockets_have_one_each(tmp_path: Path) -> None:
    machine = capture("vmware_fpe", tmp_path)
    assert (machine.sockets, machine.physical_cores, machine.threads_per_core) == (2, 8, 2)
    assert list(machine.numa_nodes.values()) == ["0-3", "4-7", "8-11", "12-15"]
    assert core_sets(machine.cores, list(machine.numa_nodes.values()), 2) == ("0-7", "8-15")
    assert sets_of(machine, 4) == [parse_list(node) for node in machine.numa_nodes.values()]
    assert [len(each) for each in sets_of(machine, 8)] == [2] * 8  # both threads of a core


def test_a_process_a_core() -> None:
    assert core_sets(["0", "1"], ["0-1"], 2) == ("0", "1")
    assert core_sets(["0", "1"], ["0-1"], 1) == ("0-1",)
    assert core_sets(["0", "1"], [], 2) == ("0", "1")
    assert core_sets(["0", "1"], ["0-1"], 3) == ()


def test_siblings_stay_together(tmp_path: Path) -> None:
    root = make_machine(
        tmp_path,
        cores=[(0, 4), (1, 5), (2, 6), (3, 7)],
        sockets=[(0, 1, 4, 5), (2, 3, 6, 7)],
        nodes=[(0, 1, 4, 5), (2, 3, 6, 7)],
    )
    machine = detect(root)
    nodes = list(machine.numa_nodes.values())
    assert core_sets(machine.cores, nodes, 4) == ("0,4", "1,5", "2,6", "3,7")
    assert core_sets(machine.cores, nodes, 2) == ("0-1,4-5", "2-3,6-7")
    # Three take a core each, and not three of one node and none of the other.
    assert core_sets(machine.cores, nodes, 3) == ("0,4", "1,5", "2,6")


def test_nodes_whose_cpus_are_numbered_in_turn_are_not_mixed(tmp_path: Path) -> None:
    machine = detect(
        make_machine(tmp_path, cores=[(0,), (1,), (2,), (3,)], sockets=[(0, 2), (1, 3)], nodes=[(0, 2), (1, 3)])
    )
    assert machine.cores == ["0", "2", "1", "3"]
    assert sorted(map(sorted, sets_of(machine, 2))) == [[0, 2], [1, 3]]


def test_cores_that_a_mask_hides_are_not_used(tmp_path: Path) -> None:
    machine = detect(make_machine(tmp_path, cores=[(0, 2), (1, 3)], sockets=[(0, 1, 2, 3)], mask=(0, 1, 3)))
    assert machine.cores == ["0", "1,3"]
    assert sets_of(machine, 2) == [{0}, {1, 3}]


def test_sets_of_a_real_machine_are_disjoint_whole_alike_and_local(captured: Machine) -> None:
    assert (captured.physical_cores, captured.threads_per_core, len(captured.numa_nodes)) == (32, 2, 3)
    cores = [parse_list(core) for core in captured.cores]
    nodes = [parse_list(node) for node in captured.numa_nodes.values()]
    for n in range(1, captured.physical_cores + 1):
        sets = sets_of(captured, n)
        assert len(sets) == n
        assert not any(a & b for a, b in itertools.combinations(sets, 2))
        assert all(core <= each or not core & each for core in cores for each in sets)
        assert len({len(each) for each in sets}) == 1
        if n >= len(nodes):
            assert all(any(each <= node for node in nodes) for each in sets)
    assert [len(each) for each in sets_of(captured, 4)] == [16] * 4
    assert sets_of(captured, 33) == []


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(1, 24))
@example([4, 5, 6], 3)  # four cores each, and not three: cores of one kind are alike anyway
def test_each_of_n_has_as_many_cores_as_can_be(cores_by_node: list[int], n: int) -> None:
    numbers = iter(range(sum(cores_by_node)))
    nodes = [[next(numbers) for _ in range(count)] for count in cores_by_node]
    texts = [",".join(map(str, node)) for node in nodes]
    sets = core_sets([str(cpu) for node in nodes for cpu in node], texts, n)
    if n > sum(cores_by_node):
        assert sets == ()
        return
    sizes = {len(parse_list(each)) for each in sets}
    assert len(sets) == n and len(sizes) == 1
    larger = max(sizes) + 1
    assert n < len(nodes) or sum(count // larger for count in cores_by_node) < n


@pytest.mark.parametrize(("n", "fast", "slow"), [(2, 4, 8), (3, 2, 5), (4, 2, 4), (5, 1, 3), (8, 1, 2)])
def test_each_process_of_a_hybrid_has_as_many_cores_of_each_kind(tmp_path: Path, n: int, fast: int, slow: int) -> None:
    machine = detect(make_hybrid(tmp_path))
    assert machine.core_kinds == [0] * 8 + [1] * 16
    sets = sets_of(machine, n)
    assert len(sets) == n
    assert not any(a & b for a, b in itertools.combinations(sets, 2))
    assert {(len([cpu for cpu in each if cpu < 16]), len([cpu for cpu in each if cpu >= 16])) for each in sets} == {
        (2 * fast, slow)
    }
    assert unlike(core_sets(machine.cores, ["0-31"], n, machine.kind_by_core), machine.kind_by_core) is None


@pytest.mark.parametrize("n", [12, 16, 24])
def test_more_processes_than_fast_cores_are_not_called_alike(tmp_path: Path, n: int) -> None:
    machine = detect(make_hybrid(tmp_path))
    texts = core_sets(machine.cores, ["0-31"], n, machine.kind_by_core)
    assert len(texts) == n
    differ = unlike(texts, machine.kind_by_core)
    assert differ is not None
    assert differ.startswith("the cores of the processes are unlike: faster on CPUs 0-")
    assert "slower on CPUs 16" in differ


def test_arm_tells_its_kinds_by_capacity(tmp_path: Path) -> None:
    machine = capture("arm-A510-A710-A715-X3", tmp_path)
    assert machine.core_kinds == [2, 2, 2, 1, 1, 1, 1, 0]  # A710 and A715 are equally fast
    texts = core_sets(machine.cores, [], 2, machine.kind_by_core)
    assert unlike(texts, machine.kind_by_core) == (
        "the cores of the processes are unlike: faster on CPUs 4-7, slower on CPUs 0-3"
    )
    big_little = make_machine(tmp_path / "a", cores=[(i,) for i in range(8)], sockets=[range(8)])
    for cpu in range(8):
        write(big_little, f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity", "1024" if cpu >= 4 else "410")
    assert sets_of(detect(big_little), 2) == [{0, 1, 4, 5}, {2, 3, 6, 7}]
    assert sets_of(detect(big_little), 4) == [{0, 4}, {1, 5}, {2, 6}, {3, 7}]


def test_cores_of_one_kind_are_shared_out_as_ever(tmp_path: Path, captured: Machine) -> None:
    assert captured.core_kinds == []
    root = make_machine(tmp_path, cores=[(0,), (1,), (2,), (3,)], sockets=[(0, 1, 2, 3)])
    for cpu, mhz in enumerate((5700, 5500, 5400, 5300)):  # a maker's preferred cores
        write(root, f"sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq", str(mhz * 1000))
    assert detect(root).core_kinds == []
    assert unlike(("0-1", "2-3"), {}) is None


def test_a_core_with_fewer_threads_in_the_mask_is_another_kind(tmp_path: Path) -> None:
    cores = [(0, 4), (1, 5), (2, 6), (3, 7)]
    machine = detect(make_machine(tmp_path, cores=cores, sockets=[range(8)], mask=(0, 1, 2, 3, 4, 5, 6)))
    assert machine.core_kinds == [0, 0, 0, 1]
    assert sets_of(machine, 3) == [{0, 4}, {1, 5}, {2, 6}]
    assert unlike(core_sets(machine.cores, [], 2, machine.kind_by_core), machine.kind_by_core) is not None
