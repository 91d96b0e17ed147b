"""What is asked of a device: what a model is computed on. `tuner.devices.registry` has them by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from tuner.machine.conditions import Watch
from tuner.machine.host import Machine
from tuner.paths import CHILD


class Device(ABC):
    """A device. `name` is how it is asked for; `child` the file of its own part in the target interpreter.

    That file is a `tuner.child.device.Device`: how a slice waits for what was handed to the device, how much memory a
    process holds there, and what shows the device's drift. The CPU's own part serves whatever computes on it.
    """

    name: str
    kind: str = "cpu"
    """What frameworks say that they can use."""
    child: Path = CHILD / "cpu.py"

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Return the variables by which a framework sees this device and no other."""

    def check(self) -> None:  # noqa: B027  # the CPU is always there
        """Raise BadInputError where it is not there."""

    def identity(self) -> list[object]:
        """Return what of it a study's name depends on, beside the machine; nothing of the CPU, which is in that."""
        return [self.name]

    def describe(self) -> dict[str, Any]:
        """Return it as plain data, with its name."""
        return {"name": self.name}

    def watch(self, machine: Machine) -> Watch:
        """Begin to watch what the machine does, and return what tells it."""
        return Watch(machine.affinity)
