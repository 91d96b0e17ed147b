"""What NVIDIA's management library tells of the GPUs of this host: a narrow reader, and what it reads.

The package nvidia-ml-py (`pip install 'tftune[gpu]'`) binds the library, which the driver brings. It is imported when
a GPU is asked about. What a GPU, a slice of it, or a virtual machine does not tell is None.

Source: NVML API reference, https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeVar

import psutil

T = TypeVar("T")

_MAX_SLICES = 7  # of one GPU


class Problem(StrEnum):
    """Why nothing can be read."""

    NO_PACKAGE = "no-package"
    NO_DRIVER = "no-driver"
    LOST = "lost"
    """The GPU, or the driver, is gone."""
    OTHER = "other"


class NvmlUnavailable(Exception):  # noqa: N818  # a state of the host, not an error of the tool
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


# nvml.h, nvmlClocksEventReasons. That a GPU is idle (bit 0) is no throttling, nor is a display's clock (bit 8).
_THROTTLE_BITS = {
    0x02: Throttle.FIXED_CLOCKS,
    0x04: Throttle.POWER_CAP,
    0x08: Throttle.HARDWARE,
    0x10: Throttle.SYNC_BOOST,
    0x20: Throttle.HEAT,
    0x40: Throttle.HEAT,
    0x80: Throttle.POWER_BRAKE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """A GPU, or a MIG slice of one: what does not change while something is measured.

    `index` is the GPU's number as `nvidia-smi` counts, `slice_index` that of the slice on it, None for a whole GPU.
    `is_split` tells that the GPU is in MIG mode, so that only its slices compute.
    """

    index: int
    uuid: str
    model: str
    memory_bytes: int
    driver: str
    cuda: str
    """The newest version of CUDA that the driver serves."""
    capability: str
    """The compute capability, such as 9.0."""
    power_limit_w: float | None
    max_clock_mhz: int | None
    slice_index: int | None = None
    is_split: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that computes on a GPU, and the memory (bytes) that it holds there, None where that is not told."""

    pid: int
    name: str
    memory_bytes: int | None

    @property
    def text(self) -> str:
        """Return it in a few words."""
        held = "" if self.memory_bytes is None else f", {self.memory_bytes / 2**30:.1f} GiB"
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
    """What tells of the GPUs of a host. Each method raises NvmlUnavailable where nothing can be read."""

    def gpus(self) -> list[GpuFacts]:
        """Return all GPUs, each followed by its slices, in the order of their PCI addresses."""

    def state(self, uuid: str) -> GpuState:
        """Return the state of a GPU or slice."""

    def energy_j(self, uuid: str) -> float | None:
        """Return the energy (J) that a GPU has taken since its driver was loaded; None where it does not count.

        Of a MIG slice it is that of the whole GPU, so that callers must not take it for the slice's.
        """


class Nvml:
    """The reader of the real library."""

    def gpus(self) -> list[GpuFacts]:
        """Return all GPUs, each followed by its slices."""
        pynvml = self._library

        def all_of() -> list[GpuFacts]:
            gpus: list[GpuFacts] = []
            for index in range(pynvml.nvmlDeviceGetCount()):
                gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
                is_split = bool((self._optional(pynvml.nvmlDeviceGetMigMode, gpu) or (0,))[0])
                facts = self._facts(gpu, index, is_split=is_split)
                gpus.append(facts)
                for number in range(_MAX_SLICES if is_split else 0):
                    part = self._optional(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, number)
                    if part is not None:
                        gpus.append(self._slice(facts, part, number))
            return gpus

        return self._asked(all_of)

    def state(self, uuid: str) -> GpuState:
        """Return the state of a GPU or slice."""
        pynvml = self._library

        def of_gpu() -> GpuState:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            gpu = self._gpu(handle)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            milliwatts = self._optional(pynvml.nvmlDeviceGetPowerUsage, gpu)
            running = self._optional(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
            return GpuState(
                free_bytes=int(memory.free),
                used_bytes=int(memory.used),
                clock_mhz=self._optional(pynvml.nvmlDeviceGetClockInfo, gpu, pynvml.NVML_CLOCK_SM),
                power_w=None if milliwatts is None else milliwatts / 1000,
                temperature_c=self._optional(pynvml.nvmlDeviceGetTemperature, gpu, pynvml.NVML_TEMPERATURE_GPU),
                throttle=throttles(self._optional(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, gpu) or 0),
                is_exclusive=bool(self._optional(pynvml.nvmlDeviceGetComputeMode, gpu)),
                processes=tuple(
                    GpuProcess(pid=each.pid, name=_name_of(each.pid), memory_bytes=each.usedGpuMemory)
                    for each in running
                ),
            )

        return self._asked(of_gpu)

    def energy_j(self, uuid: str) -> float | None:
        """Return the energy (J) that the GPU has taken since its driver was loaded."""
        pynvml = self._library

        def of_gpu() -> float | None:
            gpu = self._gpu(pynvml.nvmlDeviceGetHandleByUUID(uuid))
            millijoules = self._optional(pynvml.nvmlDeviceGetTotalEnergyConsumption, gpu)
            return None if millijoules is None else millijoules / 1000

        return self._asked(of_gpu)

    @functools.cached_property
    def _library(self) -> Any:
        """Return the initialised package; raises NvmlUnavailable."""
        try:
            import pynvml
        except ImportError as error:
            raise NvmlUnavailable(Problem.NO_PACKAGE, "the package nvidia-ml-py is not installed") from error
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            text = str(error).rstrip(".")
            raise NvmlUnavailable(Problem.NO_DRIVER, f"NVIDIA's driver does not answer: {text}") from error
        return pynvml

    def _asked(self, ask: Callable[[], T]) -> T:
        """Return what the library answers; raises NvmlUnavailable where it fails."""
        pynvml = self._library
        try:
            return ask()
        except pynvml.NVMLError as error:
            gone = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_NOT_FOUND)
            problem = Problem.LOST if error.value in gone else Problem.OTHER
            raise NvmlUnavailable(problem, str(error).rstrip(".")) from error

    def _optional(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function answers, None where the GPU, or the driver's version, does not know it."""
        pynvml = self._library
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            if error.value in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_DRIVER_NOT_LOADED):
                raise
            return None

    def _gpu(self, handle: Any) -> Any:
        """Return the GPU that a slice is a part of, or the GPU itself."""
        parent = self._optional(self._library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle)
        return handle if parent is None else parent

    def _facts(self, gpu: Any, index: int, *, is_split: bool) -> GpuFacts:
        pynvml = self._library
        cuda = pynvml.nvmlSystemGetCudaDriverVersion()
        major, minor = self._optional(pynvml.nvmlDeviceGetCudaComputeCapability, gpu) or (0, 0)
        limit = self._optional(pynvml.nvmlDeviceGetEnforcedPowerLimit, gpu)
        return GpuFacts(
            index=index,
            uuid=pynvml.nvmlDeviceGetUUID(gpu),
            model=pynvml.nvmlDeviceGetName(gpu),
            memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(gpu).total),
            driver=pynvml.nvmlSystemGetDriverVersion(),
            cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
            capability=f"{major}.{minor}",
            power_limit_w=None if limit is None else limit / 1000,
            max_clock_mhz=self._optional(pynvml.nvmlDeviceGetMaxClockInfo, gpu, pynvml.NVML_CLOCK_SM),
            is_split=is_split,
        )

    def _slice(self, gpu: GpuFacts, part: Any, number: int) -> GpuFacts:
        pynvml = self._library
        return GpuFacts(
            index=gpu.index,
            uuid=pynvml.nvmlDeviceGetUUID(part),
            model=self._optional(pynvml.nvmlDeviceGetName, part) or f"{gpu.model} MIG",
            memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(part).total),
            driver=gpu.driver,
            cuda=gpu.cuda,
            capability=gpu.capability,
            power_limit_w=gpu.power_limit_w,
            max_clock_mhz=gpu.max_clock_mhz,
            slice_index=number,
        )


def throttles(bits: int) -> tuple[Throttle, ...]:
    """Return the reasons in a bit mask of NVML's, each once."""
    return tuple(dict.fromkeys(reason for bit, reason in _THROTTLE_BITS.items() if bits & bit))


def _name_of(pid: int) -> str:
    """Return what a process is called; one of another container has no name here."""
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return "a program that cannot be seen from here"


NVML = Nvml()
