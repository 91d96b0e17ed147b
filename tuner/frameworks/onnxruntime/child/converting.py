"""Converting TensorFlow's export of a workload into an ONNX file, by tf2onnx."""

from __future__ import annotations

import json
import logging
import os
from typing import Any, Dict, List

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
            "it must be converted with tf2onnx, which cannot be imported (%s)" % error,
            "install it in that environment: python -m pip install tf2onnx",
        ) from error
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    function = source.exported(dict(spec, folder=spec["from"]))
    with open(os.path.join(spec["from"], INPUTS)) as file:
        described = json.load(file)
    names = [each["name"] for each in described]
    signature = [tf.TensorSpec(each["shape"], each["dtype"], name=each["name"]) for each in described]
    step = tf.function(lambda *given: function(**dict(zip(names, given))), input_signature=signature, autograph=False)
    try:
        concrete = step.get_concrete_function()
        # Variables, and tensors that the function has from elsewhere, become constants: what is left are the inputs.
        frozen = convert_variables_to_constants_v2(concrete, lower_control_flow=False, aggressive_inlining=True)
        outputs = [tensor.name for tensor in frozen.outputs]
        renamed = dict(zip([tensor.name for tensor in frozen.inputs], names))
        renamed.update(zip(outputs, sorted(concrete.structured_outputs)))
        tf2onnx.convert.from_graph_def(
            frozen.graph.as_graph_def(add_shapes=True),
            input_names=[tensor.name for tensor in frozen.inputs],
            output_names=outputs,
            custom_op_handlers={"Erfc": (erfc, [])},
            tensors_to_rename=renamed,
            output_path=path,
        )
    except Exception as error:
        raise WorkloadError("tf2onnx cannot convert it: %s" % error, "use a framework that runs it as it is") from error


def erfc(graph: Any, node: Any, name: str, arguments: List[Any]) -> None:
    """Write TensorFlow's Erfc, which ONNX lacks and Keras's GELU uses, as 1 - Erf."""
    del arguments
    import numpy as np

    [x], [shape], [dtype] = node.input, node.output_shapes, node.output_dtypes
    graph.remove_node(node.name)
    one = graph.make_const(name + "_one", np.array(1, np.float32))
    erf = graph.make_node("Erf", [x])
    graph.make_node("Sub", [one.output[0], erf.output[0]], outputs=node.output, shapes=[shape], dtypes=[dtype])
