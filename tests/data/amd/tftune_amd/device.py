"""AMD's GPUs: what its management library tells of them, and its words.

Sources: AMD SMI Python API reference; HIP, Environment variables (HIP_VISIBLE_DEVICES); ROCm installation, Running ROCm
Docker containers; Kubernetes, AMD GPU device plugin.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.devices.device import Container
from tuner.devices.gpu import Gpu, GpuFacts, GpuProcess, GpuState, GpuUnreadable, Problem, program_name

_MIB = 1 << 20
_HINT = "see what amd-smi says"


class AmdSmi:
    """The reader of the library's own binding, which comes with ROCm."""

    @functools.cached_property
    def _library(self) -> Any:
        try:
            import amdsmi
        except ImportError as error:
            raise GpuUnreadable(Problem.NO_PACKAGE, "the package amdsmi is not installed") from error
        try:
            amdsmi.amdsmi_init()
        except amdsmi.AmdSmiException as error:
            raise GpuUnreadable(Problem.NO_DRIVER, f"AMD's driver does not answer: {error}") from error
        return amdsmi

    @property
    def _cards(self) -> dict[str, Any]:
        """Return the handle of each GPU by the name that HIP has for it."""
        amdsmi = self._library
        try:
            handles = amdsmi.amdsmi_get_processor_handles()
            return {f"GPU-{amdsmi.amdsmi_get_gpu_asic_info(each)['asic_serial'].lower()[2:]}": each for each in handles}
        except amdsmi.AmdSmiException as error:
            raise GpuUnreadable(Problem.LOST, str(error)) from error

    def gpus(self) -> list[GpuFacts]:
        """Return all GPUs."""
        amdsmi, facts = self._library, []
        for index, (uuid, card) in enumerate(self._cards.items()):
            asic = amdsmi.amdsmi_get_gpu_asic_info(card)
            facts.append(
                GpuFacts(
                    index=index,
                    uuid=uuid,
                    model=asic["market_name"],
                    memory_bytes=amdsmi.amdsmi_get_gpu_vram_usage(card)["vram_total"] * _MIB,
                    driver=amdsmi.amdsmi_get_gpu_driver_info(card)["driver_version"],
                    capability=asic["target_graphics_version"],
                    power_limit_w=amdsmi.amdsmi_get_power_cap_info(card)["power_cap"] / 1e6,
                    max_clock_mhz=amdsmi.amdsmi_get_clock_info(card, amdsmi.AmdSmiClkType.GFX)["max_clk"],
                )
            )
        return facts

    def state(self, uuid: str) -> GpuState:
        """Return the state of a GPU."""
        amdsmi, card = self._library, self._cards[uuid]
        memory = amdsmi.amdsmi_get_gpu_vram_usage(card)
        processes = amdsmi.amdsmi_get_gpu_process_list(card)
        return GpuState(
            free_bytes=(memory["vram_total"] - memory["vram_used"]) * _MIB,
            used_bytes=memory["vram_used"] * _MIB,
            clock_mhz=amdsmi.amdsmi_get_clock_info(card, amdsmi.AmdSmiClkType.GFX)["clk"],
            power_w=amdsmi.amdsmi_get_power_info(card)["average_socket_power"],
            temperature_c=amdsmi.amdsmi_get_temp_metric(
                card, amdsmi.AmdSmiTemperatureType.HOTSPOT, amdsmi.AmdSmiTemperatureMetric.CURRENT
            ),
            throttle=(),
            processes=tuple(
                GpuProcess(pid=each["pid"], name=program_name(each["pid"]), memory_bytes=each["mem"])
                for each in processes
            ),
        )

    def energy_j(self, uuid: str) -> float | None:
        """Return the energy (J) that a GPU has taken since its driver was loaded."""
        told = self._library.amdsmi_get_energy_count(self._cards[uuid])
        return float(told["energy_accumulator"] * told["counter_resolution"] / 1e6)


class AmdGpu(Gpu):
    """A GPU."""

    root = "amd"
    child = Path(__file__).parent / "child/amd.py"
    timing_prefixes = ("HIP_LAUNCH_", "HSA_", "MIOPEN_", "ROCBLAS_")
    maker = "AMD"
    visible = "HIP_VISIBLE_DEVICES"
    out_of_memory = ("hipErrorOutOfMemory",)
    advice: Mapping[str, str] = {"GPU throttled": "amd-smi set --perf-level STABLE_PEAK"}
    reader = AmdSmi()
    tool = "amd-smi"
    hints: Mapping[Problem, str] = {
        Problem.NO_PACKAGE: "install it from ROCm's folder: pip install /opt/rocm/share/amd_smi",
        Problem.NO_DRIVER: "load amdgpu, or start the container with --device /dev/kfd --device /dev/dri",
        Problem.LOST: _HINT,
        Problem.OTHER: _HINT,
    }

    def versions(self, described: Mapping[str, Any]) -> list[str]:
        """Return the target that kernels are compiled for."""
        return [f"target {described['capability']}"]

    def container(self, place: str) -> Container:
        """Return how a container is given the driver with all GPUs, of which a variable shows one."""
        return Container(
            docker="--device /dev/kfd --device /dev/dri",
            compose=("devices: [/dev/kfd, /dev/dri]",),
            kubernetes="amd.com/gpu",
            env=self.showing(place),
        )


DEVICE = AmdGpu()
