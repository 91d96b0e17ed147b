"""Libraries of operators, which every process that loads a model has to load first.

They are those that the user names with `--op-library`, and those that a Python file loads by itself, in `build()` for
one: the process that exports it records them, as no other process calls `build()`.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any, Iterator

from ....child.inputs import WorkloadError, load_libraries

UNKNOWN_OPERATOR = re.compile(r"Op type not registered '([^']+)'")
# How operators of well-known packages begin.
PACKAGES = {
    "Sentencepiece": "tensorflow_text",
    "TFText>": "tensorflow_text",
    "IO>": "tensorflow_io",
    "Addons>": "tensorflow_addons",
    "SimpleML": "tensorflow_decision_forests",
}


@contextlib.contextmanager
def recorded() -> "Iterator[list[str]]":
    """Record the paths of the libraries that TensorFlow loads meanwhile, by whatever function."""
    from tensorflow.python.client import pywrap_tf_session

    load, paths = pywrap_tf_session.TF_LoadLibrary, []

    def recording(path: str, *rest: Any) -> Any:
        handle = load(path, *rest)
        paths.append(os.path.abspath(path) if os.path.exists(path) else path)
        return handle

    pywrap_tf_session.TF_LoadLibrary = recording
    try:
        yield paths
    finally:
        pywrap_tf_session.TF_LoadLibrary = load


def load(names: "list[str]") -> None:
    """Load libraries of operators and modules, in their order; raises WorkloadError for one that cannot be loaded."""
    import tensorflow as tf

    load_libraries(names, tf.load_op_library)


@contextlib.contextmanager
def named_operators() -> "Iterator[None]":
    """Raise WorkloadError in the place of an error about an operator that TensorFlow does not have."""
    try:
        yield
    except Exception as error:
        unknown = UNKNOWN_OPERATOR.search(str(error))
        if unknown is None:
            raise
        name = unknown.group(1)
        package = next((each for begin, each in PACKAGES.items() if name.startswith(begin)), None)
        raise WorkloadError(
            "TensorFlow has no operator %s: it comes from a library that is not loaded" % name,
            "load the library first: --op-library %s"
            % (package or "./op.so, or --op-library MODULE, e.g. tensorflow_text"),
        ) from error
