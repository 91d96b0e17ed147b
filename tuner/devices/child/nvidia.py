"""A CUDA device in the target interpreter, by the driver's own libraries; see `adapter.Device`.

The process sees one GPU, which is CUDA's number 0 here. Frameworks compute in its *primary context*, so that waiting
for that context waits for whatever they handed over.

Sources: CUDA Driver API reference (cuda.h), NVML API reference (nvml.h), PTX ISA.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Optional

SUCCESS = 0
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
NOT_AVAILABLE = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE
MAX_PROCESSES = 256
LEAST_WARM_UP_S = 1.5  # an idle GPU's clocks take about a second to rise


class DriverError(Exception):
    """CUDA's driver refused a call."""


class NvmlProcess(ctypes.Structure):
    """nvmlProcessInfo_v2_t, which version 3 of the function has too."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Driver:
    """CUDA's driver in this process, which has to be initialised already or is now."""

    def __init__(self) -> None:
        """Load and initialise it; raises OSError or DriverError."""
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function of the driver; raises DriverError where it does not succeed."""
        code = getattr(self.library, function)(*arguments)
        if code == OUT_OF_MEMORY:
            raise MemoryError("%s: the memory of the GPU does not hold it" % function)
        if code != SUCCESS:
            name = ctypes.c_char_p()
            self.library.cuGetErrorName(code, ctypes.byref(name))
            raise DriverError("%s: %s" % (function, (name.value or b"error %d" % code).decode()))

    def has_context(self) -> bool:
        """Return whether anything in this process has made the primary context."""
        flags, active = ctypes.c_uint(), ctypes.c_int()
        self.call("cuDevicePrimaryCtxGetState", self.device, ctypes.byref(flags), ctypes.byref(active))
        return bool(active.value)

    def enter(self) -> None:
        """Make the primary context this thread's own."""
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.call("cuCtxPushCurrent_v2", context)

    def leave(self) -> None:
        """Give it back."""
        context = ctypes.c_void_p()
        self.call("cuCtxPopCurrent_v2", ctypes.byref(context))
        self.call("cuDevicePrimaryCtxRelease_v2", self.device)


_driver: Optional[Driver] = None


def driver() -> Driver:
    """Return the driver, loaded when it is first asked for."""
    global _driver
    if _driver is None:
        _driver = Driver()
    return _driver


def wait() -> None:
    """Return when all that was handed to the GPU has been computed; raises DriverError where that failed."""
    if not driver().has_context():
        return
    driver().enter()
    try:
        driver().call("cuCtxSynchronize")
    finally:
        driver().leave()


def peak_memory() -> Optional[int]:
    """Return how much of the GPU's memory (bytes) this process holds, its context and libraries included.

    Frameworks give nothing back, so that it is the most that they have needed. None where the driver does not tell, as
    in a container that numbers processes in its own way.
    """
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() != SUCCESS:
            return None
        handle = ctypes.c_void_p()
        uuid = os.environ.get("CUDA_VISIBLE_DEVICES", "").encode()
        if nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)) != SUCCESS:
            return None
        count, processes = ctypes.c_uint(MAX_PROCESSES), (NvmlProcess * MAX_PROCESSES)()
        if nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), processes) != SUCCESS:
            return None
    except (OSError, AttributeError):
        return None
    own = [each.used_bytes for each in processes[: count.value] if each.pid == os.getpid()]
    return None if not own or own[0] == NOT_AVAILABLE else int(own[0])


def shared_memory() -> Optional[int]:
    """Return 0: processes share nothing on a GPU."""
    return 0


def reset_peak() -> None:
    """Do nothing: what was taken is kept."""


def tf32_is_allowed() -> bool:
    """Return whether NVIDIA's libraries may round factors of single precision to TF32 in this process."""
    return os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"
