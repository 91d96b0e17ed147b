"""The frameworks by name: those that come with tftune, and those that other packages bring.

Another package registers its own as an entry point of the group `tftune.frameworks`, such as
`mine = "package.module:FRAMEWORK"`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.plugins import Plugins

if TYPE_CHECKING:
    from tuner.frameworks.framework import Framework
    from tuner.space.catalogue import Catalogue

DEFAULT = "tensorflow"
_FRAMEWORKS: Plugins[Framework] = Plugins(
    "framework",
    group="tftune.frameworks",
    shipped={
        DEFAULT: "tuner.frameworks.tensorflow.framework:FRAMEWORK",
        "onnxruntime": "tuner.frameworks.onnxruntime.framework:FRAMEWORK",
        "openvino": "tuner.frameworks.openvino.framework:FRAMEWORK",
        "tensorrt": "tuner.frameworks.tensorrt.framework:FRAMEWORK",
        "command": "tuner.frameworks.command.framework:FRAMEWORK",
    },
    has=("name", "title", "spaces", "knobs", "baselines", "suffixes", "kinds"),
    short={"tf": DEFAULT, "ort": "onnxruntime"},
)

names = _FRAMEWORKS.names
"""Return the names of all frameworks, the default first."""
find = _FRAMEWORKS.find
"""Return the framework of that name; raises BadInputError with the nearest names.

Raises TunerError for one of another package that cannot be loaded.
"""


def for_build(build: Mapping[str, Any]) -> Framework:
    """Return the framework of a stored build; those of earlier versions are TensorFlow's."""
    return find(build.get("framework", DEFAULT))


def reader_of(path: Path) -> Framework | None:
    """Return the first framework that reads a file of such a name as a model, None if none does."""
    if not path.suffix:
        return None
    return next((each for each in _FRAMEWORKS if path.suffix.lower() in each.suffixes), None)


def catalogue(framework: Framework) -> Catalogue:
    """Return the catalogue of a framework that tells, of a knob that it has not, which other framework has it."""

    def owner(knob: str) -> str | None:
        return next((each.name for each in _FRAMEWORKS if each is not framework and knob in each.knobs), None)

    return replace(framework.catalogue, owner=owner)
