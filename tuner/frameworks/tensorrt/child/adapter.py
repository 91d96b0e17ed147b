"""TensorRT as the worker asks for it; see `tuner.child.adapter`."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, Dict, List, Optional, Tuple

from ....child import inputs
from ....devices.nvidia.child import gpu
from . import engine, exporter

OUT_OF_MEMORY: "Tuple[str, ...]" = ()  # it is told by MemoryError
Report = Dict[str, Any]
Step = Callable[[], Any]


def load() -> Any:
    """Import TensorRT."""
    import tensorrt

    return tensorrt


def refusal() -> Optional[str]:
    """Return why its processes are not forked."""
    return "CUDA does not survive a fork"


def export(spec: Report) -> None:
    """Write what an engine is built of, and what it takes."""
    exporter.export(spec)


class Model:
    """An engine for each shape of the inputs; see `tuner.child.adapter.Model`."""

    def __init__(self, spec: Report, described: "List[Report]") -> None:
        self.spec = spec
        self.names = [each["name"] for each in described]
        self.described = described
        self.engine: Optional[engine.Engine] = None
        self.shapes: Optional[engine.Shapes] = None

    def arguments(self, batch_size: int) -> "Tuple[Any, ...]":
        """Return the arrays of one call."""
        import numpy as np

        return inputs.arguments_of(self.spec, batch_size, self.described, np.dtype)

    def start(self) -> None:
        """Load libraries of plugins; an engine is built for the shapes of the first arrays."""
        if self.spec["kind"] == "onnx":  # else it is converted
            inputs.load_libraries(self.spec["op_libraries"], lambda path: ctypes.CDLL(path, ctypes.RTLD_GLOBAL))

    def load(self) -> None:
        """Do nothing: what is loaded depends on the batch size."""

    def engine_for(self, feed: Report) -> engine.Engine:
        """Return the engine for arrays of these shapes; one at a time, as each holds the weights again."""
        shapes = {name: tuple(array.shape) for name, array in feed.items()}
        if self.engine is None or shapes != self.shapes:
            self.engine = None
            path = os.path.join(self.spec["folder"], exporter.MODEL)
            self.engine = engine.Engine(engine.plan_of(path, shapes, self.spec["options"]))
            self.shapes = shapes
        return self.engine

    def step(self, arrays: "Tuple[Any, ...]") -> Step:
        """Return a call of the engine on arrays that are there, in a context of its own."""
        feed = dict(zip(self.names, arrays))
        return self.engine_for(feed).caller(feed, copies_inputs=self.spec["feed"] != "device")

    def floats(self, outputs: Any) -> Report:
        """Return the floating-point outputs as arrays."""
        return {name: array for name, array in outputs.items() if array.dtype.kind in "fc"}

    def output_shapes(self, outputs: Any) -> "Dict[str, List[int]]":
        """Return the shapes of the outputs."""
        return {name: list(array.shape) for name, array in outputs.items()}

    def state(self, log: str) -> Report:
        """Return whether TF32 may be used: of its options an engine tells none."""
        return {"tf32": gpu.tf32_is_allowed()}
