"""What a workload is called with: the arrays that its file makes, or such as fit a model that was found.

A spec names `kind`, `workload` (its path), `mode`, `params`, and for models that are found rather than written
`signature`, `shapes`, `ranges` and `values`. Of what such a model takes, `tuner.child.shapes` decides the shapes and
`tuner.child.values` the values.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import itertools
import json
import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

from . import onnxfile, shapes, usage, user_inputs, values
from .shapes import shape_text
from .user_inputs import WorkloadError as WorkloadError

TRAINING = "training"
INPUTS, GRAPH = "inputs.json", "graph.json"  # beside an exported model: what it takes, and the graph of one item's call
Report = dict[str, Any]
CONSTANTS: dict[str, Report] = {}
"""What the workload files that were loaded had as BATCH_SIZE and PARAMS then, by the path of each."""


def shortened(text: str, limit: int = 400) -> str:
    """Return a text on one line, its middle left out if it is long: reasons stand at the beginning or at the end.

    What cannot be printed is escaped: errors show the bytes that they are of.
    """
    line = " ".join(text.split())
    line = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
    if len(line) <= limit:
        return line
    return "%s … %s" % (line[: limit // 2].rstrip(), line[-limit // 2 :].lstrip())


def load_libraries(names: list[str], load: Callable[[str], Any]) -> None:
    """Load what a model needs first: Python files and modules are imported, and `load` gets the path of a library.

    Raises WorkloadError for what cannot be loaded.
    """
    for name in names:
        load_library(name, load)


def load_library(name: str, load: Callable[[str], Any]) -> None:
    """Load one; a module that has the path of a library tells it by `get_library_path()`."""
    try:
        if name.endswith(".py"):
            load_module(name)
        elif os.sep in name or ".so" in name:
            load(name)
        else:
            path_of = getattr(importlib.import_module(name), "get_library_path", None)
            if path_of is not None:
                load(path_of())
    except MemoryError:
        raise
    except Exception as error:
        raise WorkloadError(
            "the library %s cannot be loaded: %s: %s" % (name, type(error).__name__, shortened(str(error))),
            "install or build it for the framework's version in the interpreter of --python",
        ) from error


@functools.lru_cache(maxsize=None)
def load_module(path: str) -> Any:
    """Execute a workload file, once; its folder is importable, so that it may stand beside other modules."""
    with contextlib.suppress(ImportError):
        import numpy.random  # noqa: F401  # it imports `secrets`, which may be a file of the folder's
    sys.path.insert(0, os.path.dirname(path))
    # Under its own name, so that what it pickles can be read by the processes that it starts.
    name = os.path.splitext(os.path.basename(path))[0]
    name = "tftune_workload" if name in sys.modules else name
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # a path that ends in .py has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    constants = {each: getattr(module, each) for each in ("BATCH_SIZE", "PARAMS") if hasattr(module, each)}
    CONSTANTS[path] = json.loads(json.dumps(constants, default=_plain, skipkeys=True))
    return module


def _plain(value: Any) -> Any:
    """Return a value of NumPy's as Python has it, and anything else as text."""
    return value.item() if hasattr(value, "item") else repr(value)


def arguments_of(
    spec: Report, batch_size: int, described: list[Report], dtype_of: Callable[[str], Any]
) -> tuple[Any, ...]:
    """Return the arrays of one call: the file's own, or, for a model that was found, made from what it takes.

    `dtype_of` gives NumPy's type of a type's name, of those too that NumPy has not.
    """
    if spec["kind"] != "python":
        return tuple(fed(spec, each, batch_size, dtype_of) for each in described)
    inputs, targets = batch_of(load_module(spec["workload"]), spec, batch_size)
    if spec["execution"] != "eager":
        check_shapes(inputs + targets, described)
    return inputs + targets


def check_shapes(arrays: tuple[Any, ...], described: list[Report]) -> None:
    """Raise WorkloadError for arrays of other shapes than the model was exported for: it might compute less of them."""
    for array, each in zip(arrays, described):
        pairs = enumerate(itertools.zip_longest(array.shape, each["shape"]))
        if "open" in each and any(axis and n != m and axis not in each["open"] for axis, (n, m) in pairs):
            raise WorkloadError(
                "%s has the shape %s, and the model was exported for %s, as inputs(2) returned it"
                % (each["name"], shape_text(list(array.shape)), shape_text(each["shape"])),
                "let inputs() pad its items to one length for all batch sizes, or use --execution eager",
            )


class Batch(NamedTuple):
    """The arrays that a file makes for a batch, and the `keys` of the inputs if inputs() returns a dictionary."""

    inputs: tuple[Any, ...]
    targets: tuple[Any, ...]
    keys: "tuple[str, ...] | None"


def batch_of(module: Any, spec: Report, batch_size: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return (inputs, targets) that a file makes, each a tuple of arrays of that batch; no targets but for training."""
    return keyed_batch_of(module, spec, batch_size)[:2]


def keyed_batch_of(module: Any, spec: Report, batch_size: int) -> Batch:
    """Return the batch that a file makes, dictionaries in the order of their keys; no targets but for training."""
    names = ("inputs", "targets") if spec["mode"] == TRAINING else ("inputs",)
    returned = [called(getattr(module, name), batch_size, params=spec["params"]) for name in names]
    arrays = [arrays_of(each, name, batch_size) for each, name in zip(returned, names)]  # raises for other keys
    keys = tuple(sorted(returned[0])) if isinstance(returned[0], Mapping) else None
    return Batch(arrays[0], arrays[1] if len(arrays) > 1 else (), keys)


def called(function: Any, *given: Any, params: Report) -> Any:
    """Return what a function of a workload file returns, which takes those of the parameters that it names."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return function(*given, **params)
    names = {each.name for each in parameters}
    return function(*given, **{name: value for name, value in params.items() if name in names})


def arrays_of(returned: Any, name: str, batch_size: int) -> tuple[Any, ...]:
    """Return what a file's function gave for a batch as a tuple; a single array may come without one."""
    arrays = (returned,) if hasattr(returned, "dtype") else returned
    if isinstance(returned, Mapping):
        if not all(isinstance(key, str) for key in returned):
            raise TypeError("%s() returned a dictionary, expected names as its keys" % name)
        arrays = tuple(returned[key] for key in sorted(returned))
    if not isinstance(arrays, (tuple, list)):
        raise TypeError("%s() returned %s, expected a tuple of NumPy arrays" % (name, type(returned).__name__))
    other = next((type(array).__name__ for array in arrays if not hasattr(array, "dtype")), None)
    if other is not None:
        raise TypeError("%s() returned a %s among its arrays, expected NumPy arrays alone" % (name, other))
    for array in arrays:
        if not array.shape or array.shape[0] != batch_size:
            raise WorkloadError(
                "%s(%d) returned an array of the shape %s" % (name, batch_size, shape_text(list(array.shape))),
                "the first dimension of each array must be the batch",
            )
    return tuple(arrays)


def fed(spec: Report, described: Report, batch_size: int, dtype_of: Callable[[str], Any]) -> Any:
    """Return the array of a described input; what the user gives of it is where the spec says."""
    value = spec["values"].get(described["known_as"])
    return values.array_of(dict(described, given=value), batch_size, dtype_of)


def described_inputs(
    model_inputs: list[Report], spec: Report, dtype_of: Callable[[str], Any], facts: usage.Facts | None = None
) -> list[Report]:
    """Return what each input of a model that was found takes, and what it is fed with.

    `model_inputs` are name, dtype and shape: None where the rank is not known, and of open dimensions their names,
    or null. `dtype_of` gives NumPy's type of a type's name. `facts` are what the graph uses their values for; those
    of an ONNX file are read from it. Returned are name, `known_as`, what the user calls it, dtype, shape (null for
    the batch), `model_shape`, which the model has, `batch_axis`, `range`, `made_up` and `given`, `values`, which
    says what it holds, and whether that is `doubtful`. Raises WorkloadError for shapes that are missing, for shapes
    and values that do not fit, and for names that no input has.
    """
    model_inputs = shapes.without_numbers(model_inputs)
    names = [each["name"] for each in model_inputs]
    for option, by_input in (
        ("--input-shape", spec["shapes"]),
        ("--input-range", spec["ranges"]),
        ("--input", spec["values"]),
    ):
        for name in by_input:
            if name not in names:
                raise WorkloadError(
                    "%s %s: the model has no such input" % (option, name), "known: %s" % ", ".join(names)
                )
    for each in model_inputs:
        if each["dtype"].startswith(("q", "resource", "variant")):
            raise WorkloadError(
                "input '%s' has the type %s" % (each["name"], each["dtype"]),
                "write a Python file whose build() returns a function of numbers",
            )
    described = [
        dict(
            each,
            known_as=each["name"],
            model_shape=each["shape"],
            range=input_range(each, spec["ranges"].get(each["name"])),
            given=spec["values"].get(each["name"]),
        )
        for each in model_inputs
    ]
    if facts is None:
        fractional = [each["name"] for each in model_inputs if "float" in each["dtype"]]
        facts = onnxfile.value_facts(spec["workload"], fractional) if spec.get("kind") == "onnx" else usage.UNKNOWN
    refused = shapes.made_up_parts([each for each in described if each["shape"] is not None])
    if refused is not None:
        raise WorkloadError(*refused)
    described = [dict(each, batch_at=facts.batch_at.get(each["name"], shapes.usual_place(each))) for each in described]
    described = input_shapes(described, spec["shapes"], dtype_of)
    n_items: dict[str, int] = {}
    for each in described:
        others = [other for other in described if other is not each]
        each["made_up"] = values.made_up(each, others) if each["given"] is None else None
        each["values"] = values.values_text(each)
        each["doubtful"] = bool((each["made_up"] or {}).get("doubtful"))
        name = each["name"]
        values.correct(
            each,
            decides=name in facts.decisive,
            rows=facts.rows.get(name),
            is_worked_out=name in facts.worked_out,
        )
        if each["given"] is not None:
            n_rows = len(user_inputs.items_of(each, dtype_of))  # refuses what cannot be fed, before all is measured
            is_shown = name in facts.batch_at or shapes.BATCH in spec["shapes"].get(name, ())
            is_shown = is_shown or spec.get("kind") == "keras" or any(map(shapes.is_batch, each["model_shape"] or ()))
            if n_rows > MANY and not is_shown and shapes.may_be_one_item(each, others):
                whole = ",".join(map(str, [n_rows, *shapes.item_shape(each)]))
                each["values"] += ROWS_NOTE % (n_rows, name, whole)
                each["doubtful"] = True
            if n_rows > 1 and each["batch_axis"] is not None:
                n_items[name] = n_rows
    note_pairs(described, n_items)
    return described


def note_pairs(described: list[Report], n_items: dict[str, int]) -> None:
    """Note which inputs have fewer items in their files than others: these items are repeated next to the others.

    `n_items` has the number of items of each file that has several, by input.
    """
    longest = max(n_items, key=lambda name: n_items[name], default="")
    for each in described:
        n = n_items.get(each["name"])
        batch_size = None if n is None else each["shape"][each["batch_axis"]]
        if n is not None and n < n_items[longest] and (batch_size is None or n < batch_size):
            each["values"] += PAIRS_NOTE % (n, n_items[longest], longest)
            each["doubtful"] = True


def input_shapes(
    described: list[Report], user_shapes: dict[str, list[Any]], dtype_of: Callable[[str], Any]
) -> list[Report]:
    """Return the inputs with their shapes and the place of the batch; a file of items gives what the user does not.

    Raises WorkloadError for all that are missing, or for one that does not fit.
    """
    sizes = dict(user_shapes)
    for each, placed in zip(described, placed_inputs(described, user_shapes)):
        is_known = placed["shape"] is not None
        rank = len(placed["shape"]) - (placed["batch_axis"] is not None) if is_known else None
        if each["name"] in user_shapes and not is_known:
            rank = len(user_shapes[each["name"]])
        each["item_rank"] = rank
        file = (each["given"] or {}).get("file", "")
        holds_items = file and (each["dtype"] != "string" or not user_inputs.is_one_item(file))
        text = (each["given"] or {}).get("text", "")
        if holds_items and values.is_one_sound(placed, [other for other in described if other is not each]):
            items = user_inputs.given_items(dict(placed, item_rank=1), dtype_of)
            each["item_rank"], sizes[each["name"]] = 1, list(items.shape[1:])
        elif holds_items and shapes.is_missing(placed["shape"]):
            items = user_inputs.given_items(dict(placed, item_rank=rank), dtype_of)
            sizes[each["name"]] = list(items.shape[1:])
        elif "," in text and "int" in each["dtype"] and rank == 1 and shapes.is_missing(placed["shape"]):
            sizes[each["name"]] = [text.count(",") + 1]
    placed_at = placed_inputs(described, sizes)
    missing = [each for each in placed_at if shapes.is_missing(each["shape"])]
    if missing:
        model_shapes = {each["name"]: each["shape"] for each in described}
        texts = [
            "'%s' has the shape %s" % (name, "unknown" if shape is None else shape_text(shape))
            for name, shape in ((each["name"], model_shapes[each["name"]]) for each in missing)
        ]
        is_one, has_batch = len(missing) == 1, any(shapes.has_batch(each) for each in placed_at)
        unclear = [model_shapes[each["name"]] or () for each in missing]
        is_unclear = any(len(shape) > 2 and not is_clear(shape) for shape in unclear)
        raise WorkloadError(
            "input %s" % texts[0] if is_one else "inputs leave dimensions open: %s" % ", ".join(texts),
            "give %s%s, e.g. %s%s%s%s"
            % (
                "its shape" if is_one else "their shapes",
                WITHOUT_BATCH if has_batch else "",
                " ".join(shapes.options(described, sizes)),
                WHOLE_NOTE if is_unclear and has_batch else "",
                BATCH_NOTE if is_unclear else "",
                FOLLOWS_NOTE if any(follows_batch(n) for shape in unclear for n in shape) else "",
            ),
        )
    if any(None in each["shape"] for each in placed_at):
        for each in placed_at:
            # Beside inputs whose batch is open, a size that is written into the model is no batch.
            axis, name = each["batch_axis"], each["name"]
            if axis is not None and each["shape"][axis] is not None and shapes.BATCH not in sizes.get(name, ()):
                each["batch_axis"] = None
                each["item_rank"] = len(each["shape"])
    return placed_at


def is_clear(shape: Any) -> bool:
    """Return whether the names of dimensions show what they are: `s0` does not."""
    return any(shapes.is_batch(n) or shapes.is_part(n) for n in shape)


def follows_batch(n: Any) -> bool:
    """Return whether a dimension is worked out from the batch: 2*batch."""
    return isinstance(n, str) and "batch" in n and any(sign in n for sign in "*+/")


MANY = 16  # rows of a file, and more than most batches
ROWS_NOTE = ", one of its %d rows per item (--input-shape %s=%s makes them one item)"
PAIRS_NOTE = ", whose %d items are repeated next to %d of %s"
WITHOUT_BATCH = " without the batch"
WHOLE_NOTE = "; if the model has no batch, give the whole shape of every input"
BATCH_NOTE = "; if the batch is not the first dimension, write batch in its place, e.g. 128,batch,80"
FOLLOWS_NOTE = "; a dimension such as 2*batch follows the batch: give its size for the one --batch-size that you give"


def placed_inputs(described: list[Report], sizes: dict[str, list[Any]]) -> list[Report]:
    """Return the inputs with shapes as far as these are known; raises WorkloadError for sizes that do not fit."""
    try:
        return shapes.placed(described, sizes)
    except ValueError as error:
        name = str(error)
        each = next(each for each in described if each["name"] == name)
        others = {other: given_sizes for other, given_sizes in sizes.items() if other != name}
        placed = next(placed for placed in placed_inputs(described, others) if placed["name"] == name)
        is_of_file = "file" in (each["given"] or {})
        option = "--input %s: an item of %s" if is_of_file else "--input-shape %s=%s"
        raise WorkloadError(
            "%s does not fit: input '%s' has the shape %s"
            % (option % (name, ",".join(map(str, sizes[name]))), name, shape_text(each["shape"])),
            "give its shape%s, e.g. --input-shape %s=%s%s"
            % (
                WITHOUT_BATCH if shapes.has_batch(placed) else "",
                name,
                shapes.example(placed),
                WHOLE_NOTE if shapes.has_batch(placed) and len(sizes[name]) == len(each["shape"]) else "",
            ),
        ) from None


def plain_strings(array: Any) -> Any:
    """Return an array of strings as NumPy's own, as text where it is some; any other array is as it was.

    Of an array of objects libraries may take what Python shows of bytes: `b'…'`.
    """
    import numpy as np

    array = np.asarray(array)
    if array.dtype.kind != "O":
        return array
    encoded = [each if isinstance(each, bytes) else str(each).encode() for each in array.ravel().tolist()]
    try:
        decoded = [each.decode() for each in encoded]
        # NumPy's own strings lose zeros at their end.
        kind = object if any(each.endswith("\0") for each in decoded) else None
        return np.array(decoded, dtype=kind).reshape(array.shape)
    except UnicodeDecodeError:
        return np.array(encoded).reshape(array.shape)


def write_described(folder: str, described: list[Report], graph: Report | None) -> None:
    """Write beside an exported model what it takes, and the graph of one item's call, null where that is not known."""
    for name, content in ((INPUTS, described), (GRAPH, graph)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file)


def write_own(spec: Report, path: str, model_inputs: list[Report], facts: usage.Facts | None = None) -> None:
    """Write a model that is read as it is, and what its inputs are; the graph of one item's call is not known."""
    import numpy as np

    os.symlink(spec["workload"], path)  # its weights may lie in files beside it
    write_described(spec["folder"], described_inputs(model_inputs, spec, np.dtype, facts), None)


def copy_described(spec: Report) -> None:
    """Copy what is written beside the export that this one is made from."""
    for name in (INPUTS, GRAPH):
        shutil.copy(os.path.join(spec["from"], name), spec["folder"])


def input_range(model_input: Report, user_range: list[float] | None) -> list[float] | None:
    """Return the range of an input's values, None for the usual one; raises WorkloadError for what it cannot hold."""
    name, dtype = model_input["name"], model_input["dtype"]
    if user_range is None:
        return None
    import numpy as np

    text = "--input-range %s=%g:%g" % (name, user_range[0], user_range[1])
    if "float" in dtype:
        # NumPy has no bfloat16, which reaches as far as float32.
        most = float(np.finfo(dtype).max) if dtype in ("float16", "float32", "float64") else np.inf
        if max(map(abs, user_range)) > most:
            raise WorkloadError("%s does not fit %s" % (text, dtype), "expected numbers up to %g" % most)
        return user_range
    if "int" not in dtype:
        raise WorkloadError("--input-range does not apply to input '%s' of type %s" % (name, dtype), "remove it")
    if not all(isinstance(bound, int) for bound in user_range):
        raise WorkloadError("%s does not fit %s" % (text, dtype), "expected whole numbers")
    limits = np.iinfo(dtype)
    if not limits.min <= user_range[0] < user_range[1] <= limits.max + 1:
        raise WorkloadError(
            "--input-range %s=%d:%d does not fit %s" % (name, user_range[0], user_range[1], dtype),
            "expected numbers from %d to %d" % (limits.min, limits.max),
        )
    return user_range
