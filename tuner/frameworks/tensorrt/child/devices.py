"""Look whether TensorRT's builder starts on the GPU of the target interpreter, and write it as JSON to OUT.

devices OUT PARENT_PID {}
"""

from __future__ import annotations

from typing import Any, Dict, List

from ....child import probe_result
from . import engine


def describe(_: Dict[str, Any]) -> Dict[str, Any]:
    """Return whether there is a builder, and what TensorRT logged meanwhile."""
    import tensorrt

    log = engine.new_log()
    try:
        works = tensorrt.Builder(log) is not None
    except (TypeError, RuntimeError) as error:  # what it raises where the builder is null
        log.lines.append(str(error)) if not log.lines else None
        works = False
    return {"works": works, "log": log.lines}


def main(arguments: List[str]) -> None:
    """Look, and write."""
    probe_result.write(arguments, describe)
