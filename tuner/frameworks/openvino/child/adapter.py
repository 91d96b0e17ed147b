"""OpenVINO as the worker asks for it; see `tuner.child.adapter`."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Optional, Tuple

from ....child import inputs
from . import compiling, exporter

OUT_OF_MEMORY: "Tuple[str, ...]" = ()
Report = Dict[str, Any]
Step = Callable[[], Any]


def load() -> Any:
    """Import OpenVINO."""
    import openvino

    return openvino


def refusal() -> Optional[str]:
    """Return why its processes are not forked."""
    return "OpenVINO's thread pool does not survive a fork"


def export(spec: Report) -> None:
    """Write what OpenVINO reads, and what it takes."""
    load()
    exporter.export(spec)


class Model:
    """A model compiled for each batch size, as OpenVINO is fastest; see `tuner.child.adapter.Model`."""

    def __init__(self, spec: Report, described: "List[Report]") -> None:
        self.spec = spec
        self.names = [each["name"] for each in described]
        self.described = described
        self.compiled: Any = None
        self.shapes: "Optional[Dict[str, Any]]" = None

    def arguments(self, batch_size: int) -> "Tuple[Any, ...]":
        """Return the arrays of one call."""
        import numpy as np

        return inputs.arguments_of(self.spec, batch_size, self.described, np.dtype)

    def start(self) -> None:
        """Read the model: its threads come when it is compiled, for the first arrays."""
        folder = self.spec["folder"]
        path = next(filter(os.path.exists, (os.path.join(folder, each) for each in exporter.FILES)))
        is_own = self.spec["kind"] in ("onnx", "openvino")  # else it is converted
        self.core = exporter.core(self.spec["op_libraries"] if is_own else [])
        self.model = self.core.read_model(os.path.realpath(path))
        # A converter leaves out what no output needs.
        self.taken = {port.get_any_name() for port in self.model.inputs}
        self.properties = compiling.properties(self.spec["options"], self.spec["streams"])

    def load(self) -> None:
        """Do nothing: what is compiled depends on the batch size."""

    def compiled_for(self, feed: Report) -> Any:
        """Return the model compiled for arrays of these shapes; one at a time, as each holds the weights again."""
        shapes = {name: array.shape for name, array in feed.items()}
        if shapes != self.shapes:
            self.compiled = None
            self.compiled = compiling.compiled(self.core, self.model, shapes, self.properties)
            self.shapes = shapes
        return self.compiled

    def step(self, arrays: "Tuple[Any, ...]") -> Step:
        """Return a call of the model on arrays that are there, by a request of its own."""
        feed = {name: inputs.plain_strings(array) for name, array in zip(self.names, arrays) if name in self.taken}
        infer = self.compiled_for(feed).create_infer_request().infer
        return lambda: infer(feed, share_inputs=True)

    def floats(self, outputs: Any) -> Report:
        """Return the floating-point outputs as arrays."""
        named = {port.get_any_name(): array for port, array in outputs.items()}
        return {name: array for name, array in named.items() if array.dtype.kind in "fc"}

    def output_shapes(self, outputs: Any) -> "Dict[str, List[int]]":
        """Return the shapes of the outputs."""
        return {port.get_any_name(): list(array.shape) for port, array in outputs.items()}

    def state(self, log: str) -> Report:
        """Return the properties that the compiled model tells."""
        return {"properties": compiling.reported(self.compiled)}
