"""Groups: the settings of several processes, with cores of their own, that use a machine instead of one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.machine.coresets import core_sets
from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine
from tuner.space.baseline import MAX_INSTANCES
from tuner.space.carrier import Mask
from tuner.space.catalogue import Catalogue
from tuner.space.common import STREAMS
from tuner.space.setting import Setting
from tuner.space.values import Value

INSTANCES = "instances"


def instance_counts(machine: Machine, n_cores: int) -> list[int]:
    """Return how many processes may share the cores, the most first: one a core, one for a few, one a node, two."""
    counts = {n_cores, n_cores // 2, n_cores // 4, len(machine.numa_nodes), machine.sockets, 2}
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
        n_own = min(n_cores // n, _cores_each(cores, machine, n))
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


def _cores_each(cores: Sequence[str], machine: Machine, n: int) -> int:
    """Return how many of the physical cores each of n processes has to itself, or its share where they float."""
    nodes = tuple(machine.numa_nodes.values())
    sets = core_sets(cores, nodes, n, machine.kind_by_core, quota=machine.cpu_quota)
    return sum(parse_list(core) <= parse_list(sets[0]) for core in cores) if sets else len(cores) // n


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
