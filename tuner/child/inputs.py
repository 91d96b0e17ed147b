"""What a workload is called with: the arrays that its file makes, or such as fit a model that was found.

A spec names `kind`, `workload` (its path), `mode`, `params`, and for models that are found rather than written
`signature`, `shapes` and `ranges`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import shutil
import sys
from typing import Any, Callable

TRAINING = "training"
SEED = 20160627
INPUTS, GRAPH = "inputs.json", "graph.json"  # beside an exported model: what it takes, and the graph of one item's call
Report = dict[str, Any]


class WorkloadError(Exception):
    """The workload does not do what is asked of one: what was found, and what to do."""

    def __init__(self, message: str, advice: str) -> None:
        Exception.__init__(self, message)
        self.advice = advice


def shortened(text: str, limit: int = 400) -> str:
    """Return a text on one line, its middle left out if it is long: reasons stand at the beginning or at the end."""
    line = " ".join(text.split())
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
    return module


def arguments_of(
    spec: Report, batch_size: int, described: list[Report], dtype_of: Callable[[str], Any]
) -> tuple[Any, ...]:
    """Return the arrays of one call: the file's own, or, for a model that was found, made from what it takes.

    `dtype_of` gives NumPy's type of a type's name, of those too that NumPy has not.
    """
    if spec["kind"] != "python":
        return tuple(array_of(each, batch_size, dtype_of) for each in described)
    inputs, targets = batch_of(load_module(spec["workload"]), spec, batch_size)
    return inputs + targets


def batch_of(module: Any, spec: Report, batch_size: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return (inputs, targets) that a file makes, each a tuple of arrays of that batch; no targets but for training."""
    names = ("inputs", "targets") if spec["mode"] == TRAINING else ("inputs",)
    arrays = [arrays_of(called(getattr(module, n), batch_size, params=spec["params"]), n, batch_size) for n in names]
    return arrays[0], arrays[1] if len(arrays) > 1 else ()


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
    if not isinstance(arrays, (tuple, list)) or not all(hasattr(array, "dtype") for array in arrays):
        raise TypeError("%s() returned %s, expected a tuple of NumPy arrays" % (name, type(returned).__name__))
    for array in arrays:
        if not array.shape or array.shape[0] != batch_size:
            raise WorkloadError(
                "%s(%d) returned an array of the shape %s" % (name, batch_size, shape_text(list(array.shape))),
                "the first dimension of each array must be the batch",
            )
    return tuple(arrays)


def array_of(described: Report, batch_size: int, dtype_of: Callable[[str], Any]) -> Any:
    """Return an array of a described input: numbers in its range, [0, 1) if none is given, integers 0 and 1.

    Strings are empty.
    """
    import numpy as np

    shape = [batch_size if n is None else n for n in described["shape"]]
    # Each input has its own numbers, and the same in every process.
    seed = int(hashlib.sha256(described["name"].encode()).hexdigest()[:8], 16)
    rng = np.random.default_rng([SEED, seed])
    kind = described["dtype"]
    if kind == "string":
        return np.full(shape, b"", dtype=object)
    if kind == "bool":
        return rng.random(shape) < 0.5
    if "int" in kind:
        low, high = described["range"] or (0, 2)
        return rng.integers(low, high, size=shape, dtype=kind)
    low, high = described["range"] or (0, 1)
    return (low + (high - low) * rng.random(shape)).astype(dtype_of(kind))


def shape_text(shape: list[int | None]) -> str:
    """Return a shape as people write it, with ? for what is not known."""
    return "(%s)" % ", ".join("?" if n is None else str(n) for n in shape)


def described_inputs(model_inputs: list[Report], spec: Report) -> list[Report]:
    """Return name, dtype, shape (null for the batch) and range of each input of a model that was found.

    `model_inputs` are name, dtype and shape (None where the rank is not known, and null for open dimensions). Raises
    WorkloadError for shapes that are missing or do not fit, and for names that no input has.
    """
    input_names = [each["name"] for each in model_inputs]
    for option, by_input in (("--input-shape", spec["shapes"]), ("--input-range", spec["ranges"])):
        for name in by_input:
            if name not in input_names:
                raise WorkloadError(
                    "%s %s: the model has no such input" % (option, name), "known: %s" % ", ".join(input_names)
                )
    return [
        dict(
            each,
            shape=input_shape(each, spec["shapes"].get(each["name"])),
            range=input_range(each, spec["ranges"].get(each["name"])),
        )
        for each in model_inputs
    ]


def write_described(folder: str, described: list[Report], graph: Report | None) -> None:
    """Write beside an exported model what it takes, and the graph of one item's call, null where that is not known."""
    for name, content in ((INPUTS, described), (GRAPH, graph)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file)


def copy_described(spec: Report) -> None:
    """Copy what is written beside the export that this one is made from."""
    for name in (INPUTS, GRAPH):
        shutil.copy(os.path.join(spec["from"], name), spec["folder"])


def input_range(model_input: Report, user_range: list[int] | None) -> list[int] | None:
    """Return the range of an input's values, None for the usual one; raises WorkloadError for what it cannot hold."""
    name, dtype = model_input["name"], model_input["dtype"]
    if user_range is None or "float" in dtype:
        return user_range
    if "int" not in dtype:
        raise WorkloadError("--input-range does not apply to input '%s' of type %s" % (name, dtype), "remove it")
    import numpy as np

    limits = np.iinfo(dtype)
    if not limits.min <= user_range[0] < user_range[1] <= limits.max + 1:
        raise WorkloadError(
            "--input-range %s=%d:%d does not fit %s" % (name, user_range[0], user_range[1], dtype),
            "expected numbers from %d to %d" % (limits.min, limits.max),
        )
    return user_range


def input_shape(described: Report, user_shape: list[int] | None) -> list[int | None]:
    """Return the shape of an input, its first dimension left open as the model leaves it; raises WorkloadError.

    `user_shape` is what the user said of it, without the batch.
    """
    name, model_shape = described["name"], described["shape"]
    if user_shape is None:
        if model_shape is None or None in model_shape[1:]:
            shape_shown = "unknown" if model_shape is None else shape_text(model_shape)
            raise WorkloadError(
                "input '%s' has the shape %s" % (name, shape_shown),
                "give its shape without the batch, e.g. --input-shape %s=%s" % (name, example(model_shape)),
            )
        return list(model_shape)
    if model_shape is None:
        return [None] + user_shape
    if len(user_shape) != len(model_shape) - 1 or any(a not in (None, b) for a, b in zip(model_shape[1:], user_shape)):
        raise WorkloadError(
            "--input-shape %s=%s does not fit: input '%s' has the shape %s"
            % (name, ",".join(map(str, user_shape)), name, shape_text(model_shape)),
            "give its shape without the batch, e.g. --input-shape %s=%s" % (name, example(model_shape)),
        )
    return list(model_shape[:1]) + user_shape


def example(shape: list[int | None] | None) -> str:
    """Return a shape that an input could be given, without the batch."""
    return ",".join(str(n or 128) for n in (shape or [None, 128])[1:])
