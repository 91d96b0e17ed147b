"""A workload file, read without running it.

A workload file is plain Python. Its first docstring line is the description, its upper-case constants are
literals that this module reads from the syntax tree, and its functions import TensorFlow themselves:

    ITEM = "image"              what one item of a batch is called
    BATCH_SIZE = 8              the default batch size
    PARAMS = {"size": 224}      parameters with their defaults; each function below takes those that it needs, by name
    MODES = ("inference", "training")
    SOURCE = "He et al., 2016"
    def build(size):            -> a Keras model or a callable, with seeded weights
    def inputs(batch_size, size):  -> the arguments of one call, a tuple of NumPy arrays whose first axis is the batch

and for training either

    LOSS, OPTIMIZER = "mse", "sgd"  names that Keras knows; "sgd" is the default
    def targets(batch_size):    -> what the outputs are to be, a tuple of arrays

or, for anything else, `targets` and a step of its own:

    def training(model):        -> a function of inputs and targets that updates the model and returns its loss
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import BadInputError
from tuner.paths import shipped_folder

INFERENCE, TRAINING = "inference", "training"
MODES = (INFERENCE, TRAINING)
_REQUIRED = ("build", "inputs")
_BESIDES = {"build": (), "inputs": ("batch_size",), "targets": ("batch_size",), "training": ("model",)}
"""The functions of a workload file, and what they take besides the parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFile:
    """What a workload file says of itself."""

    path: Path
    description: str
    modes: tuple[str, ...]
    params: Mapping[str, Any]
    item: str
    batch_size: int
    source: str


def read(path: Path) -> PythonFile:
    """Return what a workload file says; raises BadInputError."""
    tree = _parse(path)
    constants = _constants(tree)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    bound = functions.keys() | _imported_names(tree)
    form = f"see {shipped_folder('workloads') / 'resnet50.py'} for the form"
    for required in _REQUIRED:
        if required not in bound:
            raise BadInputError(f"{path} defines no function {required}()", form)
    params = _params(path, constants.get("PARAMS", {}))
    known_functions = [functions[name] for name in _BESIDES if name in functions]
    used_parameters = [name for function in known_functions for name in _taken(path, function, params)]
    for name in params:
        if name not in used_parameters and len(known_functions) == len(_BESIDES.keys() & bound):
            raise BadInputError(f"{path}: no function takes the parameter {name} of PARAMS", form)
    modes = _modes(path, constants.get("MODES", (INFERENCE,)))
    if TRAINING in modes and not {"training", "LOSS"} & bound:
        raise BadInputError(f"{path} lists the mode training, but defines neither LOSS nor training()", form)
    if TRAINING in modes and "targets" not in bound:
        raise BadInputError(f"{path} lists the mode training, but defines no function targets()", form)
    batch_size = constants.get("BATCH_SIZE", 1)
    if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
        raise BadInputError(f"{path}: BATCH_SIZE is {batch_size!r}, expected a whole number of at least 1")
    return PythonFile(
        path=path.resolve(),
        description=(ast.get_docstring(tree) or "").partition("\n")[0],
        modes=modes,
        params=params,
        item=str(constants.get("ITEM", "item")),
        batch_size=batch_size,
        source=str(constants.get("SOURCE", "")),
    )


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        raise BadInputError(f"{path}{line}: {error.msg}", "a workload file must be valid Python") from error
    except (OSError, ValueError, MemoryError, RecursionError) as error:
        raise BadInputError(f"{path} cannot be read: {error}", "a workload file must be Python source") from error


def _params(path: Path, value: object) -> dict[str, Any]:
    kinds = (bool, int, float, str)
    if not isinstance(value, dict) or not all(isinstance(k, str) and isinstance(v, kinds) for k, v in value.items()):
        raise BadInputError(f"{path}: PARAMS is {value!r}", "expected a dict of names to numbers, strings or booleans")
    return value


def _modes(path: Path, value: object) -> tuple[str, ...]:
    modes = (value,) if isinstance(value, str) else value
    if not isinstance(modes, (tuple, list)) or not modes or any(mode not in MODES for mode in modes):
        raise BadInputError(f"{path}: MODES is {value!r}", f"expected some of {', '.join(MODES)}")
    return tuple(modes)


def _taken(path: Path, function: ast.FunctionDef, params: Mapping[str, Any]) -> list[str]:
    """Return the parameters that a function takes; raises BadInputError where it needs what PARAMS does not name."""
    besides = _BESIDES[function.name]
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    needed = names[len(besides) : len(names) - len(arguments.defaults)] + [
        argument.arg
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    strange = [name for name in needed if name not in params]
    if strange or (len(names) < len(besides) and arguments.vararg is None):
        raise BadInputError(
            f"{path}, line {function.lineno}: {function.name}({ast.unparse(arguments)}) does not fit",
            f"expected {function.name}({', '.join([*besides, *params])}), or fewer of the parameters in PARAMS",
        )
    if arguments.kwarg is not None:
        return list(params)
    return [*names[len(besides) :], *(argument.arg for argument in arguments.kwonlyargs)]


def fingerprint(path: Path) -> str:
    """Return a name for the text of a file and of all that it imports from its own folder."""
    texts: dict[Path, bytes] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file in texts:
            continue
        texts[file] = file.read_bytes()
        try:
            tree = ast.parse(texts[file])
        except (SyntaxError, ValueError, MemoryError, RecursionError):  # the import will tell, where it is run
            continue
        for level, module in _imported(tree):
            # A relative import begins at the file's own folder, any other at the workload's.
            root = file.parents[level - 1] if level else path.parent
            stem = root.joinpath(*module.split("."))
            waiting += [near for near in (stem.with_suffix(".py"), stem / "__init__.py") if os.path.isfile(near)]  # noqa: PTH113  # pathlib's raises where a folder may not be entered
    mark = hashlib.sha256()
    for file in sorted(texts):
        mark.update(b"\0" + texts[file])
    return mark.hexdigest()


def _imported(tree: ast.Module) -> set[tuple[int, str]]:
    """Return the (level, name) that may be modules in a file's imports, parents included; level 0 is absolute."""
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {(0, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            before = f"{node.module}." if node.module else ""
            imported |= {(node.level, before + alias.name) for alias in node.names}
    return {
        (level, ".".join(name.split(".")[:depth]))
        for level, name in imported
        for depth in range(1, name.count(".") + 2)
    }


def _imported_names(tree: ast.Module) -> set[str]:
    """Return the names that the module's own statements bind besides by `def`."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            targets = [each for target in node.targets for each in getattr(target, "elts", [target])]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def _constants(tree: ast.Module) -> dict[str, object]:
    """Return the module's upper-case names that are bound to literals, one by one or as a tuple."""
    constants: dict[str, object] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        names, values = [target], [value]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            names, values = target.elts, value.elts
        for name, literal in zip(names, values, strict=True):
            if isinstance(name, ast.Name) and name.id.isupper():
                try:
                    constants[name.id] = ast.literal_eval(literal)
                except ValueError:
                    continue
    return constants
