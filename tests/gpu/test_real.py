"""What only a real NVIDIA GPU can show. `tests/gpu/run.sh` runs these, and everything else that such a machine is for.

The interpreter with TensorFlow and CUDA is this one, or that of TFTUNE_GPU_PYTHON.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tuner.devices.gpu import GpuUnreadable
from tuner.devices.nvidia import NVML, NvidiaGpu

PYTHON = os.environ.get("TFTUNE_GPU_PYTHON", sys.executable)


def has_gpu() -> bool:
    """Return whether NVIDIA's driver tells of a GPU."""
    try:
        return bool(NVML.gpus())
    except GpuUnreadable:
        return False


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.alone,
    pytest.mark.tensorflow,
    pytest.mark.skipif(not has_gpu(), reason="there is no NVIDIA GPU here (or no driver, or no nvidia-ml-py)"),
]


def tftune(*words: str, cwd: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tuner", *words, "--json"]
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


def test_inspect_agrees_with_nvidia_smi(tmp_path: Path) -> None:
    query = ["nvidia-smi", "--query-gpu=name,uuid,driver_version,memory.total", "--format=csv,noheader,nounits"]
    name, uuid, driver, mib = subprocess.check_output(query, text=True).splitlines()[0].split(", ")
    first = tftune("inspect", "lenet5", cwd=tmp_path)["gpus"][0]
    assert (first["model"], first["uuid"], first["driver"]) == (name, uuid, driver)
    assert first["memory_bytes"] / 2**20 == pytest.approx(float(mib), rel=0.02)


def test_tensorflow_sees_the_card_that_was_asked_for(tmp_path: Path) -> None:
    device = tftune("inspect", "lenet5", "--device", "gpu", "--python", PYTHON, cwd=tmp_path)["device"]
    assert device["seen_as"] == [device["model"]]


def test_the_counter_of_energy_moves_with_the_power() -> None:
    device = NvidiaGpu()
    assert device.why_no_energy() is None
    before, began = device.energy_j(), time.monotonic()
    time.sleep(2.0)
    after, state = device.energy_j(), NVML.state(device.facts.uuid)
    assert before is not None
    assert after is not None
    assert state.power_w is not None
    assert (after - before) / (time.monotonic() - began) == pytest.approx(state.power_w, rel=0.3)


@pytest.mark.parametrize("feed", ["host", "device"])
def test_a_search_runs_on_the_card(feed: str, tmp_path: Path) -> None:
    words = ["search", "lenet5", "--device", "gpu", "--feed", feed, "--python", PYTHON, "--time-budget", "60s"]
    document = tftune(*words, cwd=tmp_path)
    ok = [trial for trial in document["history"] if trial["status"] == "ok"]
    assert len(ok) >= 4
    assert all(trial["energy_j"] > 0 and trial["peak_memory_bytes"] for trial in ok)
    assert document["finals"]["rounds"] >= 2
    assert document["conditions"]["device"]["n_looks"] > 10


def test_memory_that_runs_out_is_a_status(tmp_path: Path) -> None:
    """VGG-19's first layers hold some 40 MB for each image: what is twice the memory is too large on any GPU."""
    too_large = 1 << math.ceil(math.log2(2 * NvidiaGpu().facts.memory_bytes / 40e6))
    words = [
        "search",
        "vgg19",
        "--device",
        "gpu",
        "--python",
        PYTHON,
        "--batch-size",
        f"8,{too_large}",
        "--trials",
        "6",
    ]
    document = tftune(*words, "--trial-timeout", "5m", cwd=tmp_path)
    statuses = {trial["setting"]["batch_size"]: trial["status"] for trial in document["history"]}
    assert statuses[8] == "ok"
    assert statuses[too_large] == "oom"
