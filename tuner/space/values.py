"""What values a knob can have: whole numbers, thread counts, words, lists of CPUs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tuner.errors import BadInputError, unknown_name
from tuner.machine.cpulist import format_list, parse_list
from tuner.machine.host import Machine

Value = int | str
Preset = Callable[[Machine], str | None]
"""Gives a word on a machine, or None where it would be another preset's word again."""

_MAX_THREADS_PER_CPU = 8  # larger thread counts are taken for typing errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Whole numbers from `minimum` to `limit`; counts of threads and cores end where a machine has no use for more."""

    minimum: int = 1
    limit: int = 1 << 20
    counts_threads: bool = False
    counts_cores: bool = False
    octaves: float = 1.0
    """How many octaves (log₂) count as one step, where values that matter lie far apart."""

    def parse(self, name: str, text: str, machine: Machine) -> int:
        """Return the number that `text` spells; raises BadInputError that names the knob."""
        try:
            value = int(text)
        except ValueError:
            raise BadInputError(f"{name}={text} is not a whole number", f"expected {self.range(machine)}") from None
        return self.check(name, value, machine)

    def check(self, name: str, value: int, machine: Machine) -> int:
        """Return `value` if it is in the range; raises BadInputError that names the knob."""
        if value < self.minimum or value > self.maximum(machine):
            raise BadInputError(f"{name}={value} is out of range", f"expected {self.range(machine)}")
        return value

    def maximum(self, machine: Machine) -> int:
        """Return the largest value that is not taken for a typing error."""
        if self.counts_cores:
            return min(self.limit, machine.physical_cores)
        return _MAX_THREADS_PER_CPU * machine.online_cpus if self.counts_threads else self.limit

    def range(self, machine: Machine) -> str:
        """Return the allowed values in words."""
        cores = ", the physical cores here" if self.counts_cores else ""
        return f"a whole number from {self.minimum} to {self.maximum(machine)}{cores}"


SWITCH = Numbers(minimum=0, limit=1)
"""Off (0) or on (1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """One of `words`, or what matches `pattern`; `presets` are names for words that depend on the machine."""

    words: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    example: str = ""
    holds_commas: bool = False
    presets: Mapping[str, Preset] = field(default_factory=dict)

    def parse(self, name: str, text: str, _: Machine) -> str:
        """Return the word; raises BadInputError that names the knob."""
        if text in self.words or (self.pattern is not None and self.pattern.fullmatch(text)):
            return text
        raise BadInputError(f"{name}={text} is not one of its values", self.expected)

    @property
    def expected(self) -> str:
        """Return the values in words."""
        return f"expected e.g. {self.example}" if self.pattern is not None else f"expected {' or '.join(self.words)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpus:
    """A list of CPUs of the affinity mask, such as 0-3,8."""

    presets: Mapping[str, Preset] = field(default_factory=dict)
    holds_commas: bool = True

    def parse(self, name: str, text: str, machine: Machine) -> str:
        """Return the list as the kernel writes it; raises BadInputError that names the knob."""
        try:
            cpus = parse_list(text)
        except ValueError:
            cpus = frozenset()
        if not cpus or cpus - parse_list(machine.affinity):
            raise BadInputError(
                f"{name}={text} is not a list of CPUs of this process",
                f"expected some of {machine.affinity}, e.g. 0-3,8",
            )
        return format_list(cpus)


Values = Numbers | Words | Cpus


def expand(name: str, presets: Mapping[str, Preset], preset_names: list[object], machine: Machine) -> list[str]:
    """Return the words that the presets of a knob have on a machine; raises BadInputError for an unknown one."""
    if not presets:
        raise BadInputError(f"{name} has no presets", "use choices instead")
    for preset in preset_names:
        if preset not in presets:
            raise unknown_name("preset", str(preset), presets)
    words = [presets[str(preset)](machine) for preset in preset_names]
    return [word for word in words if word is not None]
