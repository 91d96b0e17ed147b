"""What the tests share: a made machine and runtime, the shipped workload, and one real target."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import command_line, forked, scripted
from tests.frameworks import CATALOGUE, MADE_MACHINE, STOCK, read_space, resolve
from tests.schemas import validate
from tuner.cli import app
from tuner.errors import TunerError
from tuner.frameworks import probing
from tuner.frameworks.onnxruntime.framework import OnnxRuntimeBuild
from tuner.frameworks.openvino.framework import OpenVinoBuild
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.identity import digest
from tuner.machine.conditions import Conditions
from tuner.machine.host import Machine
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.study.record import Record
from tuner.workload.workload import Workload, load

# How long an example takes says nothing of it on a machine that stands still for a second now and then.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
MAKERS = ("child", "frameworks", "trial", "workload")
"""The folders of the code that decides what an export or a probe's result holds."""
Call = Callable[..., Any]
Card = Callable[..., dict[str, str]]
Finished = Callable[..., tuple[Record, scripted.Log]]
QUIET = Conditions(
    elapsed_s=60.0,
    n_cpus=2,
    steal_share=0.0,
    foreign_cpus=0.02,
    pressure_share=0.3,
    throttled_share=0.0,
    hot=None,
    mhz=None,
    asleep_s=0.0,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --write-golden: what tests compare their output with is written anew, to be read as a diff."""
    parser.addoption("--write-golden", action="store_true")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files with most long tests first: workers that take a file each then end at about once.

    (For that, pytest-xdist has to keep the order: --no-loadscope-reorder. By itself it begins with the most tests.)
    """
    real, slow = (
        Counter(item.path for item in items if item.get_closest_marker(name)) for name in ("tensorflow", "slow")
    )
    items.sort(key=lambda item: (-real[item.path], -slow[item.path]))


@pytest.fixture
def write_golden(request: pytest.FixtureRequest) -> bool:
    """Return whether the golden files are to be written anew."""
    return bool(request.config.getoption("--write-golden"))


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> None:
    """Keep the tests out of the user's cache, and the user's out of the tests.

    Each of pytest's workers has one of its own, but for what takes long to make and is the same for all and in every
    run: exports, and what probes found. They lie in pytest's own cache, for as long as the code that makes them stays
    as it is. TFTUNE_TESTS_CACHE names another folder.
    """
    cache = tmp_path_factory.mktemp("cache")
    made_by = digest(
        [path.read_text() for folder in MAKERS for path in sorted((ROOT / "tuner" / folder).rglob("*.py"))]
    )
    kept = pytestconfig.rootpath / ".pytest_cache" / "d" / "tftune"
    if "TFTUNE_TESTS_CACHE" not in os.environ:
        for older in kept.glob("*"):
            if older.name != made_by:
                shutil.rmtree(older, ignore_errors=True)
    shared = Path(os.environ.get("TFTUNE_TESTS_CACHE", kept)) / made_by
    for name in ("exports", "builds"):
        (shared / name).mkdir(parents=True, exist_ok=True)
        (cache / name).symlink_to((shared / name).absolute())
    os.environ["TFTUNE_CACHE"] = str(cache)
    os.environ.pop("TFTUNE_STORAGE", None)


@pytest.fixture(scope="session", autouse=True)
def _own_lock() -> Iterator[None]:
    """Give each of pytest's workers a right to measure of its own: tests that run side by side measure nothing."""
    with pytest.MonkeyPatch.context() as patch:
        if worker := os.environ.get("PYTEST_XDIST_WORKER"):
            patch.setenv("TFTUNE_LOCK", f"tftune-tests-{os.getppid()}-{worker}")
        yield


@pytest.fixture(scope="session", autouse=True)
def _located_once() -> Iterator[None]:
    """Ask an interpreter once where it has a package: hundreds of tests of the command line would start one for it."""
    locate, located = probing.locate, dict[tuple[object, ...], dict[str, Any]]()

    def once(python: Path, env: Mapping[str, str], subject: probing.ProbedPackage) -> dict[str, Any]:
        key = (python, subject, *sorted(item for item in env.items() if item[0].startswith(command_line.EARLY)))
        if key not in located:
            located[key] = locate(python, env, subject)
        return located[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probing, "locate", once)
        yield


@pytest.fixture(scope="session", autouse=True)
def _forked_exports() -> Iterator[None]:
    """Write models in forks of one process that has imported TensorFlow; see `tests.forked`."""
    with contextlib.closing(command_line), contextlib.closing(forked), forked.exports():
        yield


@pytest.fixture
def forks_only() -> Iterator[None]:
    """Let a test's processes be such forks, too, where launchers start interpreters or servers."""
    with forked.everywhere():
        yield


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Return what puts a scripted study that has come to its end into a folder; all workers share them."""
    base = tmp_path_factory.getbasetemp()
    return functools.partial(scripted.finished, base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture(scope="session")
def machine() -> Machine:
    """Two sockets of 4 cores with 2 hardware threads each."""
    return MADE_MACHINE


@pytest.fixture(scope="session")
def stock() -> Build:
    """A stock wheel, as the probe sees it."""
    return STOCK


@pytest.fixture
def openmp(stock: Build) -> Build:
    """An OpenMP build, as the probe sees it."""
    return replace(stock, id="openmp", onednn_runtime="openmp")


@pytest.fixture(scope="session")
def onnx() -> OnnxRuntimeBuild:
    """ONNX Runtime's wheel, as the probe saw it on two CPUs."""
    low = {"intra_op_num_threads": "2", "inter_op_num_threads": "2", "execution_mode": "parallel"}
    observations: list[tuple[dict[str, str] | None, int, int, float]] = [
        (None, 1, 1, 0.029),
        ({}, 2, 0, 0.0001),
        ({"intra_op_num_threads": "4"}, 4, 0, 0.0001),
        ({"inter_op_num_threads": "4"}, 4, 0, 0.0001),
        ({"execution_mode": "sequential"}, 1, 0, 0.0001),
        ({"intra_op_affinity": "cores"}, 2, 1, 0.0001),
        ({"session.intra_op.allow_spinning": "1"}, 2, 0, 0.028),
        ({"session.inter_op.allow_spinning": "1"}, 2, 0, 0.028),
    ]
    return OnnxRuntimeBuild(
        id="onnx",
        python="3.11.7",
        onnxruntime="1.32.0",
        providers=["AzureExecutionProvider", "CPUExecutionProvider"],
        converters={"tensorflow": "2.21.0", "keras": "3.12.0", "tf2onnx": "1.17.0"},
        cpus=2,
        observations=[
            {"changes": changes, "created": n, "bound": n_bound, "idle_cpu_s": idle_s, "options": low}
            for changes, n, n_bound, idle_s in observations
        ],
    )


@pytest.fixture(scope="session")
def ov() -> OpenVinoBuild:
    """OpenVINO, as its probe sees it on a CPU with bfloat16."""
    return OpenVinoBuild(
        id="ov",
        python="3.11.7",
        openvino="2026.4.1",
        default_precision="bf16",
        capabilities=["BF16", "FP32", "FP16", "INT8"],
        converters={"tensorflow": "2.21.0", "keras": "3.12.0"},
    )


@pytest.fixture(scope="session")
def resnet50() -> Workload:
    """The shipped workload."""
    return load("resnet50")


@pytest.fixture(scope="session")
def space(machine: Machine, stock: Build, resnet50: Workload) -> Space:
    """The shipped CPU space on the made machine."""
    return resolve(read_space("cpu", machine), machine=machine, build=stock, workload=resnet50)


@pytest.fixture(scope="session")
def clean_env() -> dict[str, str]:
    """The environment that trials start from."""
    env, _ = CATALOGUE.scrub(os.environ)
    return env | {"CUDA_VISIBLE_DEVICES": "-1"}


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter that has TensorFlow: the one that runs the tests."""
    return Path(sys.executable)


def setting(**values: int | str) -> Setting:
    """Return a setting, for short."""
    return Setting.of(values)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command; return (exit code, stdout, stderr), an error's text in the place of what stderr would show."""

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = app(list(words), standalone_mode=False) or 0
        except TunerError as error:
            code, text = error.exit_code, str(error)
            return code, capsys.readouterr().out, text
        captured = capsys.readouterr()
        validate(words, captured.out)
        return code, captured.out, captured.err

    return run


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of NVIDIA's two libraries as they are made here."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: the driver without a card cannot be made")
    folder = tmp_path_factory.mktemp("driver")
    flags = ["-shared", "-fPIC", "-O1", str(DATA / "gpu/driver.c")]
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        subprocess.run([compiler, *flags, "-o", str(folder / name)], check=True)
    return folder


@pytest.fixture
def card(driver: Path, tmp_path: Path) -> Card:
    """Return what sets the card's state and returns the environment in which it is there."""
    file = tmp_path / "card"

    def environment(**state: int) -> dict[str, str]:
        file.write_text("".join(f"{key} {value}\n" for key, value in state.items()))
        paths = {"LD_LIBRARY_PATH": str(driver), "FAKE_GPU": str(file), "PYTHONPATH": str(DATA / "packages")}
        kept = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        return kept | paths

    return environment
