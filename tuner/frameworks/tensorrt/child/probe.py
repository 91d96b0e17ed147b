"""Look at TensorRT from inside the target interpreter; see `tuner.child.probe`."""

from __future__ import annotations

from typing import Any, Dict

from ....child import probe
from . import engine

CONVERTERS = ("tensorflow", "tensorflow-cpu", "keras", "tf2onnx")


def describe(_: Dict[str, Any]) -> Dict[str, Any]:
    """Return the versions of TensorRT and of what makes an ONNX file for it."""
    import tensorrt

    return {"tensorrt": tensorrt.__version__, "converters": probe.installed(CONVERTERS)}


def devices(_: Dict[str, Any]) -> Dict[str, Any]:
    """Return whether its builder starts on the GPU, and what TensorRT logged meanwhile."""
    import tensorrt

    log = engine.new_log()
    try:
        works = tensorrt.Builder(log) is not None
    except (TypeError, RuntimeError) as error:  # what it raises where the builder is null
        log.lines.append(str(error)) if not log.lines else None
        works = False
    return {"works": works, "log": log.lines}
