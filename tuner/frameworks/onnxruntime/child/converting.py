"""Converting TensorFlow's export of a workload into an ONNX file, by tf2onnx."""

from __future__ import annotations

import gc
import logging
from typing import Any, Dict, List, NamedTuple, Set

from ....child.inputs import WorkloadError
from ...tensorflow.child import importing, source

LARGE_BYTES = 1 << 20
WEIGHTED = {"MatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "Conv2D", "DepthwiseConv2dNative", "GatherV2"}


def convert(spec: Dict[str, Any], path: str) -> None:
    """Convert the export in the folder `from` of a spec into an ONNX file; raises WorkloadError where that fails.

    An operator that tf2onnx does not know stays in the file under its own name: what loads it refuses it by that. Large
    constants pass tf2onnx by, which otherwise copies them until 24 GB do not suffice for the 0.6 GB of VGG-19.
    """
    importing.tensorflow()  # before tf2onnx does
    try:
        import tf2onnx
    except ImportError as error:
        raise WorkloadError(
            "it must be converted with tf2onnx, which cannot be imported (%s)" % error,
            "install it in that environment: python -m pip install tf2onnx",
        ) from error
    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    frozen = None
    try:
        frozen = freeze(spec)
        gc.collect()  # the function and its variables
        large = taken_out(frozen.graph)
        model, _ = tf2onnx.convert.from_graph_def(
            frozen.graph,
            input_names=list(frozen.inputs) + list(large),
            output_names=list(frozen.outputs),
            custom_op_handlers={"Erfc": (erfc, [])},
            tensors_to_rename=dict(frozen.inputs, **frozen.outputs),
        )
        put_back(model, large)
        with open(path, "wb") as file:
            file.write(model.SerializeToString())
    except MemoryError:
        raise
    except Exception as error:
        reason = (frozen and types_without_operators(frozen.graph)) or str(error)
        raise WorkloadError(
            "tf2onnx cannot convert it: %s" % reason, "use a framework that runs it as it is"
        ) from error


class Frozen(NamedTuple):
    """A graph without variables, and what the tensors of its inputs and outputs are to be called."""

    graph: Any
    inputs: Dict[str, str]
    outputs: Dict[str, str]


def freeze(spec: Dict[str, Any]) -> Frozen:
    """Return the graph of the export in the folder `from` of a spec, its variables made constants."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    concrete, names = source.traced(spec["from"], spec)
    # Variables, and tensors that the function has from elsewhere, become constants: what is left are the inputs.
    frozen = convert_variables_to_constants_v2(concrete, lower_control_flow=False, aggressive_inlining=True)
    return Frozen(
        graph=frozen.graph.as_graph_def(add_shapes=True),
        inputs=dict(zip([tensor.name for tensor in frozen.inputs], names)),
        outputs=dict(zip([tensor.name for tensor in frozen.outputs], sorted(concrete.structured_outputs))),
    )


def types_without_operators(graph: Any) -> str:
    """Return which operators of a graph compute in a type that ONNX has few operators for; "" where none does."""
    import tensorflow as tf

    names: Dict[str, Set[str]] = {}
    for node in graph.node:
        for attribute in node.attr.values():
            dtype = tf.as_dtype(attribute.type) if attribute.type else None
            if dtype is not None and (dtype.is_complex or dtype == tf.bfloat16):
                names.setdefault(dtype.name, set()).add(node.op)
    return "; ".join("%s compute in %s" % (", ".join(sorted(names[name])), name) for name in sorted(names))


def taken_out(graph: Any) -> Dict[str, Any]:
    """Make inputs of a graph's large weights; return their arrays by the tensors' names.

    These are constants that are factors, kernels or tables, and nothing else: the layers that tf2onnx knows as a whole,
    such as an LSTM, it knows by their constants.
    """
    import tensorflow as tf

    readers: Dict[str, List[Any]] = {}
    for node in graph.node:
        for name in node.input:  # what only waits for another begins with ^
            readers.setdefault(name.partition(":")[0], []).append(node)

    def is_weight(node: Any) -> bool:
        """Return whether nothing but such operations read a tensor."""
        return all(
            is_weight(reader) if reader.op in ("Identity", "Reshape") else reader.op in WEIGHTED
            for reader in readers.get(node.name, ())
        )

    large = {}
    for node in graph.node:
        if node.op == "Const" and node.attr["value"].tensor.ByteSize() > LARGE_BYTES and is_weight(node):
            array = tf.make_ndarray(node.attr["value"].tensor)
            large[node.name + ":0"] = array
            node.op = "Placeholder"
            del node.attr["value"]
            node.attr["shape"].shape.CopyFrom(tf.TensorShape(array.shape).as_proto())
    return large


def put_back(model: Any, large: Dict[str, Any]) -> None:
    """Make constants again of these inputs of an ONNX model."""
    from onnx import numpy_helper

    inputs = [each for each in model.graph.input if each.name not in large]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in large.items())


def erfc(graph: Any, node: Any, name: str, arguments: List[Any]) -> None:
    """Write TensorFlow's Erfc, which ONNX lacks and Keras's GELU uses, as 1 - Erf."""
    del arguments
    import numpy as np

    [x], [shape], [dtype] = node.input, node.output_shapes, node.output_dtypes
    graph.remove_node(node.name)
    one = graph.make_const(name + "_one", np.array(1, np.float32))
    erf = graph.make_node("Erf", [x])
    graph.make_node("Sub", [one.output[0], erf.output[0]], outputs=node.output, shapes=[shape], dtypes=[dtype])
