"""A file of Keras: known by what it holds, not by its name, and refused with the reason first."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import zipfile
from typing import Any, Sequence

from ....child.inputs import WorkloadError, load_module, shortened
from . import importing

HDF5 = b"\x89HDF\r\n\x1a\n"
WEIGHTS = (
    "it holds weights only, and no model",
    "give what model.save() writes, or a Python file whose build() makes the model and calls load_weights()",
)
RENEW = "load it with the version that wrote it, and give what model.export('FOLDER') writes"
SAME = "this is the version that wrote it: write the model again, or give what model.export('FOLDER') writes"
CONFIG, METADATA = "config.json", "metadata.json"


def load(path: str, op_libraries: "Sequence[str]" = ()) -> Any:
    """Return the model of a file; raises WorkloadError if it holds no model, or Keras cannot load it.

    What files in `op_libraries` define is known to it by its name alone, too.
    """
    import tensorflow as tf

    keras = importing.keras()
    suffix, version = looked_at(path)
    with tempfile.TemporaryDirectory() as folder:
        # Keras goes by the suffix, and knows small letters only.
        link = os.path.join(folder, "model" + suffix)
        os.symlink(os.path.abspath(path), link)
        try:
            return keras.models.load_model(link, custom_objects=named_objects(keras, op_libraries), compile=False)
        except (MemoryError, tf.errors.ResourceExhaustedError):
            raise
        except Exception as error:
            own = getattr(keras, "__version__", "")
            raise WorkloadError(*why_not(str(error).replace(link, path), own, version)) from error


def named_objects(keras: Any, op_libraries: "Sequence[str]") -> "dict[str, Any]":
    """Return what is registered, and what the files define, by the names that a model file has for it.

    A model that was saved before its class was registered knows the class by its own name, without a package.
    """
    own = {name.rpartition(">")[2]: each for name, each in keras.utils.get_custom_objects().items()}
    for module in (load_module(path) for path in op_libraries if path.endswith(".py")):
        defined = {name: each for name, each in vars(module).items() if callable(each)}
        own.update((name, each) for name, each in defined.items() if getattr(each, "__module__", "") == module.__name__)
    return own


def looked_at(path: str) -> "tuple[str, str]":
    """Return the suffix that Keras expects of a file with such contents, and the version of Keras that wrote it.

    The version is "" if it is not known.

    Raises WorkloadError for a file that holds no model.
    """
    try:
        with open(path, "rb") as file:
            begin = file.read(len(HDF5))
    except OSError as error:
        raise WorkloadError("it cannot be read: %s" % error.strerror, "check its permissions") from error
    if begin == HDF5:
        return ".h5", version_of_hdf5(path)
    if not zipfile.is_zipfile(path):
        raise WorkloadError(
            "it is no file of Keras: it is neither a zip archive nor HDF5",
            "give what model.save() writes; if it was copied or downloaded, its end may be missing",
        )
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if CONFIG not in names:
            raise WorkloadError(
                "it is a zip archive without a model of Keras", "give what model.save('model.keras') writes"
            )
        try:
            metadata = json.loads(archive.read(METADATA)) if METADATA in names else {}
        except (ValueError, zipfile.BadZipFile):
            metadata = {}
    return ".keras", str(metadata.get("keras_version", ""))


def version_of_hdf5(path: str) -> str:
    """Return the version of Keras that wrote an HDF5 file, "" if it does not tell.

    Raises WorkloadError for a file that holds no model.
    """
    try:
        import h5py
    except ImportError:  # Keras will say so
        return ""
    try:
        with h5py.File(path, "r") as file:
            version = file.attrs.get("keras_version", b"")
            if "model_config" in file.attrs:
                return version.decode() if isinstance(version, bytes) else str(version)
            is_weights = "layer_names" in file.attrs or any(
                name in file for name in ("layers", "vars", "_layer_checkpoint_dependencies", "model_weights")
            )
    except OSError as error:
        raise WorkloadError(
            "it cannot be read: %s" % shortened(str(error)), "its end may be missing: copy it or fetch it again"
        ) from error
    if is_weights:
        raise WorkloadError(*WEIGHTS)
    raise WorkloadError("it holds no Keras model", "give what model.save() writes")


def why_not(text: str, own: str, version: str) -> "tuple[str, str]":
    """Return what Keras says of a file that it cannot load, the reason alone, and what to do about it.

    `own` is the version of Keras that was asked, `version` the one that wrote the file, "" if it is not known.
    """
    said = " ".join(text.rpartition("Exception encountered:")[2].split())
    said = said.partition(" Full object config:")[0].rstrip(".")
    where = re.search(r"class '(\w+)' using config", text)
    if where and where.group(1) not in said:
        said = "%s: %s" % (where.group(1), said)
    writer = " (it was saved with Keras %s)" % version if version and version != own else ""
    message = "Keras %s cannot load it%s: %s" % (own, writer, shortened(said))
    missing = re.search(r"Could not locate (?:class|function) '(\w+)'|Unknown (?:layer|object|\w+ ?\w*): '?(\w+)", said)
    # The code of a Lambda layer is Python's own bytes, which another version of Python cannot read.
    if "bad marshal data" in said or "Lambda" in said or "unsafe_deserialization" in said or "safe_mode" in said:
        return message, (
            "Keras does not run the Python code of a Lambda layer from a file: give what model.export('FOLDER') "
            "writes, or a Python file that builds the model"
        )
    if missing:
        return message, (
            "load the file that defines %s first, with --op-library ./layers.py, or give what model.export('FOLDER') "
            "writes"
        ) % next(filter(None, missing.groups()))
    if "truncated file" in said:
        return message, "its end is missing: copy it or fetch it again"
    if is_of_keras_2(version) and own and not is_of_keras_2(own):
        return message, (
            "use Keras 2 (%s -m pip install tf_keras, then set TF_USE_LEGACY_KERAS=1), or %s" % (sys.executable, RENEW)
        )
    if is_of_keras_2(own) and version and not is_of_keras_2(version):
        return message, "use Keras 3: unset TF_USE_LEGACY_KERAS or use a newer TensorFlow, or %s" % RENEW
    return message, SAME if version and version == own else RENEW


def is_of_keras_2(version: str) -> bool:
    """Return whether a version is one before Keras 3."""
    return version.partition(".")[0] in ("1", "2")
