"""Look at OpenVINO from inside the target interpreter and write what is there as JSON to OUT.

probe OUT PARENT_PID {}
"""

from __future__ import annotations

from typing import Any, Dict, List

from ....child import probe_result
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
        "converters": probe_result.installed(CONVERTERS),
    }


def main(arguments: List[str]) -> None:
    """Look, and write."""
    probe_result.write(arguments, describe)
