"""What is asked of a device: what a model is computed on. `tuner.devices.registry` has them by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.errors import BadInputError
from tuner.machine.conditions import Watch
from tuner.machine.host import Machine
from tuner.paths import CHILD

HOST, DEVICE = "host", "device"
FEEDS = (HOST, DEVICE)
"""Where the inputs of a step are on a device of its own: copied there in each step, as served, or there already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """How a container is given a device, in the words of what starts it.

    `docker` are options of `docker run`, `compose` the lines of a service, and `kubernetes` is the resource that a
    node has of it, with what else is to be said of that in `note`. `env` are variables for where Docker and Compose
    hand over more than this one.
    """

    docker: str
    compose: tuple[str, ...]
    kubernetes: str
    note: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


class Device(ABC):
    """A device. `name` is how it is asked for; `child` the file of its child code.

    That file is a `tuner.child.adapter.Device`: how a slice waits for what was handed to the device, and how much
    memory a process holds there. The CPU's child code serves whatever computes on it.
    """

    name: str
    kind: str = "cpu"
    """What frameworks say that they can use."""
    space: str = "cpu"
    """The search space of a framework that is meant for it."""
    child: Path = CHILD / "cpu.py"
    timing_prefixes: tuple[str, ...] = ()
    """How variables begin that change timings on it, whatever the framework."""
    maker: str = ""
    """Who makes it, where frameworks and knobs may serve the devices of one maker alone."""
    visible: str = ""
    """The variable that lists which of them a process sees, where -1 hides them all; "" where there is none."""
    out_of_memory: tuple[str, ...] = ()
    """What its libraries say, in exceptions that have no name for it, where its memory is full."""
    advice: Mapping[str, str] = {}  # not changed
    """What its own tools can do about a warning, by the code of that."""
    profiling: str = ""
    """What its maker calls it where a user may not profile kernels."""

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Return the variables by which a framework sees this device and no other."""

    def at(self, place: str) -> Device:
        """Return the device at a place, such as the 1 of `gpu:1`; raises BadInputError where there is only one."""
        raise BadInputError(f"there is only one {self.name}, found {self.name}:{place}", f"use --device {self.name}")

    def check(self) -> None:  # noqa: B027  # the CPU is always there
        """Raise BadInputError where it is not there."""

    def check_idle(self) -> None:  # noqa: B027  # the CPU is shared, and the conditions tell how much
        """Raise BadInputError where somebody else uses it, so that nothing can be measured."""

    def identity(self) -> list[object]:
        """Return what of it a study's name depends on, beside the machine; nothing of the CPU, which is in that."""
        return [self.name]

    def describe(self) -> dict[str, Any]:
        """Return it as plain data, with its name."""
        return {"name": self.name}

    def lines(self, described: Mapping[str, Any]) -> list[str]:
        """Return what `describe` has told of it, here or elsewhere, in a few lines for people."""
        return [described["name"]]

    def showing(self, place: str) -> dict[str, str]:
        """Return the variables by which a program sees the one at a place, as a `Deployment` has it, and no other."""
        return {self.visible: place} if self.visible else {}

    def container(self, place: str) -> Container:
        """Return how a container is given the one at a place; asked only of devices that `describe` an `index`."""
        raise NotImplementedError

    def has_tf32(self) -> bool:
        """Return whether it has products of factors that are rounded to TF32, which frameworks use unless told not."""
        return False

    def watch(self, machine: Machine) -> Watch:
        """Begin to watch what the machine does, and return what tells it."""
        return Watch(machine.affinity)

    def free_memory_bytes(self) -> int | None:
        """Return how much of its own memory is left; None for a device that has none, or does not tell."""
        return None

    def energy_j(self) -> float | None:
        """Return the energy (J) that it has taken since some beginning; None where that cannot be read."""
        return None

    def why_no_energy(self) -> str | None:
        """Return why no energy can be told, None where it can."""
        return f"{self.name} has no energy meter"
