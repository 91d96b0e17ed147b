"""Look at what a session on a GPU becomes in the target interpreter, and write it as JSON to OUT.

    devices OUT PARENT_PID {}

What ONNX Runtime logs meanwhile is told too: only there it says why it falls back to the CPU.
"""

from __future__ import annotations

from typing import Any, Dict, List

from ....child import probe_result
from . import session


def describe(_: Dict[str, Any]) -> Dict[str, Any]:
    """Return the execution providers that a session has which asks for a GPU, and what was logged."""
    import onnxruntime
    from onnxruntime import datasets

    with probe_result.logged() as log:
        providers = onnxruntime.InferenceSession(
            datasets.get_example("sigmoid.onnx"), providers=[session.CUDA_PROVIDER, session.CPU_PROVIDER]
        ).get_providers()
    return {"providers": providers, "log": log[0]}


def main(arguments: List[str]) -> None:
    """Look, and write."""
    probe_result.write(arguments, describe)
