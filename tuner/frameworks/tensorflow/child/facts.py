"""What TensorFlow itself tells of this process; nothing here starts anything of it."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional

from ....child import effective
from ....devices.child import nvidia


def fork_refusal() -> Optional[str]:
    """Return why this process is no good as a template to be forked after TensorFlow's import, or None."""
    try:
        from tensorflow.python.eager import context

        current = context._context
    except (ImportError, AttributeError) as error:
        return "cannot find out whether this TensorFlow has created its context (%s)" % error
    if current is not None and getattr(current, "_initialized", True):
        return "importing this TensorFlow already creates its context"
    if any("/libcuda.so" in path for path in effective.mapped()):
        return "importing TensorFlow there already loads the CUDA driver"
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            opened = os.readlink("/proc/self/fd/" + descriptor)
        except OSError:
            continue
        if opened.startswith("/dev/nvidia"):
            return "importing TensorFlow there already opens " + opened
    return None


def onednn_is_on() -> Optional[bool]:
    """Return whether TensorFlow hands operators to oneDNN, None where it does not tell."""
    try:
        from tensorflow.python.util import _pywrap_util_port

        return bool(_pywrap_util_port.IsMklEnabled())
    except (ImportError, AttributeError):
        return None


def tf32_is_allowed() -> bool:
    """Return whether a GPU that has TF32 may use it for single precision."""
    import tensorflow as tf

    return bool(tf.config.experimental.tensor_float_32_execution_enabled()) and nvidia.tf32_is_allowed()


def getters() -> Dict[str, int]:
    """Return the threads that code has set for each pool, 0 where none has."""
    import tensorflow as tf

    return {
        "inter_op": tf.config.threading.get_inter_op_parallelism_threads(),
        "intra_op": tf.config.threading.get_intra_op_parallelism_threads(),
    }


def options() -> Dict[str, Any]:
    """Return what code may set of how graphs run, pools of threads aside, by the function that sets it."""
    import tensorflow as tf
    from tensorflow.python.framework import config

    return {
        "set_jit": tf.config.optimizer.get_jit(),
        "set_experimental_options": tf.config.optimizer.get_experimental_options(),
        "enable_op_determinism": config.is_op_determinism_enabled(),
        "run_functions_eagerly": tf.config.functions_run_eagerly(),
        "sched_setaffinity": sorted(os.sched_getaffinity(0)),
    }


def state(log: str) -> Dict[str, Any]:
    """Return what has taken effect of what only TensorFlow knows of; `log` is what the process printed."""
    import tensorflow as tf

    return {
        "getters": getters(),
        "onednn": onednn_is_on(),
        "tf32": tf32_is_allowed(),
        "mixed_precision": bool(tf.config.optimizer.get_experimental_options().get("auto_mixed_precision")),
        "xla": "Compiled cluster using XLA" in log,
    }
