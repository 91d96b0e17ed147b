"""Designs: the settings that are measured where nothing is searched for, for what they differ by.

They are contrasts of regimes that rules may speak of: threads in one operator, operators at once, processes with cores
of their own, and the batch size; not the neighbours of a best setting.
"""

from __future__ import annotations

from collections.abc import Iterable

from tuner.machine.host import Machine
from tuner.space.setting import Setting, distinct
from tuner.space.space import Space

MANY_CORES = 4
"""From so many cores on, the batch sizes are a question of their own, beside a few settings of threads."""


def design(space: Space, machine: Machine, hinted: Iterable[Setting] = ()) -> list[Setting]:
    """Return the settings to measure, those at the default's batch size first, the default before all.

    Then come what is recommended and `hinted` at, threads in powers of two with one operator at a time, two and four
    operators at once that share the cores, and processes with cores of their own. At each other batch size of the space
    a few of these come again. On few cores these are the default and a process per core. More would leave too little
    time for each. On many cores they are the default, one operator on one, a quarter and all of the cores, and two
    numbers of processes, the largest and a middle one. If the space has several batch sizes there, these few are all.
    """
    default, n = space.reference, machine.usable_cores
    threads_on = space.catalogue.threads_on
    pools = [name for name, value in threads_on(2).items() if value == 1]  # how many operators run at once

    def one(operators: int, threads: int) -> Setting:
        values = {**threads_on(threads), **dict.fromkeys(pools, operators)}
        return default.with_values(**{name: value for name, value in values.items() if name in space.domains})

    powers = [one(1, 1 << i) for i in range(machine.usable_cpus.bit_length())]
    at_once = [one(k, n // k) for k in (2, 4) if k <= n]
    groups = [each for each in space.groups if each.batch_size == default.batch_size]
    few = [default, *groups[:1]]
    if n >= MANY_CORES:
        few += [one(1, 1), one(1, n // 4), one(1, n), *groups[len(groups) // 2 :][:1]]
    sizes = [int(size) for size in space.domains["batch_size"] if size != default.batch_size]
    if sizes and n >= MANY_CORES:
        own = few
    else:
        own = [default, *space.baselines.values(), *hinted, *powers, one(1, n), *at_once, *groups]
    others = [each.with_values(batch_size=size) for size in sizes for each in few]
    # The default need not be a point, and is none at other batch sizes.
    return [each for each in distinct([*own, *others]) if each in space.groups or space.contains(each)]
