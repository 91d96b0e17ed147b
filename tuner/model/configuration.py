"""A configuration: what of a setting a simulation looks at."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence, Set
from dataclasses import astuple, dataclass
from typing import cast

from tuner.frameworks import registry
from tuner.frameworks.framework import ExecutorKnobs
from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine
from tuner.model.executor import Pools
from tuner.model.hardware import Hardware
from tuner.space.groups import INSTANCES
from tuner.space.setting import Setting

EXECUTOR = cast("ExecutorKnobs", registry.find(registry.DEFAULT).executor)
"""The knobs of the executor that is simulated."""
MODELLED = frozenset({*astuple(EXECUTOR), "cpus", "streams", INSTANCES, "batch_size"})
"""The knobs that a simulation looks at; all others are taken to be at their defaults."""
DEFAULT_BLOCKTIME_S = 0.2
"""Of the OpenMP runtimes of LLVM and Intel."""
_COMPACT = re.compile(r"\bcompact(?!,1)")
_LISTED = re.compile(r"proclist=\[([\d,:{}-]+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The pools of each of so many processes, their batch size, and the cores that they may use."""

    batch_size: int
    pools: Pools
    instances: int = 1
    cores: int | None = None
    """Physical cores that all processes together may use; None for all."""
    smt: float | None = None
    """Hardware threads of each of these cores that they may use, on average; None for all."""

    @property
    def threads(self) -> int:
        """Return how many threads an operator may have."""
        return self.pools.team or self.pools.intra_op

    def hardware(self, whole: Hardware) -> Hardware:
        """Return what one of the processes has of a machine."""
        allowed = whole.limited(self.cores, self.smt)
        return allowed if self.instances == 1 else allowed.part(self.instances)


def configuration_of(setting: Setting, machine: Machine, *, has_teams: bool) -> Configuration:
    """Return what a simulation looks at; `has_teams` tells whether the build runs oneDNN on OpenMP.

    A pool that is not set has a thread for each CPU that the process sees.
    """
    values = setting.to_dict()
    own_cpus = values.get("cpus")
    mask = parse_list(machine.affinity if own_cpus is None else str(own_cpus))
    cores = [parse_list(core) for core in machine.cores]
    n_cores, smt = _used(cores, mask) or (machine.physical_cores, None)
    instances = int(values.get(INSTANCES, 1))
    n_cpus = max(1, len(mask) // instances)

    def threads(name: str, default: int) -> int:
        return int(values.get(name, 0)) or default

    team = threads(EXECUTOR.team, n_cpus) if has_teams else None
    slots = threads(EXECUTOR.slots, n_cpus)
    affinity = str(values.get(EXECUTOR.binding, ""))
    if team is not None and _COMPACT.search(affinity) and machine.threads_per_core > 1:
        # Neighbouring threads share cores, and the next team goes on where one ends.
        n_own = math.ceil(slots * team / machine.threads_per_core)
        n_cores = min(n_cores, max(1, instances * n_own))
    listed = _LISTED.search(affinity)
    if listed is not None:
        own = parse_list(listed[1].replace("{", "").replace("}", "")) & mask
        n_cores, smt = _used(cores, own) or (n_cores, smt)
    blocktime_ms = values.get(EXECUTOR.blocktime)
    blocktime_s = DEFAULT_BLOCKTIME_S if blocktime_ms is None else int(blocktime_ms) / 1000
    return Configuration(
        batch_size=setting.batch_size,
        pools=Pools(
            inter_op=slots,
            intra_op=threads(EXECUTOR.threads, n_cpus),
            team=team,
            blocktime_s=blocktime_s if has_teams else 0.0,
            streams=int(values.get("streams", 1)),
        ),
        instances=instances,
        cores=None if n_cores == machine.physical_cores else n_cores,
        smt=smt,
    )


def _used(cores: Sequence[Set[int]], cpus: Set[int]) -> tuple[int, float] | None:
    """Return on how many cores some CPUs lie, and how many of these each has on average; None for none."""
    shares = [len(core & cpus) for core in cores if core & cpus]
    return (len(shares), sum(shares) / len(shares)) if shares else None
