"""NVIDIA's GPUs, and MIG slices of them: its management library, and its words.

A trial sees its GPU by the full name: numbers mean other GPUs where CUDA's own order is not that of `nvidia-smi`. The
package nvidia-ml-py (`pip install 'tftune[gpu]'`) binds the library, which the driver brings. It is imported when a GPU
is asked about. What a GPU, a slice of it, or a virtual machine does not tell is None.

Sources: NVML API reference, https://docs.nvidia.com/deploy/nvml-api/; CUDA Programming Guide, Environment Variables
(CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER); NVIDIA Multi-Instance GPU User Guide.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.devices.device import Container
from tuner.devices.gpu import (
    Gpu,
    GpuFacts,
    GpuProcess,
    GpuState,
    GpuUnreadable,
    Problem,
    Throttle,
    program_name,
)

NVIDIA = "NVIDIA"
TF32_VARIABLE = "NVIDIA_TF32_OVERRIDE"
"""What its libraries read, whatever framework calls them: 0 keeps them from rounding to TF32."""
_TF32_SINCE = 8  # the compute capability of Ampere
_MAX_SLICES = 7  # of one GPU
_SLICE = "MIG-"
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


class Nvml:
    """The reader of the real library."""

    def gpus(self) -> list[GpuFacts]:
        """Return all GPUs, each followed by its slices."""
        with self._asking() as pynvml:
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

    def state(self, uuid: str) -> GpuState:
        """Return the state of a GPU or slice."""
        with self._asking() as pynvml:
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
                    GpuProcess(pid=each.pid, name=program_name(each.pid), memory_bytes=each.usedGpuMemory)
                    for each in running
                ),
            )

    def energy_j(self, uuid: str) -> float | None:
        """Return the energy (J) that the GPU has taken since its driver was loaded."""
        with self._asking() as pynvml:
            gpu = self._gpu(pynvml.nvmlDeviceGetHandleByUUID(uuid))
            millijoules = self._optional(pynvml.nvmlDeviceGetTotalEnergyConsumption, gpu)
            return None if millijoules is None else millijoules / 1000

    @functools.cached_property
    def _library(self) -> Any:
        """Return the initialised package; raises GpuUnreadable."""
        try:
            import pynvml
        except ImportError as error:
            raise GpuUnreadable(Problem.NO_PACKAGE, "the package nvidia-ml-py is not installed") from error
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            text = str(error).rstrip(".")
            raise GpuUnreadable(Problem.NO_DRIVER, f"NVIDIA's driver does not answer: {text}") from error
        return pynvml

    @contextlib.contextmanager
    def _asking(self) -> Iterator[Any]:
        """Yield the package; raises GpuUnreadable where what is asked of it fails."""
        pynvml = self._library
        try:
            yield pynvml
        except pynvml.NVMLError as error:
            gone = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_NOT_FOUND)
            problem = Problem.LOST if error.value in gone else Problem.OTHER
            raise GpuUnreadable(problem, str(error).rstrip(".")) from error

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
            versions={"cuda": f"{cuda // 1000}.{cuda % 1000 // 10}"},
            capability=f"{major}.{minor}",
            power_limit_w=None if limit is None else limit / 1000,
            max_clock_mhz=self._optional(pynvml.nvmlDeviceGetMaxClockInfo, gpu, pynvml.NVML_CLOCK_SM),
            is_split=is_split,
        )

    def _slice(self, gpu: GpuFacts, part: Any, number: int) -> GpuFacts:
        pynvml = self._library
        return replace(
            gpu,
            uuid=pynvml.nvmlDeviceGetUUID(part),
            model=self._optional(pynvml.nvmlDeviceGetName, part) or f"{gpu.model} MIG",
            memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(part).total),
            slice_index=number,
            is_split=False,
        )


def throttles(bits: int) -> tuple[Throttle, ...]:
    """Return the reasons in a bit mask of NVML's, each once."""
    return tuple(dict.fromkeys(reason for bit, reason in _THROTTLE_BITS.items() if bits & bit))


NVML = Nvml()


class NvidiaGpu(Gpu):
    """A GPU, or a MIG slice."""

    child = Path(__file__).parent / "child/nvidia.py"
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
    maker = NVIDIA
    visible = "CUDA_VISIBLE_DEVICES"
    out_of_memory = ("CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
    advice: Mapping[str, str] = {"GPU throttled": "nvidia-smi -lgc"}  # not changed
    profiling = "NVIDIA calls the lack of that right ERR_NVGPUCTRPERM"
    reader = NVML
    uuids = ("GPU-", _SLICE)
    part = "MIG slice"
    split = "in MIG mode"
    tool = "nvidia-smi"
    hints: Mapping[Problem, str] = {  # not changed
        Problem.NO_PACKAGE: "install it: pip install nvidia-ml-py",
        Problem.NO_DRIVER: "install NVIDIA's driver, or start the container with its GPUs (docker run --gpus all)",
        Problem.LOST: "see dmesg; restart the machine, or choose another --device",
        Problem.OTHER: "see the output of nvidia-smi",
    }
    shared_by = "sudo nvidia-smi -c DEFAULT"
    metered = "Volta and newer have a counter"

    def versions(self, described: Mapping[str, Any]) -> list[str]:
        """Return the newest CUDA that the driver serves, and the compute capability."""
        return [f"for CUDA up to {described['cuda']}", f"compute capability {described['capability']}"]

    def showing(self, place: str) -> dict[str, str]:
        """Return what shows one alone, by its UUID or by nvidia-smi's number."""
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **super().showing(place)}

    def container(self, place: str) -> Container:
        """Return how its container toolkit and its device plugin are asked for one.

        The plugin chooses which; a node with other GPUs than what was measured needs a nodeSelector.
        """
        is_slice = place.startswith(_SLICE)
        note = "It was measured on a MIG slice: ask for its kind, such as nvidia.com/mig-1g.10gb."
        return Container(
            docker=f"--gpus device={place}",
            compose=(
                "deploy:",
                "  resources:",
                "    reservations:",
                f"      devices: [{{driver: nvidia, device_ids: [{json.dumps(place)}], capabilities: [gpu]}}]",
            ),
            kubernetes="YOUR_MIG_RESOURCE" if is_slice else "nvidia.com/gpu",
            note=note if is_slice else "",
        )

    def has_tf32(self) -> bool:
        """Return whether its tensor cores take TF32: those of Ampere, and later ones."""
        return int(self.facts.capability.partition(".")[0]) >= _TF32_SINCE


DEVICE = NvidiaGpu()
