"""Groups: the settings of several processes, with cores of their own, that use a machine instead of one process.

And the batch size of the baselines, with the parts of it that processes share among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.errors import BadInputError
from tuner.machine.coresets import core_sets
from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine
from tuner.space.baseline import MAX_INSTANCES
from tuner.space.carrier import Mask
from tuner.space.catalogue import Catalogue
from tuner.space.common import STREAMS
from tuner.space.setting import Setting
from tuner.space.term import processes
from tuner.space.values import Value
from tuner.workload.workload import Workload

INSTANCES = "instances"
_LARGEST_BATCH = 65536


def instance_counts(machine: Machine, n_cores: int) -> list[int]:
    """Return how many processes may share the cores, the most first: one a core, one for a few, one a node, two."""
    counts = {*(processes(n_cores, each) for each in (1, 2, 4)), len(machine.numa_nodes), machine.sockets, 2}
    return sorted((n for n in counts if 2 <= n <= min(n_cores, MAX_INSTANCES)), reverse=True)


def groups(
    catalogue: Catalogue,
    domains: Mapping[str, tuple[Value, ...]],
    default: Setting,
    machine: Machine,
    pinned: Mapping[str, Value],
) -> dict[Setting, tuple[str, ...]]:
    """Return the settings of several processes, each with the names of the baselines that recommend it.

    Each process has an equal share of the cores, as many threads, and one of the batch sizes of `domains`; the other
    knobs are those of the `default`. What is `pinned` stays so: processes share the pinned CPUs, and there are none
    with fewer cores than pinned threads. None where the machine or the framework has none.
    """
    if INSTANCES not in catalogue.knobs or INSTANCES in domains:
        return {}
    mask = next((parse_list(str(v)) for k, v in pinned.items() if isinstance(catalogue.knobs[k].carrier, Mask)), None)
    cores = [core for core in machine.cores if mask is None or parse_list(core) <= mask]
    n_cores = min(machine.usable_cores, len(cores))
    settings: dict[Setting, tuple[str, ...]] = {}
    for n in instance_counts(machine, n_cores):
        n_own = cores_each(cores, machine, n)
        threads = catalogue.threads_on(n_own)
        if not threads:
            return {}
        if any(isinstance(value := pinned.get(name), int) and value > n_own for name in threads):
            continue
        for batch_size in domains["batch_size"]:
            own = {name: value for name, value in threads.items() if name in domains}
            values = default.to_dict() | own | dict(pinned)
            setting = Setting.of({INSTANCES: n, **values, "batch_size": batch_size})
            is_default_batch = batch_size == default.batch_size
            settings[setting] = _recommended_by(catalogue, machine, setting) if is_default_batch else ()
    return settings


def cores_each(cores: Sequence[str], machine: Machine, n: int) -> int:
    """Return how many of the physical cores each of n processes has to itself, or its share where they float."""
    share = min(machine.usable_cores, len(cores)) // n
    nodes = tuple(machine.numa_nodes.values())
    sets = core_sets(cores, nodes, n, machine.kind_by_core, quota=machine.cpu_quota)
    return min(share, sum(parse_list(core) <= parse_list(sets[0]) for core in cores)) if sets else share


def is_group(setting: Setting) -> bool:
    """Return whether a setting is of several processes of one model."""
    return int(setting.to_dict().get(INSTANCES, 1)) > 1


def in_flight(setting: Setting) -> int:
    """Return how many items all processes and streams of a setting compute at once."""
    values = setting.to_dict()
    return int(values.get(INSTANCES, 1)) * int(values.get(STREAMS.name, 1)) * setting.batch_size


def one_of(group: Setting) -> Setting:
    """Return the setting of one process of a group, as if it were alone."""
    return group.without(INSTANCES)


def _recommended_by(catalogue: Catalogue, machine: Machine, setting: Setting) -> tuple[str, ...]:
    """Return the baselines of several processes that come to this setting."""
    values = setting.to_dict()
    return tuple(
        each.name
        for each in catalogue.baselines
        if INSTANCES in each.needs
        and all(values.get(name, value) == value for name, value in each.rule(machine).items())
    )


def parse_sizes(text: str, option: str) -> list[int]:
    """Return the batch sizes of `1..64` (doubling) or `1,8,32`, ascending; raises BadInputError."""
    first, dots, last = text.partition("..")
    try:
        sizes = [int(first), int(last)] if dots else [int(part) for part in text.split(",")]
    except ValueError:
        raise BadInputError(f"{option} is '{text}'", "expected e.g. 1..64 (doubling), or 1,8,32") from None
    if min(sizes) < 1 or max(sizes) > _LARGEST_BATCH or (dots and sizes[0] > sizes[1]):
        raise BadInputError(f"{option} is '{text}'", f"expected numbers from 1 to {_LARGEST_BATCH}, the smaller first")
    if not dots:
        return sorted(set(sizes))
    doubled = [sizes[0]]
    while 2 * doubled[-1] <= sizes[1]:
        doubled.append(2 * doubled[-1])
    return sorted({*doubled, sizes[1]})


def default_batch_of(domains: Mapping[str, tuple[Value, ...]], workload: Workload, *, is_user_choice: bool) -> int:
    """Return the batch size of the baselines: the workload's, or the nearest of those that the user chose."""
    if not is_user_choice:
        return workload.batch_size
    return min((int(b) for b in domains["batch_size"]), key=lambda b: (abs(b - workload.batch_size), b))


def batch_total(setting: Setting) -> int:
    """Return the items of a step of all processes of a setting."""
    return int(setting[INSTANCES]) * setting.batch_size


def batch_shares(items: int, counts: Sequence[Value]) -> tuple[Value, ...]:
    """Return the batch sizes of a process where so many share a batch evenly; raises BadInputError for none."""
    parts = sorted({items // int(n) for n in counts if items % int(n) == 0})
    if not parts:
        raise BadInputError(
            f"a batch of {items} cannot be shared evenly by {' or '.join(map(str, counts))} processes",
            f"give a --batch-size that is a multiple of {' or '.join(map(str, counts))}",
        )
    return tuple(parts)


def with_shared_batch(baselines: Mapping[str, Setting], items: int | None) -> dict[str, Setting]:
    """Return the baselines with the part of a batch that each process has, without those that cannot share it.

    As they are where there is no such batch.
    """
    if items is None:
        return dict(baselines)
    return {
        name: setting.with_values(batch_size=items // int(setting[INSTANCES]))
        for name, setting in baselines.items()
        if items % int(setting[INSTANCES]) == 0
    }
