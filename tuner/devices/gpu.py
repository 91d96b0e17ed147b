"""A GPU of this host, or a slice of one, whoever makes it: which one is meant, who uses it, its watch, its energy.

`gpu` is the first GPU that the visibility variable lets through, `gpu:1` the second, `gpu:0:2` the third slice of the
first, and `gpu:GPU-8932f9` one by the beginning of its name. A maker adds a reader of its own library, and its words:
`tuner.devices.nvidia` is one.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

import psutil

from tuner.devices import registry
from tuner.devices.device import Device
from tuner.errors import BadInputError
from tuner.machine.conditions import Conditions, DeviceConditions, Watch, is_foreign
from tuner.machine.host import Machine
from tuner.quantity import gib_text

KIND = "gpu"
_OWN_BYTES = 2 << 30  # more of an idle GPU's memory than its driver takes
_SAMPLE_S = 0.5  # between two looks at the GPU while something is measured


class Problem(StrEnum):
    """Why nothing can be read."""

    NO_PACKAGE = "no-package"
    NO_DRIVER = "no-driver"
    LOST = "lost"
    """The GPU, or the driver, is gone."""
    OTHER = "other"


class GpuUnreadable(Exception):  # noqa: N818  # a state of the host, not an error of the tool
    """Nothing can be read; `problem` says why as a code, and the text in words."""

    def __init__(self, problem: Problem, text: str) -> None:
        super().__init__(text)
        self.problem = problem


class Throttle(StrEnum):
    """Why a GPU runs at a lower clock than it could."""

    POWER_CAP = "power cap"
    HARDWARE = "hardware slowdown"
    SYNC_BOOST = "sync boost"
    HEAT = "heat"
    POWER_BRAKE = "power brake"
    FIXED_CLOCKS = "fixed clocks"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """A GPU, or a slice of one: what does not change while something is measured.

    `index` is the GPU's number as its maker's tool counts, `slice_index` that of the slice on it, None for a whole GPU.
    `is_split` tells that only its slices compute.
    """

    index: int
    uuid: str
    model: str
    memory_bytes: int
    driver: str
    versions: Mapping[str, str] = field(default_factory=dict)
    """What the driver serves of the maker's own, by name."""
    capability: str
    """The generation of its instructions, as its maker counts."""
    power_limit_w: float | None
    max_clock_mhz: int | None
    slice_index: int | None = None
    is_split: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        data: dict[str, Any] = {}
        for name, value in asdict(self).items():
            data |= value if name == "versions" else {name: value}
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that computes on a GPU, and the memory (bytes) that it holds there, None where that is not told."""

    pid: int
    name: str
    memory_bytes: int | None

    @property
    def text(self) -> str:
        """Return it in a few words."""
        held = "" if self.memory_bytes is None else f", {gib_text(self.memory_bytes, 1)}"
        return f"{self.name} (process {self.pid}{held})"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """A GPU, or a slice of one, at one moment."""

    free_bytes: int
    used_bytes: int
    clock_mhz: int | None
    power_w: float | None
    temperature_c: int | None
    throttle: tuple[Throttle, ...]
    processes: tuple[GpuProcess, ...]
    is_exclusive: bool = False
    """Whether it is in a mode in which one process may compute, or none."""


class Reader(Protocol):
    """What tells of the GPUs of a host. Each method raises GpuUnreadable where nothing can be read."""

    def gpus(self) -> list[GpuFacts]:
        """Return all GPUs, each followed by its slices, in the order of their PCI addresses."""

    def state(self, uuid: str) -> GpuState:
        """Return the state of a GPU or slice."""

    def energy_j(self, uuid: str) -> float | None:
        """Return the energy (J) that a GPU has taken since its driver was loaded; None where it does not count.

        Of a slice it is that of the whole GPU, so that callers must not take it for the slice's.
        """


class Gpu(Device):
    """A GPU or slice. `place` is what stands behind the colon of its name, empty for the first that is visible."""

    kind = KIND
    space = KIND
    root: str = KIND
    """The name of the first one."""
    reader: Reader
    uuids: tuple[str, ...] = ("GPU-",)
    """How UUIDs begin."""
    part: str = "slice"
    """What a part of a GPU is called that computes by itself."""
    split: str = "split into slices"
    """What a GPU is of which only those compute."""
    tool: str
    """The command that tells of GPUs."""
    hints: Mapping[Problem, str]
    shared_by: str = ""
    """The command that lets several processes compute, where one GPU may be one process's own."""
    metered: str = ""
    """Which models count their energy."""

    def __init__(self, place: str = "", *, reader: Reader | None = None, env: Mapping[str, str] = os.environ) -> None:
        self._place = place
        self._reader = reader or self.reader
        self._env = env
        self.name = f"{self.root}:{place}" if place else self.root

    def at(self, place: str) -> Gpu:
        """Return the device that stands at a place."""
        return type(self)(place, reader=self._reader, env=self._env)

    def versions(self, described: Mapping[str, Any]) -> list[str]:
        """Return what `GpuFacts.to_dict` has told of versions, in the maker's words, the instructions' last."""
        return [str(described["capability"])]

    @functools.cached_property
    def facts(self) -> GpuFacts:
        """Return what is known of it; raises BadInputError where there is no such GPU."""
        try:
            return self._chosen(self._reader.gpus())
        except GpuUnreadable as error:
            raise self._unreadable(error) from error

    def check(self) -> None:
        """Raise BadInputError where it is not there."""
        assert self.facts

    def check_idle(self) -> None:
        """Raise BadInputError where another program computes on it: neither of the two could be measured."""
        try:
            state = self._reader.state(self.facts.uuid)
        except GpuUnreadable as error:
            raise self._unreadable(error) from error
        this = f"{self.name} ({self.facts.model})"
        if state.is_exclusive:
            raise BadInputError(
                f"{this} lets one process compute at a time, and tftune needs two",
                f"let it have more: {self.shared_by}",
            )
        processes = [each for each in state.processes if each.pid != os.getpid()]
        users = " by " + ", ".join(process.text for process in processes) if processes else ""
        if not processes and state.used_bytes > _OWN_BYTES:
            users = f": a program that cannot be seen from here holds {gib_text(state.used_bytes, 1)} of its memory"
        if users:
            raise BadInputError(f"{this} is in use{users}", "stop it, or choose another --device")

    def environment(self) -> dict[str, str]:
        """Return what makes this one the only GPU that a process sees: by its full name, as numbers may mean others."""
        return registry.hiding(besides=self.visible) | self.showing(self.facts.uuid)

    def identity(self) -> list[object]:
        """Return what timings depend on. Two GPUs of one kind are one: a virtual machine gets another every day."""
        facts = self.facts
        return [self.root, facts.model, facts.memory_bytes >> 30, facts.capability, facts.driver, facts.power_limit_w]

    def describe(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"name": self.name, **self.facts.to_dict()}

    def lines(self, described: Mapping[str, Any]) -> list[str]:
        """Return what `describe` has told of it in a few lines."""
        limit, clock, number = (described[name] for name in ("power_limit_w", "max_clock_mhz", "slice_index"))
        parts = self.versions(described)
        parts += [] if limit is None else [f"power limit {limit:.0f} W"]
        parts += [] if clock is None else [f"clock {clock} MHz at most"]
        shared = f"{self.part} {number} of GPU {described['index']}: other slices share its power"
        return [
            f"{described['name']}: {described['model']}, {gib_text(described['memory_bytes'], 1)}, "
            f"driver {described['driver']}",
            ", ".join(parts),
            *([] if number is None else [shared]),
        ]

    def watch(self, machine: Machine) -> GpuWatch:
        """Begin to watch the machine, and the GPU."""
        return GpuWatch(machine, self.facts.uuid, self._reader)

    def free_memory_bytes(self) -> int | None:
        """Return what processes may still take of the GPU's memory; None where that cannot be read."""
        try:
            return self._reader.state(self.facts.uuid).free_bytes
        except GpuUnreadable:
            return None

    def energy_j(self) -> float | None:
        """Return what the GPU's counter says; None where there is none, or the driver is gone.

        And of a slice, as the counter is that of the whole GPU.
        """
        if self.facts.slice_index is not None:
            return None
        try:
            return self._reader.energy_j(self.facts.uuid)
        except GpuUnreadable:
            return None

    def why_no_energy(self) -> str | None:
        """Return why no energy can be told, None where it can."""
        if self.facts.slice_index is not None:
            return f"the energy counter covers the whole GPU, which other {self.part}s share"
        if self.energy_j() is not None:
            return None
        return f"{self.facts.model} reports no energy" + (f" ({self.metered})" if self.metered else "")

    def survey(self) -> tuple[list[tuple[str | None, GpuFacts, GpuState]], str]:
        """Return all GPUs and slices of this maker as they are now, and why there is none, empty where there are some.

        Each has the name that `--device` has for it, None where the visibility variable hides it.
        """
        try:
            gpus = self._reader.gpus()
            states = [self._reader.state(gpu.uuid) for gpu in gpus]
        except GpuUnreadable as error:
            return [], f"{error}; {self.hints[error.problem]}"
        names = self.places(gpus)
        found = [(names.get(gpu.uuid), gpu, state) for gpu, state in zip(gpus, states, strict=True)]
        return found, "" if gpus else f"{self.maker}'s driver sees none"

    def places(self, gpus: Sequence[GpuFacts]) -> dict[str, str]:
        """Return what `--device` calls each GPU and slice, by UUID; those that are hidden have no name."""
        names: dict[str, str] = {}
        for number, gpu in enumerate(self.seen_of(gpus)):
            names[gpu.uuid] = f"{self.root}:{number}"
            if gpu.slice_index is None:
                names |= {each.uuid: f"{self.root}:{number}:{each.slice_index}" for each in _slices(gpu, gpus)}
        return names

    def seen_of(self, gpus: Sequence[GpuFacts]) -> list[GpuFacts]:
        """Return the GPUs and slices that the visibility variable lets through, in its order; all GPUs without it.

        As makers' libraries read it, in the order of PCI addresses: numbers, and beginnings of UUIDs; everything behind
        one that is neither is hidden.
        """
        whole = [gpu for gpu in gpus if gpu.slice_index is None]
        visible = self._env.get(self.visible)
        if visible is None:
            return whole
        seen: list[GpuFacts] = []
        for word in visible.replace(" ", "").split(","):
            if word.startswith(self.uuids):
                named = [gpu for gpu in gpus if gpu.uuid.startswith(word)]
            else:
                named = [gpu for gpu in whole if word.isdecimal() and gpu.index == int(word)]
            if len(named) != 1:
                break
            seen += named
        return seen

    def _chosen(self, gpus: Sequence[GpuFacts]) -> GpuFacts:
        """Return the one at this place, of those that are visible; raises BadInputError that says what there is."""
        root, place, visible = self.root, self._place, self._env.get(self.visible)
        if not gpus:
            raise BadInputError(
                f"{self.maker}'s driver sees no GPU here", f"see the output of {self.tool}, or use --device cpu"
            )
        seen = self.seen_of(gpus)
        if not seen:
            there = ", ".join(f"{gpu.index} ({gpu.model})" for gpu in gpus if gpu.slice_index is None)
            raise BadInputError(
                f"{self.visible}={visible} hides all GPUs", f"unset it, or give it the number of one of: {there}"
            )
        if place.startswith(self.uuids):
            named = [gpu for gpu in gpus if gpu.uuid.startswith(place)]
            if len(named) != 1:
                many = "no GPU's UUID begins" if not named else f"the UUIDs of {len(named)} GPUs begin"
                there = ", ".join(f"{gpu.uuid} ({gpu.model})" for gpu in gpus)
                raise BadInputError(f"{many} with {place}", f"there are: {there}")
            return self._computing(named[0], gpus, place)
        numbers = place.split(":") if place else ["0"]
        if len(numbers) > 2 or not all(number.isdecimal() for number in numbers):
            raise BadInputError(
                f"{root}:{place} names no GPU",
                f"expected {root}, {root}:1, {root}:0:2 (a {self.part}) or the beginning of a UUID",
            )
        number, *slice_number = map(int, numbers)
        if number >= len(seen):
            limited = "" if visible is None else f" ({self.visible}={visible})"
            there = ", ".join(f"{root}:{i} ({each.model})" for i, each in enumerate(seen))
            raise BadInputError(f"there is no {root}:{number}{limited}", f"there are: {there}")
        gpu = seen[number]
        if not slice_number:
            return self._computing(gpu, gpus, str(number))
        slices = {each.slice_index: each for each in _slices(gpu, gpus)}
        if slice_number[0] not in slices:
            listed = ", ".join(f"{root}:{number}:{i} ({each.model})" for i, each in slices.items())
            there = f"there are: {listed}" if slices else f"it is not split into any: use {root}:{number}"
            raise BadInputError(f"{root}:{number} has no {self.part} {slice_number[0]}", there)
        return slices[slice_number[0]]

    def _computing(self, gpu: GpuFacts, gpus: Sequence[GpuFacts], place: str) -> GpuFacts:
        """Return a GPU that computes by itself; raises BadInputError for one of which only the slices do."""
        if gpu.is_split:
            there = ", ".join(f"{self.root}:{each.uuid} ({each.model})" for each in _slices(gpu, gpus))
            raise BadInputError(
                f"{self.root}:{place} ({gpu.model}) is {self.split}",
                f"name one of its {self.part}s: {there}"
                if there
                else f"it has no {self.part} yet: make one with {self.tool}",
            )
        return gpu

    def _unreadable(self, error: GpuUnreadable) -> BadInputError:
        return BadInputError(f"cannot use --device {self.name}: {error}", self.hints[error.problem])


class GpuWatch(Watch):
    """What happens to the CPUs and to a GPU from when this is made; it looks at the GPU twice a second.

    That is done by a thread of the tuner's own process; between two looks it sleeps.
    """

    def __init__(self, machine: Machine, uuid: str, reader: Reader) -> None:
        super().__init__(machine.affinity)
        self._uuid = uuid
        self._reader = reader
        self._states: list[GpuState] = []
        self._foreign: dict[int, str] = {}
        self._lost = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="tftune-gpu", daemon=True)
        self._thread.start()

    def conditions(self) -> Conditions:
        """Return what has happened since, and stop looking."""
        self._ended.set()
        self._thread.join()
        device = device_conditions(self._states, foreign=list(self._foreign.values()), lost=self._lost)
        return replace(super().conditions(), device=device)

    def _look(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            try:
                state = self._reader.state(self._uuid)
            except GpuUnreadable as error:
                self._lost = str(error)
                return
            self._states.append(state)
            # Asked while they live.
            self._foreign |= {each.pid: each.text for each in state.processes if is_foreign(each.pid, os.getpid())}


def device_conditions(states: Sequence[GpuState], *, foreign: Sequence[str], lost: str) -> DeviceConditions:
    """Return what was seen of a GPU in several looks.

    `foreign` are the programs of others that used it, `lost` why it could not be read any more.
    """
    n = max(len(states), 1)
    reasons = [reason for state in states for reason in state.throttle]
    clocks = [state.clock_mhz for state in states if state.clock_mhz is not None]
    watts = [state.power_w for state in states if state.power_w is not None]
    celsius = [state.temperature_c for state in states if state.temperature_c is not None]
    return DeviceConditions(
        n_looks=len(states),
        throttled={str(reason): reasons.count(reason) / n for reason in dict.fromkeys(reasons)},
        foreign=tuple(foreign),
        mhz=(min(clocks), max(clocks)) if clocks else None,
        power_w=sum(watts) / len(watts) if watts else None,
        temperature_c=max(celsius, default=None),
        lost=lost,
    )


def program_name(pid: int) -> str:
    """Return what a process is called; one of another container has no name here."""
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return "a program that cannot be seen from here"


def _slices(gpu: GpuFacts, gpus: Sequence[GpuFacts]) -> list[GpuFacts]:
    return [each for each in gpus if each.index == gpu.index and each.slice_index is not None]
