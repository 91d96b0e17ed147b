"""The device of `tftune_numpy.counted` in the target interpreter; see `tuner.child.adapter.Device`."""

import os

from tftune.child.cpu import reset_peak, shared_memory, wait

__all__ = ["peak_memory", "reset_peak", "shared_memory", "wait"]


def peak_memory():
    """Return what the environment says."""
    return int(os.environ["TFTUNE_COUNTED"])
