"""Whether ONNX Runtime can use a GPU, and why it cannot: it falls back to the CPU, and says why in its log only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.errors import BadInputError
from tuner.frameworks import probing
from tuner.frameworks.onnxruntime.build import SUBJECT, OnnxRuntimeBuild
from tuner.frameworks.onnxruntime.child.session import CUDA_PROVIDER

_NOT_LOADED = re.compile(r"error: (lib[^:\s]+): cannot open shared object file")
_FAILED = re.compile(r"CUDA failure \d+: ([^;\n]+)")
_NEEDS = re.compile(r"Require (cuDNN [^,]+(?:,| and) CUDA [\d*]+(?:\.[\d*]+)*)")
_INSTALL = "install onnxruntime-gpu there in place of onnxruntime"


def seen(python: Path, env: Mapping[str, str], build: OnnxRuntimeBuild) -> tuple[str, ...]:
    """Return what the ONNX Runtime of an interpreter calls the GPU that it can use in an environment.

    Raises BadInputError that explains why it cannot.
    """
    if CUDA_PROVIDER not in build.providers:
        raise _none("it was built without CUDA", _INSTALL)
    facts, _ = probing.run_probe(python, env, SUBJECT, {}, module="devices")
    if CUDA_PROVIDER not in facts["providers"]:
        raise why_none(facts)
    return (CUDA_PROVIDER,)


def why_none(facts: Mapping[str, Any]) -> BadInputError:
    """Return why no GPU is used, from what the target interpreter told (`child.devices`)."""
    missing = list(dict.fromkeys(_NOT_LOADED.findall(facts["log"])))
    needs = _NEEDS.search(facts["log"])
    if missing:
        of_build = f"; this build needs {needs[1]}" if needs else ""
        return _none(
            f"{', '.join(missing)} cannot be loaded{of_build}",
            "install onnxruntime-gpu[cuda,cudnn] there, or add the folder of these libraries to LD_LIBRARY_PATH",
        )
    failed = _FAILED.search(facts["log"])
    if failed:
        return _none(f"CUDA does not start: {failed[1].strip()}", "compare with what nvidia-smi says of the driver")
    return _none("it gives no reason", "see what it logs when a session asks for CUDAExecutionProvider")


def _none(reason: str, hint: str) -> BadInputError:
    return BadInputError(f"ONNX Runtime sees no GPU: {reason}", hint)
