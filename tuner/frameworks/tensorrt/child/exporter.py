"""Making what an engine is built of: an ONNX file as it is, or TensorFlow's export of a workload, converted."""

from __future__ import annotations

import os
from typing import Any, Dict, List

from ....child.inputs import WorkloadError, copy_described, described_inputs, write_described
from ...onnxruntime.child import converting

MODEL = "model.onnx"
Report = Dict[str, Any]


def export(spec: Report) -> None:
    """Write the model, what its inputs are and the graph of one item's call, null where that is not known."""
    path = os.path.join(spec["folder"], MODEL)
    if "from" in spec:
        converting.convert(spec, path)
        copy_described(spec)
        return
    os.symlink(spec["workload"], path)  # its weights may lie in files beside it
    import numpy as np

    write_described(spec["folder"], described_inputs(model_inputs(spec["workload"]), spec, np.dtype), None)


def model_inputs(path: str) -> List[Report]:
    """Return name, dtype and shape of each input of a model, None for a rank that is not known.

    A dimension is a number, the name that the file gives it, or None.
    """
    try:
        import onnx
    except ImportError as error:
        raise WorkloadError(
            "its inputs are read with onnx, which cannot be imported (%s)" % error,
            "install it in that environment: python -m pip install onnx",
        ) from error
    graph = onnx.load(path, load_external_data=False).graph
    weights = {each.name for each in graph.initializer}
    described = []
    for each in graph.input:
        if each.name in weights:
            continue
        tensor = each.type.tensor_type
        sizes = [n.dim_value if n.HasField("dim_value") else n.dim_param or None for n in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
        described.append({"name": each.name, "dtype": dtype, "shape": sizes if tensor.HasField("shape") else None})
    return described
