"""A knob: one tunable, how it is applied, and which runtimes it reaches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuner.errors import BadInputError
from tuner.machine.cpulist import format_list, parse_list
from tuner.machine.host import Machine
from tuner.runtime.probe import Runtime

Value = int | str

_MAX_THREADS_PER_CPU = 8  # beyond this a thread count is a typing error, not an experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One tunable.

    `variable` is the environment variable that carries it. Two knobs have none of their own and are carried by one of
    ours: the batch size (TFTUNE_BATCH_SIZE, for the user's own code) and the CPUs (TFTUNE_CPUS, for `taskset`).
    `default` is what TensorFlow does when nothing is set. Its values are whole numbers (`numeric`), one of `words`,
    or what matches `pattern`.

    A `core` knob is part of every setting that it can act in; another only where a space or a `--set` names it.
    `early` ones are read when the interpreter starts or while TensorFlow is imported. `renders` gives the variables
    of a value where these are not simply `variable`; it is handed the libraries that can be preloaded, by value.
    """

    name: str
    variable: str
    meaning: str
    default: Callable[[Machine, Runtime, int], Value]
    numeric: bool = False
    minimum: int = 1
    limit: int = 1 << 20
    counts_threads: bool = False
    words: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    example: str = ""
    core: bool = True
    early: bool = False
    unless: Callable[[Runtime], str | None] = lambda _: None
    """Why the knob cannot act on a runtime, None if it can."""
    renders: Callable[[Value, Mapping[str, str]], dict[str, str]] | None = None

    def reason_off(self, runtime: Runtime, inherited: Mapping[str, str]) -> str | None:
        """Return why the knob cannot act on `runtime`, or not beside the `inherited` variables; None if it can."""
        if self.early and self.variable in inherited:
            return f"{self.variable} is set in your environment, and so part of every trial; unset it to have it tuned"
        return self.unless(runtime)

    def env(self, value: Value, libraries: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that apply a value."""
        return {self.variable: str(value)} if self.renders is None else self.renders(value, libraries)

    def parse(self, text: str, machine: Machine) -> Value:
        """Return the value that `text` spells; raises BadInputError with what was expected."""
        if not self.numeric:
            return self._word(text, machine)
        try:
            value = int(text)
        except ValueError:
            raise BadInputError(
                f"{self.name}={text} is not a whole number", f"expected {self.range(machine)}"
            ) from None
        return self.check(value, machine)

    def check(self, value: int, machine: Machine) -> int:
        """Return `value` if the knob can have it; raises BadInputError otherwise."""
        if value < self.minimum or value > self.maximum(machine):
            raise BadInputError(f"{self.name}={value} is out of range", f"expected {self.range(machine)}")
        return value

    def maximum(self, machine: Machine) -> int:
        """Return the largest value that is not taken for a typing error."""
        return _MAX_THREADS_PER_CPU * machine.online_cpus if self.counts_threads else self.limit

    def range(self, machine: Machine) -> str:
        """Return the allowed values in words."""
        return f"a whole number from {self.minimum} to {self.maximum(machine)}"

    def _word(self, text: str, machine: Machine) -> str:
        if self.name == "cpus":
            return _cpus(text, machine)
        if text in self.words or (self.pattern is not None and self.pattern.fullmatch(text)):
            return text
        expected = f"e.g. {self.example}" if self.pattern is not None else " or ".join(self.words)
        raise BadInputError(f"{self.name}={text} is none of its values", f"expected {expected}")


def _cpus(text: str, machine: Machine) -> str:
    try:
        cpus = parse_list(text)
    except ValueError:
        cpus = frozenset()
    if not cpus or cpus - parse_list(machine.affinity):
        raise BadInputError(
            f"cpus={text} is no list of this process's CPUs", f"expected some of {machine.affinity}, e.g. 0-3,8"
        )
    return format_list(cpus)
