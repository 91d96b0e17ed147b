"""A workload file, read without running it.

A workload file is plain Python. Its first docstring line is the description, its upper-case constants are
read from the syntax tree (`tuner.workload.constants`), and its functions import TensorFlow themselves:

    ITEM = "image"              what one item of a batch is called
    BATCH_SIZE = 8              the default batch size
    PARAMS = {"size": 224}      parameters with their defaults; each function below takes those that it needs, by name
    MODES = ("inference", "training")
    SOURCE = "He et al., 2016"
    def build(size):            -> a Keras model or a callable, with seeded weights
    def inputs(batch_size, size):  -> the arguments of one call, a tuple of NumPy arrays whose first axis is the batch

and for training either

    LOSS, OPTIMIZER = "mse", "sgd"  names that Keras knows; the default is what model.compile() got, or "sgd"
    def targets(batch_size):    -> what the outputs are to be, a tuple of arrays

or, for anything else, `targets` and a step of its own:

    def training(model):        -> a function of inputs and targets that updates the model and returns its loss
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import BadInputError
from tuner.paths import shipped_folder
from tuner.workload import dependencies
from tuner.workload.constants import Computed, Namespace, constants, syntax_tree
from tuner.workload.effects import bound_names

INFERENCE, TRAINING = "inference", "training"
MODES = (INFERENCE, TRAINING)
_REQUIRED = ("build", "inputs")
_BESIDES = {"build": (), "inputs": ("batch_size",), "targets": ("batch_size",), "training": ("model",)}
"""The functions of a workload file, and what they take besides the parameters."""
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_EXAMPLES = {
    "BATCH_SIZE": "BATCH_SIZE = 8",
    "PARAMS": 'PARAMS = {"size": 224}',
    "MODES": 'MODES = ("inference", "training")',
    "ITEM": 'ITEM = "image"',
    "SOURCE": 'SOURCE = "He et al., 2016"',
}
_SIMILAR = {
    "BATCH_SIZE": re.compile(r"(?i)batch|(?!max_|min_)(?:\w+_)?(?:batch_?(?:sizes?|sz)|bsz?)(?:_\w+)?"),
    "PARAMS": re.compile(r"(?i)param(?:s|eters)"),
    "MODES": re.compile(r"(?i)modes?"),
}


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
    notes: tuple[str, ...] = ()
    """What of the file is not taken as it may be meant."""
    batch_problem: BadInputError | None = None
    """Why its batch size is not known, None if it is; whoever names batch sizes does not need it."""


def read(path: Path) -> PythonFile:
    """Return what a workload file says; raises BadInputError."""
    tree = _parse(path)
    names = constants(tree, path)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.decorator_list}
    bound = {*bound_names(tree.body), *names}
    form = f"see {shipped_folder('workloads') / 'resnet50.py'} for the form"
    _check_functions(path, tree, bound, form)
    params = _params(path, _known(path, names, "PARAMS", {}))
    known_functions = [functions[name] for name in _BESIDES if name in functions]
    used_parameters = [name for function in known_functions for name in _taken(path, function, params)]
    for name in params:
        if name not in used_parameters and len(known_functions) == len(_BESIDES.keys() & bound):
            raise BadInputError(f"{path}: no function takes the parameter {name} of PARAMS", form)
    modes = _modes(path, _known(path, names, "MODES", (INFERENCE,)))
    if TRAINING in modes and not {"training", "LOSS"} & bound:
        raise BadInputError(f"{path} lists the mode training, but defines neither LOSS nor training()", form)
    if TRAINING in modes and "targets" not in bound:
        raise BadInputError(f"{path} lists the mode training, but defines no function targets()", form)
    batch_problem = None
    try:
        batch_size = _known(path, names, "BATCH_SIZE", 1)
    except BadInputError as error:
        batch_size, batch_problem = 1, BadInputError(error.message, f"{error.hint}, or give --batch-size 8")
    if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
        raise BadInputError(
            f"{path}: BATCH_SIZE is {batch_size!r}", "expected a whole number of at least 1, e.g. BATCH_SIZE = 8"
        )
    return PythonFile(
        path=path.resolve(),
        description=(ast.get_docstring(tree) or "").partition("\n")[0],
        modes=modes,
        params=params,
        item=_text(names, "ITEM", "item"),
        batch_size=batch_size,
        source=_text(names, "SOURCE", ""),
        notes=tuple(_notes(path, names, functions.get("inputs"))),
        batch_problem=batch_problem,
    )


def _check_functions(path: Path, tree: ast.Module, bound: Collection[str], form: str) -> None:
    """Raise BadInputError where a function is missing that a workload needs, with the one that may be meant."""
    if any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree)):
        return  # it may bring them
    for required in _REQUIRED:
        nodes = [node for node in ast.walk(tree) if isinstance(node, _DEFINITIONS) and node.name == required]
        if any(isinstance(node, ast.AsyncFunctionDef) and node in tree.body for node in nodes):
            raise BadInputError(f"{path}, line {nodes[0].lineno}: {required}() is async", f"write def {required}(…)")
        if required not in bound and nodes:
            raise BadInputError(
                f"{path}, line {nodes[0].lineno}: {required}() is not a function of the module",
                f"move it out of the class or function that it is in, or add: {required} = …",
            )
        if required not in bound:
            as_it_is = (
                f"to measure a script as it is: --metric-regex '([0-9.]+) images/s' -- python {shlex.quote(str(path))}"
            )
            hint = form if any(name in bound for name in _REQUIRED) else f"{form}; {as_it_is}"
            raise BadInputError(f"{path} defines no function {required}()", hint)


def _known(path: Path, names: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return the value of a constant, the default of one that is not there; raises BadInputError for a computed one."""
    value = names.get(name, default)
    if not isinstance(value, Computed):
        return value
    where = "" if value.text.startswith(name) else " below that line"
    raise BadInputError(
        f"{path}, line {value.line}: {name} is computed ({value.text}), and tftune does not run the file to read it",
        f"write its value{where}, e.g. {_EXAMPLES[name]}",
    )


def _text(names: Mapping[str, Any], name: str, default: str) -> str:
    value = names.get(name, default)
    return default if isinstance(value, Computed) else str(value)


def _notes(path: Path, names: Mapping[str, Any], inputs: ast.FunctionDef | None) -> Iterator[str]:
    """Yield what of a file is not taken as it may be meant."""
    match inputs:
        case ast.FunctionDef(args=ast.arguments(args=taken, defaults=[ast.Constant(value=int(size)), *others])):
            if len(taken) == 1 + len(others) and size != 1 and "BATCH_SIZE" not in names:
                yield (
                    f"{path.name}: inputs() has {size} as its default, but tftune reads BATCH_SIZE: without it the "
                    f"batch size is 1; write BATCH_SIZE = {size}"
                )
    for name in ("ITEM", "SOURCE"):
        if isinstance(computed := names.get(name), Computed):
            yield (
                f"{path.name}, line {computed.line}: {name} is computed, and is left out; "
                f"write its value, e.g. {_EXAMPLES[name]}"
            )
    for name in _EXAMPLES.keys() - names.keys():
        form = _SIMILAR.get(name, re.compile(f"(?i){name}"))
        similar = next((each for each in names if form.fullmatch(each)), None)
        if name == "BATCH_SIZE" and similar is None:
            similar = next(_batch_sizes_within(names, form), None)
        if similar is not None:
            usual = "the batch size is 1" if name == "BATCH_SIZE" else f"there is no {name}"
            yield f"{path.name} has {similar}, but tftune reads {name}: without it {usual}; write {_EXAMPLES[name]}"


def _batch_sizes_within(names: Mapping[str, Any], form: re.Pattern[str]) -> Iterator[str]:
    """Yield the batch sizes in the classes and dicts of a file: CFG.batch_size, CONFIG['batch_size']."""
    for name, values in names.items():
        for key, value in values.items() if isinstance(values, dict) else ():
            if isinstance(key, str) and form.fullmatch(key) and type(value) is int and value > 1:
                yield f"{name}.{key}" if isinstance(values, Namespace) else f"{name}[{key!r}]"


def _parse(path: Path) -> ast.Module:
    try:
        tree: ast.Module = syntax_tree(path.read_bytes(), name=str(path))
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        raise BadInputError(f"{path}{line}: {error.msg}", "a workload file must be valid Python") from error
    except (OSError, ValueError, MemoryError, RecursionError) as error:
        raise BadInputError(f"{path} cannot be read: {error}", "a workload file must be Python source") from error
    return tree


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
    line = f"{path}, line {function.lineno}: {function.name}({ast.unparse(arguments)})"
    for name in needed:
        if name not in params:
            way = f"give it a default, or add it to PARAMS, a dictionary in the file: {{'{name}': VALUE}}"
            raise BadInputError(f"{line} needs '{name}', and PARAMS has no such parameter", way)
    if len(names) < len(besides) and arguments.vararg is None:
        raise BadInputError(f"{line} takes too little", f"expected {function.name}({', '.join(besides)})")
    if arguments.kwarg is not None:
        return list(params)
    return [*names[len(besides) :], *(argument.arg for argument in arguments.kwonlyargs)]


def fingerprint(path: Path, values: Iterable[object] = ()) -> str:
    """Return a name for the text of a file, of all that it imports from its own folder, and for what these read.

    `values` are those of its parameters, which may be paths.
    """
    texts: dict[Path, bytes] = {}
    trees: list[tuple[Path, ast.Module]] = []
    folders: dict[Path, None] = {path.parent: None}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file in texts:
            continue
        texts[file] = file.read_bytes()
        try:
            tree = syntax_tree(texts[file])
        except (SyntaxError, ValueError, MemoryError, RecursionError):  # the import will tell, where it is run
            continue
        trees.append((file, tree))
        folders |= dict.fromkeys(dependencies.module_folders(file, tree))
        for level, module in _imported(tree):
            # A relative import begins at the file's own folder, any other at the workload's.
            for root in [file.parents[level - 1]] if level else folders:
                stem = root.joinpath(*module.split("."))
                waiting += [near for near in (stem.with_suffix(".py"), stem / "__init__.py") if os.path.isfile(near)]  # noqa: PTH113  # pathlib's raises where a folder may not be entered
    mark = hashlib.sha256()
    for file in sorted(texts):
        mark.update(b"\0" + texts[file])
    mark.update(dependencies.mark_of(trees, [each for each in values if isinstance(each, str)]))
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
