"""Options of the API, translated into the words of a command line: one place understands and refuses both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from numbers import Real
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack, get_type_hints

from tuner.errors import BadInputError
from tuner.paths import DEFAULT_STORAGE, storage_url
from tuner.quantity import PER_SECOND, PERCENT
from tuner.space.values import Value
from tuner.workload.spec import WorkloadSpec

Duration = str | float | timedelta
"""Text such as "5m", or a number of seconds."""


class WorkloadOptions(TypedDict, total=False):
    """What names a workload beside its name or file.

    `mode` is `inference` or `training`, `execution` one of `graph`, `eager` and `xla`, `framework` and `device` are
    names; `params` are parameters of a shipped workload or a Python file. Of a SavedModel: the `signature`, the `tags`
    of its graph, the `input_shapes` without the batch dimension (or with the word `batch` in its place), the
    `input_ranges` of random values, the upper bound excluded, and `inputs`, what an input holds instead: a constant,
    the numbers of one item, or the path of a file. `op_libraries` are loaded before the model: paths of .so or .py
    files, or names of modules. `name` is what the workload is called. On a GPU `feed` is `host` or `device`: where the
    inputs of a step are. `rate` sends that many requests per second at random times, or as many as text such as
    `"600/min"` says. Of a command, `metric_regex` finds the number that it prints, and with `minimize` a smaller one is
    better.
    """

    mode: str
    execution: str
    framework: str
    device: str
    params: Mapping[str, int | float | bool | str]
    signature: str
    tags: str | Sequence[str]
    op_libraries: str | Path | Sequence[str | Path]
    input_shapes: Mapping[str, int | str | Sequence[int | str | None]]
    input_ranges: Mapping[str, float | str | tuple[float, float]]
    inputs: Mapping[str, int | float | bool | str | Path | Sequence[float]]
    name: str
    feed: str
    rate: float | str
    metric_regex: str
    minimize: bool


def workload_spec(workload: str | Path | Sequence[str], **options: Unpack[WorkloadOptions]) -> WorkloadSpec:
    """Return a workload with its options as they would be typed, but those that are None; several words are a command.

    Raises TypeError for an option that there is not.
    """
    unknown = [name for name in options if name not in WorkloadOptions.__annotations__]
    if unknown:
        raise TypeError(f"unexpected keyword argument '{unknown[0]}'")
    words = (str(workload),) if isinstance(workload, str | Path) else tuple(workload)
    rate = None if options.get("rate") is None else PER_SECOND.parse(options["rate"], "rate")
    given = {name: value for name, value in options.items() if value is not None}
    return replace(request_of(WorkloadSpec, {"words": words, **given}), rate=rate)


def _several(value: object) -> Sequence[object]:
    """Return the parts of a value: text, a path or a number is one, as it would be typed."""
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]


def _joined(value: object, separator: str) -> str:
    return separator.join(map(str, _several(value)))


def _input_text(name: str, value: object) -> str:
    """Return what an input holds as it would be typed; raises BadInputError for what would be fed as other text."""
    parts = value.tolist() if hasattr(value, "tolist") else value  # of NumPy's
    if isinstance(parts, bool | Real | str | Path):
        return _text(parts)
    if isinstance(parts, list | tuple) and parts and all(isinstance(each, Real) for each in parts):
        return ",".join(map(str, parts))
    save = "save its bytes to a file" if isinstance(value, bytes) else "numpy.save('x.npy', array), or a .jsonl file"
    raise BadInputError(
        f"inputs: {name} is a value of type {type(value).__name__}", f"give the path of a file instead: {save}"
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def list_text(values: object) -> str | None:
    """Return batch sizes or names as they would be typed, None where none is asked for."""
    return None if values is None else _joined(values, ",")


def duration_text(duration: Duration | None) -> str | None:
    """Return a duration as it would be typed; a number is one of seconds."""
    if isinstance(duration, timedelta):
        duration = duration.total_seconds()
    return duration if duration is None or isinstance(duration, str) else f"{float(duration)!r}s"


def margin_share(margin: str | float) -> float:
    """Return a margin as a share; text is a percentage, with or without its sign."""
    return PERCENT.parse(margin, "margin") / 100 if isinstance(margin, str) else margin


def pins_text(pins: Mapping[str, Value] | None) -> list[str]:
    """Return fixed knobs as they would be typed."""
    return [f"{name}={value}" for name, value in (pins or {}).items()]


def setting_text(setting: str | Mapping[str, Value]) -> str:
    """Return a setting as it would be typed: the name of a baseline or a study, or values of knobs."""
    return setting if isinstance(setting, str) else ",".join(pins_text(setting))


def storage_text(storage: str | Path | None) -> str:
    """Return the URL of a storage: that of the default, of a file, or as it is."""
    return DEFAULT_STORAGE if storage is None else storage_url(str(storage))


def path_text(path: str | Path | None) -> str | None:
    """Return a path as it would be typed."""
    return None if path is None else str(path)


# ---- requests -------------------------------------------------------------------------------------------------------

R = TypeVar("R")
_TYPED: Mapping[str, Callable[[Any], Any]] = {
    "time_budget": duration_text,
    "trial_timeout": duration_text,
    **dict.fromkeys(("batch_size", "batches", "frameworks", "tags"), list_text),
    "pins": pins_text,
    "costs": pins_text,
    "pythons": pins_text,
    "a": setting_text,
    "b": setting_text,
    "settings": lambda settings: [
        setting_text(each) for each in ([settings] if isinstance(settings, str | Mapping) else settings)
    ],
    "margin": lambda margin: None if margin is None else margin_share(margin),
    "storage": storage_text,
    "params": lambda params: tuple(f"{name}={_text(value)}" for name, value in params.items()),
    "op_libraries": lambda libraries: tuple(map(str, _several(libraries))),
    "input_shapes": lambda shapes: tuple(f"{name}={_joined(shape, ',')}" for name, shape in shapes.items()),
    "input_ranges": lambda ranges: tuple(f"{name}={_joined(ends, ':')}" for name, ends in ranges.items()),
    "inputs": lambda inputs: tuple(f"{name}={_input_text(name, value)}" for name, value in inputs.items()),
    **dict.fromkeys(("space", "python", "machine", "profile", "rules"), path_text),
}
"""By the fields of requests and of what names a workload: what turns an argument of Python into what would be typed."""


def request_of(request_type: Callable[..., R], arguments: Mapping[str, Any]) -> R:
    """Return a request of the arguments of a function, as `locals()` has them; it has other arguments than these, too.

    The workload is in `workload`, with those of `WorkloadOptions` in `options`.
    """
    types = get_type_hints(request_type)
    values = {name: arguments[name] for name in types if name in arguments}
    for name in values.keys() & _TYPED.keys():
        if types[name] != int | None:  # one number stays one
            values[name] = _TYPED[name](values[name])
    if "workload" in arguments:
        values["workload"] = workload_spec(arguments["workload"], **arguments["options"])
    return request_type(**values)
