"""ONNX Runtime as the worker asks for it; see `tuner.child.adapter`."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

from ....child import fork, inputs
from ....child.adapter import ArrayModel, Step
from ....devices.child import nvidia
from . import exporter, session

N_THREADS = 3
Report = Dict[str, Any]


def load() -> Any:
    """Import ONNX Runtime."""
    import onnxruntime

    return onnxruntime


def refusal() -> Optional[str]:
    """Return why forked workers would not be what fresh ones are, or None if they are."""
    created = fork.in_a_fork(lambda: session.observe({"intra_op_num_threads": str(N_THREADS)})["created"])
    return None if created == N_THREADS - 1 else "in a forked process, a session does not start all of its threads"


def export(spec: Report) -> None:
    """Write what a session loads, and what it takes."""
    load()
    exporter.export(spec)


class Model(ArrayModel):
    """A session of a model; see `tuner.child.adapter.Model`. That memory ran out it says by messages alone."""

    session: Any = None

    def start(self) -> None:
        """Make the session: its threads come with it."""
        path = os.path.join(self.spec["folder"], exporter.MODEL)
        on_gpu = self.spec["feed"] is not None
        try:
            libraries = self.spec["op_libraries"] if self.spec["kind"] == "onnx" else ()  # else it is converted
            self.session = session.make_session(
                os.path.realpath(path), self.spec["options"], on_gpu=on_gpu, libraries=libraries
            )
        except Exception as error:
            raise session.translated(error) from error
        self.output_names = [each.name for each in self.session.get_outputs()]

    def step(self, arrays: "Tuple[Any, ...]") -> Step:
        """Return a call of the session on arrays that are there.

        On a GPU they lie in the host's memory or on the GPU, as the spec says; a call ends when its outputs are in the
        host's.
        """
        import numpy as np

        input_names = {each.name for each in self.session.get_inputs()}  # a converter leaves out what no output needs
        feed = {
            each["name"]: np.asarray(inputs.plain_strings(array), order="C")
            for each, array in zip(self.described, arrays)
            if each["name"] in input_names
        }
        run, names = self.session.run, self.output_names
        bound = bound_on_gpu(self.session, feed, names) if self.spec["feed"] == "device" else None

        def call() -> Any:
            try:
                return run(names, feed) if bound is None else bound()
            except Exception as error:
                raise session.translated(error) from error

        return call

    def named(self, outputs: Any) -> Report:
        """Return the outputs that are arrays, by name."""
        return {name: array for name, array in zip(self.output_names, outputs) if hasattr(array, "dtype")}

    def state(self, log: str) -> Report:
        """Return the options that the session tells, and whether TF32 may be used."""
        return {"options": session.reported_options(self.session), "tf32": nvidia.tf32_is_allowed()}


def bound_on_gpu(made: Any, feed: Report, names: "List[str]") -> Step:
    """Return a call of a session on copies of the arrays that lie on the GPU."""
    import onnxruntime

    binding = made.io_binding()
    for name, array in feed.items():
        try:
            place = onnxruntime.OrtValue.ortvalue_from_numpy(array, "cuda", 0)
        except Exception as error:
            raise session.translated(error) from error
        binding.bind_ortvalue_input(name, place)
    for name in names:
        binding.bind_output(name)  # in the host's memory

    def call() -> Any:
        made.run_with_iobinding(binding)
        return binding.copy_outputs_to_cpu()

    return call
