"""Making what OpenVINO reads: its own or an ONNX file as it is, or TensorFlow's export of a workload, converted."""

from __future__ import annotations

import os
import re
from math import prod
from typing import Any, Dict, List, Optional, Set

from ....child import onnxfile, usage
from ....child.inputs import WorkloadError, copy_described, load_libraries, write_own

MODEL = "model.xml"
NOISE = re.compile(r"Check |Exception from |FrontEnd API failed|Summary:|To facilitate ")
MISSING_FILE = re.compile(r"externally stored data in file \(([^,]+),")
ONNX = "model.onnx"
FILES = (MODEL, ONNX)
"""What may lie in the folder of an export: one of them does."""
DTYPES = {
    "f32": "float32",
    "f64": "float64",
    "f16": "float16",
    "boolean": "bool",
    "string": "string",
}
DTYPES.update(
    {
        "%s%d" % (short, bits): "%s%d" % (name, bits)
        for short, name in (("i", "int"), ("u", "uint"))
        for bits in (8, 16, 32, 64)
    }
)
OPERATORS = {
    "Convert": "Cast", "ConvertLike": "Cast", "ShapeOf": "Shape", "StridedSlice": "Slice", "VariadicSplit": "Split",
    "Select": "Where", "Broadcast": "Expand", "FloorMod": "Mod", "Clamp": "Clip", "Maximum": "Max", "Minimum": "Min",
    "Subtract": "Sub", "Multiply": "Mul", "Divide": "Div", "Interpolate": "Resize",
    "ScatterElementsUpdate": "ScatterElements", "ScatterNDUpdate": "ScatterND", "EmbeddingBagOffsets": "EmbeddingBag",
    "EmbeddingBagOffsetsSum": "EmbeddingBag", "EmbeddingBagPackedSum": "EmbeddingBag",
}  # fmt: skip
"""Names of operators in ONNX's words."""
WITH_BODIES = ("If", "Loop", "TensorIterator")
Report = Dict[str, Any]


def export(spec: Report) -> None:
    """Write the model, what its inputs are and the graph of one item's call, null where that is not known."""
    folder = spec["folder"]
    if "from" in spec:
        convert(spec, os.path.join(folder, MODEL))
        copy_described(spec)
        return
    path, libraries = spec["workload"], spec["op_libraries"]
    is_onnx = path.lower().endswith(".onnx")
    facts = None if is_onnx else value_facts(read(path, libraries))
    write_own(spec, os.path.join(folder, ONNX if is_onnx else MODEL), model_inputs(path, libraries), facts)


def core(libraries: "List[str]") -> Any:
    """Return OpenVINO with these libraries of operators; raises WorkloadError for one that cannot be loaded."""
    import openvino

    paths: List[str] = []
    load_libraries(libraries, paths.append)
    result = openvino.Core()  # after modules, which may change what it is
    load_libraries(paths, result.add_extension)
    return result


def read(path: str, libraries: "List[str]") -> Any:
    """Return a model as OpenVINO reads it; raises WorkloadError in its words for one that it cannot."""
    with_libraries = core(libraries)
    try:
        return with_libraries.read_model(os.path.realpath(path))
    except RuntimeError as error:
        missing = MISSING_FILE.search(str(error))
        advice = "use a framework that runs it"
        if missing:
            advice = "put the file with its weights, whole, into the model's folder: %s" % missing[1]
        elif "bin file cannot be found" in str(error):
            weights = os.path.splitext(os.path.basename(os.path.realpath(path)))[0] + ".bin"
            advice = "put the file with its weights, whole, next to it: %s" % weights
        raise WorkloadError("OpenVINO cannot read it: %s" % words(error), advice) from error


def model_inputs(path: str, libraries: "List[str]") -> List[Report]:
    """Return name, dtype and shape of each input of a model, None for a rank that is not known.

    A dimension is a number, the name that an ONNX file gives it, or None. Raises WorkloadError for a type without a
    counterpart in NumPy.
    """
    described, in_file = [], onnxfile.input_shapes(path) if path.lower().endswith(".onnx") else {}
    for port in read(path, libraries).inputs:
        name, kind = name_of(port), port.get_element_type().get_type_name()
        if kind not in DTYPES:
            raise WorkloadError(
                "its input '%s' has the unsupported type %s" % (name, kind),
                "save it with an input of f32 that it converts itself, as openvino.preprocess does",
            )
        sizes = sizes_of(port)
        named = in_file.get(name)
        if sizes is not None and named is not None and len(named) == len(sizes):
            sizes = [(each if isinstance(each, str) else None) if n is None else n for n, each in zip(sizes, named)]
        described.append({"name": name, "dtype": DTYPES[kind], "shape": sizes})
    return described


def sizes_of(port: Any) -> "Optional[List[Any]]":
    """Return the shape of a port, None for an open dimension and for a rank that is not known."""
    shape = port.get_partial_shape()
    return None if shape.rank.is_dynamic else [None if n.is_dynamic else n.get_length() for n in shape]


def name_of(port: Any) -> str:
    """Return what an input is called: as its author has it, if that is one of its names.

    A converter adds the names of what it leaves out behind it.
    """
    own: str = port.get_node().get_friendly_name()
    return own if own in port.get_names() else port.get_any_name()


def value_facts(model: Any) -> usage.Facts:
    """Return what a model of OpenVINO's own uses the values of its inputs for, as far as its graph can be read.

    What branches and loops hold is not looked at, but for when a loop ends: their operands may be indices.
    """
    inputs = [port for port in model.inputs if port.get_element_type().is_real()]
    walk = usage.Usage(map(name_of, inputs))
    known: Dict[Any, usage.Value] = {}
    for operation in model.get_ordered_ops():
        kind, ports = operation.get_type_name(), [port.get_source_output() for port in operation.inputs()]
        operands = [known[port.get_node().get_name(), port.get_index()] for port in ports]
        axis = 0
        if kind == "Gather" and ports[2].get_node().get_type_name() == "Constant":
            axis = int(ports[2].get_node().data.ravel()[0])
        if kind == "ROIAlign" and operation.get_attributes()["sampling_ratio"] > 0:
            kind = "CropAndResize"  # so many points of a box, however large it is
        made = walk.see(OPERATORS.get(kind, kind), operands, axis=axis)
        if kind in WITH_BODIES:
            walk.pass_by(operands)
        if kind == "Loop":
            walk.decisive.update(*(operands[place].depends for place in ending(operation)))
        for port in operation.outputs():
            value = made
            if kind == "Parameter":
                value = usage.given_value(name_of(port))
            elif not made.depends and port.get_partial_shape().is_static:
                dims = tuple(port.get_shape())
                is_short = kind == "Constant" and port.get_element_type().get_type_name() in ("i32", "i64")
                is_short = is_short and prod(dims) <= usage.FEW
                numbers = tuple(operation.data.ravel().tolist()) if is_short else made.numbers
                value = usage.Value(dims=dims, numbers=numbers)
            known[operation.get_name(), port.get_index()] = value
    shapes = {name_of(port): sizes_of(port) for port in model.inputs}
    for name in usage.of_one_item(shapes, map(sizes_of, model.outputs)):
        walk.batch_at.setdefault(name, None)
    return walk.facts


def ending(loop: Any) -> "Set[int]":
    """Return the operands of a loop that the condition in its body is worked out from, in whichever turn.

    A loop over times has a condition too, but it only counts.
    """
    body, places, seen = loop.get_function(), set(), set()
    given = {each.body_parameter_index: each for each in loop.get_input_descriptions()}
    parameters = {each.get_name(): number for number, each in enumerate(body.get_parameters())}
    waiting = [body.results[loop.get_special_body_ports()[1]]]
    while waiting:
        node = waiting.pop()
        if node.get_name() in seen or node.get_type_name() == "ShapeOf":
            continue
        seen.add(node.get_name())
        waiting += [port.get_source_output().get_node() for port in node.inputs()]
        each = given.get(parameters.get(node.get_name()))
        if each is not None:
            places.add(each.input_index)
            last = getattr(each, "body_value_index", None)  # what a turn hands to the next
            waiting += [] if last is None else [body.results[last]]
    return places


def convert(spec: Report, path: str) -> None:
    """Convert the export in the folder `from` of a spec by OpenVINO's reader of TensorFlow; raises WorkloadError.

    The weights stay in single precision: OpenVINO would store them in half of that by itself.
    """
    import openvino

    from ...tensorflow.child import source

    function, _ = source.traced(spec["from"], spec)
    try:
        model = openvino.convert_model(function)
        for port, name in zip(model.outputs, sorted(function.structured_outputs)):
            port.get_tensor().set_names({name})
        openvino.save_model(model, path, compress_to_fp16=False)
    except Exception as error:
        raise WorkloadError(
            "OpenVINO cannot convert it: %s" % words(error), "use a framework that runs it as it is"
        ) from error


def words(error: BaseException) -> str:
    """Return what an error of OpenVINO says, without the places in its sources and where to read about extensions."""
    lines = [line.strip(" -\n") for line in str(error).splitlines()]
    named = [line for line in lines if "operations: " in line]  # those that it has no rule for
    said = named or [line for line in lines if line and not NOISE.match(line)]
    return " ".join(said[-2:] if len(said) > 1 and said[-2].endswith(":") else said[-1:]) or type(error).__name__
