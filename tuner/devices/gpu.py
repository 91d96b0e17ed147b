"""A CUDA device: one GPU of this host, or one MIG slice of a GPU.

`gpu` is the first GPU that CUDA_VISIBLE_DEVICES lets through, `gpu:1` the second, `gpu:0:2` the third slice of the
first, and `gpu:GPU-8932f9` or `gpu:MIG-1f6d` one by the beginning of its name. A trial sees that one alone, by its
full name: numbers mean other GPUs where CUDA's own order is not that of `nvidia-smi`.

Source: CUDA Programming Guide, Environment Variables (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER); NVIDIA Multi-Instance
GPU User Guide.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.devices.device import Device
from tuner.devices.nvml import NVML, GpuFacts, GpuState, NvmlUnavailable, Problem, Reader
from tuner.errors import BadInputError
from tuner.machine.conditions import Conditions, DeviceConditions, Watch, is_foreign
from tuner.machine.host import Machine
from tuner.paths import CHILD

KIND = "gpu"
VISIBLE = "CUDA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"
_OWN_BYTES = 2 << 30  # more of an idle GPU's memory than its driver takes
_SAMPLE_S = 0.5  # between two looks at the GPU while something is measured
_TF32_SINCE = 8  # the compute capability of Ampere
_UUIDS = ("GPU-", "MIG-")
_HINTS = {
    Problem.NO_PACKAGE: "install it: pip install nvidia-ml-py",
    Problem.NO_DRIVER: "install NVIDIA's driver, or start the container with its GPUs (docker run --gpus all)",
    Problem.LOST: "see dmesg; restart the machine, or choose another --device",
    Problem.OTHER: "see what nvidia-smi says",
}


class Gpu(Device):
    """A GPU or slice. `place` is what stands behind `gpu:`, empty for the first that is visible."""

    kind = KIND
    space = KIND
    child = CHILD / "gpu.py"
    timing_prefixes = (
        "CUDA_LAUNCH_",
        "CUDA_MODULE_",
        "CUBLAS_",
        "CUDNN_",
        "NVIDIA_TF32_",
        "TF_CUDNN_",
        "TF_USE_CUDNN_",
        "TF_DETERMINISTIC_",
    )

    def __init__(self, place: str = "", *, reader: Reader = NVML, env: Mapping[str, str] = os.environ) -> None:
        self._place = place
        self._reader = reader
        self._env = env
        self.name = f"{KIND}:{place}" if place else KIND

    def at(self, place: str) -> Gpu:
        """Return the device that stands at a place."""
        return Gpu(place, reader=self._reader, env=self._env)

    @functools.cached_property
    def facts(self) -> GpuFacts:
        """Return what is known of it; raises BadInputError where there is no such GPU."""
        try:
            gpus = self._reader.gpus()
        except NvmlUnavailable as error:
            raise _unreadable(self.name, error) from error
        return chosen(gpus, self._place, self._env.get(VISIBLE))

    def check(self) -> None:
        """Raise BadInputError where it is not there."""
        assert self.facts

    def check_idle(self) -> None:
        """Raise BadInputError where another program computes on it: neither of the two could be measured."""
        try:
            state = self._reader.state(self.facts.uuid)
        except NvmlUnavailable as error:
            raise _unreadable(self.name, error) from error
        if state.is_exclusive:
            raise BadInputError(
                f"{self.name} ({self.facts.model}) lets one process compute at a time, and tftune needs two",
                "let it have more: sudo nvidia-smi -c DEFAULT",
            )
        processes = [each for each in state.processes if each.pid != os.getpid()]
        if not processes and state.used_bytes > _OWN_BYTES:
            held = f"{state.used_bytes / 2**30:.1f} GiB of its memory"
            raise BadInputError(
                f"{self.name} ({self.facts.model}) is in use: a program that cannot be seen from here holds {held}",
                "stop it, or choose another --device",
            )
        if processes:
            names = ", ".join(process.text for process in processes)
            raise BadInputError(
                f"{self.name} ({self.facts.model}) is in use by {names}", "stop it, or choose another --device"
            )

    def environment(self) -> dict[str, str]:
        """Return what makes this one the only GPU that a process sees."""
        return showing(self.facts.uuid)

    def identity(self) -> list[object]:
        """Return what timings depend on. Two GPUs of one kind are one: a virtual machine gets another every day."""
        facts = self.facts
        return [KIND, facts.model, facts.memory_bytes >> 30, facts.capability, facts.driver, facts.power_limit_w]

    def has_tf32(self) -> bool:
        """Return whether its tensor cores take TF32: those of Ampere, and later ones."""
        return int(self.facts.capability.partition(".")[0]) >= _TF32_SINCE

    def describe(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"name": self.name, **self.facts.to_dict()}

    def watch(self, machine: Machine) -> GpuWatch:
        """Begin to watch the machine, and the GPU."""
        return GpuWatch(machine, self.facts.uuid, self._reader)

    def free_memory_bytes(self) -> int | None:
        """Return what processes may still take of the GPU's memory; None where that cannot be read."""
        try:
            return self._reader.state(self.facts.uuid).free_bytes
        except NvmlUnavailable:
            return None

    def energy_j(self) -> float | None:
        """Return what the GPU's counter says; None where there is none, or the driver is gone.

        And of a MIG slice, as the counter is that of the whole GPU.
        """
        if self.facts.slice_index is not None:
            return None
        try:
            return self._reader.energy_j(self.facts.uuid)
        except NvmlUnavailable:
            return None

    def why_no_energy(self) -> str | None:
        """Return why no energy can be told, None where it can."""
        if self.facts.slice_index is not None:
            return "the energy counter is that of the whole GPU, which other MIG slices share"
        if self.energy_j() is not None:
            return None
        return f"{self.facts.model} tells no energy (Volta and newer have a counter)"


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
            except NvmlUnavailable as error:
                self._lost = str(error)
                return
            self._states.append(state)
            # Asked while they live.
            self._foreign |= {each.pid: each.text for each in state.processes if is_foreign(each.pid, os.getpid())}


def showing(gpu: str) -> dict[str, str]:
    """Return the variables by which a program sees one GPU or slice alone, by its UUID or by nvidia-smi's number."""
    return {_ORDER: "PCI_BUS_ID", VISIBLE: gpu}


def survey(reader: Reader = NVML) -> tuple[list[tuple[GpuFacts, GpuState]], str]:
    """Return all GPUs and slices of this host as they are now, and why there is none, empty where there are some."""
    try:
        gpus = reader.gpus()
        states = [reader.state(gpu.uuid) for gpu in gpus]
    except NvmlUnavailable as error:
        return [], f"{error}; {_HINTS[error.problem]}"
    return list(zip(gpus, states, strict=True)), "" if gpus else "NVIDIA's driver sees none"


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


def chosen(gpus: Sequence[GpuFacts], place: str, visible: str | None) -> GpuFacts:
    """Return the GPU or slice at a place, of those that `visible` (CUDA_VISIBLE_DEVICES) lets through.

    Raises BadInputError that says what there is.
    """
    if not gpus:
        raise BadInputError("NVIDIA's driver sees no GPU here", "see what nvidia-smi says, or use --device cpu")
    allowed = visible_of(gpus, visible)
    if not allowed:
        there = ", ".join(f"{gpu.index} ({gpu.model})" for gpu in gpus if gpu.slice_index is None)
        raise BadInputError(
            f"{VISIBLE}={visible} hides all GPUs", f"unset it, or give it the number of one of: {there}"
        )
    if place.startswith(_UUIDS):
        named = [gpu for gpu in gpus if gpu.uuid.startswith(place)]
        if len(named) != 1:
            many = "no GPU's UUID begins" if not named else f"the UUIDs of {len(named)} GPUs begin"
            raise BadInputError(f"{many} with {place}", f"there are: {_uuids(gpus)}")
        return _computing(named[0], gpus, place)
    numbers = place.split(":") if place else ["0"]
    if len(numbers) > 2 or not all(number.isdecimal() for number in numbers):
        raise BadInputError(
            f"gpu:{place} names no GPU", "expected gpu, gpu:1, gpu:0:2 (a MIG slice) or the beginning of a UUID"
        )
    number, *slice_number = map(int, numbers)
    if number >= len(allowed):
        limited = "" if visible is None else f" ({VISIBLE}={visible})"
        there = ", ".join(f"gpu:{i} ({each.model})" for i, each in enumerate(allowed))
        raise BadInputError(f"there is no gpu:{number}{limited}", f"there are: {there}")
    gpu = allowed[number]
    if not slice_number:
        return _computing(gpu, gpus, str(number))
    slices = _slices(gpu, gpus)
    named = [each for each in slices if each.slice_index == slice_number[0]]
    if not named:
        there = f"there are: {_listed(slices, number)}" if slices else f"it is not split into any: use gpu:{number}"
        raise BadInputError(f"gpu:{number} has no MIG slice {slice_number[0]}", there)
    return named[0]


def places(gpus: Sequence[GpuFacts], visible: str | None) -> dict[str, str]:
    """Return what `--device` calls each GPU and MIG slice, by UUID; those that `visible` hides have no name."""
    names: dict[str, str] = {}
    for number, gpu in enumerate(visible_of(gpus, visible)):
        names[gpu.uuid] = f"{KIND}:{number}"
        if gpu.slice_index is None:
            names |= {each.uuid: f"{KIND}:{number}:{each.slice_index}" for each in _slices(gpu, gpus)}
    return names


def visible_of(gpus: Sequence[GpuFacts], visible: str | None) -> list[GpuFacts]:
    """Return the GPUs and slices that CUDA_VISIBLE_DEVICES lets through, in its order; all GPUs where it is not set.

    As CUDA reads it in the order of PCI addresses: numbers, and beginnings of UUIDs; everything behind one that is
    neither is hidden.
    """
    whole = [gpu for gpu in gpus if gpu.slice_index is None]
    if visible is None:
        return whole
    allowed: list[GpuFacts] = []
    for word in visible.replace(" ", "").split(","):
        if word.startswith(_UUIDS):
            named = [gpu for gpu in gpus if gpu.uuid.startswith(word)]
        else:
            named = [gpu for gpu in whole if word.isdecimal() and gpu.index == int(word)]
        if len(named) != 1:
            break
        allowed += named
    return allowed


def _computing(gpu: GpuFacts, gpus: Sequence[GpuFacts], place: str) -> GpuFacts:
    """Return a GPU that computes by itself; raises BadInputError for one of which only the slices do."""
    if gpu.is_split:
        slices = _slices(gpu, gpus)
        there = ", ".join(f"gpu:{each.uuid} ({each.model})" for each in slices)
        hint = f"name one of its MIG slices: {there}" if slices else "it has no MIG slice yet: make one with nvidia-smi"
        raise BadInputError(f"gpu:{place} ({gpu.model}) is in MIG mode", hint)
    return gpu


def _slices(gpu: GpuFacts, gpus: Sequence[GpuFacts]) -> list[GpuFacts]:
    return [each for each in gpus if each.index == gpu.index and each.slice_index is not None]


def _listed(slices: Sequence[GpuFacts], number: int) -> str:
    return ", ".join(f"gpu:{number}:{each.slice_index} ({each.model})" for each in slices)


def _uuids(gpus: Sequence[GpuFacts]) -> str:
    return ", ".join(f"{gpu.uuid} ({gpu.model})" for gpu in gpus)


def _unreadable(name: str, error: NvmlUnavailable) -> BadInputError:
    return BadInputError(f"cannot use --device {name}: {error}", _HINTS[error.problem])


DEVICE = Gpu()
