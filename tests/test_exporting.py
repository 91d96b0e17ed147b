"""The export cache: its names, and two processes that fill it at once; without TensorFlow."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.frameworks import cached_folder
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.trial.exporting import is_complete, publish, sizes_of
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import find, load


def made(folder: Path, text: str, *, is_complete: bool = True) -> Path:
    """Make a folder that looks like an export."""
    folder.mkdir()
    (folder / "saved_model.pb").write_text(text)
    (folder / "tftune.json").write_text(json.dumps(sizes_of(folder)))
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
