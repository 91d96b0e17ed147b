"""TensorFlow as the worker asks for it; see `tuner.child.adapter`."""

from __future__ import annotations

import tempfile
from typing import Any, Callable, Dict, Optional

from ....child import effective, fork, inputs
from ....child.adapter import ArrayModel, Step
from . import exporter, facts, importing, libraries, operators, source, timeline

OUT_OF_MEMORY = ("ResourceExhaustedError",)
Report = Dict[str, Any]


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
    # Autograph leaves a copy of each function that it converts among the temporary files, and processes that end at
    # once leave it there.
    with tempfile.TemporaryDirectory() as scratch:
        tempfile.tempdir = scratch
        try:
            exporter.export(spec)
        finally:
            tempfile.tempdir = None


def own_threads() -> Dict[str, int]:
    """Return the threads that code has set, by the name of the knob."""
    return {name: number for name, number in facts.getters().items() if number}


def own_notes() -> "list[list[str]]":
    """Return what of the workload's code does not act: a text of its line, and what to report of it."""
    return source.NOTES


class Model(ArrayModel):
    """A SavedModel's signature, compiled or not, or the model's own code; see `tuner.child.adapter.Model`."""

    bind: Callable[[Report], Step]

    def arguments(self, batch_size: int) -> "tuple[Any, ...]":
        """Return the arrays of one call."""
        return inputs.arguments_of(self.spec, batch_size, self.described, source.numpy_dtype)

    def start(self) -> None:
        """Create the context; raises WorkloadError where the device is not among TensorFlow's."""
        import tensorflow as tf

        options = {name: value == "on" for name, value in self.spec["options"].items()}
        if options:
            tf.config.optimizer.set_experimental_options(options)
        create_context()
        if self.spec["feed"] is not None and not tf.config.list_logical_devices("GPU"):
            raise inputs.WorkloadError("TensorFlow sees no GPU in this process", "see: tftune inspect --device gpu")

    def load(self) -> None:
        """Load the model, executed as the spec asks: graph, eager or xla."""
        self.bind = loaded(self.spec)

    def step(self, arrays: "tuple[Any, ...]") -> Step:
        """Return a call of the model on tensors that are there.

        On a GPU they lie in the host's memory or on the GPU, as the spec says, and a call ends when its outputs are
        in the host's.
        """
        import tensorflow as tf

        feed = self.spec["feed"]
        tensors = {}
        for each, array in zip(self.described, arrays):
            # Text lives on the host only, and int32 too, whatever is asked for.
            place = None if feed is None else "GPU:0" if feed == "device" and array.dtype != object else "CPU:0"
            with tf.device(place):
                tensors[each["name"]] = tf.constant(array)
        if feed == "host" and self.spec["execution"] != "graph":
            call = rebinding(self.bind, tensors)
        else:
            call = self.bind(tensors)
        return call if feed is None else fetching(call)

    def device_memory(self) -> Optional[int]:
        """Return the most memory of the GPU that TensorFlow has given out; None on the CPU."""
        import tensorflow as tf

        if self.spec["feed"] is None:
            return None
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])

    def operators(self, arrays: "tuple[Any, ...]", n_steps: int) -> Report:
        """Return what each operator of a step on these arrays takes, and what TensorFlow reaches on large ones.

        With 0 steps all is made ready for that, and nothing returned.
        """
        told = operators.traced(*source.place(self.spec), dict(zip(self.names, arrays)), n_steps)
        return dict(told, roof=operators.roof()) if n_steps else told

    def timeline(self, arrays: "tuple[Any, ...]", blocks: "tuple[int, int]") -> Report:
        """Return when what ran in steps on these arrays: so many a block, in so many rounds of blocks."""
        n_steps, n_rounds = blocks
        return timeline.traced(self.step(arrays), n_steps, n_rounds)

    def floats(self, outputs: Any) -> Report:
        """Return the floating-point outputs as arrays; raises WorkloadError where there are no outputs at all."""
        tensors = source.named(outputs)
        source.check_returns(tensors)
        return {
            name: tensor.numpy()
            for name, tensor in tensors.items()
            if tensor.dtype.is_floating or tensor.dtype.is_complex
        }

    def output_shapes(self, outputs: Any) -> "dict[str, list[int]]":
        """Return the shapes of the outputs that are dense."""
        import tensorflow as tf

        return {name: tensor.shape.as_list() for name, tensor in outputs.items() if isinstance(tensor, tf.Tensor)}

    def state(self, log: str) -> Report:
        """Return what has taken effect."""
        return facts.state(log)


def rebinding(bind: Callable[[Report], Step], tensors: Report) -> Step:
    """Return a call on new handles of the same tensors each time.

    Outside of a graph TensorFlow keeps a copy on the GPU with a handle that was used there, so that only the first
    step would copy its inputs.
    """
    import tensorflow as tf

    def step() -> Any:
        with tf.device("CPU:0"):
            fresh = {name: tf.identity(tensor) for name, tensor in tensors.items()}
        return bind(fresh)()

    return step


def fetching(call: Step) -> Step:
    """Return a step that ends when all outputs of a call are in the host's memory."""

    def step() -> Any:
        outputs = call()
        for tensor in source.named(outputs).values():
            tensor.numpy()
        return outputs

    return step


def loaded(spec: Report) -> Callable[[Report], Step]:
    """Return what makes a step of inputs by name, executed as the spec asks: graph, eager or xla."""
    import tensorflow as tf

    if spec["execution"] == "eager":
        libraries.load(spec["op_libraries"])
        call = source.step_of(spec)[1]
        return lambda tensors: lambda: call(*tensors.values())
    function = source.exported(spec)
    if spec["execution"] != "xla":
        return lambda tensors: lambda: function(**tensors)
    compiled = tf.function(lambda given: function(**given), jit_compile=True, autograph=False)
    return lambda tensors: lambda: compiled(tensors)
