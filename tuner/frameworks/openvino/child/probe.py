"""Look at OpenVINO from inside the target interpreter; see `tuner.child.probe`."""

from __future__ import annotations

from typing import Any, Dict

from ....child import probe
from . import compiling

CONVERTERS = ("tensorflow", "tensorflow-cpu", "keras")


def describe(_: Dict[str, Any]) -> Dict[str, Any]:
    """Return what OpenVINO tells of itself and of its CPU device."""
    import openvino

    core = openvino.Core()
    return {
        "openvino": openvino.__version__.partition("-")[0],
        "default_precision": compiling.precision_name(core.get_property(compiling.DEVICE, compiling.PRECISION)),
        "capabilities": [str(each) for each in core.get_property(compiling.DEVICE, "OPTIMIZATION_CAPABILITIES")],
        "converters": probe.installed(CONVERTERS),
    }
