"""Making what a session loads: an ONNX file as it is, or TensorFlow's export of a workload, converted."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterable, List

from ....child import onnxfile
from ....child.inputs import WorkloadError, copy_described, described_inputs, write_described
from . import converting, session

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
        os.symlink(spec["workload"], path)  # its weights may lie in files beside it
        import numpy as np

        described = described_inputs(model_inputs(spec["workload"], spec["op_libraries"]), spec, np.dtype)
        write_described(spec["folder"], described, None)
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
