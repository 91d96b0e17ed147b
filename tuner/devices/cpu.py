"""The CPU as a device: what hides all others, and its energy. Which CPUs may be used, `tuner.machine.host` says."""

from __future__ import annotations

from tuner.devices import device, registry
from tuner.machine.rapl import Rapl


class Cpu(device.Device):
    """The CPU."""

    name = "cpu"

    def __init__(self) -> None:
        self._rapl = Rapl()

    def environment(self) -> dict[str, str]:
        """Return what hides all others: a build that can use a GPU must not give it the work."""
        return registry.hiding()

    def identity(self) -> list[object]:
        """Return nothing: the machine's identity has it."""
        return []

    def energy_j(self) -> float | None:
        """Return what all packages of the host have taken, whoever ran on them."""
        return self._rapl.energy_j()

    def why_no_energy(self) -> str | None:
        """Return why no energy can be told."""
        return self._rapl.why_unreadable()


DEVICE = Cpu()
