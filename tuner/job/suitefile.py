"""Suite files: TOML with options of a suite, and a table for each workload. Keys are options without their hyphens.

time-budget = "2m"                      an option of the suite
cpus = [1, 2]                           where the command line has commas, a list
[workloads.lenet5]                      a shipped workload with its usual options
[workloads.ranker]                      a workload with the name that its studies have
workload = "models/ranker/3"            what is run; without it the name of the table
signature = "serve"
input-shape = ["ids=128", "mask=128"]   an option that can be repeated: one text, or a list of them
batch-size = [1, 8]

Paths are relative to the folder of the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, ValidationError, convert

from tuner.errors import BadInputError, unknown_name
from tuner.job.request import SuiteFile, SuiteWorkload
from tuner.plain import read_toml
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import names

_INSTEAD = "give the path of a TOML file (docs/cluster.md has one); shipped workloads are named by --workloads"
_NEW_NAMES = {"modes": "mode"}
"""Of keys that have been renamed; the old names go with version 0.3."""
_Place = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class _Key:
    """A key of a file: the field that it is for, and which values it takes."""

    field: str
    type: Any
    expected: str

    def value(self, data: object, place: str) -> Any:
        """Return the value of an option as it is typed; raises BadInputError that names the place."""
        try:
            value = convert(data, self.type)
        except ValidationError:
            raise BadInputError(f"{place} is {data!r}", f"expected {self.expected}") from None
        if self.type is _REPEATED:
            return (value,) if isinstance(value, str) else tuple(value)
        if self.type is _LISTED:
            return ",".join(map(str, value if isinstance(value, list) else [value]))
        return value


_REPEATED = str | list[str]
_LISTED = str | int | float | list[str | int | float]


def _text(field: str, example: str) -> _Key:
    return _Key(field, str, f'text, such as "{example}"')


def _repeated(field: str, example: str) -> _Key:
    return _Key(field, _REPEATED, f'text, such as "{example}", or a list of texts')


def _listed(field: str, example: str) -> _Key:
    return _Key(field, _LISTED, f"text, a number or a list of these, such as {example}")


_OF_SUITE: Mapping[str, _Key] = {
    "mode": _listed("modes", '["inference", "training"]'),
    "cpus": _listed("cpus", "[1, 2]"),
    "cpu-quota": _listed("cpu_quotas", "[1.5]"),
    "framework": _text("framework", "onnxruntime"),
    "device": _text("device", "gpu"),
    "python": _repeated("pythons", ".venv/bin/python"),
    "space": _text("space", "threads"),
    "time-budget": _text("time_budget", "2m"),
    "stop-after": _text("stop_after", "8h"),
    "instances": _Key("instances", bool, "true or false"),
    "seed": _Key("seed", Annotated[int, Meta(ge=0)], "a whole number of at least 0"),
    "trial-timeout": _text("trial_timeout", "2m"),
}
_OF_WORKLOAD: Mapping[str, _Key] = {
    "workload": _text("words", "models/ranker/3"),
    "mode": _OF_SUITE["mode"],
    "execution": _text("execution", "xla"),
    "param": _repeated("params", "seq_len=384"),
    "signature": _text("signature", "serve"),
    "tags": _listed("tags", '["serve", "gpu"]'),
    "op-library": _repeated("op_libraries", "./op.so"),
    "input-shape": _repeated("input_shapes", "ids=128"),
    "input-range": _repeated("input_ranges", "ids=0:30522"),
    "input": _repeated("inputs", "training=false"),
    "batch-size": _listed("batch_size", "[1, 8]"),
}


def read(text: str) -> SuiteFile:
    """Return what the suite file at a path holds; raises BadInputError that names the file and the key."""
    path = Path(text)
    data = read_toml(path, instead=_INSTEAD)

    def place(of_file: str) -> str:
        """Return a path of the file as it is from here. A relative one stays so: each node has a folder of its own."""
        return of_file if of_file.startswith("~") else os.path.join(path.parent, of_file)  # noqa: PTH118  # Path drops ./

    try:
        tables = data.pop("workloads", {})
        if not isinstance(tables, dict):
            raise BadInputError(f"workloads is {tables!r}", "expected tables [workloads.NAME]")
        if not tables:
            raise BadInputError("it has no workloads", "expected at least one table [workloads.NAME]")
        options = _values(data, _OF_SUITE, "")
        modes = options.pop("modes", None)  # so that --mode is known to be typed
        workloads = {name: _workload(name, table, modes, place) for name, table in tables.items()}
    except BadInputError as error:
        raise BadInputError(f"{text}: {error.message}", error.hint) from error
    options["pythons"] = [_program(each, place) for each in options.get("pythons", ())]
    if "/" in (space := options.get("space", "")) or space.endswith(".toml"):
        options["space"] = place(space)
    return SuiteFile(path=text, options=options, workloads=workloads)


def _workload(name: str, table: object, modes: str | None, place: _Place) -> SuiteWorkload:
    """Return the workload of a table, in the file's `modes` if it has none of its own."""
    where = f"workloads.{name}"
    if not name.strip() or name != name.strip() or "," in name:
        raise BadInputError(
            f"a workload is called {name!r}", "expected a name without commas, such as [workloads.ranker]"
        )
    if not isinstance(table, dict):
        raise BadInputError(f"{where} is {table!r}", f"expected a table [{where}]")
    options = _values(table, _OF_WORKLOAD, where)
    word = options.pop("words", None)
    modes, batch_size = options.pop("modes", modes), options.pop("batch_size", None)
    if "op_libraries" in options:
        options["op_libraries"] = tuple(_library(each, place) for each in options["op_libraries"])
    if "inputs" in options:
        options["inputs"] = tuple(_input(each, place) for each in options["inputs"])
    spec = WorkloadSpec(words=(_model(word or name, place),), name=None if word is None else name, **options)
    return SuiteWorkload(spec=spec, modes=modes, batch_size=batch_size)


def _values(data: Mapping[str, object], keys: Mapping[str, _Key], where: str) -> dict[str, Any]:
    """Return the options of the table `where`, or of the file, by their fields; raises BadInputError."""
    for old, new in _NEW_NAMES.items():
        if old in data and new in data:
            raise BadInputError(f"{where or 'it'} has {old} and {new}", f"leave {old} out: it is the old name of {new}")
    data = {_NEW_NAMES.get(name, name): value for name, value in data.items()}
    for name in data:
        if name not in keys:
            raise unknown_name(f"key of {where}" if where else "key", name, keys)
    prefix = f"{where}." if where else ""
    return {keys[name].field: keys[name].value(value, f"{prefix}{name}") for name, value in data.items()}


# ---- paths ----------------------------------------------------------------------------------------------------------


def _model(word: str, place: _Place) -> str:
    """Return a workload as it is from here: a shipped name as it is, each model of an ensemble `a+b` by itself."""
    if word in names() or "://" in word:
        return word
    if os.path.exists(place(word)) or "+" not in word:  # noqa: PTH110  # pathlib's raises where a folder may not be entered
        is_path = "/" in word or "." in word or os.path.exists(place(word))  # noqa: PTH110
        return place(word) if is_path else word
    return "+".join(_model(part, place) for part in word.split("+"))


def _program(text: str, place: _Place) -> str:
    """Return an interpreter or the folder of its environment; a bare name is looked for in the PATH."""
    is_path = "/" in text or os.path.isfile(place(f"{text}/bin/python"))  # noqa: PTH113
    return place(text) if is_path else text


def _library(text: str, place: _Place) -> str:
    return place(text) if "/" in text or text.endswith(".py") or ".so" in text else text


def _input(text: str, place: _Place) -> str:
    name, separator, value = text.partition("=")
    file = place(value.removeprefix("@"))
    return f"{name}{separator}{file}" if os.path.isfile(file) else text  # noqa: PTH113
