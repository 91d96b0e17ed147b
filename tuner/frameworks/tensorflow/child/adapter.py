"""TensorFlow as the worker asks for it; see `tuner.child.adapter`."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from ....child import effective, fork, inputs
from . import exporter, facts, importing, source

OUT_OF_MEMORY = ("ResourceExhaustedError",)
Report = Dict[str, Any]
Step = Callable[[], Any]


def load() -> Any:
    """Import TensorFlow, and create no context."""
    return importing.tensorflow()


def refusal() -> Optional[str]:
    """Return why forked workers would not be what fresh ones are, or None if they are.

    TensorFlow is asked, and then seen: where the context were already there, creating it would start no thread.
    """
    reason = facts.fork_refusal()
    if reason is None and not fork.in_a_fork(threads_of_a_context):
        reason = "a forked process cannot create its own context"
    return reason


def threads_of_a_context() -> int:
    """Return how many threads the creation of TensorFlow's context starts here."""
    before = effective.threads()
    create_context()
    return len(effective.threads().keys() - before.keys())


def create_context() -> None:
    """Create TensorFlow's context, and its pools with it."""
    import tensorflow as tf

    tf.constant(0.0)


def export(spec: Report) -> None:
    """Write the workload as a SavedModel, or what eager execution needs."""
    importing.tensorflow()
    exporter.export(spec)


class Model:
    """A SavedModel's signature, compiled or not, or the model's own code; see `tuner.child.adapter.Model`."""

    def __init__(self, spec: Report, described: "list[Report]") -> None:
        self.spec = spec
        self.described = described
        self.bind: Callable[[Report], Step]

    def arguments(self, batch_size: int) -> "tuple[Any, ...]":
        """Return the arrays of one call."""
        import tensorflow as tf

        return inputs.arguments_of(self.spec, batch_size, self.described, lambda name: tf.as_dtype(name).as_numpy_dtype)

    def start(self) -> None:
        """Create the context."""
        create_context()

    def load(self) -> None:
        """Load the model, executed as the spec asks: graph, eager or xla."""
        self.bind = loaded(self.spec)

    def step(self, arrays: "tuple[Any, ...]") -> Step:
        """Return a call of the model on tensors that are there."""
        import tensorflow as tf

        return self.bind({each["name"]: tf.constant(array) for each, array in zip(self.described, arrays)})

    def floats(self, outputs: Any) -> Report:
        """Return the floating-point outputs as arrays."""
        return {
            name: tensor.numpy()
            for name, tensor in outputs.items()
            if tensor.dtype.is_floating or tensor.dtype.is_complex
        }

    def state(self, log: str) -> Report:
        """Return what has taken effect."""
        return facts.state(log)


def loaded(spec: Report) -> Callable[[Report], Step]:
    """Return what makes a step of inputs by name, executed as the spec asks: graph, eager or xla."""
    import tensorflow as tf

    if spec["execution"] == "eager":
        call = source.step_of(spec)[1]
        return lambda tensors: lambda: call(*tensors.values())
    function = source.exported(spec)
    if spec["execution"] != "xla":
        return lambda tensors: lambda: function(**tensors)
    compiled = tf.function(lambda **given: function(**given), jit_compile=True)
    return lambda tensors: lambda: compiled(**tensors)
