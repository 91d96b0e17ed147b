"""Core sets: how the physical cores of a machine are shared out among processes that run at the same time."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from tuner.machine.cpulist import format_list, parse_list

Core = frozenset[int]
_LEAST_USED = 0.75  # of the cores that sets of any kind would have, what sets of the same kinds are to have


def core_sets(
    cores: Sequence[str],
    nodes: Sequence[str],
    n: int,
    kinds: Mapping[str, int] = MappingProxyType({}),
    *,
    quota: float | None = None,
) -> tuple[str, ...]:
    """Return `n` disjoint lists of CPUs, each of equally many whole physical cores; empty where there are fewer cores.

    Empty, too, where a `quota` (CPUs) leaves a share of these: see `are_shared`.

    `cores` are the CPUs of each physical core, neighbours beside each other, and `nodes` those of each NUMA node, all
    as lists such as `0-3`. Where there are at least as many processes as nodes, no set has cores of two: a process that
    reads the memory of another node waits for it. Cores that are left over stay idle, for processes that run the same
    setting are to be alike.

    `kinds` are those of the cores, 0 for the fastest, where they differ. Each set then has equally many of each kind,
    if there are fastest cores for all and few other cores stay idle; if not, the sets are of unlike cores: see
    `unlike`.
    """
    cpus_by_core = {parse_list(core): kinds.get(core, 0) for core in cores}
    by_node = [[core for core in cpus_by_core if core <= parse_list(node)] for node in nodes]
    is_local = n >= len(nodes) and sum(map(len, by_node)) == len(cores)
    pools = by_node if is_local else [list(cpus_by_core)]
    if n > len(cores) or are_shared(cores, quota):
        return ()
    sets_by_pool = _equally_many(pools, n)
    alike = _alike(pools, cpus_by_core, n) if len(set(cpus_by_core.values())) > 1 else []
    if alike and _size(alike, cpus_by_core) >= _LEAST_USED * _size(sets_by_pool, cpus_by_core):
        sets_by_pool = alike
    # From the nodes in turn where not all sets are needed: the fewer read the memory of a node, the faster each does.
    in_turn = [each for sets in itertools.zip_longest(*sets_by_pool) for each in sets if each is not None]
    return tuple(format_list(cpus) for cpus in sorted(in_turn[:n], key=min))


def are_shared(cores: Sequence[str], quota: float | None) -> bool:
    """Return whether a quota (CPUs) is less than all CPUs of these cores, so that others have a part of their time.

    A container that has a share of a node's time does not own cores of it. All containers of the node would be kept to
    the same ones.
    """
    return quota is not None and quota < sum(len(parse_list(core)) for core in cores)


def _size(sets_by_pool: Sequence[Sequence[Core]], cores: Iterable[Core]) -> int:
    """Return how many cores each of equally large sets has; 0 where there is none."""
    first: Core = next((sets[0] for sets in sets_by_pool if sets), frozenset())
    return sum(core <= first for core in cores)


def _equally_many(pools: Sequence[Sequence[Core]], n: int) -> list[list[Core]]:
    """Return, by pool, at least `n` sets of as many cores as can be, whatever their kind."""
    n_cores = sum(map(len, pools))
    size = max((s for s in range(1, n_cores + 1) if sum(len(pool) // s for pool in pools) >= n), default=1)
    return [[frozenset().union(*pool[at : at + size]) for at in range(0, len(pool) - size + 1, size)] for pool in pools]


def _alike(pools: Sequence[Sequence[Core]], kind_of: Mapping[Core, int], n: int) -> list[list[Core]]:
    """Return, by pool, at least `n` sets that have the same number of cores of each kind; nothing where none can.

    Such sets leave out a slower kind of which there are too few, but not the fastest.
    """
    totals = Counter(kind_of.values())
    for n_shares in range(n, min(totals[min(totals)], len(kind_of)) + 1):
        share = {kind: total // n_shares for kind, total in totals.items() if total >= n_shares}
        sets_by_pool = [_of_share(pool, kind_of, share) for pool in pools]
        if sum(map(len, sets_by_pool)) >= n:
            return sets_by_pool
    return []


def _of_share(pool: Sequence[Core], kind_of: Mapping[Core, int], share: Mapping[int, int]) -> list[Core]:
    """Return the sets that a pool has if each has `share` cores of a kind."""
    by_kind: dict[int, list[Core]] = defaultdict(list)
    for core in pool:
        by_kind[kind_of[core]].append(core)
    n_sets = min(len(by_kind[kind]) // size for kind, size in share.items())
    return [
        frozenset().union(
            *(core for kind, size in share.items() for core in by_kind[kind][number * size : (number + 1) * size])
        )
        for number in range(n_sets)
    ]


def unlike(cpu_sets: Sequence[str], kinds: Mapping[str, int]) -> str | None:
    """Return how the cores of processes differ, in words; None where each has equally many of each kind.

    `kinds` are as in `core_sets`.
    """
    kind_of = {parse_list(core): kind for core, kind in kinds.items()}
    sets = [parse_list(text) for text in cpu_sets]
    held = [Counter(kind for core, kind in kind_of.items() if core <= cpus) for cpus in sets]
    if all(each == held[0] for each in held):
        return None
    fastest = min(kind_of.values())
    most = max(each[fastest] for each in held)
    fast = [text for text, each in zip(cpu_sets, held, strict=True) if each[fastest] == most]
    slow = [text for text in cpu_sets if text not in fast]
    if not slow:
        return f"the cores of the processes are unlike: {', '.join(cpu_sets)}"
    return f"the cores of the processes are unlike: faster on CPUs {', '.join(fast)}, slower on CPUs {', '.join(slow)}"
