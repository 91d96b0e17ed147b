"""OpenVINO as the worker asks for it; see `tuner.child.adapter`."""

from __future__ import annotations

import os
from typing import Any, Dict, Tuple

from ....child import inputs
from ....child.adapter import ArrayModel, Step
from . import compiling, exporter

Report = Dict[str, Any]


def load() -> Any:
    """Import OpenVINO."""
    import openvino

    return openvino


def export(spec: Report) -> None:
    """Write what OpenVINO reads, and what it takes."""
    load()
    exporter.export(spec)


class Model(ArrayModel):
    """A model compiled for each batch size, as OpenVINO is fastest; see `tuner.child.adapter.Model`."""

    def start(self) -> None:
        """Read the model: its threads come when it is compiled, for the first arrays."""
        folder = self.spec["folder"]
        path = next(filter(os.path.exists, (os.path.join(folder, each) for each in exporter.FILES)))
        is_own = self.spec["kind"] in ("onnx", "openvino")  # else it is converted
        self.core = exporter.core(self.spec["op_libraries"] if is_own else [])
        self.model = self.core.read_model(os.path.realpath(path))
        # A converter leaves out what no output needs.
        self.taken = {name for port in self.model.inputs for name in port.get_names()}
        self.properties = compiling.properties(self.spec["options"], self.spec["streams"])

    def step(self, arrays: "Tuple[Any, ...]") -> Step:
        """Return a call of the model on arrays that are there, by a request of its own."""
        feed = {name: inputs.plain_strings(array) for name, array in zip(self.names, arrays) if name in self.taken}
        compiled = self.made_for(feed, lambda each: compiling.compiled(self.core, self.model, each, self.properties))
        infer = compiled.create_infer_request().infer
        return lambda: infer(feed, share_inputs=True)

    def named(self, outputs: Any) -> Report:
        """Return the outputs by name."""
        return {port.get_any_name(): array for port, array in outputs.items()}

    def state(self, log: str) -> Report:
        """Return the properties that the compiled model tells."""
        return {"properties": compiling.reported(self.made)}
