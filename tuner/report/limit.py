"""The limit on CPUs that something was measured under, and each process's share of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine
from tuner.space.deployment import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuLimit:
    """What limited the processes that were measured: `quota` (CPUs), and `mask` where it is less than the host.

    `n_cpus` is how many CPUs that leaves, of whatever host; all are None where that is not known.
    """

    quota: float | None = None
    mask: str | None = None
    n_cpus: float | None = None

    @classmethod
    def of(cls, machine: Machine | None) -> CpuLimit:
        """Return the limit of a machine, none where it is not known."""
        if machine is None:
            return cls()
        mask = machine.affinity if machine.logical_cpus < machine.online_cpus else None
        return cls(quota=machine.cpu_quota, mask=mask, n_cpus=machine.logical_cpus)

    @property
    def busy_cpus(self) -> float | None:
        """Return how many CPUs could be busy at once; None where that is not known."""
        return min((each for each in (self.quota, self.n_cpus) if each is not None), default=None)

    def cpus_each(self, deployment: Deployment) -> list[float | None]:
        """Return how many CPUs each process of a deployment could keep busy: no more than it was kept to, or its share.

        Those that have the same CPUs share them, and a quota is shared in proportion to their CPUs. In thousandths.
        """
        sets = [deployment.cpus_of(number) for number in range(deployment.processes)]
        widths = [self.n_cpus if cpus is None else len(parse_list(cpus)) for cpus in sets]
        total = math.inf if self.busy_cpus is None else self.busy_cpus
        whole = sum(width or 0 for width in widths)
        return [None if width is None else _thousandths(min(width, total * (width / whole))) for width in widths]

    def of_member(self, ensemble: Deployment, name: str) -> CpuLimit:
        """Return the limit of one member of an ensemble: its share."""
        share = dict(zip((each.name for each in ensemble.members), self.cpus_each(ensemble), strict=True))[name]
        return CpuLimit(quota=None if self.quota is None else share, mask=self.mask, n_cpus=share)

    def least(self, deployment: Deployment) -> float | None:
        """Return the least of what each process could keep busy; None where that is not known."""
        return min((share for share in self.cpus_each(deployment) if share is not None), default=None)

    def docker_options(self, deployment: Deployment) -> list[str]:
        """Return the options of `docker run` that limit a container as its process was limited, beside its own CPUs."""
        options = [] if self.quota is None else [f"--cpus={self.least(deployment):g}"]
        has_own = bool(deployment.cpus or deployment.cpu_sets)
        return options + ([] if self.mask is None or has_own else [f"--cpuset-cpus={self.mask}"])


def _thousandths(cpus: float) -> float:
    """Return a number of CPUs to the thousandth below, beside what was only a rounding error."""
    return math.floor(round(1000 * cpus, 6)) / 1000
