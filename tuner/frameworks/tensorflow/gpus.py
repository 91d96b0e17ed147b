"""The GPUs that TensorFlow sees, and why it sees none.

TensorFlow says nothing but that it "cannot dlopen some GPU libraries"; which ones it says only where its loader is
asked to talk (TF_CPP_VMODULE).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.errors import BadInputError
from tuner.frameworks import probing
from tuner.frameworks.tensorflow.build import SUBJECT, TensorFlowBuild

_LOADER_TALKS = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_MAX_VLOG_LEVEL": "0", "TF_CPP_VMODULE": "dso_loader=3"}
_NOT_LOADED = re.compile(r"Could not load dynamic library '([^']+)'")
_DRIVER = "libcuda.so"  # that of NVIDIA's driver, not of CUDA's toolkit
_INIT_FAILED = re.compile(r"(?:failed call to cuInit|could not retrieve CUDA device count): (?:INTERNAL: )?([^\n]+)")
_CPU_WHEELS = "tensorflow-cpu, and wheels for ARM, have no CUDA"


def seen(python: Path, env: Mapping[str, str], build: TensorFlowBuild) -> tuple[str, ...]:
    """Return the names of the GPUs that the TensorFlow of an interpreter sees in an environment.

    Raises BadInputError that explains why there is none.
    """
    if build.cuda is None:
        raise _without_cuda()
    facts, _ = probing.run_probe(python, {**env, **_LOADER_TALKS}, SUBJECT, {}, module="devices")
    if not facts["gpus"]:
        raise why_none(facts)
    return tuple(facts["gpus"])


def why_none(facts: Mapping[str, Any]) -> BadInputError:
    """Return why no GPU is seen, from what the target interpreter told (`child.devices`)."""
    if not facts["is_cuda_build"]:
        return _without_cuda()
    missing = list(dict.fromkeys(_NOT_LOADED.findall(facts["log"])))
    if any(name.startswith(_DRIVER) for name in missing):
        return _none(
            f"NVIDIA's driver is not there ({_DRIVER}.1 cannot be loaded)",
            "install the driver, or start the container with its GPUs (docker run --gpus all)",
        )
    if missing:
        return _none(
            f"{', '.join(missing)} cannot be loaded; this build is for CUDA {facts['cuda']} and cuDNN {facts['cudnn']}",
            "install tensorflow[and-cuda] there, or add the folder of these libraries to LD_LIBRARY_PATH",
        )
    failed = _INIT_FAILED.search(facts["log"])
    reason = failed[1].strip() if failed else facts["failed"]
    if reason:
        return _none(
            f"CUDA does not start: {reason}",
            f"this build is for CUDA {facts['cuda']}: compare with what nvidia-smi says of the driver",
        )
    return _none(
        "it gives no reason", "see the log of: python -c 'import tensorflow as tf; tf.config.list_physical_devices()'"
    )


def _without_cuda() -> BadInputError:
    return _none("it was built without CUDA", f"install tensorflow[and-cuda] there: {_CPU_WHEELS}")


def _none(reason: str, hint: str) -> BadInputError:
    return BadInputError(f"TensorFlow sees no GPU: {reason}", hint)
