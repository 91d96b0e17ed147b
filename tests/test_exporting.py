"""The export cache: its names, two processes that fill it at once, what is damaged in it, and models that fail."""

from __future__ import annotations

import errno
import json
import re
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests import forked
from tests.command_line import tftune_here
from tests.frameworks import cached_folder
from tuner.errors import BadInputError
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.machine.cgroup import CgroupLimits
from tuner.trial import exporting
from tuner.trial.exporting import contents_of, export, is_complete, publish
from tuner.trial.outcome import KERNELS_MEMORY, Status, TrialFailure
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import find, load


def made(folder: Path, text: str, *, is_complete: bool = True) -> Path:
    """Make a folder that looks like an export."""
    folder.mkdir()
    (folder / "saved_model.pb").write_text(text)
    (folder / "tftune.json").write_text(json.dumps(contents_of(folder)))
    if not is_complete:
        (folder / "saved_model.pb").unlink()
    return folder


def test_the_slower_of_two_processes_leaves_the_other_s_export_alone(tmp_path: Path) -> None:
    exported, part = made(tmp_path / "there", "first"), made(tmp_path / ".part-1", "later")
    publish(part, exported)
    assert (exported / "saved_model.pb").read_text() == "first"


def test_an_export_that_lost_a_file_is_replaced(tmp_path: Path) -> None:
    exported, part = made(tmp_path / "there", "first", is_complete=False), made(tmp_path / ".part-1", "later")
    publish(part, exported)
    assert is_complete(exported)
    assert (exported / "saved_model.pb").read_text() == "later"
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize("other_is_whole", [True, False])
def test_another_process_may_be_faster_between_the_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other_is_whole: bool
) -> None:
    """The broken folder is moved out of the way, and just then another process puts its own there."""
    exported, part = made(tmp_path / "there", "first", is_complete=False), made(tmp_path / ".part-1", "mine")
    rename: Callable[[Path, Path], Path] = Path.rename

    def renamed(self: Path, target: Path) -> Path:
        moved = rename(self, target)
        if self == exported:
            made(exported, "other", is_complete=other_is_whole)
        return moved

    monkeypatch.setattr(Path, "rename", renamed)
    if other_is_whole:
        publish(part, exported)
        assert (exported / "saved_model.pb").read_text() == "other"
    else:
        with pytest.raises(OSError, match="not empty"):
            publish(part, exported)


def test_a_bit_that_a_disk_has_turned_is_seen(tmp_path: Path) -> None:
    exported = made(tmp_path / "there", "first")
    assert is_complete(exported)
    damaged = bytearray((exported / "saved_model.pb").read_bytes())
    damaged[2] ^= 1
    (exported / "saved_model.pb").write_bytes(damaged)
    assert not is_complete(exported)
    (exported / "tftune.json").write_text("[]")
    assert not is_complete(exported)


def test_a_damaged_export_is_made_anew_and_that_is_told(
    tmp_path: Path, stock: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFTUNE_CACHE", str(tmp_path))
    monkeypatch.setattr(
        exporting, "_write", lambda _workload, _framework, part, *_, **__: (part / "saved_model.pb").write_text("new")
    )
    lines: list[str] = []
    options = {"python": Path(sys.executable), "env": {}, "deadline_s": 9.0, "notify": lines.append}
    folder = export(load("resnet50"), FRAMEWORK, stock, **options)
    assert lines == ["writing resnet50 for TensorFlow (done once, and kept)"]
    (folder / "saved_model.pb").write_text("old")
    export(load("resnet50"), FRAMEWORK, stock, **options)
    assert lines[1] == f"{folder.name} of the cache is not as it was written: it is made again"
    assert (folder / "saved_model.pb").read_text() == "new"
    export(load("resnet50"), FRAMEWORK, stock, **options)
    assert len(lines) == 3


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), BadInputError("INTERNAL: x")])
def test_a_full_disk_of_the_cache_is_told_as_that(
    tmp_path: Path, stock: Build, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def write(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setenv("TFTUNE_CACHE", str(tmp_path))
    monkeypatch.setattr(exporting, "_write", write)
    with pytest.raises(BadInputError, match="its disk is full" if isinstance(error, OSError) else "INTERNAL"):
        export(load("resnet50"), FRAMEWORK, stock, python=Path(sys.executable), env={}, deadline_s=9.0)
    full = shutil.disk_usage(tmp_path)._replace(free=4096)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(BadInputError, match=r"its disk is .*full.*; free some space, or set TFTUNE_CACHE"):
        export(load("resnet50"), FRAMEWORK, stock, python=Path(sys.executable), env={}, deadline_s=9.0)
    assert not list((tmp_path / "exports").iterdir())


SLEEPING = """
import time
import numpy as np

BATCH_SIZE = 2


def build():
    time.sleep(600)


def inputs(batch_size):
    return (np.zeros((batch_size, 3), "float32"),)
"""


@pytest.mark.tensorflow
def test_an_export_keeps_to_the_deadline_of_a_trial_and_tells_that_it_began(tmp_path: Path) -> None:
    (tmp_path / "sleeping.py").write_text(SLEEPING)
    began_s = time.monotonic()
    compared = ["compare", "./sleeping.py", "--a", "tf-default", "--b", "intra_op=1"]
    done = tftune_here(*compared, "--trial-timeout", "3s", "--time-budget", "20s", cwd=tmp_path)
    assert time.monotonic() - began_s < 60
    assert done.returncode == 2
    first, *_, last = done.stderr.strip().splitlines()
    assert first == "writing sleeping for TensorFlow (done once, and kept)"
    assert last.endswith(
        "the model was not made within 3 s; give it more time, once, as it is kept: --trial-timeout 10m"
    )


class OutOfMemory:
    """A process that the kernel kills while it writes a model."""

    def __init__(self, *_: object) -> None:
        """Take what a process is made with."""

    def report(self, _: str) -> None:
        raise TrialFailure(Status.OOM, KERNELS_MEMORY)

    def close(self) -> None:
        """Nothing is left of it."""


def test_memory_that_does_not_hold_an_export_may_be_taken_by_inputs(
    stock: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(exporting, "ChildProcess", OutOfMemory)
    monkeypatch.setenv("TFTUNE_CACHE", str(tmp_path))
    limit = CgroupLimits(cpu_quota=None, memory_bytes=900 << 20)
    monkeypatch.setattr("tuner.machine.cgroup.read_limits", lambda: limit)
    with pytest.raises(
        BadInputError, match=r"because memory ran out; raise the .* limit of 900 MiB, or let inputs\(\)"
    ):
        export(load("mlp"), FRAMEWORK, stock, python=Path(sys.executable), env={}, deadline_s=9.0)


CUSTOM = """
import sys
import keras

if sys.argv[1] == "lambda":
    layer = keras.layers.Lambda(lambda x: x * 2, output_shape=(4,))
else:
    @keras.saving.register_keras_serializable()
    class Own(keras.layers.Layer):
        def call(self, x):
            return x + 1

    layer = Own()
inputs = keras.Input((4,))
keras.Model(inputs, layer(keras.layers.Dense(4)(inputs))).save(sys.argv[1] + ".keras")
"""


@pytest.mark.tensorflow
@pytest.mark.parametrize("layer", ["lambda", "own"])
def test_a_file_of_keras_that_does_not_hold_all_of_a_model(layer: str, tmp_path: Path) -> None:
    forked.run(CUSTOM, layer, folder=tmp_path)
    done = tftune_here("search", f"{layer}.keras", cwd=tmp_path)
    assert done.returncode == 2
    reason = {"lambda": "`Lambda` layer", "own": "Could not locate class"}[layer]
    assert re.search(rf"cannot use workload '{layer}': Keras \S+ cannot load it: .*{reason}", done.stderr)
    assert "give what model.export('FOLDER') writes" in done.stderr
    assert ("--op-library ./layers.py" in done.stderr) == (layer == "own")


@pytest.mark.tensorflow
def test_what_is_wrong_with_a_shipped_workload_is_what_it_was_told(tmp_path: Path) -> None:
    (tmp_path / "text.keras").write_text("not a model")
    done = tftune_here("search", "text.keras", cwd=tmp_path)
    assert "it is no file of Keras: it is neither a zip archive nor HDF5; give what model.save() writes" in done.stderr
    done = tftune_here("search", "resnet50", "--param", "size=3", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip().endswith("; check --param: size=3")


def test_the_name_tells_framework_parameters_and_mode_apart(stock: Build) -> None:
    default_folder = cached_folder(load("resnet50"), stock)
    smaller = find(WorkloadSpec(words=("resnet50",), params=("size=192",)))
    eager, xla = (find(WorkloadSpec(words=("resnet50",), execution=execution)) for execution in ("eager", "xla"))
    assert default_folder != cached_folder(load("resnet50", mode="training"), stock)
    assert default_folder != cached_folder(smaller, stock)
    assert default_folder != cached_folder(load("resnet50"), replace(stock, tensorflow="2.20.0"))
    assert default_folder != cached_folder(load("resnet50"), replace(stock, keras="3.0"))
    assert default_folder != cached_folder(eager, stock)  # for which no SavedModel is made
    assert default_folder == cached_folder(xla, stock)


def test_a_copy_of_a_saved_model_is_another_one(tmp_path: Path, stock: Build) -> None:
    """The export of a SavedModel is a link to it: a copy must not be timed as the original."""
    (tmp_path / "a/1").mkdir(parents=True)
    (tmp_path / "a/1/saved_model.pb").write_bytes(b"model")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    one, other = (load(str(tmp_path / name / "1")) for name in "ab")
    assert one.fingerprint == other.fingerprint
    assert cached_folder(one, stock) != cached_folder(other, stock)
