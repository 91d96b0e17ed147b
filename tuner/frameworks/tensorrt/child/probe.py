"""Look at TensorRT from inside the target interpreter and write what is there as JSON to OUT.

probe OUT PARENT_PID {}
"""

from __future__ import annotations

import importlib.metadata
from typing import Any, Dict, List, Optional

from ....child import probe_result

CONVERTERS = ("tensorflow", "tensorflow-cpu", "keras", "tf2onnx")


def describe(_: Dict[str, Any]) -> Dict[str, Any]:
    """Return the versions of TensorRT and of what makes an ONNX file for it."""
    import tensorrt

    converters = {name: version for name in CONVERTERS if (version := installed(name)) is not None}
    return {"tensorrt": tensorrt.__version__, "converters": converters}


def installed(name: str) -> Optional[str]:
    """Return the version of a package without importing it, None where it is not there."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def main(arguments: List[str]) -> None:
    """Look, and write."""
    probe_result.write(arguments, describe)
