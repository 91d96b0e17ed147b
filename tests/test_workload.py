"""Finding workloads and reading what they say of themselves, without running them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import BadInputError
from tuner.workload.workload import load, names

BODY = "def build(): pass\ndef inputs(batch_size): pass\n"


def test_the_shipped_workload() -> None:
    found = load("resnet50")
    assert (found.name, found.mode, found.item, found.batch_size) == ("resnet50", "inference", "image", 8)
    assert found.description.startswith("ResNet-50")
    assert "resnet50" in names()


def test_a_user_file_is_read_and_not_run(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f'"""My model.\n\nMore."""\nraise SystemExit\nBATCH_SIZE: int = 4\n{BODY}')
    found = load(str(path))
    assert (found.name, found.description, found.batch_size, found.item) == ("mine", "My model.", 4, "item")


def test_the_fingerprint_follows_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(BODY)
    first = load(str(path)).fingerprint
    assert load(str(path)).fingerprint == first
    path.write_text(BODY + "X = 1\n")
    assert load(str(path)).fingerprint != first


def test_the_fingerprint_follows_the_modules_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from net.blocks import make\nimport numpy\n" + BODY)
    (tmp_path / "net").mkdir()
    (tmp_path / "net/__init__.py").write_text("")
    (tmp_path / "net/blocks.py").write_text("import mine\nfrom layers import x\n")
    (tmp_path / "layers.py").write_text("x = 1\n")
    first = load(str(path)).fingerprint
    (tmp_path / "other.py").write_text("x = 1\n")
    assert load(str(path)).fingerprint == first
    (tmp_path / "layers.py").write_text("x = 2\n")
    assert load(str(path)).fingerprint != first


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("resnet5", None, "unknown workload 'resnet5'; did you mean resnet50?"),
        ("./nowhere.py", None, "no workload file ./nowhere.py"),
        ("bad.py", "def build(:\n", "bad.py, line 1:"),
        ("bad.py", "def build(): pass\n", "defines no function inputs()"),
        ("bad.py", "\0", "bad.py"),
        ("bad.py", "BATCH_SIZE = 0\n" + BODY, "BATCH_SIZE is 0"),
        ("bad.py", "BATCH_SIZE = 'x'\n" + BODY, "BATCH_SIZE is 'x'"),
    ],
)
def test_what_cannot_be_a_workload(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
        name = str(tmp_path / name)
    with pytest.raises(BadInputError) as caught:
        load(name)
    assert message in str(caught.value)
