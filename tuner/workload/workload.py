"""A workload: the thing that is timed, in a mode, with its parameters; named and fingerprinted without running it."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tuner.errors import BadInputError, NoModeError, unknown_name
from tuner.identity import digest
from tuner.paths import shipped_folder
from tuner.workload import formats, pyfile
from tuner.workload import spec as options
from tuner.workload.command import Command, command
from tuner.workload.contents import contents, loaded_first, text_of, value_digest
from tuner.workload.dependencies import variables_in
from tuner.workload.pyfile import INFERENCE, PythonFile
from tuner.workload.spec import WorkloadSpec

_JOINED = "+"
_LONGEST_NAME = 200  # characters
_OF_SAVED_MODELS = ("--signature", "--tags")
_OF_INPUTS = ("--input-shape", "--input-range", "--input")
MAX_MEMBERS = 8
MAX_RATE = 100_000.0
"""Requests a second: more than one process can draw and answer."""


class Kind(StrEnum):
    """What a workload is made from, beside the files that a framework reads: those have kinds of their own."""

    PYTHON = "python"
    """A Python file, the project's or the user's."""
    SAVED_MODEL = "savedmodel"
    """A folder that TensorFlow saved."""
    COMMAND = "command"
    """A command that prints a number."""
    ENSEMBLE = "ensemble"
    """Different models that answer together."""


class Execution(StrEnum):
    """How a step is executed."""

    GRAPH = "graph"
    """The signature of a SavedModel, as models are served."""
    EAGER = "eager"
    """The model's own code, operator by operator."""
    XLA = "xla"
    """The signature, compiled by XLA."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model in a mode, or a command. `fingerprint` changes when what is computed may."""

    name: str
    kind: str
    """A `Kind`, or that of a file that a framework reads as a model."""
    path: Path
    """What it is made from; of a command, the folder that it is run in."""
    description: str
    mode: str
    execution: Execution
    item: str
    batch_size: int
    fingerprint: str
    params: Mapping[str, Any] = field(default_factory=dict)
    signature: str | None = None
    tags: Sequence[str] | None = None
    """Of the graph of a SavedModel; None where it is not said which."""
    op_libraries: Sequence[str] = ()
    """What is loaded before the model: paths of libraries of operators and of Python files, and names of modules."""
    shapes: Mapping[str, Sequence[int | str]] = field(default_factory=dict)
    """Of inputs whose shape the model leaves open, without the batch, or with the word `batch` in its place."""
    ranges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Of inputs: the least value, and what all values are below."""
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of inputs: the path of a `file`, or the `text` of a constant."""
    command: Command | None = None
    rate: float | None = None
    """Requests a second that come at random times; None where each call follows the one before."""
    members: tuple[Workload, ...] = ()
    """The models of an ensemble, which are run side by side; none of another workload."""
    notes: tuple[str, ...] = ()
    """What of its file is not taken as it may be meant."""
    batch_problem: BadInputError | None = field(default=None, compare=False)
    """Why its own batch size is not known, None if it is."""

    def child_spec(self) -> dict[str, Any]:
        """Return what a child is told of the workload."""
        return {
            "kind": str(self.kind),
            "workload": str(self.path),
            "mode": self.mode,
            "execution": self.execution.value,
            "params": dict(self.params),
            "signature": self.signature,
            "tags": None if self.tags is None else list(self.tags),
            "op_libraries": list(self.op_libraries),
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "ranges": {name: list(bounds) for name, bounds in self.ranges.items()},
            "values": {name: dict(value) for name, value in self.values.items()},
        }


def parts(words: Sequence[str]) -> list[str]:
    """Return the models that one word names: several where they are joined by `+`; none of a command of more words."""
    if len(words) != 1:
        return []
    is_ensemble = _JOINED in words[0] and not os.path.exists(words[0])  # noqa: PTH110
    return words[0].split(_JOINED) if is_ensemble else [words[0]]


def identifier(name: str) -> str:
    """Return a name with all that is no letter, digit or underscore replaced: what it is called in a knob's name."""
    return re.sub(r"\W", "_", name)


def check_members(member_names: Sequence[str]) -> None:
    """Raise BadInputError for members of an ensemble that could not be told apart, or that are too many."""
    if len(member_names) > MAX_MEMBERS:
        raise BadInputError(f"an ensemble of {len(member_names)} models", f"expected at most {MAX_MEMBERS}")
    for first, second in itertools.combinations(member_names, 2):
        if first == second:
            raise BadInputError(
                f"{first} is in the ensemble twice",
                "name different models; for several processes of one, use --set instances=2",
            )
        if identifier(first) == identifier(second):
            raise BadInputError(f"{first} and {second} cannot be told apart", "rename one of them")


def names() -> list[str]:
    """Return the names of the workloads that the project ships; what begins with a line is a part of others."""
    return sorted(path.stem for path in shipped_folder("workloads").glob("*.py") if not path.stem.startswith("_"))


def catalogue() -> dict[str, PythonFile]:
    """Return what each shipped workload says of itself, by name."""
    return {name: pyfile.read(shipped_folder("workloads") / f"{name}.py") for name in names()}


def load(name: str, *, mode: str = INFERENCE) -> Workload:
    """Return the workload of a shipped name or of a path to a Python file; raises BadInputError."""
    return find(WorkloadSpec.of_name(name, mode=mode))


def find(spec: WorkloadSpec, suffixes: Mapping[str, str] = MappingProxyType({})) -> Workload:
    """Return the workload that was asked for; raises BadInputError.

    `suffixes` are those of the files that the framework reads as models, with the kind of each.
    """
    try:
        execution = Execution(spec.execution)
    except ValueError:
        raise unknown_name("execution", spec.execution, list(Execution)) from None
    if spec.metric_regex is not None or len(spec.words) != 1:
        return _command(spec, execution)
    if len(parts(spec.words)) > 1:
        return _ensemble(spec, execution, suffixes)
    workload = _model(spec, execution, suffixes)
    return workload if spec.rate is None else replace(workload, rate=_rate(spec))


def _named(spec: WorkloadSpec, usual: str) -> str:
    """Return the name of a workload: as it was given, or the usual one; raises BadInputError for one that cannot be."""
    name = usual if spec.name is None else spec.name
    if not name.strip() or not name.isprintable() or name.startswith("-") or len(name) > _LONGEST_NAME:
        what = f"--name is {name[:_LONGEST_NAME]!r}" if spec.name is not None else f"the name {name!r} cannot be shown"
        raise BadInputError(
            what, f"expected at most {_LONGEST_NAME} printable characters, the first no hyphen, e.g. --name resnet50-v2"
        )
    return name


def _ensemble(spec: WorkloadSpec, execution: Execution, suffixes: Mapping[str, str]) -> Workload:
    """Return the workload of several models that answer together, `a+b`; its batch size is the smallest of theirs."""
    text = spec.words[0]
    of_models = ("--mode", "--param", *_OF_SAVED_MODELS, "--op-library", *_OF_INPUTS)
    spec.reject_options(*of_models, "--minimize", "--rate", kind="an ensemble")
    members_as_typed = parts(spec.words)
    if not all(members_as_typed):
        raise BadInputError(f"'{text}' has an empty name", "expected models joined by +, e.g. resnet50+vgg19")
    members = tuple(_model(replace(spec, words=(part,), name=None), execution, suffixes) for part in members_as_typed)
    check_members([member.name for member in members])
    return Workload(
        name=_named(spec, _JOINED.join(member.name for member in members)),
        kind=Kind.ENSEMBLE,
        path=Path.cwd(),
        description=f"an ensemble of {len(members)} models",
        mode=INFERENCE,
        execution=execution,
        item="prediction",
        batch_size=min(member.batch_size for member in members),
        members=members,
        fingerprint=digest([member.fingerprint for member in members]),
        notes=tuple(note for member in members for note in member.notes),
        batch_problem=next((member.batch_problem for member in members if member.batch_problem is not None), None),
    )


def _rate(spec: WorkloadSpec) -> float:
    """Return the requests per second; raises BadInputError."""
    assert spec.rate is not None  # it was given
    if not 0 < spec.rate <= MAX_RATE:
        raise BadInputError(
            f"--rate is {spec.rate:g}", f"expected requests per second, a number above 0 and at most {MAX_RATE:,g}"
        )
    if spec.mode != INFERENCE:
        raise BadInputError(f"--rate does not apply to {spec.mode}", "leave --rate out")
    return spec.rate


def _model(spec: WorkloadSpec, execution: Execution, suffixes: Mapping[str, str]) -> Workload:
    """Return the workload of a model."""
    spec.reject_options("--minimize", kind="a model")
    name = os.path.expanduser(spec.words[0])  # noqa: PTH111  # pathlib's raises where there is no such user
    path = Path(name)
    if re.match(r"\w+:/", name):
        raise BadInputError(f"{name} is an address, and tftune reads files", "fetch the model, and give its path")
    suffix = path.suffix.lower()
    is_folder = os.path.isdir(path)  # noqa: PTH112  # pathlib's raises where a folder may not be entered
    if suffix in suffixes and is_folder and not formats.is_saved_model(path):
        raise BadInputError(f"{path} is a folder", f"expected a {suffix} file")
    if name not in names() and is_folder:
        return _saved_model(path, spec, execution, suffixes)
    if suffix in suffixes:
        return _file(path, suffixes[suffix], spec, execution)
    return _python(name, spec, execution)


def _python(name: str, spec: WorkloadSpec, execution: Execution) -> Workload:
    path = Path(name)
    is_file = os.path.isfile(path) and (name not in names() or "/" in name)  # noqa: PTH113
    is_path = is_file or name.endswith(".py") or "/" in name or formats.of_name(path) is not None
    path = path if is_path else shipped_folder("workloads") / f"{name}.py"
    if not os.path.isfile(path):  # noqa: PTH113
        if os.path.isfile(f"{name}.index"):  # noqa: PTH113
            path = Path(f"{name}.index")
        elif not is_path:
            raise unknown_name("workload", name, names())
        elif not name.endswith(".py") and formats.of_name(path) is not None:
            raise BadInputError(f"no file {name}", "check its path")
        else:
            raise BadInputError(
                f"no workload file {name}",
                f"give a Python file, a model file, the folder of a SavedModel, or one of: {', '.join(names())}",
            )
    if path.suffix.lower() != ".py":
        formats.refuse_file(name, path)
    file = pyfile.read(path)
    if spec.mode not in file.modes:
        raise NoModeError(f"{path.stem} has no mode '{spec.mode}'", f"known: {', '.join(file.modes)}")
    spec.reject_options(*_OF_SAVED_MODELS, *_OF_INPUTS, kind="a Python file, which makes its own inputs")
    params = options.parameters(spec.params, file.params)
    op_libraries = options.op_libraries(spec.op_libraries)
    return Workload(
        name=_named(spec, path.stem),
        kind=Kind.PYTHON,
        path=file.path,
        description=file.description,
        mode=spec.mode,
        execution=execution,
        item=file.item,
        batch_size=file.batch_size,
        params=params,
        op_libraries=op_libraries,
        fingerprint=digest([pyfile.fingerprint(path, params.values()), spec.mode, params, *loaded_first(op_libraries)]),
        notes=file.notes,
        batch_problem=file.batch_problem,
    )


def _file(path: Path, kind: str, spec: WorkloadSpec, execution: Execution) -> Workload:
    if not os.path.isfile(path):  # noqa: PTH113
        target = f"; it is a link to {path.readlink()}" if path.is_symlink() else ""
        raise BadInputError(f"no model file {path}{target}", "check its path")
    formats.check_whole(path)
    description = f"a {path.suffix} file"
    spec.reject_options(*_OF_SAVED_MODELS, kind=description)
    return _model_workload(path, kind, spec, execution, [path], description)


def _saved_model(path: Path, spec: WorkloadSpec, execution: Execution, suffixes: Mapping[str, str]) -> Workload:
    if not formats.is_saved_model(path):
        formats.refuse_folder(path, suffixes)
    for name in formats.SAVED_MODELS:
        formats.check_whole(path / name)
    if execution is Execution.EAGER:
        raise BadInputError("--execution eager does not work for a SavedModel, which is a graph", "use graph or xla")
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return _model_workload(path, Kind.SAVED_MODEL, spec, execution, files, "a SavedModel")


def _model_workload(
    path: Path, kind: str, spec: WorkloadSpec, execution: Execution, files: Iterable[Path], description: str
) -> Workload:
    """Return the workload of a model that was found, not written for this."""
    spec.reject_options("--param", kind=description)
    if spec.mode != INFERENCE:
        raise NoModeError(
            f"{path} has no mode '{spec.mode}'", f"known: {INFERENCE}; to train, write a Python workload file"
        )
    shapes, ranges = options.shapes(spec.input_shapes), options.ranges(spec.input_ranges)
    tags, op_libraries = options.tags(spec.tags), options.op_libraries(spec.op_libraries)
    values = options.values(spec.inputs)
    for input_name in ranges.keys() & values.keys():
        raise BadInputError(f"input '{input_name}' has both --input and --input-range", "leave one of them out")
    # Without values it is what it was before there were any, so that earlier studies go on.
    given = [[name, value_digest(value)] for name, value in sorted(values.items())]
    asked: list[object] = [spec.signature, shapes, ranges, *([given] if given else [])]
    asked += [*([] if tags is None else [{"tags": tags}]), *loaded_first(op_libraries)]
    return Workload(
        name=_named(spec, path.resolve().name.removesuffix(path.suffix)),
        kind=kind,
        path=path.resolve(),
        description=description,
        mode=spec.mode,
        execution=execution,
        item="item",
        batch_size=1,
        signature=spec.signature,
        tags=tags,
        op_libraries=op_libraries,
        shapes=shapes,
        ranges=ranges,
        values=values,
        fingerprint=digest([contents(files, path.parent), *asked]),
    )


def _command(spec: WorkloadSpec, execution: Execution) -> Workload:
    """Return the workload of a command, which runs in the folder that the tuner was started in."""
    if not spec.words and spec.metric_regex is None:
        raise BadInputError("no workload given", f"give the path of a model, or one of: {', '.join(names())}")
    parsed = command(spec.words, spec.metric_regex, minimize=spec.minimize)
    of_models = ("--mode", "--execution", "--param", *_OF_SAVED_MODELS, "--op-library", *_OF_INPUTS)
    spec.reject_options(*of_models, "--rate", "--feed", kind="a command")
    scripts = parsed.scripts()
    # Without variables it is what it was before they counted, so that earlier studies go on.
    variables = variables_in([*parsed.words, *(text_of(script) for script in scripts)])
    named = [word for word in parsed.words if word.endswith((".py", ".sh")) and not word.startswith("-")]
    return Workload(
        name=_named(spec, Path((named or parsed.words)[0]).stem),
        kind=Kind.COMMAND,
        path=Path.cwd(),
        description=str(parsed),
        mode=INFERENCE,
        execution=execution,
        item="run",
        batch_size=1,
        command=parsed,
        fingerprint=digest(
            [
                parsed.words,
                parsed.pattern,
                parsed.minimize,
                contents(scripts, Path()),
                *([variables] if variables else []),
            ]
        ),
    )
