"""A setting: one value for every active knob."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tuner.space.values import Value


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """An immutable, hashable point of the search space. The order of the items does not matter for equality."""

    items: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> Setting:
        """Return the setting with these values."""
        return cls(tuple(values.items()))

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same values."""
        return isinstance(other, Setting) and (self.items == other.items or dict(self.items) == dict(other.items))

    def __hash__(self) -> int:
        return hash(frozenset(self.items))

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

    def taking(self, names: Collection[str], other: Setting) -> Setting:
        """Return this setting with the values of some of its knobs from another."""
        own = {name: value for name, value in other.items if name in names}
        return Setting(tuple((name, own.get(name, value)) for name, value in self.items))

    def without(self, name: str) -> Setting:
        """Return this setting with one knob left out."""
        return Setting(tuple(item for item in self.items if item[0] != name))

    def to_dict(self) -> dict[str, Value]:
        """Return the values by knob."""
        return dict(self.items)


def distinct(settings: Iterable[Setting]) -> list[Setting]:
    """Return the settings without repetition, in order of first appearance."""
    return list(dict.fromkeys(settings))
