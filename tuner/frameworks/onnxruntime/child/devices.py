"""Look at what a session on a GPU becomes in the target interpreter, and write it as JSON to OUT.

    devices OUT PARENT_PID {}

What ONNX Runtime logs meanwhile is told too: only there it says why it falls back to the CPU.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any, Dict, List

from ....child import probe_result
from . import session


def describe(_: Dict[str, Any]) -> Dict[str, Any]:
    """Return the execution providers that a session has which asks for a GPU, and what was logged."""
    import onnxruntime
    from onnxruntime import datasets

    with tempfile.TemporaryFile() as log:
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            providers = onnxruntime.InferenceSession(
                datasets.get_example("sigmoid.onnx"), providers=[session.CUDA_PROVIDER, session.CPU_PROVIDER]
            ).get_providers()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        log.seek(0)
        text = log.read().decode(errors="replace")
    return {"providers": providers, "log": text}


def main(arguments: List[str]) -> None:
    """Look, and write."""
    probe_result.write(arguments, describe)
