"""A device for tests: the CPU, but its memory is counted in its own way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuner.devices import registry
from tuner.devices.device import Device


class Counted(Device):
    """The CPU with another memory."""

    name = "counted"
    child = Path(__file__).parent / "child/counted.py"

    def environment(self) -> dict[str, str]:
        """Return what hides all GPUs, and what tells its child code how much to count."""
        return registry.hiding() | {"TFTUNE_COUNTED": "64"}

    def describe(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"name": self.name, "unit": "arrays"}


DEVICE = Counted()
