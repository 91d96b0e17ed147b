"""The CPUs of the machine, as far as the affinity mask and the quota leave them to us."""

from __future__ import annotations

from tuner.devices import device


class Cpu(device.Device):
    """The CPU."""

    name = "cpu"

    def environment(self) -> dict[str, str]:
        """Return what hides GPUs: a build that can use one must not take the work away."""
        return {"CUDA_VISIBLE_DEVICES": "-1"}

    def identity(self) -> list[object]:
        """Return nothing: the machine's identity has it."""
        return []


DEVICE = Cpu()
