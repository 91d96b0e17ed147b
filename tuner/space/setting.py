"""A setting: one value for every active knob, and what a shell has to be told to apply it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tuner.space.catalogue import FOREIGN, KNOBS, PRELOAD
from tuner.space.knob import Value


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

    def env(self, libraries: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
        """Return the environment variables that apply the setting, the batch size's included.

        `libraries` are the paths of those that can be preloaded, by the value that asks for one.
        """
        env: dict[str, str] = {}
        for name, value in self.items:
            for variable, text in KNOBS[name].env(value, libraries).items():
                both = variable == PRELOAD and variable in env
                env[variable] = f"{env[variable]}:{text}" if both else text
        return env


def scrub(env: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return `env` without the knobs' variables, and the names of those that were set.

    A trial's setting is all that may act on it: an OMP_NUM_THREADS left over in the caller's shell would
    falsify every trial alike, and the comparison with the defaults first of all.
    """
    reserved = {knob.variable for knob in KNOBS.values() if not knob.early}
    reserved |= {name for name in env if name.startswith(FOREIGN)}
    return {k: v for k, v in env.items() if k not in reserved}, sorted(reserved & set(env))


def distinct(settings: Iterable[Setting]) -> list[Setting]:
    """Return the settings without repetition, in order of first appearance."""
    return list(dict.fromkeys(settings))
