"""A SavedModel as somebody has saved it: which of its graphs, and which of that one's functions, is run."""

from __future__ import annotations

from typing import Any, Callable

from ....child.inputs import WorkloadError, shortened
from . import libraries

SERVE = ["serve"]
CALL = "__call__"


def chosen_tags(path: str, tags: "list[str] | None") -> "list[str]":
    """Return the tags of the graph that is run: those asked for, those of the only graph, `serve` alone, or none.

    TensorFlow Serving takes `serve`, and modules of TensorFlow Hub 1 have no tags on the graph that is served. Raises
    WorkloadError where that leaves a choice.
    """
    from tensorflow.python.saved_model import loader_impl

    try:
        graphs = loader_impl.parse_saved_model(path).meta_graphs
    except Exception as error:
        raise WorkloadError(
            "its SavedModel cannot be read: %s" % shortened(str(error)), "copy it again, or save it again"
        ) from error
    tag_sets = [sorted(each.meta_info_def.tags) for each in graphs]
    serving = [each for each in tag_sets if SERVE[0] in each]
    wanted = [sorted(tags)] if tags is not None else [SERVE, []]
    for each in wanted:
        if each in tag_sets:
            return each
    if tags is None and (len(tag_sets) == 1 or len(serving) == 1):
        return (serving or tag_sets)[0]
    known = "; ".join(",".join(each) or "(none)" for each in tag_sets)
    problem = (
        "no graph is tagged %s" % (",".join(tags) or "''") if tags is not None else "several graphs could be meant"
    )
    raise WorkloadError(
        "%s: the tag sets are %s" % (problem, known),
        "choose one: --tags %s" % (",".join((serving or tag_sets)[0]) or "''"),
    )


def load(path: str, tags: "list[str]") -> Any:
    """Return the graph of a SavedModel with these tags; raises WorkloadError where TensorFlow cannot load it."""
    import tensorflow as tf

    try:
        with libraries.named_operators():
            return tf.saved_model.load(path, tags=tags)
    except (MemoryError, WorkloadError, tf.errors.ResourceExhaustedError):
        raise
    except Exception as error:
        raise WorkloadError(
            "TensorFlow %s cannot load it: %s" % (tf.__version__, shortened(str(error))),
            "look into it: saved_model_cli show --all --dir FOLDER; if files are missing, copy it again",
        ) from error


def signature_name(loaded: Any, wanted: "str | None") -> "str | None":
    """Return the name of the signature that is run, None if it is a function without one; raises WorkloadError."""
    names = sorted(loaded.signatures)
    if wanted is None and names:
        if "serving_default" in names or len(names) == 1:
            return "serving_default" if "serving_default" in names else names[0]
        raise WorkloadError(
            "it has several signatures, and none is called serving_default",
            "choose one: --signature %s" % one_of(names),
        )
    if wanted in names:
        return wanted
    others = function_names(loaded)
    if (wanted or CALL) in others:
        return None
    known = names + others
    if wanted is None:
        raise WorkloadError(
            "it has no signatures, and cannot be called",
            "choose one of its functions: --signature %s" % one_of(known)
            if known
            else "save it with signatures, or write a Python file that loads it and calls what it has (docs/models.md)",
        )
    raise WorkloadError(
        "it has no signature '%s'" % wanted, "give --signature; known: %s" % (", ".join(known) or "none")
    )


def one_of(names: "list[str]") -> str:
    """Return names to choose from, as text."""
    return " or --signature ".join(names)


def function_names(loaded: Any) -> "list[str]":
    """Return the names of the functions that were saved with a model and are no signatures."""
    names = [CALL, *(name for name in sorted(vars(loaded)) if not name.startswith("_"))]
    return [name for name in names if getattr(getattr(loaded, name, None), "concrete_functions", None)]


def function(loaded: Any, name: str) -> "tuple[Callable[..., Any], list[Any]]":
    """Return (call, specs) of a function that is no signature: a function of tensors, and TensorFlow's descriptions.

    Of the forms of arguments that it was saved with, those count whose batch is open, if there are any, and those that
    do not train. Raises WorkloadError where that leaves none or several.
    """
    import tensorflow as tf

    forms = []
    for each in getattr(loaded, name).concrete_functions:
        arguments = each.structured_input_signature
        flat = tf.nest.flatten(arguments)
        specs = [part for part in flat if isinstance(part, tf.TypeSpec)]
        if specs and all(isinstance(part, tf.TensorSpec) for part in specs):
            has_open_batch = all(spec.shape.rank is None or spec.shape[:1].as_list() == [None] for spec in specs)
            is_inference = not any(part is True for part in flat)
            forms.append((has_open_batch, is_inference, each, specs))
    best = max((form[:2] for form in forms), default=None)
    usable = [form for form in forms if form[:2] == best]
    if len(usable) != 1:
        raise WorkloadError(
            "it has no signatures, and its %s was saved with %s forms of arguments"
            % (name, len(usable) or "no usable"),
            "write a Python file that loads it and calls it (docs/models.md)",
        )
    _, _, form, specs = usable[0]
    arguments = form.structured_input_signature
    parts = tf.nest.flatten(arguments)

    def call(*tensors: Any) -> Any:
        waiting = iter(tensors)
        given, named = tf.nest.pack_sequence_as(
            arguments, [next(waiting) if isinstance(part, tf.TypeSpec) else part for part in parts]
        )
        return form(*given, **named)

    return call, specs
