"""The shipped workloads, for real: each is exported and run in every mode, and computes what its paper says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import forked
from tests.conftest import setting
from tests.frameworks import deployed, export, target_of
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.model.graph import Features, features, read
from tuner.trial.exporting import GRAPH
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import ReadyReport, Slice
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Workload, catalogue, find

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("forks_only")]

SMALL = setting(inter_op=1, intra_op=1, batch_size=2)
CASES = [(name, mode) for name, file in catalogue().items() for mode in file.modes]
G, M = 1e9, 1e6


@dataclass(frozen=True)
class Ran:
    """What came of a workload in a mode: its export's features, and two slices of a process."""

    features: Features
    facts: ReadyReport
    slices: list[Slice]


@pytest.fixture(scope="module")
def runtime(python: Path, clean_env: dict[str, str]) -> Build:
    """The runtime of this interpreter."""
    return FRAMEWORK.probe(python, clean_env)


def run(workload: Workload, runtime: Build, python: Path, env: dict[str, str]) -> Ran:
    """Export a workload, and run a process of it."""
    folder = export(workload, runtime, python=python, env=env)
    graph_features = features(read(folder / GRAPH))
    target = target_of(workload, folder, python=python, env=env, deadline_s=300.0)
    process = FreshLauncher(target=target).launch(SMALL, deployed(SMALL))
    try:
        facts = process.ready()
        return Ran(features=graph_features, facts=facts, slices=[process.slice(0.01) for _ in range(2)])
    finally:
        process.close()


@pytest.fixture(scope="module")
def runs(runtime: Build, python: Path, clean_env: dict[str, str]) -> Iterator[Mapping[tuple[str, str], Future[Ran]]]:
    """Every workload in every mode, two at a time: most of an export is one thread.

    They are found before, as `ast.parse` of CPython 3.11 is not safe in several threads (python/cpython#106905).
    """
    workloads = {(name, mode): find(WorkloadSpec.of_name(name, mode=mode)) for name, mode in CASES}
    with forked.everywhere(), ThreadPoolExecutor(2) as pool:
        yield {case: pool.submit(run, workload, runtime, python, clean_env) for case, workload in workloads.items()}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_every_workload_takes_steps_in_every_mode(
    runs: Mapping[tuple[str, str], Future[Ran]], name: str, mode: str
) -> None:
    """The child itself refuses outputs that are not finite, and training that moves no loss."""
    ran = runs[name, mode].result()
    assert sum(s.n_steps for s in ran.slices) >= 2
    assert ran.facts.sample is not None  # two steps before the slices agreed, however long they took
    assert ran.features.known
    assert ran.features.parameters > 0
    assert ran.features.heavy_operators >= ran.features.layers >= 1


# Multiply-adds count as two. ResNet-50's 3.8 and VGG19's 19.6 billion multiply-adds are those of He et al. (CVPR 2016),
# BERT-base's 22.5 billion operations at 128 words those of Jiao et al. (TinyBERT, 2020) and Sun et al. (MobileBERT,
# 2020); MobileNetV2's 300 million and EfficientNet-B0's 390 million multiply-adds are those of their own papers.
PUBLISHED_FLOPS = {
    "resnet50": 2 * 3.8 * G,
    "vgg19": 2 * 19.6 * G,
    "bert-base": 22.5 * G,
    "matmul": 2 * 2048**3,
    "mobilenetv2": 2 * 300 * M,
    "efficientnetb0": 2 * 390 * M,
}
PUBLISHED_PARAMETERS = {
    "lenet5": 61_706,
    "resnet50": 25.6 * M,
    "resnet101": 44.5 * M,
    "vgg19": 143.7 * M,
    "densenet121": 8.0 * M,
    "densenet201": 20.0 * M,
    "efficientnetb0": 5.3 * M,
    "mobilenetv2": 3.5 * M,
    "inceptionv3": 23.8 * M,
    "bert-base": 110 * M,
    "bert-tiny": 4.4 * M,
    "transformer": 63 * M,
    "lstm": 20 * M,
}


@pytest.mark.parametrize(("name", "flops"), PUBLISHED_FLOPS.items())
def test_operations_are_those_that_were_published(
    runs: Mapping[tuple[str, str], Future[Ran]], name: str, flops: float
) -> None:
    assert runs[name, "inference"].result().features.flops == pytest.approx(flops, rel=0.05)


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED_PARAMETERS.items())
def test_sizes_are_those_that_were_published(
    runs: Mapping[tuple[str, str], Future[Ran]], name: str, parameters: float
) -> None:
    assert runs[name, "inference"].result().features.parameters == pytest.approx(parameters, rel=0.03)


def test_a_training_step_costs_three_times_the_inference(runs: Mapping[tuple[str, str], Future[Ran]]) -> None:
    """Forward, and two products of the same size backward for each of them."""
    for name in ("resnet50", "bert-base", "lstm", "inceptionv3"):
        once, thrice = (runs[name, mode].result().features for mode in ("inference", "training"))
        assert thrice.flops == pytest.approx(3 * once.flops, rel=0.1)
        assert (thrice.heavy_operators, thrice.layers) == (once.heavy_operators, once.layers)


def test_the_widths_are_those_of_the_paper(runs: Mapping[tuple[str, str], Future[Ran]]) -> None:
    """Wang et al. (2021) call ResNet-50 a chain, width 1, and Inception-v3 two operators wide."""
    resnet, inception = (runs[name, "inference"].result().features for name in ("resnet50", "inceptionv3"))
    # 49 convolutions and a dense layer on the longest path; 4 projections beside it.
    assert (resnet.heavy_operators, resnet.layers, math.floor(resnet.width)) == (54, 50, 1)
    assert resnet.operators["Conv2D"] == 53
    # 94 convolutions and a dense layer, as in the paper's figure of the network.
    assert (inception.heavy_operators, round(inception.width)) == (95, 2)
    assert runs["densenet201", "inference"].result().features.width == 1.0
    # 26 columns, each looked up for the wide and for the deep part at once.
    assert runs["wide-deep", "inference"].result().features.width > 10


def test_a_parameter_changes_what_is_computed(
    runs: Mapping[tuple[str, str], Future[Ran]], runtime: Build, python: Path, clean_env: dict[str, str]
) -> None:
    short = run(find(WorkloadSpec(words=("bert-tiny",), params=("seq_len=64",))), runtime, python, clean_env)
    whole = runs["bert-tiny", "inference"].result().features
    assert short.features.parameters == whole.parameters
    assert 0.45 < short.features.flops / whole.flops < 0.5


@pytest.mark.parametrize(("name", "mode"), [("lenet5", "inference"), ("lenet5", "training"), ("mlp", "training")])
@pytest.mark.parametrize("execution", ["eager", "xla"])
def test_every_execution_computes_the_same(
    runs: Mapping[tuple[str, str], Future[Ran]],
    runtime: Build,
    python: Path,
    clean_env: dict[str, str],
    name: str,
    mode: str,
    execution: str,
) -> None:
    other = run(find(WorkloadSpec(words=(name,), mode=mode, execution=execution)), runtime, python, clean_env)
    expected = runs[name, mode].result().facts.sample
    assert expected is not None
    assert other.facts.sample is not None
    assert other.facts.sample["outputs"].keys() == expected["outputs"].keys()
    for key, values in expected["outputs"].items():
        assert other.facts.sample["outputs"][key] == pytest.approx(values, rel=1e-3, abs=1e-3)
