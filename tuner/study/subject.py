"""What a study is of: machine, build, workload and search space, as they are stored and published.

What is read from a storage is checked against these types; what is not among their fields is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field, to_builtins

from tuner.devices import registry as devices
from tuner.devices.device import Device
from tuner.frameworks import registry
from tuner.frameworks.framework import Build, Framework
from tuner.machine.host import Machine
from tuner.space.catalogue import Catalogue
from tuner.space.ensemble import catalogue_of
from tuner.space.space import Space
from tuner.space.values import Value
from tuner.workload.feed import InputFacts
from tuner.workload.workload import Execution, Workload

Values = dict[str, Value]
"""A setting: the value of each knob."""
BuildFacts = Annotated[
    dict[str, Any], Meta(extra_json_schema={"properties": {"id": {"type": "string"}}, "required": ["id"]})
]
"""A build, by what its framework tells of it: `framework`, `id`, `python`, and facts of its own."""


_PLACE = frozenset({"name", "index", "uuid", "slice_index", "seen_as"})
"""Where a device is, or what it is called."""
LIBRARY_FOLDERS = frozenset({"LD_LIBRARY_PATH"})
"""Variables that name folders of one machine: a program elsewhere has its libraries in others."""


class Document(Struct, frozen=True, kw_only=True):
    """Something published, with the version of its format."""

    schema: Literal[1] = 1


class WorkloadFacts(Struct, frozen=True, kw_only=True):
    """A workload, without its path, which is only one host's."""

    name: str
    kind: str
    mode: str
    execution: Execution
    params: dict[str, Any]
    fingerprint: str
    description: str
    item: str
    batch_size: int
    rate: float | UnsetType = UNSET
    """Requests per second that come at random times, where they do."""
    members: tuple[str, ...] | UnsetType = UNSET
    """The names of an ensemble's models."""
    inputs: tuple[InputFacts, ...] | UnsetType = UNSET
    """What tftune feeds to each input, where the workload does not make its own; earlier studies do not say."""

    @property
    def fed(self) -> tuple[InputFacts, ...]:
        """Return the inputs that tftune feeds, as far as they are known."""
        return self.inputs or ()


class KnobFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A knob on a machine and build: the `values` to search if it is active, else the `reason` why it is off.

    `dropped` says which values were left out, and why; `set_by` what carries a value, which earlier studies do not say.
    """

    active: bool
    reason: str = ""
    values: tuple[Value, ...] = ()
    variable: str | None
    set_by: str = ""
    meaning: str
    dropped: str = ""


class BaselineFacts(Struct, frozen=True, kw_only=True):
    """A recommended setting on a machine, the other baselines that are the same there, and its source."""

    setting: Values
    same_as: tuple[str, ...]
    source: str


class Subject(Document, frozen=True, kw_only=True):
    """What a study is of. `environment` are the inherited variables that change timings without being knobs.

    Earlier studies say neither these nor the digest of the space's file.
    """

    machine: Machine
    device: dict[str, Any] = field(default_factory=lambda: {"name": devices.DEFAULT})
    """A device, by what it tells of itself: its `name`, and facts of its own. Earlier studies are of the CPU."""
    runtime: BuildFacts
    environment: dict[str, str] | UnsetType = UNSET
    workload: WorkloadFacts
    space: str
    space_digest: str | UnsetType = UNSET
    points: int
    """Settings in the search space."""
    knobs: dict[str, KnobFacts]
    default: str
    """The baseline that sets nothing."""
    baselines: dict[str, BaselineFacts]

    def __post_init__(self) -> None:
        """Raise ValueError for a build without the one fact that all have."""
        if not isinstance(self.runtime.get("id"), str):
            raise ValueError("the build has no id")

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables of `environment` that a program needs, too, to run as it was measured."""
        return {name: value for name, value in (self.environment or {}).items() if name not in LIBRARY_FOLDERS}

    @property
    def device_identity(self) -> dict[str, Any]:
        """Return what of the device timings depend on; another of the same kind may take its place."""
        own = {name: value for name, value in self.device.items() if name not in _PLACE}
        return {"kind": self.device_root, **own}

    @property
    def device_root(self) -> str:
        """Return what the first device of its sort is asked for by, wherever this one is."""
        return str(self.device["name"]).partition(":")[0]

    @property
    def device_kind(self) -> str:
        """Return the kind of the device: `gpu` of all GPUs."""
        return devices.named(self.device_root).kind

    @property
    def device_advice(self) -> Mapping[str, str]:
        """Return what the device's own tools can do about warnings, by their codes."""
        return devices.named(self.device_root).advice

    @property
    def framework(self) -> Framework:
        """Return what the build is one of."""
        return registry.for_build(self.runtime)

    @property
    def catalogue(self) -> Catalogue:
        """Return the knobs and baselines that it is over."""
        return catalogue_of(self.framework.catalogue, self.workload.members or ())


def identity_of(device: Device) -> dict[str, Any]:
    """Return what of a device timings depend on, as `Subject.device_identity` has it of a study."""
    described = {name: value for name, value in device.describe().items() if name not in _PLACE}
    return described | {"kind": device.name.partition(":")[0]}


def subject_of(
    machine: Machine,
    device: Mapping[str, Any],
    build: Build,
    workload: Workload,
    space: Space,
    environment: Mapping[str, str],
    inputs: Sequence[InputFacts] = (),
) -> Subject:
    """Return what a study of these is of; the device by what it tells of itself. `inputs` are those that are fed."""
    sources = {baseline.name: baseline.source for baseline in space.catalogue.baselines}
    aliases = space.aliases()
    return Subject(
        machine=machine,
        device=dict(device),
        runtime=to_builtins(build.to_dict()),
        environment=dict(environment),
        workload=workload_facts(workload, inputs),
        space=space.name,
        space_digest=space.file_digest,
        points=len(space.points),
        knobs=_knobs(space),
        default=space.default,
        baselines={
            name: BaselineFacts(setting=setting.to_dict(), same_as=tuple(aliases[name]), source=sources[name])
            for name, setting in space.baselines.items()
        },
    )


def workload_facts(workload: Workload, inputs: Sequence[InputFacts] = ()) -> WorkloadFacts:
    """Return what is published of a workload, with the inputs that it is fed."""
    return WorkloadFacts(
        name=workload.name,
        kind=str(workload.kind),
        mode=workload.mode,
        execution=workload.execution,
        params=dict(workload.params),
        fingerprint=workload.fingerprint,
        description=workload.description,
        item=workload.item,
        batch_size=workload.batch_size,
        rate=UNSET if workload.rate is None else workload.rate,
        members=tuple(member.name for member in workload.members) or UNSET,
        inputs=tuple(inputs) or UNSET,
    )


def _knobs(space: Space) -> dict[str, KnobFacts]:
    """Return the knobs that are in the space, and those that are off with the reason."""
    return {
        name: KnobFacts(
            active=name not in space.inactive,
            reason=space.inactive.get(name, ""),
            values=() if name in space.inactive else space.domains[name],
            variable=knob.variable,
            set_by=knob.carrier.title,
            meaning=knob.meaning,
            dropped="" if name in space.inactive else space.unavailable_values.get(name, ""),
        )
        for name, knob in space.catalogue.knobs.items()
        if name in space.inactive or name in space.domains
    }
