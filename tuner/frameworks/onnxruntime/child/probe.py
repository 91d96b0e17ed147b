"""Look at ONNX Runtime from inside the target interpreter and write what is there as JSON to OUT.

    probe OUT PARENT_PID EXPERIMENTS

EXPERIMENTS is a JSON object: `low`, session options and their values, and `changes`, what is set differently in each
experiment, or null where nothing is set.
"""

from __future__ import annotations

import functools
from typing import Any, Dict, List, Optional

from ....child import fork, probe_result
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
        "converters": probe_result.installed(CONVERTERS),
        "observations": [observation for observation in observations if observation is not None],
    }


def main(arguments: List[str]) -> None:
    """Look, and write."""
    probe_result.write(arguments, describe)
