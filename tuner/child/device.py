"""What is asked of a device in the target interpreter: a module whose file a spec names."""

from __future__ import annotations

import importlib
import os
from typing import Optional, Protocol, cast

from .boot import mounted


class Device(Protocol):
    """A device. One whose module has `LEAST_WARM_UP_S` warms up for so long at least, after the first step."""

    def wait(self) -> None:
        """Return when all that was handed to the device has been computed; a slice ends with it."""

    def peak_memory(self) -> Optional[int]:
        """Return the most memory (bytes) that this process has held there since `reset_peak`; None where unknown."""

    def shared_memory(self) -> Optional[int]:
        """Return how much of that (bytes) other processes hold too; None where unknown."""

    def reset_peak(self) -> None:
        """Count the peak from what is held now."""


def load_device(path: str) -> Device:
    """Return the device whose child code is a file."""
    folder, file = os.path.split(path)
    return cast("Device", importlib.import_module("%s.%s" % (mounted(folder), os.path.splitext(file)[0])))
