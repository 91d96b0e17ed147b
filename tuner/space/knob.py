"""A knob: one tunable, with all that is to be known of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.machine.host import Machine
from tuner.space.auditing import Audit, unobservable
from tuner.space.carrier import Carrier, Preload, Variable
from tuner.space.experiment import Experiment
from tuner.space.term import Vocabulary
from tuner.space.values import Numbers, Value, Values


def _no_threads(_: Mapping[str, Value]) -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One tunable. What its functions are handed as a build is that of its own framework.

    A knob that is `in_every_setting` is part of every setting that it can act in; another only where a space or a
    `--set` names it. Knobs that are `read_at_start` are read when the interpreter starts or the framework is imported.
    """

    name: str
    meaning: str
    values: Values
    """What it can be."""
    carrier: Carrier
    """How a value comes into a process."""
    default: Callable[[Machine, Any, int], Value]
    """What the framework does when nothing is set, on a machine and a build, at the default batch size."""
    audit: Audit | None = unobservable
    """How a process shows that it took effect; None of an `Argument` or of `Streams`, which our own code is given."""
    in_every_setting: bool = True
    read_at_start: bool = False
    inactive_reason: Callable[[Any], str | None] = lambda _: None
    """Why it cannot act on a build, None if it can."""
    has_effect: Callable[[Mapping[str, Value]], bool] = lambda _: True
    """Whether it has an effect together with these values; if not, it is not set."""
    overrides: tuple[str, ...] = ()
    """Knobs that it would make ineffective: where one of these is named, this one stays out."""
    experiment: Experiment | None = None
    """What the probe does to see whether it reaches the build; None where processes alone can show it."""
    contrast_values: Callable[[Machine], tuple[Value, Value]] | None = None
    """Two distant values for the measured proof; None for the first and last value of its domain."""
    n_threads: Callable[[Mapping[str, Value]], int] = _no_threads
    """How many threads a setting has by it: what makes settings simple or not."""
    is_additive: Callable[[Collection[str]], bool] = lambda _: False
    """Whether, among the knobs of a space, its effect may be a curve that all settings share; see `tuner.study`."""
    vocabulary: Vocabulary | None = None
    """How a rule speaks of it; None where rules do not."""
    devices: tuple[str, ...] = ()
    """The kinds of devices on which it acts; all if none is named."""
    makers: tuple[str, ...] = ()
    """Who makes the devices on which it acts; anybody if none is named."""
    changes_numerics: bool = False
    """Whether its values compute in another precision: such a knob is searched only where that is allowed."""

    @property
    def is_numeric(self) -> bool:
        """Return whether its values are numbers."""
        return isinstance(self.values, Numbers)

    @property
    def counts_threads(self) -> bool:
        """Return whether its values are numbers of threads."""
        return isinstance(self.values, Numbers) and self.values.counts_threads

    @property
    def variable(self) -> str | None:
        """Return the environment variable that carries it, None where there is none."""
        return self.carrier.name if isinstance(self.carrier, Variable | Preload) else None

    def why_not_on(self, device: str, maker: str = "") -> str | None:
        """Return why it cannot act on a kind of device, of a maker if that is known; None if it can."""
        if self.devices and device not in self.devices:
            return f"it acts only with --device {' or '.join(self.devices)}, and this is for the {device}"
        if maker and self.makers and maker not in self.makers:
            return (
                f"it is read by the libraries of {' and '.join(self.makers)}, and this is for the libraries of {maker}"
            )
        return None

    def why_inactive(self, build: Any, inherited: Mapping[str, str], device: str, maker: str = "") -> str | None:
        """Return why it cannot act on a `build` and a kind of device, or not beside the `inherited` variables.

        None if it can.
        """
        name = self.carrier.name
        reason = self.why_not_on(device, maker)
        if reason is not None:
            return reason
        if self.read_at_start and name in inherited:
            return f"{name} is set in your environment and applies to every trial; unset it to tune it"
        return self.inactive_reason(build)

    def parse(self, text: str, machine: Machine) -> Value:
        """Return the value that `text` spells; raises BadInputError with what was expected."""
        return self.values.parse(self.name, text, machine)

    def check(self, value: int, machine: Machine) -> int:
        """Return a number if the knob can have it; raises BadInputError otherwise."""
        assert isinstance(self.values, Numbers)  # only these are asked about
        return self.values.check(self.name, value, machine)
