"""The workload specification: the options that name a workload, as typed, and their parsing."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.child.shapes import BATCH
from tuner.child.user_inputs import truth, whole
from tuner.errors import BadInputError, unknown_name
from tuner.workload.pyfile import INFERENCE

_MAY_BE_EMPTY = ("--mode", "--execution", "--tags", "--rate", "--feed")  # options that are given even if empty or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """The words that name a workload, or are a command, and its options, as they were typed."""

    words: Sequence[str] = ()
    framework: str | None = None
    """None where the workload decides."""
    device: str = "cpu"
    name: str | None = None
    mode: str = INFERENCE
    execution: str = "graph"
    params: Sequence[str] = ()
    signature: str | None = None
    tags: str | None = None
    """Of the graph of a SavedModel, joined by commas; "" for the graph without tags."""
    op_libraries: Sequence[str] = ()
    input_shapes: Sequence[str] = ()
    input_ranges: Sequence[str] = ()
    inputs: Sequence[str] = ()
    metric_regex: str | None = None
    minimize: bool = False
    rate: float | None = None
    feed: str | None = None
    """Where the inputs of a step are on a device of its own: `host` or `device`."""

    @classmethod
    def of_name(cls, name: str, *, mode: str = INFERENCE, framework: str | None = None) -> WorkloadSpec:
        """Return the options of a workload of which nothing but its name, mode and framework is said."""
        return cls(words=(name,), mode=mode, framework=framework)

    @property
    def command_line(self) -> str:
        """Return the words and options as a shell takes them, without those that are as usual."""
        return self.with_options({})

    @property
    def _typed(self) -> dict[str, Any]:
        """Return what each option was given: text or a number, several of them, or True; None or False as usual."""
        usual = WorkloadSpec()
        return {
            "--framework": self.framework,
            "--device": self.device if self.device != usual.device else None,
            "--feed": self.feed,
            "--mode": self.mode if self.mode != usual.mode else None,
            "--execution": self.execution if self.execution != usual.execution else None,
            "--param": self.params,
            "--signature": self.signature,
            "--tags": self.tags,
            "--op-library": self.op_libraries,
            "--input-shape": self.input_shapes,
            "--input-range": self.input_ranges,
            "--input": self.inputs,
            "--name": self.name,
            "--metric-regex": self.metric_regex,
            "--minimize": self.minimize,
            "--rate": self.rate,
        }

    def with_options(self, others: Mapping[str, Any]) -> str:
        """Return the command line with other options beside its own; the words of a command come last.

        What an option is given is text or a number, several of them, or True; one of None or False is left out.
        """
        options: list[str] = []
        for option, value in {**self._typed, **others}.items():
            several = value if isinstance(value, list | tuple) else [value]
            for each in several:
                options += [] if each is None or each is False else [option] if each is True else [option, str(each)]
        is_command = self.metric_regex is not None or len(self.words) > 1
        return shlex.join([*options, "--", *self.words] if is_command else [*self.words, *options])

    def reject_options(self, *options: str, kind: str) -> None:
        """Raise BadInputError for options that were given and mean nothing for a workload of that kind."""
        typed = self._typed
        for option in options:
            if typed[option] or (option in _MAY_BE_EMPTY and typed[option] is not None):
                raise BadInputError(f"{option} does not apply to {kind}", f"leave {option} out")


def parameters(texts: Sequence[str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters, those of `--param NAME=VALUE` each of the type that its default has."""
    values = dict(defaults)
    for name, text in _pairs(texts, "--param", "seq_len=384").items():
        if name not in defaults:
            raise unknown_name("parameter", name, list(defaults))
        kind = type(defaults[name])
        try:
            values[name] = truth(text) if kind is bool else whole(text) if kind is int else kind(text)
        except (ValueError, KeyError, OverflowError):
            words = {bool: "true or false", int: "a whole number", float: "a number"}
            raise BadInputError(f"--param {name} is '{text}'", f"expected {words[kind]}") from None
    return values


def tags(text: str | None) -> tuple[str, ...] | None:
    """Return the tags of `--tags serve,gpu` in one order; none of "", which is the graph without tags."""
    return None if text is None else tuple(sorted({tag.strip() for tag in text.split(",") if tag.strip()}))


def op_libraries(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the libraries of `--op-library`, files by their absolute paths; raises BadInputError."""
    names = []
    for text in texts:
        is_file = "/" in text or text.endswith(".py") or ".so" in text
        if is_file and not os.path.isfile(text):  # noqa: PTH113  # pathlib's raises where a folder may not be entered
            raise BadInputError(f"--op-library {text}: no such file", "give a .so or .py file, or the name of a module")
        if is_file and not (text.endswith(".py") or ".so" in Path(text).name):
            raise BadInputError(f"--op-library {text} is no .so or .py file", "e.g. --op-library ./op.so")
        if not is_file and not all(part.isidentifier() for part in text.split(".")):
            raise BadInputError(
                f"--op-library {text} is no name of a module",
                "e.g. --op-library tensorflow_text or --op-library ./op.so",
            )
        names.append(str(Path(text).resolve()) if is_file else text)
    return tuple(dict.fromkeys(names))


def shapes(texts: Sequence[str]) -> dict[str, list[int | str]]:
    """Return the shapes of `--input-shape NAME=224,224,3`, without the batch, or with `batch` in its place.

    Of a vector's items it is empty.
    """
    return {name: _shape(name, text) for name, text in _pairs(texts, "--input-shape", "image=224,224,3").items()}


def ranges(texts: Sequence[str]) -> dict[str, list[float]]:
    """Return the bounds of `--input-range NAME=LOW:HIGH`, the upper one left out."""
    return {name: _range(name, text) for name, text in _pairs(texts, "--input-range", "words=0:30522").items()}


def values(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return what `--input NAME=VALUE|FILE` gives: the path of the `file` if there is one, else the `text`.

    A shell leaves ~ as it is behind an equals sign, and curl writes @ before a file.
    """
    given = {}
    for name, text in _pairs(texts, "--input", "lengths=400").items():
        paths = (text, os.path.expanduser(text), os.path.expanduser(text.removeprefix("@")))  # noqa: PTH111  # pathlib's raises where there is no such user
        file = next((each for each in paths if os.path.isfile(each)), None)  # noqa: PTH113
        given[name] = {"text": text} if file is None else {"file": str(Path(file).resolve())}
    return given


def _pairs(texts: Sequence[str], option: str, example: str) -> dict[str, str]:
    """Return the values of NAME=VALUE by name; raises BadInputError, also for one that is given twice."""
    pairs: dict[str, str] = {}
    for text in texts:
        # A model's own names may hold an equals sign; shapes and ranges do not.
        has_free_value = option in ("--param", "--input")
        name, separator, value = text.partition("=") if has_free_value else text.rpartition("=")
        if not separator or not name:
            raise BadInputError(f"{option} {text} is not of the form NAME=VALUE", f"e.g. {option} {example}")
        if name in pairs:
            raise BadInputError(f"{option} {name} is given twice, {pairs[name]} and {value}", "keep one of them")
        pairs[name] = value
    return pairs


def _shape(name: str, text: str) -> list[int | str]:
    """Return the sizes; as programs print a shape, it may have brackets around it or x between its sizes."""
    plain = re.sub(r"^\((.*)\)$|^\[(.*)\]$", r"\1\2", text.strip())
    parts = [part.strip() for part in re.split(r",|(?<=\d) ?[x×] ?(?=\d)", plain) if part.strip()]
    if not all(part.isdecimal() or part == BATCH for part in parts) or parts.count(BATCH) > 1:
        raise BadInputError(
            f"--input-shape {name} is '{text}'",
            "expected sizes without the batch, e.g. 224,224,3, or with batch in its place, e.g. 100,batch,80",
        )
    return [part if part == BATCH else int(part) for part in parts]


def _range(name: str, text: str) -> list[float]:
    """Return the bounds, whole numbers as such; those of floating-point numbers need not be whole."""
    low, separator, high = text.partition(":")
    try:
        bounds = [_bound(low), _bound(high)] if separator else [0, _bound(low)]
    except ValueError:
        bounds = [0, 0]
    if not bounds[0] < bounds[1] < math.inf or bounds[0] == -math.inf:
        raise BadInputError(
            f"--input-range {name} is '{text}'", "expected LOW:HIGH with HIGH excluded, e.g. 0:30522 or 0.5:1.5"
        )
    return bounds


def _bound(text: str) -> float:
    """Return a number, whole if it is written without a decimal point: 3e4 is 30000."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        return int(number) if "." not in text and number.is_integer() else number
