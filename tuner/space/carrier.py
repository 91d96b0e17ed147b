"""Carriers: how the value of a knob is applied to a process.

There are eight. A variable of the environment; a library that is loaded before all others; the CPUs that the process
is kept to, which `taskset` does for a program that is started; an option that the framework is given when it loads a
model; how many processes there are; how many calls run at once in each; the share of the cores that a member of an
ensemble has; and an argument of the workload's own code. Each gives its part of a `Deployment`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.space.deployment import PRELOAD, Deployment
from tuner.space.values import Value

Libraries = Mapping[str, str]
"""The paths of the libraries that can be preloaded here, by the value that asks for one."""


@dataclass(frozen=True, slots=True)
class _Named:
    """What each has: the `name` of what carries the value, by which it is called in a table, too."""

    name: str

    @property
    def title(self) -> str:
        """Return what it is called in a table."""
        return self.name


@dataclass(frozen=True, slots=True)
class Variable(_Named):
    """An environment variable. `texts` are what some words become there, None for not set at all."""

    texts: Mapping[Value, str | None] | None = None

    def deploy(self, value: Value, _: Libraries) -> Deployment:
        """Return the variable with this value."""
        text = str(value) if self.texts is None else self.texts[value]
        return Deployment() if text is None else Deployment(env={self.name: text})


@dataclass(frozen=True, slots=True)
class Preload:
    """A library that is preloaded; the word for what the build or the system brings by itself needs none."""

    usual: str
    name: str = PRELOAD
    """The variable that the loader reads."""
    title: str = PRELOAD

    def deploy(self, value: Value, libraries: Libraries) -> Deployment:
        """Return the preload of the library that is called `value`."""
        return Deployment(env={PRELOAD: libraries[str(value)]}) if value in libraries else Deployment()

    def is_missing(self, value: Value, libraries: Libraries) -> bool:
        """Return whether the library of this value is not installed here."""
        return value != self.usual and value not in libraries


@dataclass(frozen=True, slots=True)
class Mask:
    """The CPUs that the process, and all that it starts, may run on."""

    name: str = "taskset"
    title: str = "taskset"

    def deploy(self, value: Value, _: Libraries) -> Deployment:
        """Return the mask."""
        return Deployment(cpus=str(value))


@dataclass(frozen=True, slots=True)
class Option(_Named):
    """An option of the session that a framework makes of a model; the value `without` is none at all."""

    without: Value | None = None

    def deploy(self, value: Value, _: Libraries) -> Deployment:
        """Return the option with this value."""
        return Deployment() if value == self.without else Deployment(options={self.name: value})


@dataclass(frozen=True, slots=True)
class Processes:
    """How many processes run the workload at the same time."""

    name: str = "processes"
    title: str = "parallel processes"

    def deploy(self, value: Value, _: Libraries) -> Deployment:
        """Return so many processes."""
        return Deployment(processes=int(value))


@dataclass(frozen=True, slots=True)
class Streams:
    """How many threads of the program call the model at the same time."""

    name: str = "streams"
    title: str = "concurrent calls"

    def deploy(self, value: Value, _: Libraries) -> Deployment:
        """Return so many callers."""
        return Deployment(streams=int(value))


@dataclass(frozen=True, slots=True)
class Share:
    """How many cores a member of an ensemble has. Which ones depends on the others: the space says it of all."""

    name: str
    title: str = "taskset"

    def deploy(self, _value: Value, _: Libraries) -> Deployment:
        """Return nothing, as it says nothing by itself."""
        return Deployment()


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument that the workload's own code takes."""

    name: str
    title: str = "your own code"

    def deploy(self, value: Value, _: Libraries) -> Deployment:
        """Return the argument with this value."""
        return Deployment(arguments={self.name: value})


Carrier = Variable | Preload | Mask | Option | Processes | Streams | Share | Argument
