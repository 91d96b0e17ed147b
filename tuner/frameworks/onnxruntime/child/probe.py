"""Look at ONNX Runtime from inside the target interpreter; see `tuner.child.probe`.

The plan of `describe` are experiments: `low`, session options and their values, and `changes`, what is set differently
in each experiment, or null where nothing is set.
"""

from __future__ import annotations

import functools
from typing import Any, Dict, Optional

from ....child import fork, probe
from . import session

CONVERTERS = ("tensorflow", "tensorflow-cpu", "keras", "tf2onnx")


def observe(low: Dict[str, str], changes: Optional[Dict[str, str]]) -> Dict[str, Any]:
    """Return what a session with these options does; in a fork."""
    return dict(session.observe({} if changes is None else dict(low, **changes)), changes=changes)


def describe(experiments: Dict[str, Any]) -> Dict[str, Any]:
    """Return what ONNX Runtime and the experiments tell."""
    import onnxruntime

    observations = [
        fork.in_a_fork(functools.partial(observe, experiments["low"], each)) for each in experiments["changes"]
    ]
    return {
        "onnxruntime": onnxruntime.__version__,
        "providers": onnxruntime.get_available_providers(),
        "converters": probe.installed(CONVERTERS),
        "observations": [observation for observation in observations if observation is not None],
    }


def devices(_: Dict[str, Any]) -> Dict[str, Any]:
    """Return the execution providers that a session has which asks for a GPU, and what was logged meanwhile.

    Only there it says why it falls back to the CPU.
    """
    import onnxruntime
    from onnxruntime import datasets

    with probe.logged() as log:
        providers = onnxruntime.InferenceSession(
            datasets.get_example("sigmoid.onnx"), providers=[session.CUDA_PROVIDER, session.CPU_PROVIDER]
        ).get_providers()
    return {"providers": providers, "log": log[0]}
