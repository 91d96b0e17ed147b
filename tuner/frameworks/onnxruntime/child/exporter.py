"""Making what a session loads: an ONNX file as it is, or TensorFlow's export of a workload, converted by tf2onnx."""

from __future__ import annotations

import gc
import logging
import os
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Set

from ....child import onnxfile
from ....child.inputs import WorkloadError, copy_described, write_own
from ...tensorflow.child import importing, source
from . import session

MODEL = "model.onnx"
Report = Dict[str, Any]
UNKNOWN_OPERATOR = re.compile(
    r"No Op registered for (\w+)|Could not find an implementation for (\w+)"
    r"|Fatal error: ([\w.:]+?)(?:\(-?\d+\))? is not a registered"
)
MISSING_FILE = re.compile(r'External data path does not exist: "([^"]+)"')
PLACE = re.compile(
    r"^(Load model from .*? failed:)?(/\S+:\d+ .*\) (?=[A-Z]))?"
)  # the file, and a place in its own source
# What ONNX Runtime says of a file that is no fault of the model's, and what to do.
KNOWN = (
    ("Protobuf parsing failed", "the file is cut or damaged: copy it or fetch it again"),
    ("Unsupported model IR version", "install a newer ONNX Runtime, or save the model with an earlier IR version"),
    ("Opset", "install a newer ONNX Runtime, or export the model with an earlier opset"),
    ("opset", "install a newer ONNX Runtime, or export the model with an earlier opset"),
    ("locale", "install the locale that it names, e.g. in Debian by: apt-get install locales-all"),
)
WAY_OUT = (
    "export the model with tensors for inputs, or measure a program that calls it: tftune search --metric-regex "
    "'images/sec: ([0-9.]+)' -- python program.py"
)
# ONNX's names of types, as a session tells them, and NumPy's.
DTYPES = {"float": "float32", "double": "float64", "string": "string", "bool": "bool", "float16": "float16"}
DTYPES.update({"%sint%d" % (sign, bits): "%sint%d" % (sign, bits) for sign in ("", "u") for bits in (8, 16, 32, 64)})


def export(spec: Report) -> None:
    """Write the model, what its inputs are and the graph of one item's call, null where that is not known."""
    path = os.path.join(spec["folder"], MODEL)
    if "from" not in spec:
        write_own(spec, path, model_inputs(spec["workload"], spec["op_libraries"]))
        return
    convert(spec, path)
    copy_described(spec)
    loaded(path)


def loaded(path: str, libraries: Iterable[str] = ()) -> Any:
    """Return a session of a model; raises WorkloadError in ONNX Runtime's words for one that it cannot run."""
    try:
        return session.make_session(path, {}, libraries=libraries)
    except WorkloadError:
        raise
    except Exception as error:
        unknown = UNKNOWN_OPERATOR.search(str(error))
        advice = "use another model, or a framework that runs it"
        if unknown:
            advice += ", or the library that has the operator: --op-library ./op.so"
            message = "ONNX Runtime cannot run its operator %s on the CPU" % next(filter(None, unknown.groups()))
        else:
            reason = PLACE.sub("", str(error).split(" : ")[-1])  # after its codes
            message = "ONNX Runtime cannot load it: %s" % reason
            advice = next((way for text, way in KNOWN if text in reason), advice)
            missing = MISSING_FILE.search(reason)
            if missing:
                advice = "put the missing file with its weights into the model's folder: %s" % os.path.basename(
                    missing[1]
                )
        raise WorkloadError(message, advice) from error


def model_inputs(path: str, libraries: Iterable[str] = ()) -> List[Report]:
    """Return name, dtype and shape of each input of a model, None for a rank that is not known.

    A dimension is a number, the name that the file gives it, or None. A session reports an input of unknown rank as a
    scalar. Raises WorkloadError for a model that cannot be loaded, and for a type without numbers.
    """
    described, in_file = [], onnxfile.input_shapes(path)
    for each in loaded(path, libraries).get_inputs():
        kind = each.type.partition("(")[2].rstrip(")")
        if kind not in DTYPES:
            raise WorkloadError(
                "its input '%s' has the unsupported type %s" % (each.name, each.type),
                "expected tensors of %s; %s" % (", ".join(sorted(DTYPES)), WAY_OUT),
            )
        shape = [n if isinstance(n, int) else n or None for n in each.shape]
        is_unranked = not shape and in_file.get(each.name, shape) is None
        described.append({"name": each.name, "dtype": DTYPES[kind], "shape": None if is_unranked else shape})
    return described


# ---- TensorFlow's export, converted -------------------------------------------------------------------------------

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
