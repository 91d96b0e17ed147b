"""Importing TensorFlow, which is most of what the start of a process takes, and Keras, which not every model needs."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import sys
from typing import Any

from ....child.inputs import WorkloadError

BACKEND, LEGACY = "KERAS_BACKEND", "TF_USE_LEGACY_KERAS"


def tensorflow() -> Any:
    """Import TensorFlow, without looking for garbage in what is still being made: 2.9 s instead of 3.5 s on two cores.

    What was put off is done once, at the end, so that no later step pays for it.
    """
    if "tensorflow" in sys.modules:  # of the process that this one was forked from
        return sys.modules["tensorflow"]
    was_enabled = gc.isenabled()
    gc.disable()
    # It imports Keras, if there is one, and fails if that has a backend that it does not know.
    hides_keras = "keras" not in sys.modules and why_no_keras() is not None
    if hides_keras:
        sys.modules["keras"] = None  # type: ignore[assignment]  # Python's own way to say that there is none
    try:
        import tensorflow as tf
    finally:
        if hides_keras:
            del sys.modules["keras"]
        gc.collect()
        if was_enabled:
            gc.enable()
    return tf


def keras() -> Any:
    """Return TensorFlow's Keras; raises WorkloadError that says why there is none."""
    tf = tensorflow()
    try:
        problem = why_no_keras()
        if problem is None:
            tf.keras.Model  # noqa: B018  # it is imported when it is first used
            return tf.keras
    except ImportError as error:
        problem = (
            "Keras cannot be imported: %s" % (error.__cause__ or error.__context__ or error),
            "install it: %s -m pip install keras, or choose another interpreter with --python" % sys.executable,
        )
    raise WorkloadError(*problem)


def why_no_keras() -> "tuple[str, str] | None":
    """Return which setting keeps TensorFlow from using Keras, and what to do about it; None if none does."""
    backend = os.environ.get(BACKEND)
    if backend and backend != "tensorflow":
        return "%s=%s is set, and tftune tunes TensorFlow" % (BACKEND, backend), "unset %s" % BACKEND
    if uses_legacy():
        if importlib.util.find_spec("tf_keras") is None:
            return (
                "%s=%s is set, and tf_keras is not installed" % (LEGACY, os.environ[LEGACY]),
                "install it: %s -m pip install tf_keras, or unset %s" % (sys.executable, LEGACY),
            )
        return None  # it reads no backend
    path, backend = keras_json()
    if backend and backend != "tensorflow" and not os.environ.get(BACKEND):
        return (
            "%s sets the backend %s, and tftune tunes TensorFlow" % (path, backend),
            'set "backend" to "tensorflow" there, or set %s=tensorflow' % BACKEND,
        )
    return None


def uses_legacy() -> bool:
    """Return whether TensorFlow is asked to use Keras 2, as a package of its own."""
    return os.environ.get(LEGACY) in ("1", "True", "true")


def keras_json() -> "tuple[str, str]":
    """Return the path of the user's settings of Keras, and the backend that they name; "" if they name none."""
    folder = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    path = os.path.join(folder, "keras.json")
    try:
        with open(path, encoding="utf-8") as file:
            settings = json.load(file)
        return path, str(settings.get("backend", ""))
    except (OSError, ValueError, AttributeError):
        return path, ""


def blamed_keras(error: "BaseException | None") -> bool:
    """Return whether an exception, or what caused it, came from Keras, or was raised because it cannot be imported."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if "Keras cannot be imported" in str(error):
            return True
        frame = error.__traceback__
        while frame is not None:
            parts = frame.tb_frame.f_code.co_filename.split(os.sep)
            if "keras" in parts or "tf_keras" in parts:
                return True
            frame = frame.tb_next
        error = error.__cause__ or error.__context__
    return False
