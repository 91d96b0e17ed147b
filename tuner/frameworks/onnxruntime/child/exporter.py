"""Making what a session loads: an ONNX file as it is, or TensorFlow's export of a workload, converted."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterable, List, Set

from ....child.inputs import WorkloadError, copy_described, described_inputs, write_described
from . import converting, session

MODEL = "model.onnx"
Report = Dict[str, Any]
UNKNOWN_OPERATOR = re.compile(
    r"No Op registered for (\w+)|Could not find an implementation for (\w+)"
    r"|Fatal error: ([\w.:]+?)(?:\(-?\d+\))? is not a registered"
)
PLACE = re.compile(
    r"^(Load model from .*? failed:)?(/\S+:\d+ .*\) (?=[A-Z]))?"
)  # the file, and a place in its own source
# ONNX's names of types, as a session tells them, and NumPy's.
DTYPES = {"float": "float32", "double": "float64", "string": "string", "bool": "bool", "float16": "float16"}
DTYPES.update({"%sint%d" % (sign, bits): "%sint%d" % (sign, bits) for sign in ("", "u") for bits in (8, 16, 32, 64)})


def export(spec: Report) -> None:
    """Write the model, what its inputs are and the graph of one item's call, null where that is not known."""
    path = os.path.join(spec["folder"], MODEL)
    if "from" not in spec:
        os.symlink(spec["workload"], path)  # its weights may lie in files beside it
        write_described(
            spec["folder"], described_inputs(model_inputs(spec["workload"], spec["op_libraries"]), spec), None
        )
        return
    converting.convert(spec, path)
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
        raise WorkloadError(message, advice) from error


def model_inputs(path: str, libraries: Iterable[str] = ()) -> List[Report]:
    """Return name, dtype and shape of each input of a model, None for a rank that is not known.

    Raises WorkloadError for a model that cannot be loaded, and for a type without numbers.
    """
    described = []
    for each in loaded(path, libraries).get_inputs():
        kind = each.type.partition("(")[2].rstrip(")")
        if kind not in DTYPES:
            raise WorkloadError(
                "its input '%s' has the unsupported type %s" % (each.name, each.type),
                "expected tensors of %s" % ", ".join(sorted(DTYPES)),
            )
        shape = [n if isinstance(n, int) else None for n in each.shape]
        described.append({"name": each.name, "dtype": DTYPES[kind], "shape": shape})
    if not all(each["shape"] for each in described):
        of_unknown_rank = unranked(path)
        for each in described:
            each["shape"] = None if each["name"] in of_unknown_rank else each["shape"]
    return described


def unranked(path: str) -> Set[str]:
    """Return the inputs of a model whose rank is not known: a session tells of them what it tells of scalars.

    None where the package onnx is not installed, which reads the file.
    """
    try:
        import onnx
    except ImportError:
        return set()
    graph = onnx.load(path, load_external_data=False).graph
    return {each.name for each in graph.input if not each.type.tensor_type.HasField("shape")}
