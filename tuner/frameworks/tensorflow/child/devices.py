"""Look at the GPUs that TensorFlow sees in the target interpreter, and write what is there as JSON to OUT.

    devices OUT PARENT_PID {}

What TensorFlow logs meanwhile is told too: it names the libraries that it could not load.
"""

from __future__ import annotations

from typing import Any, Dict, List

from ....child import probe_result
from . import importing


def describe(_: Dict[str, Any]) -> Dict[str, Any]:
    """Return the names of the GPUs that TensorFlow sees, what it was built for, and what it logged."""
    details, failed = [], ""
    with probe_result.logged() as log:
        tf = importing.tensorflow()
        try:
            gpus = tf.config.list_physical_devices("GPU")
            details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
        except tf.errors.InternalError as error:
            failed = str(error)
    build = tf.sysconfig.get_build_info()
    return {
        "gpus": [each.get("device_name", "GPU") for each in details],
        "is_cuda_build": bool(build.get("is_cuda_build")),
        "cuda": build.get("cuda_version"),
        "cudnn": build.get("cudnn_version"),
        "failed": failed,
        "log": log[0],
    }


def main(arguments: List[str]) -> None:
    """Look, and write."""
    probe_result.write(arguments, describe)
