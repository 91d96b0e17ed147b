"""TensorRT, over a driver and a TensorRT without a GPU (`tests/data/gpu`).

What only a GPU can show is in `tests/gpu`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import tftune
from tests.conftest import DATA, Call, Card
from tuner.frameworks.tensorrt.framework import FRAMEWORK
from tuner.report.emit import Format, Ways, emit
from tuner.space.deployment import Deployment

SAMPLES = """
import json, sys
from contextlib import closing
from dataclasses import replace
from tuner.job.job import prepare
from tuner.job.parsed import parse_request
from tuner.job.request import SearchRequest
from tuner.measure.agreement import deviation
from tuner.trial.fresh import FreshLauncher
from tuner.workload.spec import WorkloadSpec

def ready(framework, **options):
    spec = replace(WorkloadSpec.of_name("lenet5", framework=framework), **options)
    job = prepare(parse_request(SearchRequest(workload=spec, batch_size="8"), stores=False))
    job.export()
    reference = job.space.reference
    with closing(FreshLauncher(target=job.target()).launch(reference, job.space.deployment(reference))) as process:
        facts = process.ready()
        process.pause()
        process.resume()
        process.set_batch_size(3)
        assert process.slice(0.05).n_steps > 0
    return job.precision_of(facts), facts.sample

_, expected = ready(framework="tensorflow")
for feed in ("host", "device"):
    precision, sample = ready(framework="tensorrt", device="gpu", feed=feed)
    print(json.dumps([feed, precision, deviation(expected, sample)]))
"""


@pytest.fixture
def trt(card: Card) -> Card:
    """Return what sets the card's state, and returns the environment in which TensorRT is there as well."""

    def environment(*, tensorrt: str = "", **state: int) -> dict[str, str]:
        env = card(**state)
        return env | {"PYTHONPATH": f"{env['PYTHONPATH']}:{DATA / 'gpu/packages'}", "FAKE_TENSORRT": tensorrt}

    return environment


def test_it_runs_on_gpus_only(call: Call) -> None:
    code, out, err = call("inspect", "lenet5", "--framework", "tensorrt")
    assert (code, out) == (2, "")
    assert "TensorRT cannot run on cpu; expected --device gpu" in err


def test_where_it_is_not_installed_it_is_said_how_it_is(card: Card, tmp_path: Path) -> None:
    ended = tftune("inspect", "lenet5", "--framework", "tensorrt", "--device", "gpu", cwd=tmp_path, env=card())
    assert ended.returncode == 2
    assert "has no TensorRT; install it: " in " ".join(ended.stderr.split())


def test_a_builder_that_does_not_start_is_told_in_its_words(trt: Card, tmp_path: Path) -> None:
    words = ["inspect", "lenet5", "--framework", "tensorrt", "--device", "gpu"]
    ended = tftune(*words, cwd=tmp_path, env=trt(tensorrt="broken"))
    assert ended.returncode == 2
    assert "TensorRT sees no GPU: CUDA initialization failure with error: 35" in " ".join(ended.stderr.split())


def test_an_engine_is_emitted_as_code() -> None:
    deployment = Deployment(
        options={"builder_optimization_level": 5, "max_aux_streams": "1"}, arguments={"batch_size": 4}
    )
    text = emit(deployment, Format.PYTHON, title="t", ways=Ways(session=FRAMEWORK.session_code))
    assert "config.builder_optimization_level = 5\nconfig.max_aux_streams = 1\n" in text
    assert "    shape = (4, *each.shape[1:])\n" in text
    assert FRAMEWORK.session_code(Deployment()) == []


@pytest.mark.tensorflow
def test_it_computes_what_tensorflow_computes_from_either_place(trt: Card, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SAMPLES]
    ended = subprocess.run(command, cwd=tmp_path, env=trt(), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [row[:2] for row in rows] == [
        ["host", "tf32"],
        ["device", "tf32"],
    ]  # the card has TF32, and nobody forbids it
    assert max(row[2] for row in rows) < 1e-3


@pytest.mark.tensorflow
def test_an_operator_that_it_lacks_is_named(trt: Card, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    node = helper.make_node("Frobnicate", ["x"], ["y"], domain="nobody")
    values = [helper.make_tensor_value_info(name, kind, ["n", 4]) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("nobody", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), tmp_path / "model.onnx")
    words = ["search", "model.onnx", "--framework", "tensorrt", "--device", "gpu", "--time-budget", "20s"]
    ended = tftune(*words, cwd=tmp_path, env=trt())
    assert ended.returncode != 0
    assert "TensorRT cannot read it: its operator Frobnicate: " in " ".join(ended.stderr.split())


@pytest.mark.tensorflow
def test_a_search_builds_each_engine_once(trt: Card, tmp_path: Path) -> None:
    env = trt()
    words = ["search", "lenet5", "--framework", "tensorrt", "--device", "gpu", "--time-budget", "15s", "--json"]
    ended = tftune(*words, cwd=tmp_path, env=env)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert (document["space"], document["default"]) == ("gpu", "trt-default")
    assert {trial["status"] for trial in document["history"]} == {"ok"}
    assert "trt-thorough" in document["baselines"]
    again = tftune(*words, cwd=tmp_path, env=env)
    assert again.returncode == 0, again.stderr
    builds = Path(env["FAKE_GPU"] + ".builds").read_text().splitlines()
    assert len(builds) == len(set(builds)) >= 2  # new processes, of the finals and of another search, build nothing


@pytest.mark.tensorflow
def test_memory_that_runs_out_is_said(trt: Card, tmp_path: Path) -> None:
    # Engines of LeNet-5 may be there from another test.
    words = ["search", "mlp", "--framework", "tensorrt", "--device", "gpu", "--time-budget", "20s"]
    ended = tftune(*words, cwd=tmp_path, env=trt(tensorrt="full"))
    assert ended.returncode != 0
    assert "out of memory" in ended.stderr
