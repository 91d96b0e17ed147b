"""What a workload's own file sets, against what a space's settings do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import cast

import pytest

from tests.frameworks import read_space, resolve
from tuner.child import worker
from tuner.child.adapter import Adapter
from tuner.child.worker import OWN_SETTINGS
from tuner.errors import BadInputError
from tuner.frameworks.onnxruntime.framework import FRAMEWORK as ONNXRUNTIME
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.job.interference import check_own_settings
from tuner.machine.host import Machine
from tuner.space.space import Space
from tuner.workload.workload import Workload, load


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    """Return a workload whose third line sets things."""
    (tmp_path / "mine.py").write_text(
        "import os\nimport tensorflow as tf\nos.environ['TF_NUM_INTRAOP_THREADS'] = '1'\n"
        "tf.config.threading.set_inter_op_parallelism_threads(3)\n"
        "def build(): pass\ndef inputs(batch_size): pass\n"
    )
    return load(str(tmp_path / "mine.py"))


def check(folder: Path, workload: Workload, space: Space, **own: object) -> list[str]:
    (folder / OWN_SETTINGS).write_text(json.dumps({"variables": {}, "threads": {}, "constants": {}, "notes": []} | own))
    notes: list[str] = []
    check_own_settings(folder, workload, FRAMEWORK, space, notes.append)
    return notes


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"threads": {"inter_op": 3}}, "mine.py, line 4: the workload itself sets 3 threads for inter_op"),
        ({"variables": {"TF_NUM_INTRAOP_THREADS": "1"}}, "mine.py, line 3: the workload itself sets TF_NUM_INTRA"),
        ({"variables": {"TF_ENABLE_ONEDNN_OPTS": "0"}}, "mine.py: the workload itself sets TF_ENABLE_ONEDNN_OPTS=0"),
    ],
)  # fmt: skip
def test_both_cannot_set_it(
    tmp_path: Path, workload: Workload, space: Space, own: dict[str, dict[str, object]], message: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        check(tmp_path, workload, space, **own)
    assert message in caught.value.message
    assert caught.value.hint.startswith("remove ")


def test_what_no_setting_sets_is_left_alone(tmp_path: Path, workload: Workload, space: Space) -> None:
    assert check(tmp_path, workload, space, variables={"MINE": "1", "OMP_NUM_THREADS": "1"}) == []
    assert "sets XLA_FLAGS" in check(tmp_path, workload, space, variables={"XLA_FLAGS": "x"})[0]
    check_own_settings(tmp_path, workload, ONNXRUNTIME, space, lambda _: None)


def test_what_the_file_removes_is_told(tmp_path: Path, workload: Workload, space: Space) -> None:
    with pytest.raises(BadInputError) as caught:
        check(tmp_path, workload, space, variables={"TF_NUM_INTRAOP_THREADS": None})
    assert "mine.py, line 3: the workload itself removes TF_NUM_INTRAOP_THREADS, so the" in caught.value.message
    with pytest.raises(BadInputError, match="removes TF_ENABLE_ONEDNN_OPTS") as caught:
        check(tmp_path, workload, space, variables={"TF_ENABLE_ONEDNN_OPTS": None})
    assert caught.value.hint.endswith("for all trials: env -u TF_ENABLE_ONEDNN_OPTS tftune …")
    assert "removes XLA_FLAGS" in check(tmp_path, workload, space, variables={"XLA_FLAGS": None})[0]


class Exporter:
    """A framework whose export runs code that changes variables."""

    def load(self) -> None:
        """Do what is not the workload's."""
        os.putenv("TFTUNE_TEST_OWN", "1")

    def export(self, _: object) -> None:
        """Change variables in ways that os.environ shows, and in ways that it does not."""
        os.putenv("TFTUNE_TEST_PUT", "2")
        os.unsetenv("TFTUNE_TEST_UNSET")
        del os.environ["TFTUNE_TEST_GONE"]
        os.environ["TFTUNE_TEST_SET"] = "3"


def test_every_way_to_change_a_variable_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TFTUNE_TEST_UNSET", "TFTUNE_TEST_GONE", "TFTUNE_TEST_SET", "TFTUNE_TEST_KEPT"):
        monkeypatch.setenv(name, "0")
    try:
        worker.export({"kind": "python", "folder": str(tmp_path), "workload": "mine.py"}, cast("Adapter", Exporter()))
    finally:
        for name in ("TFTUNE_TEST_OWN", "TFTUNE_TEST_PUT"):
            os.unsetenv(name)
    assert json.loads((tmp_path / OWN_SETTINGS).read_text())["variables"] == {
        "TFTUNE_TEST_PUT": "2", "TFTUNE_TEST_UNSET": None, "TFTUNE_TEST_GONE": None, "TFTUNE_TEST_SET": "3",
    }  # fmt: skip


def test_code_that_does_not_act_is_told_with_its_line(tmp_path: Path, workload: Workload, space: Space) -> None:
    [note] = check(tmp_path, workload, space, notes=[["set_inter_op", "it acts in no trial"]])
    assert note == "mine.py, line 4: it acts in no trial"


def test_a_pin_at_the_same_value_is_no_contradiction(
    tmp_path: Path, workload: Workload, machine: Machine, stock: Build
) -> None:
    pins = {"inter_op": "3", "intra_op": "1"}
    pinned = resolve(read_space("quick", machine), machine=machine, build=stock, workload=workload, pins=pins)
    own = {"threads": {"inter_op": 3}, "variables": {"TF_NUM_INTRAOP_THREADS": "1"}}
    assert check(tmp_path, workload, pinned, **own) == []


def test_a_default_of_the_file_yields_to_what_is_set(tmp_path: Path, workload: Workload, space: Space) -> None:
    setting = "os.environ.setdefault('TF_NUM_INTRAOP_THREADS', '1')"
    workload.path.write_text(f"import os\n{setting}\ndef build(): pass\ndef inputs(batch_size): pass\n")
    [note] = check(tmp_path, workload, space, variables={"TF_NUM_INTRAOP_THREADS": "1"})
    assert note.startswith("mine.py, line 2: the workload sets TF_NUM_INTRAOP_THREADS if nothing else does")


@pytest.mark.parametrize(
    ("constants", "message", "hint"),
    [
        ({"BATCH_SIZE": 64}, "line 7: BATCH_SIZE is 64 when the file has run, and tftune read 8", "--batch-size 64"),
        ({"PARAMS": {"width": 64}}, "line 8: the parameter width is 64 when the file has run", "--param width=64"),
        ({"PARAMS": {}}, "the parameter width is None", "write its value"),
    ],
)  # fmt: skip
def test_constants_are_those_of_the_file_that_has_run(
    tmp_path: Path, workload: Workload, space: Space, constants: dict[str, object], message: str, hint: str
) -> None:
    path = workload.path
    path.write_text(
        path.read_text().replace("build()", "build(width)") + 'BATCH_SIZE = 8\nPARAMS = {"width": 16}\n_configure()\n'
    )
    workload = load(str(path))
    usual = {"BATCH_SIZE": 8, "PARAMS": {"width": 16}}
    with pytest.raises(BadInputError) as caught:
        check(tmp_path, workload, space, constants=usual | constants)
    assert message in caught.value.message
    assert hint in caught.value.hint
    check(tmp_path, workload, space, constants=usual)
