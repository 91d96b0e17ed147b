"""Writing a workload's model: as a SavedModel, with what its inputs are and the graph of one item's call beside it."""

from __future__ import annotations

import contextlib
import json
import os
import traceback
from typing import Any, Callable

from ....child import shapes, values
from ....child.inputs import Report, WorkloadError, write_described
from . import graph, importing, libraries, source

GONE = (
    "build() returned a function whose variables are gone, as nothing kept the model that they belong to",
    "return a function that holds the model: lambda x: loaded.signatures['serving_default'](x=x)",
)


def export(spec: Report) -> None:
    """Write the model as a SavedModel, what its inputs are, and the graph of one item's call.

    A SavedModel is used as it is, and for eager execution none is needed. Beside it stands what has to be loaded first,
    in every process that loads it.
    """
    with libraries.recorded() as loaded, libraries.named_operators():
        libraries.load(spec["op_libraries"])
        try:
            choice = write(spec)
        except WorkloadError:
            raise
        except Exception as error:
            problem = importing.why_no_keras() if importing.blamed_keras(error) else None
            problem = GONE if "variables which have been deleted" in str(error) else problem
            if problem is None:
                raise
            raise WorkloadError(*problem) from error
    own = [each for each in dict.fromkeys(loaded) if each not in spec["op_libraries"]]
    with open(os.path.join(spec["folder"], source.ORIGIN), "w", encoding="utf-8") as file:
        json.dump(dict(choice, libraries=[*spec["op_libraries"], *own]), file)


def write(spec: Report) -> Report:
    """Write the model and what is beside it; return what was chosen of a SavedModel."""
    call = function = None
    choice: Report = {}
    if spec["kind"] == "savedmodel":
        link = os.path.join(spec["folder"], source.MODEL)
        os.symlink(spec["workload"], link)
        function, described, choice = source.signature_of(spec)
        if choice["signature"] is None:  # then it gets one
            call = source.forward(function)
            described = [dict(each, name="input_%d" % i) for i, each in enumerate(described)]
            os.unlink(link)
            function = save(spec, described, call, function._tftune_keeps)
    else:
        described, call, owner = source.step_of(spec)
        if spec["execution"] != "eager":
            function = save(spec, described, call, owner)
    described_graph = graph_of(function, call, described)
    unread = {"decisive": range(len(described)), "plain": (), "rows": {}, "worked_out": (), "without_batch": ()}
    seen = (described_graph or {}).pop("values", unread)
    shapes_of_outputs = [] if function is None else [each.shape for each in function.outputs]
    arrays = [shape for shape in shapes_of_outputs if shape.rank != 0]
    ignores_batch = bool(arrays) and all(shape.is_fully_defined() for shape in arrays)
    for number, each in enumerate(described):
        if "made_up" in each:
            each["ignored_batch"] = ignores_batch and each["batch_axis"] == 0
            check_batch(each, spec, is_without=number in seen["without_batch"])
            values.correct(
                each,
                decides=number in seen["decisive"],
                rows=seen["rows"].get(number),
                is_worked_out=number in seen["worked_out"],
                is_plain=number in seen["plain"],
            )
    write_described(spec["folder"], described, described_graph or None)
    return choice


def check_batch(described: Report, spec: Report, *, is_without: bool) -> None:
    """Take the batch from an input that has none as the graph shows, unless the user says that it has one.

    Raises WorkloadError if it is open: how long an item is, is not known.
    """
    name, shape = described["known_as"], described["shape"]
    if not is_without or described["batch_axis"] != 0 or shapes.BATCH in spec["shapes"].get(name, ()):
        return
    described.update(batch_axis=None, item_rank=len(shape))
    if shape[0] is None:
        sizes = ",".join(str(n or shapes.EXAMPLE) for n in shape)
        raise WorkloadError(
            "the first dimension of input '%s' is no batch: the graph puts one before it" % name,
            "give the whole shape of every input, e.g. --input-shape %s=%s; if it is the batch, write that: %s=batch%s"
            % (name, sizes, name, "".join(sizes.partition(",")[1:])),
        )


def save(spec: Report, described: list[Report], call: Callable[..., Any], owner: Any) -> Any:
    """Write a step as a SavedModel with one signature, its batch size left open; return its concrete function.

    `owner` holds what the step needs besides variables.
    """
    import tensorflow as tf

    step = tf.function(call, input_signature=[tensor_spec(each, None) for each in described])
    function = step.get_concrete_function()
    source.check_returns(function.structured_outputs)
    if graph.calls_python(function):
        raise WorkloadError(
            "its graph calls Python (tf.py_function), which no other process can load",
            "use TensorFlow's operators only, or --framework tensorflow --execution eager",
        )
    # Only what the function uses is saved: through the model's layers every variable would be kept, and be loaded
    # in every trial, a second time. A model with more than variables (a lookup table) has to be saved whole.
    # What is saved is the concrete function: anything else would be traced again.
    module = tf.Module()
    module.used = list(function.graph.variables)
    try:
        tf.saved_model.save(module, spec["folder"], signatures={spec["mode"]: function})
    except AssertionError:
        module.owner = source.trackables(owner)
        try:
            tf.saved_model.save(module, spec["folder"], signatures={spec["mode"]: function})
        except AssertionError:
            raise WorkloadError(
                "the model uses an object that cannot be saved with it, such as a lookup table",
                "make it an attribute of the model, or of a tf.Module that build() returns",
            ) from None
    return function


def graph_of(function: Any, call: Callable[..., Any] | None, described: list[Report]) -> Report | None:
    """Return the graph of one item's call, of a concrete function or else of what Python calls; None if neither helps.

    What is not understood of a graph must not keep it from being tuned.
    """
    import tensorflow as tf

    def described_call(called: Callable[..., Any], batch_size: int | None) -> Report:
        specs = [tensor_spec(each, batch_size) for each in described]
        return graph.describe(tf.function(called, autograph=called is call).get_concrete_function(*specs))

    def once(*given: Any) -> Any:
        return function(**dict(zip((each["name"] for each in described), given)))

    try:
        if function is not None:
            described_graph = described_call(once, 1)
            if call is None or graph.is_complete(described_graph):
                return described_graph
        # Loops hide shapes, unless they are known when Python builds them.
        assert call is not None  # or there is a function
        return described_call(call, 1)
    except Exception:
        traceback.print_exc()
    with contextlib.suppress(Exception):  # another batch size is written into it, so one item has no graph
        if function is not None:
            return {"values": described_call(once, None)["values"]}
    return None


def tensor_spec(described: Report, batch_size: int | None) -> Any:
    """Return TensorFlow's own description of an input with that batch size; where it is open, all are that are."""
    import tensorflow as tf

    own = source.open_shape(described) if batch_size is None else described["shape"]
    shape = [batch_size if n is None else n for n in own]
    return tf.TensorSpec(shape, described["dtype"], name=described["name"])
