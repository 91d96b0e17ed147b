"""Candidates: settings of frameworks that can be started and timed, each framework's default and a tuned one.

A variant is a framework with an execution and a precision, such as `tensorflow-xla` or `openvino-bf16`. It is prepared
once its job is, for the workload on this machine; what its settings are depends on what a search found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from tuner.devices.device import Device
from tuner.errors import BadInputError, TunerError, unknown_name
from tuner.frameworks import registry
from tuner.frameworks.framework import F32, Framework
from tuner.identity import digest
from tuner.job.job import Job
from tuner.job.parsed import interpreter, words
from tuner.measure.agreement import TOLERANCE
from tuner.measure.measurement import Measurement
from tuner.measure.rounds import Contender
from tuner.result.frameworks import SettingKind, TunedResult
from tuner.space.setting import Setting
from tuner.space.values import Words
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import Status
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Execution

REFERENCE = registry.DEFAULT
"""The variant whose default all others are compared with."""
SAME = 1e-3
"""The largest relative deviation of outputs that were computed in single precision by other code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
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


def variants(device: Device, pythons: Mapping[str, Path], *, may_change_numerics: bool) -> dict[str, Variant]:
    """Return all that there are for a device, by name: each framework, compiled where it can be, in each precision.

    `pythons` are the interpreters of frameworks, by name; all others are in this one.
    """
    named: dict[str, Variant] = {}
    unusable = broken()
    for name in registry.names():
        if name in unusable:
            continue
        framework = registry.find(name)
        if framework.child is None or not framework.runs_on(device):
            continue
        plain = Variant(name=name, framework=framework, python=pythons.get(name) or interpreter(None))
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
    knobs = [knob for knob in knobs if knob.why_not_on(device.kind, device.maker) is None]
    # Of a knob's values the first is the default; a precision is called by its knob if that is only on.
    others = [(knob.name, word) for knob in knobs if isinstance(knob.values, Words) for word in knob.values.words[1:]]
    return [(name if word in ("on", "1") else word, f"{name}={word}") for name, word in others]


def chosen(text: str | None, all_variants: Mapping[str, Variant], device: Device) -> tuple[list[Variant], bool]:
    """Return the variants that a list with commas names, the reference first; and whether they were named.

    All of them where there is no list. Raises BadInputError for a name that none of a device has.
    """
    if text is None:
        return [all_variants[REFERENCE], *(each for name, each in all_variants.items() if name != REFERENCE)], False
    names = words(text)
    for name in names:
        if name in all_variants:
            continue
        if name in variants(device, {}, may_change_numerics=True):
            raise BadInputError(f"{name} computes in another precision", "allow it with --numerics may-change")
        if name in registry.names() and (framework := registry.find(name)).child is not None:
            others = " or ".join(framework.devices)
            raise BadInputError(f"{framework.title} cannot run on {device.name}", f"expected --device {others}")
        raise unknown_name("framework", name, list(all_variants))
    if not names:
        raise BadInputError("--frameworks is empty", f"name some of {', '.join(all_variants)}")
    return [all_variants[name] for name in dict.fromkeys([REFERENCE, *names])], True


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a variant takes no part, and what to do about it."""

    status: Status
    message: str
    hint: str = ""


@dataclass(slots=True, kw_only=True)
class PreparedVariant:
    """A variant with its job; one that has a failure has dropped out."""

    variant: Variant
    job: Job
    launcher: FreshLauncher | None = None
    starts: dict[SettingKind, Measurement] = field(default_factory=dict)
    """What the first start of each of its settings told."""
    start_s: float = 5.0
    """How long a start takes until it is warm; a guess until it is known."""
    failure: Failure | None = None
    tuned: TunedResult | None = None
    _key: str | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        """Return its name."""
        return self.variant.name

    @property
    def key(self) -> str:
        """Return a name that changes with whatever of it may change timings."""
        if self._key is None:  # a space has many points, and the key is asked for often
            parts: list[object] = [self.job.build.id, self.job.space.fingerprint, self.variant.pins]
            parts += [each for each in (self.job.environment, self.job.feed) if each]
            parts += [self.default.to_dict()] if self.variant.pins else []
            self._key = f"{self.name}/{digest(parts)}"
        return self._key

    @property
    def precision(self) -> str | None:
        """Return what its default computes in; None where that is not known."""
        return self.starts[SettingKind.DEFAULT].precision if SettingKind.DEFAULT in self.starts else None

    def learn(self, kind: SettingKind, start: Measurement) -> None:
        """Take what a start told: a default that computes something else drops out, a tuned setting is given up."""
        self.starts[kind] = start
        if start.status is Status.OK:
            return
        if kind is SettingKind.DEFAULT:
            self.failure = Failure(status=start.status, message=start.message, hint=start.hint)
        elif self.tuned is not None:
            failure = f"its best setting is {start.status}: {start.message}"
            self.tuned = structs.replace(self.tuned, setting=None, failure=failure)

    @property
    def default(self) -> Setting:
        """Return its default: the framework's own, in the precision that the variant is for."""
        space = self.job.space
        pinned = {pin.partition("=")[0] for pin in self.variant.pins}
        return space.reference.with_values(**{name: space.pins[name] for name in pinned})

    def settings(self) -> dict[SettingKind, Setting]:
        """Return its settings; the tuned one only where it is another than the default.

        A search that keeps the default names the framework's own, whatever the precision.
        """
        default, framework_default = self.default, self.job.space.reference
        if self.tuned is None or self.tuned.setting is None:
            return {SettingKind.DEFAULT: default}
        tuned = Setting.of(self.tuned.setting)
        is_default = tuned in (default, framework_default)
        return (
            {SettingKind.DEFAULT: default} if is_default else {SettingKind.DEFAULT: default, SettingKind.TUNED: tuned}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A setting of a variant: what is started and timed, at any batch size."""

    prepared: PreparedVariant
    kind: SettingKind

    @property
    def name(self) -> str:
        """Return its name among the contenders."""
        return f"{self.framework}/{self.kind}"

    @property
    def text(self) -> str:
        """Return its name for people."""
        return f"{self.framework}, {self.kind}"

    @property
    def framework(self) -> str:
        """Return what its rows name: the variant."""
        return self.prepared.name

    @property
    def start(self) -> Measurement | None:
        """Return its first start, in which outputs and precision were looked at; None before that."""
        return self.prepared.starts.get(self.kind)

    @property
    def precision(self) -> str | None:
        """Return what it computes in, None where that is not known."""
        return None if self.start is None else self.start.precision

    def setting(self, batch_size: int) -> Setting:
        """Return its setting at a batch size."""
        return self.prepared.settings()[self.kind].with_values(batch_size=batch_size)

    def contender(self, batch_size: int) -> Contender:
        """Return it as a contender at a batch size."""
        setting = self.setting(batch_size)
        return Contender(
            names=(self.name,),
            setting=setting,
            deployment=self.prepared.job.space.deployment(setting),
            launcher=self.prepared.launcher,
        )


def candidates_of(prepared: Iterable[PreparedVariant]) -> list[Candidate]:
    """Return all settings of variants, in their order, the default of each first."""
    return [Candidate(prepared=each, kind=kind) for each in prepared for kind in each.settings()]
