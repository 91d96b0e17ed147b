"""Published shapes hold on simulated machines: what papers saw on servers, from operators profiled elsewhere."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tests.benchmarks.predictions import FOLDER, page_with_scores, predictor
from tuner.machine.spec import parse_spec
from tuner.model.configuration import Configuration
from tuner.model.executor import Pools
from tuner.model.hardware import Hardware, hardware_of
from tuner.model.prediction import reasons
from tuner.model.predictor import Predictor

CAPTURED = sorted(path.name.removesuffix(".capture.json.xz") for path in FOLDER.glob("*.capture.json.xz"))


def on(name: str, machine: str) -> Hardware:
    """Return a machine in words as the predictor of a workload sees it."""
    return hardware_of(parse_spec(machine).machine(), predictor(name)[1].bytes_s, is_here=False)


def rate(name: str, machine: str, batch_size: int, *, instances: int = 1, **pools: float) -> float:
    """Return the predicted items per second."""
    own = Configuration(
        batch_size=batch_size, pools=Pools(**{"inter_op": 1, "intra_op": 1, **pools}), instances=instances
    )
    return predictor(name)[0].items_per_s(own, on(name, machine))


def test_resnet_is_a_chain_and_inception_is_not() -> None:
    """Wang et al. (TACO 2021): ResNet-50 is one operator wide, Inception-v3 two or more."""
    widths = {name: reasons(predictor(name)[0], 8, on(name, "cores=24")).width for name in ("resnet50", "inceptionv3")}
    assert widths["resnet50"] < 1.4
    assert widths["inceptionv3"] > 1.4


@pytest.mark.parametrize(("name", "least", "most"), [("resnet50", 1.0, 1.15), ("inceptionv3", 1.3, 2.0)])
def test_a_chain_gains_little_by_slots_and_a_wide_net_much(name: str, least: float, most: float) -> None:
    """Wang et al. (TACO 2021), on 24 cores: pools for the width of the graph, which share the cores."""
    one = rate(name, "cores=24", 8, inter_op=1, intra_op=24)
    several = max(rate(name, "cores=24", 8, inter_op=n, intra_op=24) for n in (2, 3, 4))
    assert least <= several / one < most


def test_lookups_of_few_items_are_not_handed_to_another_slot() -> None:
    """TensorFlow's trace of wide-deep: lookups of 64 items take 2 us and run where they are found, of 512, 24 us."""
    own, hardware = predictor("wide-deep")[0], on("wide-deep", "cores=2")
    gains = {
        size: own.items_per_s(Configuration(batch_size=size, pools=Pools(inter_op=2, intra_op=1)), hardware)
        / own.items_per_s(Configuration(batch_size=size, pools=Pools(inter_op=1, intra_op=1)), hardware)
        for size in (64, 512)
    }
    assert gains[64] < 1.01 < gains[512]
    assert len(own.tasks(64)) < len(own.tasks(512))


def with_teams(name: str) -> Predictor:
    """Return the predictor as if oneDNN ran on teams of OpenMP's: a build with other pools, and the same kernels."""
    own, _ = predictor(name)
    return replace(own, has_teams=True, calibration=None)


def test_with_teams_pools_times_threads_stay_near_the_cores() -> None:
    """Wang et al. (TACO 2021): on 24 cores, w pools of 24 / w threads each."""
    teams, hardware = with_teams("inceptionv3"), on("inceptionv3", "cores=24")
    counts = (1, 2, 3, 4, 6, 8, 12, 24)

    def items_per_s(pools: int, team: int) -> float:
        own = Pools(inter_op=pools, intra_op=1, team=team, blocktime_s=0.03)
        return teams.items_per_s(Configuration(batch_size=8, pools=own), hardware)

    pools, team = max(itertools.product(counts, counts), key=lambda each: items_per_s(*each))
    assert 12 <= pools * team <= 48
    assert items_per_s(8, 24) < 0.9 * items_per_s(pools, team)


def test_small_operators_want_far_fewer_threads_than_a_manycore_has() -> None:
    """Liu et al. (IPDPS 2019), on 68 cores: the best number of threads differs by operator, for many far below 68."""
    own, _ = predictor("inceptionv3")
    hardware = on("inceptionv3", "cores=68")
    counts = [1, 2, 4, 8, 16, 32, 68]
    times_s = {n: own.costs.time_s(n, 8, hardware).time_s for n in counts}
    best = [
        next(n for n in counts if times_s[n][i] <= 1.05 * min(times_s[m][i] for m in counts))
        for i, one_s in enumerate(times_s[1])
        if one_s > 0
    ]
    small = [n for n, one_s in zip(best, [t for t in times_s[1] if t > 0], strict=True) if one_s < 200e-6]
    assert len(small) > 20
    assert sorted(small)[len(small) // 2] <= 8
    assert max(best) >= 16  # and the large ones want many


def test_densenet_peaks_at_a_batch_in_between_and_vgg_does_not() -> None:
    """Pochelu (arXiv 2210.04323): DenseNet-201 is fastest at 16 images on his CPUs, VGG-19 at the largest batch.

    Of his machine's memory nothing is said; 100 GB/s a socket is what servers of its years have, and threads of a
    machine that is no virtual one wake within some microseconds.
    """
    batches = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    curves = {}
    for name in ("densenet201", "vgg19"):
        own, capture = predictor(name)
        hardware = hardware_of(
            parse_spec("cores=24,l3=32").machine(), capture.bytes_s, is_here=False, socket_bytes_s=100e9
        )
        bare = replace(own, costs=replace(own.costs, fork_s=5e-6), has_teams=False, calibration=None)
        pools = Pools(inter_op=1, intra_op=24)
        curves[name] = [bare.items_per_s(Configuration(batch_size=b, pools=pools), hardware) for b in batches]
    dense, vgg = curves["densenet201"], curves["vgg19"]
    assert batches[dense.index(max(dense))] in (8, 16, 32)
    assert dense[-1] < 0.9 * max(dense)
    assert vgg[-1] == max(vgg)


def test_too_many_threads_and_long_block_times_hurt_teams_more_than_a_pool() -> None:
    """Wang et al. (TACO 2021) and Intel's guides: oversubscribed teams lose, and threads that spin take CPUs away."""
    pool, _ = predictor("inceptionv3")
    teams, hardware = with_teams("inceptionv3"), on("inceptionv3", "cores=24")

    def pool_rate(intra_op: int) -> float:
        own = Pools(inter_op=4, intra_op=intra_op)
        return pool.items_per_s(Configuration(batch_size=8, pools=own), hardware)

    def team_rate(team: int, blocktime_s: float = 0.03) -> float:
        own = Pools(inter_op=4, intra_op=24, team=team, blocktime_s=blocktime_s)
        return teams.items_per_s(Configuration(batch_size=8, pools=own), hardware)

    assert team_rate(24) / team_rate(96) > pool_rate(24) / pool_rate(96)
    assert team_rate(12, 0.2) < team_rate(12, 0.0005)


def test_one_process_on_56_cores_is_far_from_the_best() -> None:
    """Intel's launcher guides: several instances on a two-socket server; ResNet-50 on 2 x 28 cores."""
    machine = "sockets=2,cores=28,smt=2"
    alone = max(rate("resnet50", machine, batch, intra_op=56) for batch in (1, 8, 64))
    shared = max(
        rate("resnet50", machine, batch, instances=n, intra_op=56 // n) for batch in (1, 8, 64) for n in (2, 14, 56)
    )
    assert shared > 1.5 * alone


@pytest.mark.parametrize("name", CAPTURED)
def test_what_was_profiled_is_given_back(name: str) -> None:
    own, capture = predictor(name)
    here = hardware_of(capture.machine, capture.bytes_s, is_here=True)
    for batch_size, each in capture.profiles.items():
        for told in each.traced:
            pools = Pools(inter_op=1, intra_op=told.threads)
            predicted = own.items_per_s(Configuration(batch_size=batch_size, pools=pools), here)
            assert predicted == pytest.approx(batch_size / told.step_s, rel=1e-6)


def test_the_page_of_the_results_has_the_scores_of_this_model() -> None:
    """Whoever changes a term sees what becomes of the predictions, and says so: tests.benchmarks.predictions page."""
    page = (FOLDER / "README.md").read_text()
    assert page_with_scores(page) == page
