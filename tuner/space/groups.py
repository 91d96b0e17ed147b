"""Groups: the settings of several processes, with cores of their own, that use a machine instead of one process."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.machine.host import Machine
from tuner.space.baseline import MAX_INSTANCES
from tuner.space.catalogue import Catalogue
from tuner.space.setting import Setting
from tuner.space.values import Value

INSTANCES = "instances"


def instance_counts(machine: Machine) -> list[int]:
    """Return how many processes may share a machine, the most first: one a core, one for a few, one a node, two."""
    cores = machine.usable_cores
    counts = {cores, cores // 2, cores // 4, len(machine.numa_nodes), machine.sockets, 2}
    return sorted((n for n in counts if 2 <= n <= min(cores, len(machine.cores), MAX_INSTANCES)), reverse=True)


def groups(
    catalogue: Catalogue, domains: Mapping[str, tuple[Value, ...]], default: Setting, machine: Machine
) -> dict[Setting, tuple[str, ...]]:
    """Return the settings of several processes, each with the names of the baselines that recommend it.

    Each process has an equal share of the cores, as many threads, and one of the batch sizes of `domains`; the other
    knobs are those of the `default`. None where the machine or the framework has none.
    """
    if INSTANCES not in catalogue.knobs or INSTANCES in domains:
        return {}
    found: dict[Setting, tuple[str, ...]] = {}
    for n in instance_counts(machine):
        own = catalogue.threads_on(max(1, machine.usable_cores // n))
        if not own:
            return {}
        for batch_size in domains["batch_size"]:
            values = default.to_dict() | {name: value for name, value in own.items() if name in domains}
            setting = Setting.of({INSTANCES: n, **values, "batch_size": batch_size})
            is_default_batch = batch_size == default.batch_size
            found[setting] = _recommended_by(catalogue, machine, setting) if is_default_batch else ()
    return found


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
