"""A workload: the thing that is timed, in a mode, with its parameters; named and fingerprinted without running it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tuner.errors import BadInputError, NoModeError, unknown
from tuner.identity import digest
from tuner.places import shipped
from tuner.workload import asked as options
from tuner.workload import pyfile
from tuner.workload.asked import Asked
from tuner.workload.command import Command, command
from tuner.workload.pyfile import INFERENCE, PythonFile

_MODEL = "saved_model.pb"


class Kind(StrEnum):
    """What a workload is made from, beside the files that a framework reads: those have kinds of their own."""

    PYTHON = "python"
    """A Python file, the project's or the user's."""
    SAVED_MODEL = "savedmodel"
    """A folder that TensorFlow saved."""
    COMMAND = "command"
    """A command that prints a number."""


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
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Of inputs whose shape the model leaves open, without the batch."""
    ranges: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Of inputs: the least value, and what all values are below."""
    command: Command | None = None

    def spec(self) -> dict[str, Any]:
        """Return what a child is told of the workload."""
        return {
            "kind": str(self.kind),
            "workload": str(self.path),
            "mode": self.mode,
            "execution": self.execution.value,
            "params": dict(self.params),
            "signature": self.signature,
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "ranges": {name: list(bounds) for name, bounds in self.ranges.items()},
        }


def names() -> list[str]:
    """Return the names of the workloads that the project ships; what begins with a line is a part of others."""
    return sorted(path.stem for path in shipped("workloads").glob("*.py") if not path.stem.startswith("_"))


def catalogue() -> dict[str, PythonFile]:
    """Return what each shipped workload says of itself, by name."""
    return {name: pyfile.read(shipped("workloads") / f"{name}.py") for name in names()}


def load(name: str, *, mode: str = INFERENCE) -> Workload:
    """Return the workload of a shipped name or of a path to a Python file; raises BadInputError."""
    return find(Asked.named(name, mode=mode))


def find(asked: Asked, suffixes: Mapping[str, str] = MappingProxyType({})) -> Workload:
    """Return the workload that was asked for; raises BadInputError.

    `suffixes` are those of the files that the framework reads as models, with the kind of each.
    """
    try:
        execution = Execution(asked.execution)
    except ValueError:
        raise unknown("execution", asked.execution, list(Execution)) from None
    if asked.metric_regex is not None or len(asked.words) != 1:
        return _command(asked, execution)
    asked.refuse("--minimize", of="a model, whose rate is measured")
    name, path = asked.words[0], Path(asked.words[0])
    if name not in names() and os.path.isdir(path):  # noqa: PTH112  # pathlib's raises where a folder may not be entered
        return _saved_model(path, asked, execution)
    if path.suffix in suffixes:
        return _file(path, suffixes[path.suffix], asked, execution)
    return _python(name, asked, execution)


def _python(name: str, asked: Asked, execution: Execution) -> Workload:
    path = Path(name) if name.endswith(".py") or "/" in name else shipped("workloads") / f"{name}.py"
    if not os.path.isfile(path):  # noqa: PTH113
        if path.parent == shipped("workloads"):
            raise unknown("workload", name, names())
        raise BadInputError(
            f"no workload file {name}",
            f"give a Python file, a model file, the folder of a SavedModel, or one of: {', '.join(names())}",
        )
    if path.name == _MODEL:
        raise BadInputError(f"{name} is part of a SavedModel", f"give its folder, {path.parent}")
    if path.suffix != ".py":
        raise BadInputError(f"{name} is no Python file", "if it is a command, put it after -- and give --metric-regex")
    file = pyfile.read(path)
    if asked.mode not in file.modes:
        raise NoModeError(f"{path.stem} has no mode '{asked.mode}'", f"known: {', '.join(file.modes)}")
    asked.refuse("--signature", "--input-shape", "--input-range", of="a Python file, which makes its own inputs")
    params = options.parameters(asked.params, file.params)
    return Workload(
        name=asked.name or path.stem,
        kind=Kind.PYTHON,
        path=file.path,
        description=file.description,
        mode=asked.mode,
        execution=execution,
        item=file.item,
        batch_size=file.batch_size,
        params=params,
        fingerprint=digest([pyfile.fingerprint(path), asked.mode, params]),
    )


def _file(path: Path, kind: str, asked: Asked, execution: Execution) -> Workload:
    if not os.path.isfile(path):  # noqa: PTH113
        raise BadInputError(f"no model file {path}", "check its path")
    description = f"a {path.suffix} file"
    asked.refuse("--signature", of=description)
    return _found(path, kind, asked, execution, [path], description)


def _saved_model(path: Path, asked: Asked, execution: Execution) -> Workload:
    if not os.path.isfile(path / _MODEL):  # noqa: PTH113
        near = sorted(path.glob(f"*/{_MODEL}"))
        there = f", such as {near[-1].parent}" if near else ""
        raise BadInputError(f"{path} is a folder without {_MODEL}", f"give the folder of a SavedModel{there}")
    if execution is Execution.EAGER:
        raise BadInputError("--execution eager of a SavedModel, which is a graph", "use graph or xla")
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return _found(path, Kind.SAVED_MODEL, asked, execution, files, "a SavedModel")


def _found(
    path: Path, kind: str, asked: Asked, execution: Execution, files: Iterable[Path], description: str
) -> Workload:
    """Return the workload of a model that was found, not written for this."""
    asked.refuse("--param", of=description)
    if asked.mode != INFERENCE:
        raise NoModeError(f"{path} has no mode '{asked.mode}'", f"known: {INFERENCE}; a Python file can train it")
    shapes, ranges = options.shapes(asked.input_shapes), options.ranges(asked.input_ranges)
    return Workload(
        name=asked.name or path.resolve().name.removesuffix(path.suffix),
        kind=kind,
        path=path.resolve(),
        description=description,
        mode=asked.mode,
        execution=execution,
        item="item",
        batch_size=1,
        signature=asked.signature,
        shapes=shapes,
        ranges=ranges,
        fingerprint=digest([_contents(files, path.parent), asked.signature, shapes, ranges]),
    )


def _command(asked: Asked, execution: Execution) -> Workload:
    """Return the workload of a command, which runs in the folder that the tuner was started in."""
    if not asked.words and asked.metric_regex is None:
        raise BadInputError("no workload given", f"give the path of a model, or one of: {', '.join(names())}")
    made = command(asked.words, asked.metric_regex, minimize=asked.minimize)
    asked.refuse("--mode", "--execution", "--param", "--signature", "--input-shape", "--input-range", of="a command")
    scripts = made.scripts()
    named = [word for word in made.words if word.endswith((".py", ".sh")) and not word.startswith("-")]
    return Workload(
        name=asked.name or Path((named or made.words)[0]).stem,
        kind=Kind.COMMAND,
        path=Path.cwd(),
        description=str(made),
        mode=INFERENCE,
        execution=execution,
        item="run",
        batch_size=1,
        command=made,
        fingerprint=digest([made.words, made.pattern, made.minimize, _contents(scripts, Path())]),
    )


def _contents(files: Iterable[Path], folder: Path) -> str:
    """Return a name for the contents of files and for where they lie in a folder; raises BadInputError."""
    mark = hashlib.sha256()
    for file in files:
        try:
            with file.open("rb") as content:
                mark.update(hashlib.file_digest(content, "sha256").digest())
        except OSError as error:
            raise BadInputError(f"{file} cannot be read: {error.strerror}", "a workload has to be readable") from error
        mark.update(os.path.relpath(file, folder).encode())
    return mark.hexdigest()
