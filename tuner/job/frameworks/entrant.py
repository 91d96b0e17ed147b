"""Entrants: the frameworks of a comparison, each with how it executes a model and in which precision it computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.devices.device import Device
from tuner.errors import BadInputError, TunerError, unknown_name
from tuner.frameworks import registry
from tuner.frameworks.framework import F32, Framework
from tuner.job.request import interpreter
from tuner.measure.agreement import TOLERANCE
from tuner.space.knob import Knob
from tuner.space.values import Words
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Execution

REFERENCE = registry.DEFAULT
"""The entrant whose default all others are compared with."""
SAME = 1e-3
"""The largest relative deviation of outputs that were computed in single precision by other code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """A framework, how it executes a model, and the values of knobs that give it another precision."""

    name: str
    framework: Framework
    execution: Execution = Execution.GRAPH
    pins: tuple[str, ...] = ()
    """As `--set` takes them."""
    python: Path

    def limit(self, precision: str | None) -> float:
        """Return how far its outputs may deviate from the reference's, relative, if it computes in a precision."""
        return SAME if precision in (F32, None) and not self.pins else TOLERANCE

    def spec(self, workload: WorkloadSpec) -> WorkloadSpec:
        """Return the options that name a workload in this framework."""
        return replace(workload, framework=self.framework.name, execution=self.execution.value)


def entrants(device: Device, pythons: Mapping[str, Path], *, may_change_numerics: bool) -> dict[str, Entrant]:
    """Return all that there are for a device, by name: each framework, compiled where it can be, in each precision.

    `pythons` are the interpreters of frameworks, by name; all others are in this one.
    """
    named: dict[str, Entrant] = {}
    unusable = broken()
    for name in registry.names():
        if name in unusable:
            continue
        framework = registry.find(name)
        if framework.child is None or device.kind not in framework.devices:
            continue
        plain = Entrant(name=name, framework=framework, python=pythons.get(name) or interpreter(None))
        named[name] = plain
        if Execution.XLA in framework.executions:
            xla = f"{name}-{Execution.XLA}"
            named[xla] = replace(plain, name=xla, execution=Execution.XLA, python=pythons.get(xla) or plain.python)
        for suffix, pin in _precisions(framework, device) if may_change_numerics else ():
            other = f"{name}-{suffix}"
            named[other] = replace(plain, name=other, pins=(pin,))
    return named


def broken() -> dict[str, TunerError]:
    """Return why frameworks that other packages bring cannot be loaded, by name."""
    errors: dict[str, TunerError] = {}
    for name in registry.names():
        try:
            registry.find(name)
        except TunerError as error:
            errors[name] = error
    return errors


def _precisions(framework: Framework, device: Device) -> list[tuple[str, str]]:
    """Return the other precisions of a framework on a device: what each is called, and the pin that asks for it."""
    knobs = [knob for knob in framework.knobs.values() if knob.changes_numerics]
    knobs = [knob for knob in knobs if device.kind in (knob.devices or (device.kind,))]
    return [(_suffix(knob, word), f"{knob.name}={word}") for knob in knobs for word in _others(knob)]


def _others(knob: Knob) -> Sequence[str]:
    """Return the values of a knob besides the first, which is the default."""
    return knob.values.words[1:] if isinstance(knob.values, Words) else ()


def _suffix(knob: Knob, word: str) -> str:
    """Return what a precision is called: by its value, or by its knob where that is only on."""
    return knob.name if word in ("on", "1") else word


def chosen(text: str | None, all_entrants: Mapping[str, Entrant], device: Device) -> tuple[list[Entrant], bool]:
    """Return the entrants that a list with commas names, the reference first; and whether they were named.

    All of them where there is no list. Raises BadInputError for a name that none of a device has.
    """
    if text is None:
        return [all_entrants[REFERENCE], *(each for name, each in all_entrants.items() if name != REFERENCE)], False
    names = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for name in names:
        if name in all_entrants:
            continue
        if name in entrants(device, {}, may_change_numerics=True):
            raise BadInputError(f"{name} computes in another precision", "allow it with --numerics may-change")
        if name in registry.names() and (framework := registry.find(name)).child is not None:
            others = " or ".join(framework.devices)
            raise BadInputError(f"{framework.title} cannot run on {device.name}", f"expected --device {others}")
        raise unknown_name("framework", name, list(all_entrants))
    if not names:
        raise BadInputError("--frameworks is empty", f"name some of {', '.join(all_entrants)}")
    return [all_entrants[name] for name in dict.fromkeys([REFERENCE, *names])], True


def interpreters(texts: Sequence[str]) -> dict[str, Path]:
    """Return the interpreters of frameworks from `NAME=PATH` each, or a path alone for all that are not named.

    Raises BadInputError for a name that is none, and where there is no interpreter.
    """
    named: dict[str, Path] = {}
    rest: Path | None = None
    for text in texts:
        name, separator, path = text.partition("=")
        if not separator:
            rest = interpreter(text)
            continue
        if name not in registry.names() and not _is_compiled(name):
            raise unknown_name("framework", name, registry.names())
        named[name] = interpreter(path)
    others = {} if rest is None else dict.fromkeys(registry.names(), rest)
    return others | named


def _is_compiled(name: str) -> bool:
    """Return whether a name is that of a framework compiled by XLA."""
    plain = name.removesuffix(f"-{Execution.XLA}")
    return plain != name and plain in registry.names() and Execution.XLA in registry.find(plain).executions
