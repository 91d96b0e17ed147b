"""Look at OpenVINO from inside the target interpreter and write what is there as JSON to OUT.

probe OUT PARENT_PID {}
"""

from __future__ import annotations

import importlib.metadata
from typing import Any, Dict, List, Optional

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
        "converters": {name: version for name in CONVERTERS if (version := installed(name)) is not None},
    }


def installed(name: str) -> Optional[str]:
    """Return the version of a package without importing it, None where it is not there."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def main(arguments: List[str]) -> None:
    """Look, and write."""
    probe_result.write(arguments, describe)
