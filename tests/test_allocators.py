"""Allocators that are preloaded, for real, where they are installed: Debian's libjemalloc2 and libtcmalloc-minimal4."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import tftune
from tuner.job.job import prepare
from tuner.job.parsed import parse_request
from tuner.job.request import SearchRequest
from tuner.machine.libraries import find_library
from tuner.trial.fresh import FreshLauncher
from tuner.workload.spec import WorkloadSpec

pytestmark = pytest.mark.tensorflow

ALLOCATORS = ("jemalloc", "tcmalloc")


@pytest.fixture(params=ALLOCATORS)
def allocator(request: pytest.FixtureRequest) -> str:
    """One that is installed."""
    name: str = request.param
    if find_library(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


def test_a_process_allocates_with_it(allocator: str) -> None:
    """The audit refuses a process in which it is not loaded."""
    job = prepare(
        parse_request(
            SearchRequest(workload=WorkloadSpec.of_name("lenet5"), space="extended", pins=[f"malloc={allocator}"]),
            stores=False,
        )
    )
    job.export()
    setting = job.space.points[0]
    assert setting["malloc"] == allocator
    process = FreshLauncher(target=job.target()).launch(setting, job.space.deployment(setting))
    try:
        facts = process.ready()
        assert process.slice(1.0).n_steps > 1
    finally:
        process.close()
    assert [allocator in path for path in facts.effective["malloc"]] == [True]


def test_it_is_compared_and_its_snippet_names_the_file(tmp_path: Path) -> None:
    allocator = next((name for name in ALLOCATORS if find_library(name) is not None), None)
    if allocator is None:
        pytest.skip("no allocator is installed")
    ended = tftune(
        "compare", "lenet5", "--space", "extended", "--a", "tf-default", "--b", f"malloc={allocator}",
        "--time-budget", "8s", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["b"]["malloc"] == allocator
    assert document["sides"]["b"]["env"]["LD_PRELOAD"] == str(find_library(allocator))
