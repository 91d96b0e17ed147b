"""Core sets: disjoint, whole, alike and near to memory; on made machines and on captures of real ones."""

from __future__ import annotations

import itertools
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import DATA
from tests.trees import make_machine
from tuner.machine.coresets import core_sets
from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine, detect


def sets_of(machine: Machine, n: int) -> list[frozenset[int]]:
    return [parse_list(text) for text in core_sets(machine.cores, list(machine.numa_nodes.values()), n)]


def capture(name: str, folder: Path) -> Machine:
    """Return a captured machine, unpacked into a folder."""
    with tarfile.open(DATA / "machines" / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return detect(next(path for path in (folder, *folder.iterdir()) if (path / "proc").is_dir()))


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A captured machine of four sockets and two threads a core, with three nodes of 16, 8 and 8 cores."""
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
