"""TensorRT as the worker asks for it; see `tuner.child.adapter`."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Dict, List, Tuple

from ....child import inputs
from ....child.adapter import ArrayModel, Step
from ....child.inputs import WorkloadError, copy_described, write_own
from ....devices.child import nvidia
from ...onnxruntime.child import exporter
from . import engine

MODEL = "model.onnx"
Report = Dict[str, Any]


def load() -> Any:
    """Import TensorRT."""
    import tensorrt

    return tensorrt


def export(spec: Report) -> None:
    """Write the model, what its inputs are and the graph of one item's call, null where that is not known."""
    path = os.path.join(spec["folder"], MODEL)
    if "from" in spec:
        exporter.convert(spec, path)
        copy_described(spec)
        return
    write_own(spec, path, model_inputs(spec["workload"]))


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


class Model(ArrayModel):
    """An engine for each shape of the inputs; see `tuner.child.adapter.Model`."""

    def start(self) -> None:
        """Load libraries of plugins; an engine is built for the shapes of the first arrays."""
        if self.spec["kind"] == "onnx":  # else it is converted
            inputs.load_libraries(self.spec["op_libraries"], lambda path: ctypes.CDLL(path, ctypes.RTLD_GLOBAL))

    def step(self, arrays: "Tuple[Any, ...]") -> Step:
        """Return a call of the engine on arrays that are there, in a context of its own."""
        feed = dict(zip(self.names, arrays))
        path = os.path.join(self.spec["folder"], MODEL)
        built = self.made_for(feed, lambda each: engine.Engine(engine.plan_of(path, each, self.spec["options"])))
        caller: Step = built.caller(feed, copies_inputs=self.spec["feed"] != "device")
        return caller

    def state(self, log: str) -> Report:
        """Return whether TF32 may be used: of its options an engine tells none."""
        return {"tf32": nvidia.tf32_is_allowed()}
