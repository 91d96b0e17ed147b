"""Look at TensorRT from inside the target interpreter and write what is there as JSON to OUT.

probe OUT PARENT_PID {}
"""

from __future__ import annotations

from typing import Any, Dict, List

from ....child import probe_result

CONVERTERS = ("tensorflow", "tensorflow-cpu", "keras", "tf2onnx")


def describe(_: Dict[str, Any]) -> Dict[str, Any]:
    """Return the versions of TensorRT and of what makes an ONNX file for it."""
    import tensorrt

    return {"tensorrt": tensorrt.__version__, "converters": probe_result.installed(CONVERTERS)}


def main(arguments: List[str]) -> None:
    """Look, and write."""
    probe_result.write(arguments, describe)
