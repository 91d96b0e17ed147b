"""A GPU of AMD's in the target interpreter; see `tuner.child.adapter.Device`.

Sources: HIP Runtime API reference (hipDeviceSynchronize); Linux kernel, DRM client usage stats (drm-memory-vram).
"""

import contextlib
import ctypes
from pathlib import Path

from tftune.child.cpu import reset_peak

__all__ = ["peak_memory", "reset_peak", "shared_memory", "wait"]


def wait():
    """Return when all that was handed to the GPU has been computed; there is nothing where HIP is not."""
    with contextlib.suppress(OSError):
        ctypes.CDLL("libamdhip64.so").hipDeviceSynchronize()


def peak_memory():
    """Return how much of the GPU's memory (bytes) this process holds; None where the kernel does not tell."""
    held = []
    for path in Path("/proc/self/fdinfo").iterdir():
        with contextlib.suppress(OSError), path.open() as file:
            held += [1024 * int(line.split()[1]) for line in file if line.startswith("drm-memory-vram:")]
    return sum(held) if held else None


def shared_memory():
    """Return 0: processes share nothing on a GPU."""
    return 0
