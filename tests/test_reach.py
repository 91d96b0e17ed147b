"""What the probe's experiments say, on those of two real builds (2 CPUs) and on ones made to mislead."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.conftest import DATA
from tests.frameworks import CATALOGUE
from tuner.frameworks.tensorflow import build as builds
from tuner.frameworks.tensorflow.build import Pools
from tuner.space import experiment
from tuner.space.experiment import Observation, Reach

NAMES = ("stock-2.21", "openmp-2.14")
Captured = dict[str, Any]


@pytest.fixture(params=NAMES)
def build(request: pytest.FixtureRequest) -> str:
    """Each captured build."""
    return str(request.param)


def captured(build: str) -> Captured:
    found: Captured = json.loads((DATA / "processes" / f"{build}.json").read_text())
    return found


def reached(observations: Sequence[Observation]) -> dict[str, Reach]:
    return experiment.reach(CATALOGUE.experiments, observations)


def test_the_pools_are_counted_and_named_where_the_threads_have_names() -> None:
    assert builds.pools(captured("stock-2.21")["observations"]) == Pools(others=1, inter_name="tf_Compute")
    assert builds.pools(captured("openmp-2.14")["observations"]) == Pools(others=1, inter_name=None)


def test_each_variable_reaches_the_build_that_it_is_for() -> None:
    stock, openmp = (reached(captured(name)["observations"]) for name in NAMES)
    assert {name for name, found in stock.items() if found.answer} == {builds.INTER_OP.name, builds.INTRA_OP.name}
    assert {name for name, found in stock.items() if found.answer is False} == {
        builds.OMP_NUM_THREADS.name,
        builds.KMP_BLOCKTIME.name,
        builds.KMP_AFFINITY.name,
    }
    assert all(found.answer for found in openmp.values())
    assert stock[builds.OMP_NUM_THREADS.name].evidence == "1 and 3: oneDNN takes 1 and 1 threads"
    assert openmp[builds.OMP_NUM_THREADS.name].evidence == "1 and 3: oneDNN takes 1 and 3 threads"


def test_the_defaults_are_those_that_were_seen() -> None:
    assert builds.defaults(captured("stock-2.21")["observations"], cpus=2) == {"inter_op": 2, "intra_op": 2}
    # 200 ms by the manual, 1 by TensorFlow's source for the thread that starts it, 0 where operators run.
    assert builds.defaults(captured("openmp-2.14")["observations"], cpus=2) == {
        "inter_op": 2,
        "intra_op": 2,
        "omp_num_threads": 2,
        "kmp_blocktime": 0,
    }


def test_counts_that_do_not_follow_are_unknown_and_never_yes(build: str) -> None:
    observations = captured(build)["observations"]
    for observation in observations:
        if observation["changes"] == {builds.INTRA_OP.name: "3"}:
            observation["created"] -= 1
    assert builds.pools(observations) is None
    assert reached(observations)[builds.INTRA_OP.name].answer is None
    assert not {"inter_op", "intra_op"} & builds.defaults(observations, cpus=2).keys()


def test_a_variable_that_changes_nothing_is_a_no(build: str) -> None:
    observations = captured(build)["observations"]
    low = next(o for o in observations if o["changes"] == {})
    ignoring = [copy.deepcopy(low) | {"changes": o["changes"]} for o in observations]
    assert {found.answer for found in reached(ignoring).values()} == {False}


def test_without_experiments_nothing_is_claimed() -> None:
    assert builds.pools([]) is None
    assert reached([]) == {}
    assert builds.defaults([], cpus=2) == {}
