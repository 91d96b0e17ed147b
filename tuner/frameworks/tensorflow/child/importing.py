"""Importing TensorFlow, which is most of what the start of a process takes."""

from __future__ import annotations

import gc
import sys
from typing import Any


def tensorflow() -> Any:
    """Import TensorFlow, without looking for garbage in what is still being made: 2.9 s instead of 3.5 s on two cores.

    What was put off is done once, at the end, so that no later step pays for it.
    """
    if "tensorflow" in sys.modules:  # of the process that this one was forked from
        return sys.modules["tensorflow"]
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        import tensorflow as tf
    finally:
        gc.collect()
        if was_enabled:
            gc.enable()
    return tf
