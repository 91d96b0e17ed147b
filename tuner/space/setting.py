"""A setting: one value for every active knob."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tuner.space.carrier import Libraries
from tuner.space.catalogue import FOREIGN, KNOBS
from tuner.space.deployment import Deployment
from tuner.space.values import Value


@dataclass(frozen=True, slots=True)
class Setting:
    """An immutable point of the search space, hashable; the items are in the order of `KNOBS`."""

    items: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> Setting:
        """Return the setting with these values; every name is a knob's."""
        return cls(tuple((name, values[name]) for name in KNOBS if name in values))

    def __getitem__(self, name: str) -> Value:
        return self.to_dict()[name]

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.items)

    @property
    def batch_size(self) -> int:
        """Return the items per step; every setting has it."""
        return int(self["batch_size"])

    def with_values(self, **values: Value) -> Setting:
        """Return this setting with some values replaced."""
        return Setting.of(self.to_dict() | values)

    def without(self, name: str) -> Setting:
        """Return this setting with one knob left out."""
        return Setting(tuple(item for item in self.items if item[0] != name))

    def to_dict(self) -> dict[str, Value]:
        """Return the values by knob."""
        return dict(self.items)

    def deployment(self, libraries: Libraries = MappingProxyType({})) -> Deployment:
        """Return what applies the setting; see `tuner.space.carrier` for the `libraries`."""
        applied = Deployment()
        for name, value in self.items:
            applied |= KNOBS[name].carrier.deploy(value, libraries)
        return applied


def scrub(env: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return `env` without the knobs' variables, and the names of those that were set.

    A trial's setting is all that may act on it: an OMP_NUM_THREADS left over in the caller's shell would
    falsify every trial alike, and the comparison with the defaults first of all.
    """
    reserved = {knob.variable for knob in KNOBS.values() if knob.variable is not None and not knob.early}
    reserved |= {name for name in env if name.startswith(FOREIGN)}
    return {k: v for k, v in env.items() if k not in reserved}, sorted(reserved & set(env))


def distinct(settings: Iterable[Setting]) -> list[Setting]:
    """Return the settings without repetition, in order of first appearance."""
    return list(dict.fromkeys(settings))
