"""Where a workload's model comes from: a Python file, a .keras file or a SavedModel. See `inputs` for the spec."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
from typing import Any, Callable, Iterator

from ....child.inputs import (
    INPUTS,
    TRAINING,
    Report,
    WorkloadError,
    batch_of,
    called,
    described_inputs,
    keyed_batch_of,
    load_module,
)
from ....child.shapes import shape_text
from . import facts, importing, kerasfile, libraries, savedmodel

MODEL = "model"  # a link to a SavedModel, in the folder of its export
COMPILED = "the training step is not compiled with XLA, as model.compile() asks for; --execution xla compiles it"
NOT_CALLABLE = "expected a Keras model, a function of tensors, or a signature: loaded.signatures['serving_default']"
IN_BUILD = "build() calls %s, which acts in no trial, as these load the exported model; move it to the top of the file"
EAGERLY = (
    "run_functions_eagerly acts in no trial, as these run the exported graph; --execution eager runs build() again"
)
OWN_STEP = (
    "the model has a train_step() of its own, and tftune trains by LOSS; to train by train_step(), write "
    "def training(model): return lambda x, y: model.train_step((x, y))"
)
NO_INPUTS = (
    "the file does not show what its model takes, as of a class of its own or a Sequential without an Input",
    "give what model.export('FOLDER') writes, or a Python file whose build() loads it and that has inputs()",
)
LOADED: list[Any] = []
NAMELESS = "inputs() returns a tuple, whose arrays go to %s in this order; return a dictionary to name them"
NOTES: list[list[str]] = []
"""What of the workload's code does not act: a text of its line, and what to report of it."""
ORIGIN = "origin.json"  # beside an export: its tags and signature, and the libraries that have to be loaded first


def step_of(spec: Report) -> tuple[list[Report], Callable[..., Any], Any]:
    """Return (inputs, call, owner) of a model that Python makes: the step as a function of tensors.

    It returns a dictionary of tensors; `owner` holds what it needs besides variables.
    """

    if spec["kind"] == "keras":
        model = kerasfile.load(spec["workload"], spec["op_libraries"])
        if getattr(model, "inputs", None) is None:
            raise WorkloadError(*NO_INPUTS)
        model_inputs = described_inputs([found_input(keras_spec(each)) for each in model.inputs], spec, numpy_dtype)
        # The names that Keras gives need not be fit for arguments.
        return [dict(each, name="input_%d" % i) for i, each in enumerate(model_inputs)], forward(model), model
    module = load_module(spec["workload"])
    before = facts.options()
    with keeping_what_is_loaded():
        model = called(module.build, params=spec["params"])
    # Trials run the file, for its inputs, and build() if they are eager.
    if spec["execution"] != "eager":
        changed = [name for name, value in facts.options().items() if value != before[name]]
        NOTES.extend([name, IN_BUILD % name] for name in changed)
        if before["run_functions_eagerly"]:
            NOTES.append(["run_functions_eagerly", EAGERLY])
    if not callable(model):
        raise WorkloadError("build() returned %s" % type(model).__name__, NOT_CALLABLE)
    owner = getattr(model, "__self__", None)
    if spec["execution"] != "eager" and is_keras(owner) and model.__name__.startswith("predict"):
        raise WorkloadError("build() returned the method %s of a Keras model" % model.__name__, "return the model")
    inputs, targets, keys = keyed_batch_of(module, spec, 2)
    described = described_arrays(inputs + targets)
    for each, axes in zip(described, open_axes(module, spec, inputs + targets)):
        each["open"] = axes
    for each, array in zip(described, sum(batch_of(module, spec, 2), ())):
        if each["shape"][1:] != list(array.shape[1:]):
            raise WorkloadError(
                "%s has the shape %s, and %s when the file makes it again, so processes would do different work"
                % (each["name"], shape_text(each["shape"]), shape_text([None, *array.shape[1:]])),
                "return the same shapes for a batch size in every process: give random sizes a seed of their own",
            )
    if keys is None and can_be_mixed_up(model, inputs):
        NOTES.append(["def inputs", NAMELESS % ", ".join(sorted(names_of(model)))])
    if spec["mode"] != TRAINING:
        return described, forward(model, keys), model
    if hasattr(module, "training"):
        step = called(module.training, model, params=spec["params"])
        n = len(inputs)
        whole = (lambda tensors: (dict(zip(keys, tensors[:n])), *tensors[n:])) if keys else tuple
        return described, lambda *tensors: named(step(*whole(tensors))), (model, step)
    n_outputs = check_outputs(model, inputs, targets, keys)
    if not is_of_keras(type(model).train_step):
        NOTES.append(["train_step", OWN_STEP])
    if getattr(model, "jit_compile", None) is True and spec["execution"] == "graph":
        NOTES.append(["compile(", COMPILED])
    optimizer = getattr(module, "OPTIMIZER", None) or getattr(model, "optimizer", None) or "sgd"
    return described, gradient_step(model, losses_of(module.LOSS, n_outputs), optimizer, len(inputs), keys), model


@contextlib.contextmanager
def keeping_what_is_loaded() -> Iterator[None]:
    """Keep what tf.saved_model.load() returns: a signature that build() takes of it does not keep its variables."""
    import tensorflow as tf

    load = tf.saved_model.load

    def keeping(*given: Any, **options: Any) -> Any:
        LOADED.append(load(*given, **options))
        return LOADED[-1]

    tf.saved_model.load = keeping
    try:
        yield
    finally:
        tf.saved_model.load = load


def check_outputs(model: Any, inputs: Any, targets: Any, keys: Any) -> int:
    """Call a model once, which makes the variables of one that has none, and return the number of its outputs.

    Raises WorkloadError if LOSS cannot fit.
    """
    import tensorflow as tf

    if not is_keras(model):
        raise WorkloadError("LOSS needs a build() that returns a Keras model", "define training(model) instead")
    positional, by_name = arrangement(model, keys)([tf.constant(array) for array in inputs])
    outputs = tf.nest.flatten(model(*positional, **by_name, training=False))
    if len(outputs) != len(targets):
        raise WorkloadError(
            "the model has %d outputs, and targets() returns %d arrays" % (len(outputs), len(targets)),
            "return one array per output; for dictionary outputs in the order of the sorted keys",
        )
    return len(outputs)


def losses_of(named_losses: Any, n_outputs: int) -> list[Any]:
    """Return the loss of each output: LOSS is one for all, a list, or a dictionary, which counts by its sorted keys.

    Raises WorkloadError for another number of losses.
    """
    import tensorflow as tf

    if isinstance(named_losses, dict):
        named_losses = [named_losses[name] for name in sorted(named_losses)]
    elif not isinstance(named_losses, (list, tuple)):
        named_losses = [named_losses] * n_outputs
    if len(named_losses) != n_outputs:
        raise WorkloadError(
            "the model has %d outputs, and LOSS names %d losses" % (n_outputs, len(named_losses)),
            "name one for each output, or one for all",
        )
    return [tf.keras.losses.get(each) for each in named_losses]


def open_axes(module: Any, spec: Report, arrays: tuple[Any, ...]) -> list[list[int]]:
    """Return the axes on which arrays of a file have another size in another batch, for each array.

    Items may be padded to the longest of their batch. The other batch is the file's own, or 4.
    """
    own, others = getattr(module, "BATCH_SIZE", 0), arrays
    with contextlib.suppress(Exception):  # trials may have other batch sizes, and report errors
        inputs, targets = batch_of(module, spec, own if isinstance(own, int) and own not in (0, 2) else 4)
        others = inputs + targets
    sizes = [list(zip(array.shape, other.shape)) for array, other in zip(arrays, others)]
    return [[axis for axis, (n, m) in enumerate(each) if axis and n != m] for each in sizes]


def described_arrays(arrays: tuple[Any, ...]) -> list[Report]:
    """Return name, dtype and shape (null for the batch) of the arrays that a file gives."""
    import tensorflow as tf

    for array in arrays:
        if isinstance(array, (tf.SparseTensor, tf.RaggedTensor)):
            raise not_dense("inputs() returned", type(array).__name__)
    return [
        {"name": "input_%d" % i, "dtype": tf.as_dtype(array.dtype).name, "shape": [None, *array.shape[1:]]}
        for i, array in enumerate(arrays)
    ]


def open_shape(described: Report) -> Any:
    """Return the shape that a model is exported for: null for the batch and for the axes that are `open`."""
    return [None if axis in described.get("open", ()) else n for axis, n in enumerate(described["shape"])]


def keras_spec(tensor: Any) -> Any:
    """Return TensorFlow's description of an input of a Keras model."""
    import tensorflow as tf

    if getattr(tensor, "sparse", False):
        return tf.SparseTensorSpec(tensor.shape, tensor.dtype)
    if getattr(tensor, "ragged", False):
        return tf.RaggedTensorSpec(tensor.shape, tensor.dtype)
    return tf.TensorSpec(tensor.shape, tensor.dtype, name=tensor.name)


def numpy_dtype(name: str) -> Any:
    """Return NumPy's type of a type's name, of those too that NumPy has not."""
    import tensorflow as tf

    return tf.as_dtype(name).as_numpy_dtype


def found_input(tensor_spec: Any, name: str = "") -> Report:
    """Return name, dtype and shape of an input as plain data; the shape is None where its rank is not known.

    Raises WorkloadError for one that is no dense tensor.
    """
    import tensorflow as tf

    if not isinstance(tensor_spec, tf.TensorSpec):
        raise not_dense("its input%s is" % (" '%s'" % name if name else ""), type(tensor_spec).__name__)
    shape = tensor_spec.shape.as_list() if tensor_spec.shape.rank is not None else None
    return {"name": tensor_spec.name, "dtype": tensor_spec.dtype.name, "shape": shape}


def not_dense(what: str, kind: str) -> WorkloadError:
    """Return the error for a sparse or ragged input, with the way around it."""
    kind = kind.replace("TensorSpec", "Tensor")
    convert = {"SparseTensor": "tf.sparse.from_dense(x)", "RaggedTensor": "tf.RaggedTensor.from_tensor(x)"}
    return WorkloadError(
        "%s a %s, and tftune makes dense arrays only" % (what, kind),
        "write a Python file whose build() loads the model and returns a function of dense tensors: "
        "lambda x: model(%s)" % convert.get(kind, "…"),
    )


def forward(model: Any, keys: Any = None) -> Callable[..., Any]:
    """Return inference by a Keras model or any callable; see `arrangement`."""
    arguments = arrangement(model, keys)
    options = {"training": False} if is_keras(model) else {}

    def call(*tensors: Any) -> Any:
        positional, by_name = arguments(tensors)
        return named(model(*positional, **by_name, **options))

    return call


def is_keras(model: Any) -> bool:
    """Return whether an object is a model of Keras, of whichever version, without importing any."""
    return any(is_of_keras(each) for each in type(model).__mro__ if each.__name__ == "Model")


def is_of_keras(code: Any) -> bool:
    """Return whether a class or a function is Keras's own."""
    return code.__module__.partition(".")[0] in ("keras", "tf_keras") or ".python.keras" in code.__module__


def names_of(model: Any) -> list[str]:
    """Return the names by which a signature, or a Keras model of a dictionary, takes its inputs; none of any other."""
    positional, structure = getattr(model, "structured_input_signature", None) or ((), {})
    if is_keras(model):
        with contextlib.suppress(AttributeError, ValueError):  # a model of its own class does not say what it takes
            structure = model.input
    return list(structure) if isinstance(structure, dict) and not positional else []


def can_be_mixed_up(model: Any, arrays: tuple[Any, ...]) -> bool:
    """Return whether arrays without names go to named inputs, of which two would take each other's unnoticed."""
    names, kinds = names_of(model), [(array.dtype, array.shape[1:]) for array in arrays]
    in_order = is_keras(model) and names == sorted(names)
    return bool(names) and not in_order and any(kinds.count(each) > 1 for each in kinds)


def arrangement(model: Any, keys: Any = None) -> Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return what makes tensors the arguments of a model, by place and by name.

    `keys` are the names of the tensors. Without them the tensors of a signature are in the order of its names, and the
    tensors of a Keras model as its inputs are structured, or as its call takes them. Raises WorkloadError for other
    names than the model has.
    """
    import tensorflow as tf

    names = names_of(model)
    if keys is not None:
        return keyed(model, keys, names)
    if not is_keras(model):
        return lambda tensors: ((), dict(zip(sorted(names), tensors))) if names else (tuple(tensors), {})
    try:
        structure = model.input
    except (AttributeError, ValueError):  # a model of its own class does not say what it takes
        n_places = sum(name not in ("training", "mask") for name in places(model.call))
        return lambda tensors: (tuple(tensors) if n_places >= len(tensors) else (list(tensors),), {})
    if isinstance(structure, (list, tuple, dict)):
        return lambda tensors: ((tf.nest.pack_sequence_as(structure, list(tensors)),), {})
    return lambda tensors: ((tensors[0],), {})


def keyed(model: Any, keys: Any, names: list[str]) -> Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return what makes tensors of these names the arguments of a model: by name, or as one dictionary."""
    function = model.call if is_keras(model) else model
    positional = (getattr(model, "structured_input_signature", None) or ((), {}))[0]
    own = names or [each.name.partition(":")[0] for each in getattr(model, "inputs", None) or () if is_keras(model)]
    own = own or [str(getattr(each, "name", place)) for place, each in enumerate(positional)]
    if own and set(own) != set(keys):
        raise WorkloadError(
            "inputs() returned %s, and the model takes %s" % (", ".join(keys), ", ".join(own)),
            "name each array as the model does, or return a tuple",
        )
    if own and positional:
        return lambda tensors: (tuple(dict(zip(keys, tensors))[name] for name in own), {})
    if own and is_keras(model):
        return lambda tensors: ((dict(zip(keys, tensors)),), {})
    parameters = inspect.signature(function).parameters.values()
    by_name = {each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    if own or set(keys) <= by_name or any(each.kind is each.VAR_KEYWORD for each in parameters):
        return lambda tensors: ((), dict(zip(keys, tensors)))
    return lambda tensors: ((tensors[0] if len(keys) == 1 else dict(zip(keys, tensors)),), {})


def places(function: Any) -> list[str]:
    """Return the names of what a function takes by place."""
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]


def gradient_step(
    model: Any, losses: list[Any], optimizer_name: Any, n_inputs: int, keys: Any = None
) -> Callable[..., Any]:
    """Return a training step: forward, backward, and the optimizer's update; it returns the loss.

    The loss is that of each output and what the model adds, such as a regulariser's.
    """
    import tensorflow as tf

    optimizer = tf.keras.optimizers.get(optimizer_name)
    optimizer.build(model.trainable_variables)
    arguments = arrangement(model, keys)

    def step(*tensors: Any) -> Any:
        inputs, targets = tensors[:n_inputs], tensors[n_inputs:]
        with tf.GradientTape() as tape:
            positional, by_name = arguments(inputs)
            outputs = tf.nest.flatten(model(*positional, **by_name, training=True))
            of_outputs = [tf.reduce_mean(loss_of(y, p)) for loss_of, y, p in zip(losses, targets, outputs)]
            own = [tf.cast(tf.reduce_sum(each), of_outputs[0].dtype) for each in model.losses]
            loss = tf.add_n([*of_outputs, *own])
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return {"loss": loss}

    return step


def named(outputs: Any) -> dict[str, Any]:
    """Return outputs as a flat dictionary of tensors; names that are given are kept.

    What has several parts gives one output for each: a ragged or sparse tensor, a list, a dictionary in a dictionary.
    None gives none.
    """
    import tensorflow as tf

    if isinstance(outputs, dict) and len(outputs) > 0 and all(is_dense(each) for each in outputs.values()):
        return outputs
    named_parts = outputs if isinstance(outputs, dict) else {"output": outputs}
    flat: dict[str, Any] = {}
    for name, output in named_parts.items():
        parts = [each for each in tf.nest.flatten(output, expand_composites=True) if each is not None]
        is_one = len(parts) == 1 and isinstance(outputs, dict)
        for i, part in enumerate(parts):
            flat[str(name) if is_one else "%s_%d" % (name, i)] = part if is_dense(part) else tf.convert_to_tensor(part)
    return flat


def check_returns(outputs: dict[str, Any]) -> None:
    """Raise WorkloadError for a model that returns no tensor: its graph would be empty."""
    if not outputs:
        raise WorkloadError("the model returns no tensor", "return what it computes")


def is_dense(output: Any) -> bool:
    """Return whether an output is a tensor that is not made of several."""
    import tensorflow as tf

    return isinstance(output, tf.Tensor)


def trackables(owner: Any, visited: set[int] | None = None) -> list[Any]:
    """Return what TensorFlow can save of what owns a step: itself, or what a function has in its closure."""
    import tensorflow as tf

    visited = set() if visited is None else visited
    if id(owner) in visited:
        return []
    visited.add(id(owner))
    if isinstance(owner, tf.__internal__.tracking.Trackable):
        return [owner]
    parts = list(owner) if isinstance(owner, (tuple, list)) else []
    for cell in getattr(owner, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # it is not bound yet
            parts.append(cell.cell_contents)
    return [each for part in parts for each in trackables(part, visited)]


def signature_of(spec: Report) -> tuple[Any, list[Report], Report]:
    """Return (function, inputs, choice) of a SavedModel: its signature, and what that takes, its batch size left open.

    `choice` are the tags of the graph and the name of the signature that were chosen. The name is None, and the
    function one of tensors, if the SavedModel has no signature.
    """
    # By way of the link: TensorFlow takes a path for a pattern, and the user's may have characters of one.
    path = os.path.join(spec["folder"], MODEL)
    tags = savedmodel.chosen_tags(path, spec["tags"])
    loaded = savedmodel.load(path, tags)
    name = savedmodel.signature_name(loaded, spec["signature"])
    choice = {"tags": tags, "signature": name}
    if name is None:
        function, specs = savedmodel.function(loaded, spec["signature"] or savedmodel.CALL)
        model_inputs = [dict(found_input(each), name=each.name or "input_%d" % i) for i, each in enumerate(specs)]
        return kept(function, loaded), described_inputs(model_inputs, spec, numpy_dtype), choice
    function = kept(loaded.signatures[name], loaded)
    input_specs = function.structured_input_signature[1]
    # TensorFlow renames what is no name of Python: 0/observation, and what has a hyphen or a colon.
    inputs = [dict(found_input(each, name), name=name) for name, each in sorted(input_specs.items())]
    refuse_parts(path, inputs)
    return function, described_inputs(inputs, spec, numpy_dtype), choice


def kept(function: Any, owner: Any) -> Any:
    """Return a function that keeps what it needs: variables live as long as what loaded them."""
    function._tftune_keeps = owner
    return function


def origin(folder: str) -> Report:
    """Return what is told beside an export of where it comes from: `libraries`, and of a SavedModel the choice."""
    with open(os.path.join(folder, ORIGIN), encoding="utf-8") as file:
        told: Report = json.load(file)
    return told


def refuse_parts(folder: str, inputs: list[Report]) -> None:
    """Raise WorkloadError where inputs are the parts of a sparse or ragged tensor, as signatures of these have them.

    The parts of `x` are called x, x_1 …: of a sparse tensor its indices, values and shape, of a ragged one its values
    and the ends of its rows. Dense tensors may have such names too, so that there has to be a function that takes one.
    """
    shapes = {each["name"]: each["shape"] for each in inputs}
    whole = next((name for name in sorted(shapes) if shapes.get(name + "_1") == [None]), None)
    if whole is None:
        return
    indices, shape = shapes[whole] or [], shapes.get(whole + "_2") or [None]
    kind = "SparseTensor" if len(indices) == 2 and indices[1:] == shape else "RaggedTensor"
    from tensorflow.python.saved_model.loader_impl import parse_saved_model

    saved = parse_saved_model(folder)
    functions = [each for graph in saved.meta_graphs for each in graph.object_graph_def.concrete_functions.values()]
    if any("%s_TENSOR_SPEC" % kind[:6].upper() in str(each.canonicalized_input_signature) for each in functions):
        raise not_dense("its input '%s' is" % whole, kind)


def exported(spec: Report) -> Any:
    """Return the signature of an exported workload, its batch size left open."""
    libraries.load(origin(spec["folder"])["libraries"])
    folder, tags, signature = place(spec)
    loaded = savedmodel.load(folder, tags)
    return kept(loaded.signatures[signature], loaded)


def place(spec: Report) -> tuple[str, list[str], str]:
    """Return where the SavedModel of a workload lies, the tags of its graph, and the name of its signature."""
    choice, link = origin(spec["folder"]), os.path.join(spec["folder"], MODEL)
    if os.path.exists(link):
        return link, choice["tags"], choice["signature"]
    return spec["folder"], savedmodel.SERVE, spec["mode"]


def traced(folder: str, spec: Report) -> tuple[Any, list[str]]:
    """Return (function, inputs) of the export in a folder: its step as one concrete function of the named inputs."""
    tf = importing.tensorflow()

    function = exported(dict(spec, folder=folder))
    with open(os.path.join(folder, INPUTS), encoding="utf-8") as file:
        described = json.load(file)
    names = [each["name"] for each in described]
    signature = [tf.TensorSpec(open_shape(each), each["dtype"], name=each["name"]) for each in described]
    step = tf.function(
        lambda *given: named(function(**dict(zip(names, given)))), input_signature=signature, autograph=False
    )
    concrete = step.get_concrete_function()
    concrete._tftune_keeps = function  # it does not keep what it calls, nor that the variables
    return concrete, names
