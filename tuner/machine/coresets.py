"""Core sets: how the physical cores of a machine are shared out among processes that run at the same time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tuner.machine.cpulist import format_list, parse_list


def core_sets(cores: Sequence[str], nodes: Sequence[str], n: int) -> tuple[str, ...]:
    """Return `n` disjoint lists of CPUs, each of equally many whole physical cores; empty where there are fewer cores.

    `cores` are the CPUs of each physical core, neighbours beside each other, and `nodes` those of each NUMA node, all
    as lists such as `0-3`. Where there are at least as many processes as nodes, no set has cores of two: a process that
    reads the memory of another node waits for it. Cores that are left over stay idle, for processes that run the same
    setting are to be alike.
    """
    cpus_by_core = [parse_list(core) for core in cores]
    by_node = [[core for core in cpus_by_core if core <= parse_list(node)] for node in nodes]
    is_local = n >= len(nodes) and sum(map(len, by_node)) == len(cores)
    pools = by_node if is_local else [cpus_by_core]
    size = max((s for s in range(1, len(cores) + 1) if sum(len(pool) // s for pool in pools) >= n), default=0)
    if size == 0:
        return ()
    sets_by_pool = [
        [frozenset().union(*pool[at : at + size]) for at in range(0, len(pool) - size + 1, size)] for pool in pools
    ]
    # From the nodes in turn where not all sets are needed: the fewer read the memory of a node, the faster each does.
    in_turn = [each for sets in itertools.zip_longest(*sets_by_pool) for each in sets if each is not None]
    return tuple(format_list(cpus) for cpus in sorted(in_turn[:n], key=min))
