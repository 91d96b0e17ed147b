"""TensorRT as the worker asks for it; see `tuner.child.adapter`."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Dict, List, Optional, Tuple

from ....child import inputs
from ....child.adapter import ArrayModel, Step
from ....child.inputs import WorkloadError, copy_described, described_inputs, write_described
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


class Model(ArrayModel):
    """An engine for each shape of the inputs; see `tuner.child.adapter.Model`."""

    def __init__(self, spec: Report, described: "List[Report]") -> None:
        super().__init__(spec, described)
        self.engine: Optional[engine.Engine] = None
        self.shapes: Optional[engine.Shapes] = None

    def start(self) -> None:
        """Load libraries of plugins; an engine is built for the shapes of the first arrays."""
        if self.spec["kind"] == "onnx":  # else it is converted
            inputs.load_libraries(self.spec["op_libraries"], lambda path: ctypes.CDLL(path, ctypes.RTLD_GLOBAL))

    def engine_for(self, feed: Report) -> engine.Engine:
        """Return the engine for arrays of these shapes; one at a time, as each holds the weights again."""
        shapes = {name: tuple(array.shape) for name, array in feed.items()}
        if self.engine is None or shapes != self.shapes:
            self.engine = None
            path = os.path.join(self.spec["folder"], MODEL)
            self.engine = engine.Engine(engine.plan_of(path, shapes, self.spec["options"]))
            self.shapes = shapes
        return self.engine

    def step(self, arrays: "Tuple[Any, ...]") -> Step:
        """Return a call of the engine on arrays that are there, in a context of its own."""
        feed = dict(zip(self.names, arrays))
        return self.engine_for(feed).caller(feed, copies_inputs=self.spec["feed"] != "device")

    def state(self, log: str) -> Report:
        """Return whether TF32 may be used: of its options an engine tells none."""
        return {"tf32": nvidia.tf32_is_allowed()}
