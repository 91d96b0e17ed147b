"""The rooms of the house: a lower one never imports a higher one, and TensorFlow never enters the parent."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ORDER = [
    "errors", "identity", "inherited", "paths", "plain", "plugins", "quantity",
    "child", "stats", "machine", "devices", "workload", "space", "frameworks", "trial", "measure", "study", "model",
    "rules", "result", "job", "cluster", "report", "deploy", "api", "cli",
]  # fmt: skip
TUNER = ROOT / "tuner"
FILES = sorted(TUNER.rglob("*.py"))
OWN = ("self", "cls", "os")  # os._exit is the documented name
CHILDREN = [path for path in FILES if path.parent.name == "child"]


def rooms_imported(path: Path) -> set[str]:
    """Return the rooms of tuner that a file imports, inside functions too."""
    imported_rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tuner"):
            parts = node.module.split(".")
            imported_rooms |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return imported_rooms & set(ORDER)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_lower_room_never_imports_a_higher_one(path: Path) -> None:
    room = path.relative_to(ROOT / "tuner").parts[0].removesuffix(".py")
    if room in ("__init__", "__main__", "entry"):
        return
    assert room in ORDER
    assert all(ORDER.index(other) <= ORDER.index(room) for other in rooms_imported(path))


def test_nobody_else_names_a_framework_that_comes_with_tftune() -> None:
    """What a room needs of one it asks of the object; the registry has it by its name."""
    own = "|".join(path.parent.name for path in (TUNER / "frameworks").glob("*/__init__.py"))
    module = re.compile(rf"tuner\.frameworks\.({own})([.:].*)?")
    for path in FILES:
        if path.is_relative_to(TUNER / "frameworks"):
            continue
        nodes = list(ast.walk(ast.parse(path.read_text())))
        named = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        named += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        named += [f"{n.module}.{alias.name}" for n in nodes if isinstance(n, ast.ImportFrom) for alias in n.names]
        assert not [name for name in named if module.fullmatch(name)], path


def files_imported(path: Path) -> set[Path]:
    """Return the files of tuner that a file imports, for types and inside functions too."""
    files = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            start = path.parents[node.level - 1] if node.level else ROOT
            folder = start.joinpath(*(node.module or "").split("."))
            for alias in node.names:
                places = (folder / f"{alias.name}.py", folder.with_suffix(".py"), folder / "__init__.py")
                files |= {next(place for place in places if place.exists())} if folder.is_relative_to(TUNER) else set()
    return files - {TUNER / "__init__.py"}  # it has the version, and loads the API's names when they are asked for


def test_no_files_import_each_other() -> None:
    TopologicalSorter({path: files_imported(path) for path in FILES}).prepare()  # raises CycleError


FRAMEWORKS = {
    "tuner": set(),  # what all frameworks share
    "devices": set(),
    "tensorflow": {"tensorflow", "h5py"},  # the last comes with Keras, and is asked only if it is there
    "openvino": {"openvino"},
    "tensorrt": {"tensorrt", "onnx"},
    "onnxruntime": {"onnxruntime", "tensorflow", "onnx", "tf2onnx"},  # the last two to convert what is no ONNX file
}


def test_the_child_needs_nothing_but_the_standard_library_and_its_framework() -> None:
    assert {path.parent.parent.name for path in CHILDREN} == FRAMEWORKS.keys()
    for path in CHILDREN:
        modules = {
            name.partition(".")[0]
            for node in ast.walk(ast.parse(path.read_text()))
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom) and not node.level
                else []
            )
        }
        framework_package = FRAMEWORKS[path.parent.parent.name]
        assert modules - set(sys.stdlib_module_names) <= {"numpy"} | framework_package, path


def test_mathematics_needs_nothing_but_numpy_scipy_and_itself() -> None:
    others = {*sys.stdlib_module_names, "numpy", "scipy"}
    for path in (ROOT / "tuner/stats").glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        modules |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
        framework_package = {name for name in modules if name.partition(".")[0] not in others}
        assert all(f"{name}.".startswith("tuner.stats.") for name in framework_package), path


def test_only_the_command_line_and_what_is_drawn_for_it_knows_a_console() -> None:
    for path in FILES:
        if path.relative_to(ROOT / "tuner").parts[0] in ("child", "frameworks", "report", "api", "cli"):
            continue  # a child prints into the log of its process
        nodes = list(ast.walk(ast.parse(path.read_text())))
        imported = {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
        assert not {name for name in imported if name.partition(".")[0] in ("rich", "typer")}, path
        assert not [node for node in nodes if isinstance(node, ast.Name) and node.id == "print"], path


def test_the_words_of_a_maker_of_gpus_stand_where_the_maker_is() -> None:
    """And in frameworks that compute on its GPUs alone; whatever else wants them asks the device."""
    words = re.compile(r"CUDA_VISIBLE_DEVICES|NVIDIA_|nvidia\.com|nvidia-smi|nvml|\bMIG\b", re.IGNORECASE)
    for path in (ROOT / "tuner").rglob("*.*"):
        room = path.relative_to(ROOT / "tuner").parts[0]
        if room == "frameworks" or (room, path.stem) == ("devices", "nvidia") or path.suffix not in (".py", ".toml"):
            continue
        without_keys = re.sub(r'"distributed\.[\w.-]+"', "", path.read_text())  # Dask's settings have its words
        assert not words.findall(without_keys), path


def test_what_measures_reads_no_clock_that_may_jump() -> None:
    """Durations come from monotonic clocks; the time of day is for people."""
    jumping = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today"}
    for path in FILES:
        if path.relative_to(ROOT / "tuner").parts[0] not in ("child", "machine", "trial", "measure"):
            continue
        if path.name == "exporting.py":  # the age of a file is by the time of day, and nothing is measured with it
            continue
        used = {ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert not used & jumping, path


def test_tensorflow_never_enters_the_parent() -> None:
    modules = ", ".join(
        str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
        for path in FILES
        if path not in CHILDREN and path.name != "__main__.py"
    )
    code = f"import sys, {modules}; print('tensorflow' in sys.modules or 'keras' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "False\n"


def test_the_command_line_imports_nothing_heavy_before_it_is_needed() -> None:
    code = (
        "import sys, tuner.cli; print(sorted({'numpy', 'scipy', 'optuna', 'pandas', 'sqlalchemy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"


def test_a_text_stands_below_what_it_is_about() -> None:
    """Below an assignment it says what that is; below anything else it is left over."""
    for path in FILES:
        bodies = [
            node.body for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Module | ast.ClassDef)
        ]
        for before, node in (pair for body in bodies for pair in itertools.pairwise(body)):
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            assert not is_text or isinstance(before, ast.Assign | ast.AnnAssign), f"{path}:{node.lineno}"


def test_what_texts_refer_to_is_there() -> None:
    for path in [*FILES, *(ROOT / "tests/data").rglob("*.py")]:
        for reference in re.findall(r"`(tuner\.\w+\.[\w.]*\w)`", path.read_text()):
            *parents, name = reference.split(".")
            folder = ROOT.joinpath(*parents)
            module = folder.with_suffix(".py")
            is_module = (folder / name).is_dir() or (folder / f"{name}.py").exists()
            assert is_module or (module.exists() and re.search(rf"\b{name}\b", module.read_text())), (
                f"{path}: {reference}"
            )


def test_the_map_in_the_docs_is_the_house() -> None:
    text = (ROOT / "docs/contributing/architecture.md").read_text()
    rooms = [path.name for path in (ROOT / "tuner").iterdir() if (path / "__init__.py").exists()]
    assert sorted(re.findall(r"^\| `tuner/(\w+)` \|", text, re.MULTILINE)) == sorted(rooms)
    order = next(line for line in text.splitlines() if " -> " in line)
    assert re.findall(r"\w+", order.replace("->", " ")) == [name for name in ORDER if name in rooms]
    files = [*re.findall(r"`tuner/([\w/]+)\.py`", text), *re.findall(rf"`((?:{'|'.join(rooms)})/\w+)`", text)]
    assert not [each for each in files if not (ROOT / "tuner" / f"{each}.py").exists()]


@pytest.mark.parametrize("path", sorted((ROOT / "tests").glob("test_*.py")), ids=lambda path: path.name)
def test_tests_need_no_other_tests_and_no_private_names(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [node.module for node in imports if (node.module or "").startswith("tests.test_")]
    names = {alias.name for node in imports if (node.module or "").startswith("tuner") for alias in node.names}
    names |= {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in OWN
    }
    assert not [name for name in names if name.startswith("_") and not name.startswith("__")]
