"""What a file is that no framework reads as a model: by what it holds if that is cheap to see, else by its name."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from tuner.errors import BadInputError

SAVED_MODELS = ("saved_model.pb", "saved_model.pbtxt", "saved_model.cpb")
"""One of them makes a folder a SavedModel: as bytes, as text, or the first part of a large one."""
_LOOKED_AT = 512  # bytes at the beginning of a file
_HDF5, _TFLITE, _LFS = b"\x89HDF\r\n\x1a\n", b"TFL3", b"version https://git-lfs"
_PART_FOLDERS = ("variables", "assets", "assets.extra")
_PART_FILES = ("keras_metadata.pb", "fingerprint.pb")
_BELOW = ("*", "*/*", "*/*/*")  # folders of versions, of a model repository, of a registry of models
_MOST_FILES = 1000  # of a folder that are looked at


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file: what it is, with an article, and what to give instead."""

    what: str
    hint: str


_WRAPPER = "write a Python file whose build() loads it, as docs/models.md shows"
_FROZEN = Format("a frozen graph (GraphDef)", f"give the SavedModel that it was made from, or {_WRAPPER}")
_TEXT_GRAPH = Format("a graph as text", f"give the SavedModel that it was made from, or {_WRAPPER}")
_CHECKPOINT = Format(
    "part of a checkpoint, which holds weights and no model",
    "give a SavedModel, or a Python file whose build() makes the model and loads the weights",
)
_LITE = Format("a TensorFlow Lite model", "give the SavedModel or the Keras file that it was converted from")
_TORCH = Format("a file of PyTorch", "export it with torch.onnx.export(…) and give the .onnx file")
_WEIGHTS = Format(
    "a file of weights without a model", f"give a SavedModel, a Keras file or an .onnx file, or {_WRAPPER}"
)
_PICKLE = Format("a pickled Python object", _WRAPPER)
_ARRAYS = Format("a file of arrays", "give the model: a SavedModel, a Keras file, an .onnx file or a Python file")
_ENGINE = Format("a TensorRT engine", "give the .onnx file that it was built from: tftune builds one for each setting")
_ARCHIVE = Format("an archive", "unpack it, and give the folder of the SavedModel or the model file in it")
_KERAS_3 = Format("a Keras file under another name", "name it model.keras")
_HDF5_FILE = Format("an HDF5 file", "if it is a Keras model, name it model.h5")
_PROTOCOL = Format("the graph of a SavedModel", "name it saved_model.pb, in a folder with its variables/")
_ONNX = Format("an ONNX model under another name", "name it model.onnx")
_ARCHITECTURE = Format(
    "the architecture of a Keras model without weights",
    "give what model.save() writes, or a Python file whose build() calls keras.models.model_from_json()",
)
_OPENVINO_WEIGHTS = Format("the weights of an OpenVINO model", "give the .xml file next to it")
_TENSORFLOW_JS = Format("a model of TensorFlow.js", "give the SavedModel or the Keras file that it was converted from")
_HUGGING_FACE = Format(
    "a model of Hugging Face", "write a Python file whose build() calls from_pretrained() (docs/models.md)"
)
_TRITON = Format("the configuration of a model in Triton", "give the model in a folder of its versions")
_EXTERNAL = Format("the weights of an ONNX model", "give the .onnx file next to it")
_OTHER = "export it to ONNX and give the .onnx file"
_CONVERTED = "give the model that it was converted from"

_BY_SUFFIX: Mapping[str, Format] = MappingProxyType(
    {
        **dict.fromkeys((".pb", ".graphdef"), _FROZEN),
        **dict.fromkeys((".pbtxt", ".prototxt"), _TEXT_GRAPH),
        **dict.fromkeys((".tflite", ".lite"), _LITE),
        **dict.fromkeys((".ckpt", ".index", ".meta"), _CHECKPOINT),
        **dict.fromkeys((".pt", ".pth", ".pt2", ".ptl", ".jit", ".torchscript", ".mar"), _TORCH),
        **dict.fromkeys((".safetensors", ".weights", ".params", ".msgpack"), _WEIGHTS),
        **dict.fromkeys((".pkl", ".pickle", ".joblib", ".sav"), _PICKLE),
        **dict.fromkeys((".npy", ".npz"), _ARRAYS),
        **dict.fromkeys((".engine", ".plan", ".trt"), _ENGINE),
        **dict.fromkeys((".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst"), _ARCHIVE),
        **dict.fromkeys((".mlmodel", ".mlpackage"), Format("a Core ML model", _CONVERTED)),
        ".ipynb": Format("a notebook", "write a Python file with build() and inputs(), as docs/models.md shows"),
        ".ort": Format("a model in ONNX Runtime's own format", "give the .onnx file that it was made from"),
        ".hdf": _HDF5_FILE,
        **dict.fromkeys((".gguf", ".ggml"), Format("a model of llama.cpp", _CONVERTED)),
        **dict.fromkeys((".yaml", ".yml"), Format("a file of settings", "give the model that it describes")),
        ".onnx_data": _EXTERNAL,
        ".uff": Format("a model in TensorRT's old format", _CONVERTED),
        ".mnn": Format("a model of MNN", _CONVERTED),
        ".param": Format("a model of ncnn", _CONVERTED),
        ".dlc": Format("a model for Qualcomm's runtime", _CONVERTED),
        ".rknn": Format("a model for Rockchip's runtime", _CONVERTED),
        ".hef": Format("a model for Hailo's runtime", _CONVERTED),
        ".om": Format("a model for Ascend's runtime", _CONVERTED),
        ".pyc": Format("a compiled Python file", "give the .py file"),
        ".caffemodel": Format("a model of Caffe", _OTHER),
        ".pdmodel": Format("a model of PaddlePaddle", _OTHER),
        ".pdparams": Format("weights of PaddlePaddle", _OTHER),
        ".cbm": Format("a model of CatBoost", _OTHER),
        ".bst": Format("a model of XGBoost", _OTHER),
        ".ubj": Format("a model of XGBoost", _OTHER),
    }
)


_OF_JSON: Mapping[bytes, Format] = MappingProxyType(
    {
        b'"modelTopology"': _TENSORFLOW_JS,
        b'"weightsManifest"': _TENSORFLOW_JS,
        b'"layers-model"': _TENSORFLOW_JS,
        b'"graph-model"': _TENSORFLOW_JS,
        b'"architectures"': _HUGGING_FACE,
        b'"model_type"': _HUGGING_FACE,
    }
)
"""What files of JSON begin with."""


def is_saved_model(folder: Path) -> bool:
    """Return whether a folder is a SavedModel."""
    return any(os.path.isfile(folder / name) for name in SAVED_MODELS)  # noqa: PTH113  # pathlib's raises where a folder may not be entered


def of_name(path: Path) -> Format | None:
    """Return what a file is by its name alone, None if that does not tell."""
    if path.name.lower() == "checkpoint" or ".data-" in path.name:
        return _CHECKPOINT
    if path.name == "config.pbtxt":
        return _TRITON
    if path.name.lower().endswith((".onnx.data", ".onnx_data")):
        return _EXTERNAL
    return _BY_SUFFIX.get(path.suffix.lower())


def of_file(path: Path) -> Format | None:
    """Return what a file is that no framework reads by its suffix, None if neither its contents nor its name tell."""
    folder = next((each for each in (path.parent, path.parent.parent) if is_saved_model(each)), None)
    if folder is not None and (folder == path.parent or path.parent.name in _PART_FOLDERS):
        is_part = (
            path.name in (*SAVED_MODELS, *_PART_FILES) or path.parent.name in _PART_FOLDERS or path.suffix == ".pb"
        )
        if is_part:
            return Format("part of a SavedModel", f"give its folder, {folder}")
    begin = _beginning(path)
    return _of_contents(path, begin) or of_name(path)


def _of_contents(path: Path, begin: bytes) -> Format | None:
    if begin[4:8] == _TFLITE:
        return _LITE
    if begin.startswith(_HDF5):
        return _HDF5_FILE
    if begin.startswith(b"PK\x03\x04"):
        return _of_zip(path)
    if begin.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")) and path.suffix not in (".pt", ".pth"):
        return _PICKLE
    suffix = path.suffix.lower()
    # A small number first, then a text or a message: the producer, the graph or the operators of an ONNX model.
    has_version = begin[:1] == b"\x08" and begin[1:2] < b"\x20" and begin[2:3] in (b"\x12", b"\x3a", b"\x42")
    if has_version and (suffix == ".pb" or suffix not in _BY_SUFFIX):
        return _PROTOCOL if begin[1:3] == b"\x01\x12" else _ONNX
    if begin.lstrip().startswith(b"{"):
        if b'"class_name"' in begin and b'"config"' in begin:
            return _ARCHITECTURE
        return next((known for word, known in _OF_JSON.items() if word in begin), None)
    if path.suffix.lower() == ".bin" and path.with_suffix(".xml").is_file():
        return _OPENVINO_WEIGHTS
    return _TORCH if path.name == "pytorch_model.bin" else None


def _of_zip(path: Path) -> Format:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return of_name(path) or _ARCHIVE
    if "config.json" in names and any(name.endswith(".weights.h5") for name in names):
        return _KERAS_3
    if any(name.rpartition("/")[2] == "data.pkl" for name in names):
        return _TORCH
    return _ARRAYS if names and all(name.endswith(".npy") for name in names) else _ARCHIVE


def check_whole(path: Path) -> None:
    """Raise BadInputError for a model file that is empty, or only the pointer of one, or a web page."""
    begin = _beginning(path)
    if os.path.isfile(path) and begin == b"" and os.path.getsize(path) == 0:  # noqa: PTH113, PTH202  # as above
        raise BadInputError(f"{path} is empty", "copy it or fetch it again")
    if begin.startswith(_LFS):
        raise BadInputError(f"{path} is the pointer of a file in Git LFS, not the file", "fetch it: git lfs pull")
    suffix = path.suffix.lower()
    is_error = begin.startswith((b"<?xml", b"<Error")) and suffix not in (".xml", ".pbtxt")
    is_error = is_error or (begin.lstrip().startswith(b"{") and suffix in (".onnx", ".keras", ".h5", ".hdf5", ".pb"))
    if is_error or begin.lstrip()[:9].lower().startswith((b"<!doctype", b"<html")):
        what = "an answer of a server" if is_error else "a web page"
        raise BadInputError(f"{path} is {what}, not a model", "fetch the file itself")
    if begin.startswith(b"\x1f\x8b") and of_name(path) is not _ARCHIVE:
        raise BadInputError(f"{path} is compressed by gzip", "unpack it: gunzip, or tar -xzf")


def refuse_file(name: str, path: Path) -> NoReturn:
    """Raise BadInputError for a file that no framework reads; `name` is what it was called."""
    check_whole(path)
    known = of_file(path)
    if known is not None:
        raise BadInputError(f"{name} is {known.what}", known.hint)
    raise BadInputError(f"{name} is not a Python file", "to measure a command, put it after -- and give --metric-regex")


def refuse_folder(path: Path, suffixes: Iterable[str]) -> NoReturn:
    """Raise BadInputError for a folder that is no SavedModel, with what it holds.

    `suffixes` are those of the files that a framework reads.
    """
    if (path / _PART_FOLDERS[0]).is_dir() or any((path / name).is_file() for name in _PART_FILES):
        raise BadInputError(f"{path} is a SavedModel without its {SAVED_MODELS[0]}", "copy the whole folder again")
    message = f"{path} is a folder without {SAVED_MODELS[0]}"
    if path.resolve().name in _PART_FOLDERS and is_saved_model(path.resolve().parent):
        raise BadInputError(f"{path} is part of a SavedModel", f"give its folder, {path.parent}")
    for below in _BELOW:
        near = sorted({each.parent for name in SAVED_MODELS for each in path.glob(f"{below}/{name}")}, key=_version)
        if near:
            raise BadInputError(message, f"give the folder of a SavedModel, such as {near[-1]}")
    try:
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry, _ in zip(entries, range(_MOST_FILES), strict=False) if entry.is_file())
    except OSError:
        names = []
    paths = [path / name for name in names]
    is_of_hugging_face = path / "config.json" in paths and of_file(path / "config.json") is _HUGGING_FACE
    models = [each for each in (*paths, *sorted(path.glob("*/*"))) if _is_model(each, suffixes)]
    models = [each for each in models if not is_of_hugging_face or each.name != "tf_model.h5"]
    if is_of_hugging_face and not models:
        raise BadInputError(f"{path} is {_HUGGING_FACE.what}", _HUGGING_FACE.hint)
    if models:
        raise BadInputError(f"{message}; it holds {models[0].name}", f"give the file, {models[0]}")
    formats = [(each, known) for each in paths if (known := of_file(each)) is not None]
    if formats:
        file, known = next((each for each in formats if each[1] not in (_ARRAYS, _ARCHIVE)), formats[0])
        raise BadInputError(f"{message}; it holds {file.name}, {known.what}", known.hint)
    raise BadInputError(message, "give the folder of a SavedModel")


def _is_model(path: Path, suffixes: Iterable[str]) -> bool:
    """Return whether a file of a folder is a model of the framework with these suffixes, or of ONNX or OpenVINO."""
    suffix = path.suffix.lower()
    if suffix == ".xml":
        return path.with_suffix(".bin").is_file()
    return (suffix in suffixes or suffix == ".onnx") and not path.name.endswith(".weights.h5")


def _version(folder: Path) -> tuple[int, str]:
    """Return what folders are ordered by: model servers number versions, and 10 comes after 9."""
    return (int(folder.name) if folder.name.isdecimal() else -1, folder.name)


def _beginning(path: Path) -> bytes:
    """Return the first bytes of a file, none if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_LOOKED_AT)
    except OSError:
        return b""
