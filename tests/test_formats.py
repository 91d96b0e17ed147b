"""Files that no framework reads as a model: what they are, and what to give instead, with or without a slash."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tuner.errors import BadInputError
from tuner.frameworks import registry
from tuner.frameworks.tensorflow.child import kerasfile
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Kind, find

HDF5 = b"\x89HDF\r\n\x1a\n" + bytes(64)


def refusal(name: str) -> str:
    """Return the error of a workload of that name."""
    with pytest.raises(BadInputError) as caught:
        find(WorkloadSpec(words=(name,)), FRAMEWORK.suffixes)
    return str(caught.value)


def archive(path: Path, *names: str) -> None:
    """Write a zip archive of empty files."""
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(name, "")


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("frozen.pb", b"\x0a\x05abcde", "is a frozen graph (GraphDef); give the SavedModel"),
        ("other.pb", b"\x08\x01\x12\x00", "is the graph of a SavedModel; name it saved_model.pb"),
        ("net.pb", b"\x08\x07\x12\x07pytorch", "is an ONNX model under another name; name it model.onnx"),
        ("net.onnx.bak", b"\x08\x08\x3a\x80\x01", "is an ONNX model under another name; name it model.onnx"),
        ("graph.pbtxt", b"node {", "is a graph as text"),
        ("model.tflite", b"\x1c\x00\x00\x00TFL3" + bytes(20), "is a TensorFlow Lite model"),
        ("quantised.bin", b"\x1c\x00\x00\x00TFL3" + bytes(20), "is a TensorFlow Lite model"),
        ("w.ckpt.index", bytes(64), "is part of a checkpoint"),
        ("w.ckpt.data-00000-of-00001", bytes(64), "is part of a checkpoint"),
        ("w.ckpt", bytes(64), "is part of a checkpoint"),
        ("checkpoint", b"model_checkpoint_path", "is part of a checkpoint"),
        ("net.pt", b"x", "is a file of PyTorch; export it with torch.onnx.export"),
        ("net.PTH", b"x", "is a file of PyTorch"),
        ("model.safetensors", b"x", "is a file of weights without a model"),
        ("model.pkl", b"\x80\x04x", "is a pickled Python object"),
        ("model.joblib", b"x", "is a pickled Python object"),
        ("net.mlmodel", b"x", "is a Core ML model"),
        ("net.engine", b"x", "is a TensorRT engine"),
        ("model.zip", b"x", "is an archive; unpack it"),
        ("train.ipynb", b"{}", "is a notebook"),
        ("model.json", b'{"class_name": "Sequential", "config": {}}', "is the architecture of a Keras model"),
        ("model", HDF5, "is an HDF5 file; if it is a Keras model, name it model.h5"),
        ("model.onnx", b"version https://git-lfs.github.com/spec/v1\n", "is the pointer of a file in Git LFS"),
        ("model.keras", b"<!DOCTYPE html>", "is a web page, not a model"),
        ("model.h5", b"", "is empty; copy it or fetch it again"),
        ("net.ptl", b"x", "is a file of PyTorch"),
        ("cut.pt", b"PK\x03\x04", "is a file of PyTorch"),
        ("cut.npz", b"PK\x03\x04", "is a file of arrays"),
        ("web.json", b'{"format": "layers-model", "modelTopology": {}}', "is a model of TensorFlow.js"),
        ("config.json", b'{"architectures": ["BertModel"]}', "is a model of Hugging Face; write a Python file"),
        ("config.pbtxt", b'name: "resnet"', "is the configuration of a model in Triton"),
        ("net.onnx.data", b"x", "is the weights of an ONNX model; give the .onnx file next to it"),
        ("net.onnx_data", b"x", "is the weights of an ONNX model; give the .onnx file next to it"),
        ("net.mnn", b"x", "is a model of MNN"),
        ("model.yaml", b"class_name: Sequential", "is a file of settings; give the model that it describes"),
        ("model.onnx", b"<?xml version='1.0'?><Error>", "is an answer of a server, not a model"),
        ("model.keras", b'{"error": "not found"}', "is an answer of a server, not a model"),
        ("model.h5", b"\x1f\x8b\x08", "is compressed by gzip; unpack it"),
        ("serve.sh", b"#!/bin/sh", "is not a Python file; to measure a command, put it after --"),
    ],
)
def test_each_file_is_called_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, contents: bytes, message: str
) -> None:
    (tmp_path / "inside").mkdir()
    for folder in (tmp_path, tmp_path / "inside"):
        (folder / name).write_bytes(contents)
    monkeypatch.chdir(tmp_path)
    suffixes = {**FRAMEWORK.suffixes, ".onnx": "onnx"}
    for typed in (name, f"./{name}", f"inside/{name}", str(tmp_path / name)):
        with pytest.raises(BadInputError) as caught:
            find(WorkloadSpec(words=(typed,)), suffixes)
        assert message in str(caught.value)
        assert "unknown workload" not in str(caught.value)


def test_archives_are_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    archive(tmp_path / "a.bin", "config.json", "metadata.json", "model.weights.h5")
    archive(tmp_path / "b.bin", "archive/data.pkl", "archive/data/0")
    archive(tmp_path / "c.bin", "x.npy", "y.npy")
    assert "is a Keras file under another name; name it model.keras" in refusal("a.bin")
    assert "is a file of PyTorch" in refusal("b.bin")
    assert "is a file of arrays" in refusal("./c.bin")


def test_a_checkpoint_is_known_by_its_prefix_and_a_missing_file_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model-1000.index").write_bytes(bytes(8))
    assert "model-1000 is part of a checkpoint" in refusal("model-1000")
    assert refusal("nothing.tflite") == "no file nothing.tflite; check its path"
    assert refusal("./nothing.pb") == "no file ./nothing.pb; check its path"


def test_folders_tell_what_they_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("models", "files", "served/9", "served/10", "mine.keras", "served/10/variables", "nothing"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "models/frozen.pb").write_bytes(b"\x0a\x01x")
    (tmp_path / "files/net.keras").write_bytes(b"PK")
    for name in ("served/9/saved_model.pb", "served/10/saved_model.pbtxt", "mine.keras/saved_model.pb"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "served/10/variables/variables.index").write_bytes(b"x")
    assert "models is a folder without saved_model.pb; it holds frozen.pb, a frozen graph" in refusal("models")
    assert "it holds net.keras; give the file, files/net.keras" in refusal("files")
    assert "such as served/10" in refusal("served")
    assert "is part of a SavedModel; give its folder, served/10" in refusal("served/10/variables")
    assert "is part of a SavedModel; give its folder, served/10" in refusal("served/10/saved_model.pbtxt")
    assert "is part of a SavedModel; give its folder, served/10" in refusal("served/10/variables/variables.index")
    assert refusal("nothing") == "nothing is a folder without saved_model.pb; give the folder of a SavedModel"
    for name in ("repository/net/1/model.savedmodel", "run/artifacts/model/data", "cut/variables", "onnx/1", "hub"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "repository/net/config.pbtxt").write_bytes(b"x")
    (tmp_path / "repository/net/1/model.savedmodel/saved_model.pb").write_bytes(b"x")
    (tmp_path / "run/artifacts/model/data/saved_model.pb").write_bytes(b"x")
    (tmp_path / "onnx/1/net.keras").write_bytes(b"x")
    (tmp_path / "hub/config.json").write_bytes(b'{"model_type": "bert"}')
    (tmp_path / "hub/tf_model.h5").write_bytes(HDF5)
    assert "such as repository/net/1/model.savedmodel" in refusal("repository")
    assert "such as repository/net/1/model.savedmodel" in refusal("repository/net")
    assert "such as run/artifacts/model/data" in refusal("run")
    assert refusal("cut") == "cut is a SavedModel without its saved_model.pb; copy the whole folder again"
    assert "give the file, onnx/1/net.keras" in refusal("onnx")
    assert "hub is a model of Hugging Face; write a Python file whose build() calls from_pretrained()" in refusal("hub")
    (tmp_path / "hub/onnx").mkdir()
    (tmp_path / "hub/onnx/model.onnx").write_bytes(b"x")
    (tmp_path / "hub/other.xml").write_bytes(b"x")  # OpenVINO's has its weights next to it
    assert "it holds model.onnx; give the file, hub/onnx/model.onnx" in refusal("hub")
    (tmp_path / "hub/openvino_model.xml").write_bytes(b"x")
    (tmp_path / "hub/openvino_model.bin").write_bytes(b"x")
    assert "give the file, hub/openvino_model.xml" in refusal("hub")
    for name in ("served/10", "mine.keras"):  # as text, and a folder that is called like a file
        assert find(WorkloadSpec(words=(name,)), FRAMEWORK.suffixes).kind == Kind.SAVED_MODEL


@pytest.mark.parametrize("name", ["https://host/m.onnx", "gs://bucket/m.keras", "s3://bucket/saved", "hf://bert"])
def test_an_address_is_no_path(name: str) -> None:
    assert refusal(name) == f"{name} is an address, and tftune reads files; fetch the model, and give its path"


def test_suffixes_of_years_of_tutorials_and_in_capitals(tmp_path: Path) -> None:
    for name in ("model.hdf5", "MODEL.HDF5", "MODEL.H5", "Model.Keras"):
        (tmp_path / name).write_bytes(HDF5)
        assert find(WorkloadSpec(words=(str(tmp_path / name),)), FRAMEWORK.suffixes).kind == "keras"
    reader = registry.reader_of(Path("NET.ONNX"))
    assert reader is not None
    assert reader.name == "onnxruntime"


@pytest.mark.parametrize(
    ("said", "own", "wrote", "advice"),
    [
        ("bad marshal data (unknown type code)", "3.12", "3.3", "the Python code of a Lambda layer"),
        ("Unable to synchronously open file (truncated file: eof = 1)", "3.12", "3.3", "its end is missing"),
        ("Layer 'dense' expected 1 variables, but received 0", "3.12", "3.12", "this is the version that wrote it"),
        ("Layer 'dense' expected 1 variables, but received 0", "3.12", "3.3", "load it with the version that wrote it"),
        ("Layer 'dense' expected 1 variables, but received 0", "3.12", "", "load it with the version that wrote it"),
        ("Unrecognized keyword arguments: ['batch_shape']", "3.12", "2.15.0", "use Keras 2"),
        ("Could not locate class 'MyLayer'", "3.12", "3.12", "load the file that defines MyLayer"),
    ],
)
def test_what_to_do_about_a_file_that_keras_cannot_load(said: str, own: str, wrote: str, advice: str) -> None:
    assert advice in kerasfile.why_not(f"Exception encountered: {said}", own, wrote)[1]
