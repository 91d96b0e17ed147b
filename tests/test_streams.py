"""Streams: calls of one model at the same time in one process; with real processes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import Call
from tuner.errors import BadInputError
from tuner.job.job import Job, prepare
from tuner.job.parsed import parse_request
from tuner.job.request import SearchRequest
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import Status, TrialFailure
from tuner.workload.spec import WorkloadSpec

STATEFUL = """
'''A model that adds up in a buffer of its own, for longer than a scheduler lets a thread run at a time.'''
ITEM, BATCH_SIZE = "row", 8
def build():
    import tensorflow as tf
    w = tf.Variable(tf.random.stateless_normal((256, 256), (1, 2)) / 16)
    total = tf.Variable(tf.zeros((8, 256)))
    def call(x):
        total.assign(tf.zeros((8, 256)))
        for _ in range(300):
            x = x @ w
            total.assign_add(x)
        return total + 0.0
    return call
def inputs(batch_size):
    import numpy as np
    return (np.random.default_rng(0).random((batch_size, 256), np.float32),)
"""


def job_of(workload: str, *pins: str, mode: str = "inference", framework: str = "tensorflow") -> Job:
    spec = WorkloadSpec.of_name(workload, mode=mode, framework=framework)
    return prepare(parse_request(SearchRequest(workload=spec, pins=list(pins), batch_size="8"), stores=False))


def test_a_model_in_training_has_one_stream(call: Call) -> None:
    code, _, error = call("search", "lenet5", "--mode", "training", "--set", "streams=2")
    assert code == 2
    assert "streams=2: training steps change one model, so they run one after another" in error
    space = job_of("lenet5", "instances=1", mode="training").space
    assert "streams" in space.inactive


def test_latency_is_that_of_one_call() -> None:
    spec = WorkloadSpec.of_name("lenet5", framework="tensorflow")
    request = SearchRequest(workload=spec, space="serving", objective="latency")
    space = prepare(parse_request(request, stores=False)).space
    assert "streams" not in space.domains
    assert space.inactive["streams"] == "--objective latency times one batch at a time"


def test_a_command_is_told_how_many_calls() -> None:
    spec = WorkloadSpec(words=("echo", "rate=1"), metric_regex=r"rate=(\d+)")
    with pytest.raises(BadInputError, match=r"the command has no \{streams\} placeholder"):
        prepare(parse_request(SearchRequest(workload=spec, pins=["streams=2"]), stores=False))


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
@pytest.mark.parametrize("framework", ["tensorflow", "onnxruntime"])
def test_calls_run_at_the_same_time(framework: str) -> None:
    job = job_of("lenet5", "streams=2", framework=framework)
    job.export()
    two = job.space.points[0]
    deployment = job.space.deployment(two)
    assert deployment.streams == 2
    with closing(FreshLauncher(target=job.target()).launch(two, deployment)) as process:
        facts = process.ready()
        process.pause()
        process.resume()
        process.set_batch_size(512)  # so few steps that all their times are reported, not every k-th
        ran = process.slice(1.5)
        process.set_batch_size(4)
        small = process.slice(0.1)
    assert facts.settled is not None
    assert ran.n_steps - len(ran.step_s) <= 2  # but for the first of each caller
    # Little's law: calls at once = rate x time of a call. The rate is that of the time in which both callers are at
    # work; at each end of it a step of either may reach beyond, which is much where a busy machine makes one long.
    at_once = sum(ran.step_s) / len(ran.step_s) * ran.n_steps / ran.elapsed_s
    assert at_once == pytest.approx(2, abs=0.2 + 2 * max(ran.step_s) / ran.elapsed_s)
    assert small.n_steps > 0


@pytest.mark.alone  # that two calls disturb each other is only seen where both have a CPU
@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_a_model_that_cannot_be_called_so_is_told(tmp_path: Path) -> None:
    (tmp_path / "stateful.py").write_text(STATEFUL)
    # With one inter-op thread TensorFlow itself would run one call after another.
    job = job_of(str(tmp_path / "stateful.py"), "streams=2", "inter_op=4", "intra_op=2")
    job.export()
    two = job.space.points[0]
    launcher = FreshLauncher(target=job.target())
    with closing(launcher.launch(two, job.space.deployment(two))) as process, pytest.raises(TrialFailure) as caught:
        process.ready()
    assert caught.value.status is Status.INVALID
    assert "its outputs change when 2 calls run at the same time: use one stream" in caught.value.message
    alone = two.with_values(streams=1)
    with closing(launcher.launch(alone, job.space.deployment(alone))) as process:
        assert process.ready().sample is not None
