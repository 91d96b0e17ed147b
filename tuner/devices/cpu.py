"""The CPU as a device: what hides all others, and its energy. Which CPUs may be used, `tuner.machine.host` says.

The energy that its packages take is told by RAPL (running average power limit). The kernel shows a counter (µJ) for
each package, which begins again at `max_energy_range_uj`. Since 2020 only root may read it (CVE-2020-8694), and virtual
machines mostly have none.

Source: the kernel's Documentation/power/powercap/powercap.rst.
"""

from __future__ import annotations

import re
from pathlib import Path

from tuner.devices import device, registry

_ZONES = "sys/class/powercap"
_ZONE = re.compile(r"intel-rapl:\d+")  # the zones below these, such as a package's cores, are parts of them
_PACKAGE = "package"  # beside them there may be the whole platform, which they are parts of


class Rapl:
    """The counters of all packages below a root."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._folder = root / _ZONES
        self._last_uj: dict[Path, int] = {}
        self._begun_again_uj: dict[Path, int] = {}

    def energy_j(self) -> float | None:
        """Return the energy (J) that all packages have taken since some beginning; None where it cannot be read.

        It never goes back, if it is read more often than a counter takes to begin again: minutes under full load.
        """
        total_uj = 0
        zones = self._zones()
        for zone in zones:
            try:
                now_uj = int((zone / "energy_uj").read_text(encoding="utf-8"))
                if now_uj < self._last_uj.get(zone, 0):
                    span_uj = int((zone / "max_energy_range_uj").read_text(encoding="utf-8"))
                    self._begun_again_uj[zone] = self._begun_again_uj.get(zone, 0) + span_uj
            except (OSError, ValueError):
                return None
            self._last_uj[zone] = now_uj
            total_uj += now_uj + self._begun_again_uj.get(zone, 0)
        return total_uj / 1e6 if zones else None

    def why_unreadable(self) -> str | None:
        """Return why nothing can be read, None where it can."""
        if not self._zones():
            return "this kernel shows no energy counter of the CPU (RAPL), as in most virtual machines"
        if self.energy_j() is not None:
            return None
        return f"the CPU's energy counter (RAPL) cannot be read: be root, or chmod a+r /{_ZONES}/intel-rapl:*/energy_uj"

    def _zones(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        zones = sorted(zone for zone in self._folder.iterdir() if _ZONE.fullmatch(zone.name))
        return [zone for zone in zones if (zone / "name").is_file() and _is_package(zone)]


def _is_package(zone: Path) -> bool:
    return (zone / "name").read_text(encoding="utf-8").startswith(_PACKAGE)


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
