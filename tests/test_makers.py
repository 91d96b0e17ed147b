"""A second maker of GPUs, from a package outside of tftune: AMD's names, over a stand-in for its library.

`tests/data/amd` is that package, as docs/contributing/architecture.md shows it. No card of AMD's has been tried: this
shows that whatever tftune says of a device comes from the device.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.command_line import ROOT, tftune
from tests.frameworks import MADE_MACHINE, PACKAGES, STOCK, read_space, resolve
from tuner.child.worker import failure
from tuner.errors import BadInputError
from tuner.frameworks import registry
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.trial.outcome import Status, TrialFailure
from tuner.trial.running import CommandLauncher
from tuner.workload.command import Command
from tuner.workload.workload import load

AMD = Path(__file__).parent / "data/amd"
PRODUCT = [str(PACKAGES / "product.py"), "--framework", "numpy"]
OF_ANOTHER = re.compile(r"nvidia|cuda|\bMIG\b|nvml", re.IGNORECASE)
Env = Callable[..., dict[str, str]]


@pytest.fixture
def amd() -> Env:
    """Return what gives the environment in which the package is installed, with cards in a state."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_VISIBLE_DEVICES")}

    def environment(**state: int) -> dict[str, str]:
        return kept | {"PYTHONPATH": f"{PACKAGES}:{AMD}", "FAKE_AMD": json.dumps({"cards": 2} | state)}

    return environment


def package(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the package's module of the device, in this process."""
    monkeypatch.syspath_prepend(AMD)
    return importlib.import_module("tftune_amd.device")


def told(code: str, env: dict[str, str]) -> Any:
    """Return what a program of this tree prints as JSON where the package is installed."""
    env = env | {"PYTHONPATH": f"{ROOT}:{env['PYTHONPATH']}"}
    return json.loads(subprocess.check_output([sys.executable, "-c", code], env=env, text=True))


def test_inspect_shows_its_gpus_in_its_words(amd: Env, tmp_path: Path) -> None:
    shown = tftune("inspect", *PRODUCT, "--device", "amd:1", cwd=tmp_path, env=amd())
    assert shown.returncode == 0, shown.stderr
    assert not OF_ANOTHER.search(shown.stdout + shown.stderr)
    lines = " ".join(shown.stdout.split())
    assert "amd:1: AMD Instinct Fake 300, 192.0 GiB, driver 6.12.12" in lines
    assert "target gfx942, power limit 750 W, clock 2100 MHz at most" in lines
    assert "driver 6.12.12, target gfx942" in lines
    document = tftune("inspect", *PRODUCT, "--device", "amd", "--json", cwd=tmp_path, env=amd()).stdout
    assert not OF_ANOTHER.search(document)
    assert [each["device"] for each in json.loads(document)["gpus"]] == ["amd:0", "amd:1"]


@pytest.mark.parametrize(
    ("state", "variables", "place", "found"),
    [
        ({"driver": 0}, {}, "", "cannot use --device amd: AMD's driver does not answer: no amdgpu module; load amdgpu"),
        ({"cards": 0}, {}, "", "AMD's driver sees no GPU here; see the output of amd-smi"),
        ({}, {}, "2", "there is no amd:2; there are: amd:0 (AMD Instinct Fake 300), amd:1"),
        ({}, {}, "first", "amd:first names no GPU; expected amd, amd:1, amd:0:2 (a slice)"),
        ({}, {"HIP_VISIBLE_DEVICES": "-1"}, "", "HIP_VISIBLE_DEVICES=-1 hides all GPUs"),
        ({}, {"HIP_VISIBLE_DEVICES": "1"}, "1", "there is no amd:1 (HIP_VISIBLE_DEVICES=1)"),
        ({"pid": 1}, {}, "", "amd (AMD Instinct Fake 300) is in use by"),
    ],
)
def test_one_that_cannot_be_used_is_one_line(
    state: dict[str, int],
    variables: dict[str, str],
    place: str,
    found: str,
    amd: Env,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_AMD", amd(**state)["FAKE_AMD"])
    device = package(monkeypatch)
    gpu = device.AmdGpu(place, reader=device.AmdSmi(), env=variables)
    with pytest.raises(BadInputError) as error:
        gpu.check_idle()
    assert found in str(error.value)
    assert not OF_ANOTHER.search(str(error.value))


def test_a_framework_of_another_maker_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    amd = package(monkeypatch).DEVICE
    with pytest.raises(BadInputError, match="ONNX Runtime cannot run on amd; expected --device cpu or gpu"):
        registry.find("onnxruntime").check_device(amd)
    assert registry.find("tensorflow").runs_on(amd)  # and says itself whether a build does


def test_knobs_of_gpus_act_on_it_and_those_of_another_maker_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """And its kind is that of all GPUs, so that spaces, baselines and rules of GPUs are its own, too."""
    amd, workload = package(monkeypatch).DEVICE, load("resnet50")
    file = read_space(amd.space, MADE_MACHINE, default_batch=workload.batch_size)
    space = resolve(
        file, machine=MADE_MACHINE, build=STOCK, workload=workload, device=amd.kind, maker=amd.maker, pins={}
    )
    assert {"gpu_thread_mode", "gpu_thread_count", "xla", "batch_size"} <= set(space.domains)
    assert space.inactive["tf32"] == "it is read by the libraries of NVIDIA, and this is for the libraries of AMD"
    assert "gpu_allocator" in space.inactive
    assert "tf-gpu-guide" in space.baselines


def test_snippets_and_environments_name_it_in_its_words(amd: Env) -> None:
    snippets, seen = told(
        """if True:
        import json
        from tuner.devices.registry import find
        from tuner.report.emit import SERVING, Format, emit
        from tuner.space.deployment import Deployment
        deployment = Deployment(env={"A": "1"}, gpu="1", device="amd")
        assert Deployment.from_dict(deployment.to_dict()) == deployment
        formats = [each for each in Format if each not in SERVING]
        snippets = {each.value: emit(deployment, each, title="x") for each in formats}
        seen = {name: find(name).environment() for name in ("cpu", "amd:1")}
        print(json.dumps([snippets, seen]))""",
        amd(),
    )
    # The CPU hides the GPUs of all makers, and a GPU those of others.
    assert seen["cpu"] == {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}
    assert seen["amd:1"] == {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "GPU-aaaa000000000002"}
    assert not OF_ANOTHER.search("".join(snippets.values()))
    assert "export HIP_VISIBLE_DEVICES=1" in snippets["sh"]
    assert "docker run --device /dev/kfd --device /dev/dri" in snippets["docker"]
    assert 'ENV HIP_VISIBLE_DEVICES="1"' in snippets["docker"]
    service = yaml.safe_load(snippets["compose"])["services"]["program"]
    assert service["devices"] == ["/dev/kfd", "/dev/dri"]
    assert service["environment"] == {"HIP_VISIBLE_DEVICES": "1", "A": "1"}
    pod = yaml.safe_load(snippets["k8s"])
    assert pod["resources"] == {"limits": {"amd.com/gpu": 1}}
    assert pod["env"] == [{"name": "A", "value": "1"}]  # the plugin hands over no other
    kept = json.loads(snippets["json"])
    assert (kept["gpu"], kept["device"]) == ("1", "amd")


def test_what_its_libraries_say_of_full_memory_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = package(monkeypatch).DEVICE.out_of_memory
    for known, kind in ((codes, "oom"), ((), "failed")):
        assert failure(RuntimeError("HIP error: hipErrorOutOfMemory"), "model.py", codes=known)["kind"] == kind
    launcher = CommandLauncher(
        command=Command(words=("sh", "-c", "echo hipErrorOutOfMemory; exit 1"), pattern="rate"),
        base_env=dict(os.environ),
        folder=tmp_path,
        deadline_s=20.0,
        out_of_memory=codes,
    )
    with pytest.raises(TrialFailure) as caught:
        launcher.launch(Setting.of({"batch_size": 1}), Deployment()).slice(0.0)
    assert caught.value.status is Status.OOM


def test_a_mistake_in_child_code_is_its_own_packages(tmp_path: Path) -> None:
    """What the user's file raises is the file's, and what an adapter refuses in its own words is no mistake."""
    adapter, workload = tmp_path / "tftune_mine/child/adapter.py", tmp_path / "mine.py"
    adapter.parent.mkdir(parents=True)
    adapter.write_text("def export(build):\n    if build() == 3:\n        raise ValueError('a 3')\n    build().shape\n")
    workload.write_text("def build():\n    raise TypeError('no model')\n")
    export = runpy.run_path(str(adapter))["export"]

    def report(build: Callable[[], object]) -> dict[str, Any]:
        try:
            export(build)
        except Exception as error:  # whatever it raises
            return failure(error, str(workload), adapters=[str(adapter.parent)])
        raise AssertionError

    own = report(lambda: None)
    assert own["message"] == "AttributeError: 'NoneType' object has no attribute 'shape' (line 4 of adapter.py)"
    assert own["advice"] == f"report it to tftune_mine, whose code failed, unless {workload} gives what it cannot take"
    of_user = report(runpy.run_path(str(workload))["build"])
    assert (of_user["message"], of_user["advice"]) == ("TypeError: no model (line 2 of mine.py)", "")
    assert "adapter.py" not in of_user["frames"]
    refused = report(lambda: 3)
    assert (refused["message"], refused["advice"]) == ("ValueError: a 3", "")


@pytest.mark.tensorflow
def test_a_search_for_less_energy_runs_on_it(amd: Env, tmp_path: Path) -> None:
    """Its trials see it alone, its counter is read around slices, and what is recommended has its words."""
    env = amd(watts=200)
    words = ["search", *PRODUCT, "--device", "amd:1", "--objective", "energy", "--time-budget", "8s"]
    ended = tftune(*words, "--json", cwd=tmp_path, env=env)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert (document["device"]["name"], document["device"]["index"]) == ("amd:1", 1)
    assert document["finals"]["unit"] == "J/item"
    measured = [trial for trial in document["history"] if trial["status"] == "ok"]
    assert measured
    assert all(trial["energy_j"] > 0 for trial in measured)
    assert document["conditions"]["device"]["power_w"] == 200
    for shown in ("show", "show --details", "emit", "emit --format k8s", "emit --format docker"):
        command, *options = shown.split()
        of_study = tftune(command, "last", *options, cwd=tmp_path, env=env)
        assert of_study.returncode == 0, of_study.stderr
        assert not OF_ANOTHER.search(of_study.stdout + of_study.stderr)
    assert "export HIP_VISIBLE_DEVICES=1" in tftune("emit", "last", cwd=tmp_path, env=env).stdout
    run = tftune("run", "last", "--", "printenv", "HIP_VISIBLE_DEVICES", cwd=tmp_path, env=env)
    assert run.stdout == "1\n"


@pytest.mark.tensorflow
def test_tensorflow_is_asked_for_its_gpus(amd: Env, tmp_path: Path) -> None:
    """A wheel that was built for another maker's sees none, and says so without that one's words."""
    ended = tftune("inspect", "lenet5", "--device", "amd", cwd=tmp_path, env=amd())
    assert (ended.returncode, "TensorFlow sees no GPU: this build finds none of AMD's" in ended.stderr) == (2, True)
    assert not OF_ANOTHER.search(ended.stderr)
