"""What is asked of a framework and of a device in the target interpreter: modules whose places a spec names.

Of a framework it is the module `adapter` in a folder: an `Adapter`, and its `Model` a `Model`. Of a device it is a
file, a `Device`. Nothing else of either is known here.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Callable, Dict, List, Optional, Protocol, Tuple, cast

from . import inputs
from .boot import mounted

Spec = Dict[str, Any]
Step = Callable[[], Any]


class Model(Protocol):
    """A workload's model in this process. What it returns is only looked at through `floats`."""

    def arguments(self, batch_size: int) -> Tuple[Any, ...]:
        """Return the arrays of one call, for that batch size."""

    def start(self) -> None:
        """Start the framework's own threads, whatever else is loaded later; what the workload's code set holds."""

    def load(self) -> None:
        """Load what steps are made of."""

    def step(self, arrays: Tuple[Any, ...]) -> Step:
        """Return what runs the workload once on these arrays, which lie where it takes them from, to its end."""

    def floats(self, outputs: Any) -> Dict[str, Any]:
        """Return the outputs of a step that are floating-point or complex, by name, as NumPy arrays."""

    # It may have `output_shapes(outputs) -> Dict[str, List[int]]`: the shape of each output that is a dense array.

    def state(self, log: str) -> Dict[str, Any]:
        """Return what has taken effect of what only the framework knows of; `log` is what the process printed."""

    # A model may have `operators(arrays, n_steps) -> Dict`: what each operator of a step takes; see
    # `tuner.frameworks.tensorflow.child.operators`.
    # A model may have `timeline(arrays, (n_steps, n_rounds)) -> Dict`: when what ran in each step; see
    # `tuner.frameworks.tensorflow.child.timeline`.
    # A model may have `device_memory() -> Optional[int]`: the most memory (bytes) of a device of its own that the
    # framework has held. It is asked where the device's driver does not tell.


class Adapter(Protocol):
    """A framework."""

    def load(self) -> Any:
        """Import it, and start nothing of it."""

    def export(self, spec: Spec) -> None:
        """Write the workload's model into the spec's folder, with its inputs and graph (`inputs.write_described`)."""

    # It may have `OUT_OF_MEMORY`: the names of its exceptions that tell of memory that ran out.
    # It may have `refusal() -> Optional[str]`: why this process, which has imported it, is no good as a template of
    # forks, None if it is. It is asked where its build has no `fork_refusal`.
    # It may have `own_threads() -> Dict[str, int]`: the threads that code of a workload has set, by the knob's name.
    # It may have `own_notes() -> List[List[str]]`: code of the workload that does not act, each as text of its line and
    # what to report of it.

    def Model(self, spec: Spec, described: List[Spec]) -> Model:  # noqa: N802  # it is a class there
        """Return the model of an exported workload, whose inputs are `described`; nothing is loaded yet."""


def load_adapter(folder: str) -> Adapter:
    """Return the framework whose child code lies in a folder."""
    return cast("Adapter", importlib.import_module(mounted(folder) + ".adapter"))


class ArrayModel:
    """What models share whose framework takes and gives arrays, and loads nothing before it has the first of them."""

    def __init__(self, spec: Spec, described: List[Spec]) -> None:
        self.spec, self.described = spec, described
        self.names = [each["name"] for each in described]
        self.made: Any = None
        self.shapes: Optional[Dict[str, Tuple[int, ...]]] = None

    def arguments(self, batch_size: int) -> Tuple[Any, ...]:
        """Return the arrays of one call."""
        import numpy as np

        return inputs.arguments_of(self.spec, batch_size, self.described, np.dtype)

    def load(self) -> None:
        """Do nothing: what is loaded depends on the batch size, or `start` has loaded it."""

    def made_for(self, feed: Dict[str, Any], make: Callable[[Dict[str, Tuple[int, ...]]], Any]) -> Any:
        """Return what `make` makes for arrays of these shapes; one at a time, as each may hold the weights again."""
        shapes = {name: tuple(array.shape) for name, array in feed.items()}
        if shapes != self.shapes:
            self.made, self.shapes = None, None
            self.made, self.shapes = make(shapes), shapes
        return self.made

    def named(self, outputs: Any) -> Dict[str, Any]:
        """Return the outputs of a step that are arrays, by name."""
        return dict(outputs)

    def floats(self, outputs: Any) -> Dict[str, Any]:
        """Return the floating-point outputs as arrays."""
        return {name: array for name, array in self.named(outputs).items() if array.dtype.kind in "fc"}

    def output_shapes(self, outputs: Any) -> Dict[str, List[int]]:
        """Return the shapes of the outputs that are arrays."""
        return {name: list(array.shape) for name, array in self.named(outputs).items()}


class Device(Protocol):
    """A device. One whose module has `LEAST_WARM_UP_S` warms up for so long at least, after the first step."""

    def wait(self) -> None:
        """Return when all that was handed to the device has been computed; a slice ends with it."""

    def peak_memory(self) -> Optional[int]:
        """Return the most memory (bytes) that this process has held there since `reset_peak`; None where unknown."""

    def shared_memory(self) -> Optional[int]:
        """Return how much of that (bytes) other processes hold too; None where unknown."""

    def reset_peak(self) -> None:
        """Count the peak from what is held now."""


def load_device(path: str) -> Device:
    """Return the device whose child code is a file."""
    folder, file = os.path.split(path)
    return cast("Device", importlib.import_module("%s.%s" % (mounted(folder), os.path.splitext(file)[0])))
