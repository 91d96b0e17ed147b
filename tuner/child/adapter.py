"""What is asked of a framework in the target interpreter: a module `adapter` in the folder that a spec names.

That module is an `Adapter`, and its `Model` a `Model`; nothing else of a framework is known here.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, List, Optional, Protocol, Tuple, cast

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

    OUT_OF_MEMORY: Tuple[str, ...]
    """The names of its exceptions that tell of memory that ran out."""

    def load(self) -> Any:
        """Import it, and start nothing of it."""

    def refusal(self) -> Optional[str]:
        """Return why this process, which has imported it, is no good as a template of forks; None if it is."""

    def export(self, spec: Spec) -> None:
        """Write the workload's model into the spec's folder, with its inputs and graph (`inputs.write_described`)."""

    # It may have `own_threads() -> Dict[str, int]`: the threads that code of a workload has set, by the knob's name.
    # It may have `own_notes() -> List[List[str]]`: code of the workload that does not act, each as text of its line and
    # what to report of it.

    def Model(self, spec: Spec, described: List[Spec]) -> Model:  # noqa: N802  # it is a class there
        """Return the model of an exported workload, whose inputs are `described`; nothing is loaded yet."""


def load_adapter(folder: str) -> Adapter:
    """Return the framework whose child code lies in a folder."""
    return cast("Adapter", importlib.import_module(mounted(folder) + ".adapter"))
