"""The frameworks by name: those that come with tftune, and those that other packages bring.

Another package registers its own as an entry point of the group `tftune.frameworks`, such as
`mine = "package.module:FRAMEWORK"`. A framework's module is imported when it is asked for.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import TunerError, unknown

if TYPE_CHECKING:
    from tuner.frameworks.framework import Framework

GROUP = "tftune.frameworks"
DEFAULT = "tensorflow"
_SHIPPED = {
    "tensorflow": "tuner.frameworks.tensorflow.framework:FRAMEWORK",
    "onnxruntime": "tuner.frameworks.onnxruntime.framework:FRAMEWORK",
}


def names() -> list[str]:
    """Return the names of all frameworks, the default first."""
    return list(_places())


def find(name: str) -> Framework:
    """Return the framework of that name; raises BadInputError with the nearest names."""
    places = _places()
    if name not in places:
        raise unknown("framework", name, places)
    module, _, attribute = places[name].partition(":")
    try:
        framework: Framework = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise TunerError(f"the framework {name} cannot be loaded: {error}", "mend or remove its package") from error
    return framework


def of(build: Mapping[str, Any]) -> Framework:
    """Return the framework of a stored build; those of earlier versions are TensorFlow's."""
    return find(build.get("framework", DEFAULT))


def reads(path: Path) -> Framework | None:
    """Return the first framework that reads a file of such a name as a model, None if none does."""
    return next((each for each in _all() if path.suffix in each.suffixes), None)


def owner(knob: str, *, besides: str) -> str | None:
    """Return the name of another framework that has a knob of that name, None if none has."""
    return next((each.name for each in _all() if each.name != besides and knob in each.knobs), None)


@functools.cache
def _places() -> dict[str, str]:
    """Return where each framework's object is; looking through what is installed takes a while."""
    others = {each.name: each.value for each in importlib.metadata.entry_points(group=GROUP)}
    return _SHIPPED | {name: place for name, place in others.items() if name not in _SHIPPED}


def _all() -> Iterator[Framework]:
    return (find(name) for name in _places())
