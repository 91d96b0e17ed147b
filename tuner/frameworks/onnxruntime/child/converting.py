"""Converting TensorFlow's export of a workload into an ONNX file, by tf2onnx."""

from __future__ import annotations

import json
import logging
import os
from typing import Any, Dict

from ....child.inputs import INPUTS, WorkloadError
from ...tensorflow.child import source


def convert(spec: Dict[str, Any], path: str) -> None:
    """Convert the export in the folder `from` of a spec into an ONNX file; raises WorkloadError where that fails.

    An operator that tf2onnx does not know stays in the file under its own name: what loads it refuses it by that.
    """
    try:
        import tf2onnx
    except ImportError as error:
        raise WorkloadError(
            "it has to be converted by tf2onnx, which cannot be imported (%s)" % error,
            "install it in that environment: python -m pip install tf2onnx",
        ) from error
    import tensorflow as tf

    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    function = source.exported(dict(spec, folder=spec["from"]))
    with open(os.path.join(spec["from"], INPUTS)) as file:
        described = json.load(file)
    names = [each["name"] for each in described]
    signature = [tf.TensorSpec(each["shape"], each["dtype"], name=each["name"]) for each in described]
    step = tf.function(lambda *given: function(**dict(zip(names, given))), input_signature=signature, autograph=False)
    try:
        tf2onnx.convert.from_function(step, input_signature=signature, output_path=path)
    except Exception as error:
        raise WorkloadError("tf2onnx cannot convert it: %s" % error, "use a framework that runs it as it is") from error
