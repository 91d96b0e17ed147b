"""The measuring commands for real: compare, check, noise, and a search under limits, on a small model."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import forked
from tests.command_line import tftune, tftune_here
from tests.conftest import setting
from tests.frameworks import deployed
from tests.processes import wait_until
from tuner.job.job import Job, prepare
from tuner.job.parsed import parse_request
from tuner.job.request import SearchRequest
from tuner.measure.objective import Objective
from tuner.study.evaluator import Evaluator
from tuner.study.plan import EvaluatorPlan
from tuner.study.trials import Trial
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import Status
from tuner.workload.spec import WorkloadSpec

pytestmark = pytest.mark.tensorflow

# Where others use one of two CPUs, a second thread is of little help for a while; this difference is beyond any noise.
PRODUCT = '''"""A product of matrices, of which a process with one thread computes twenty."""
ITEM = "row"
BATCH_SIZE = 512
def build():
    import tensorflow as tf
    w = tf.Variable(tf.random.stateless_uniform((1024, 1024), (1, 2)) / 1024)
    def step(x, times):
        body = lambda i, y: (i + 1, tf.linalg.matmul(x, w) + 0.0 * y)
        return tf.while_loop(lambda i, y: i < times[0], body, (0, tf.zeros_like(x)))[1]
    return step
def inputs(batch_size):
    import os
    import numpy as np
    times = 20 if os.environ.get("TF_NUM_INTRAOP_THREADS") == "1" else 1
    return np.random.default_rng(0).random((batch_size, 1024), np.float32), np.full(batch_size, times, np.int32)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small workload."""
    home = tmp_path_factory.mktemp("measured")
    (home / "product.py").write_text(PRODUCT)
    return home


@pytest.fixture(scope="module")
def job(folder: Path) -> Job:
    """A job of the small workload on this interpreter."""
    made = prepare(
        parse_request(SearchRequest(workload=WorkloadSpec.of_name(str(folder / "product.py"))), stores=False)
    )
    made.export()
    return made


def run(folder: Path, *args: str, command: Callable[..., Any] = tftune_here) -> dict[str, object]:
    """Return the document that a command prints; it has to succeed."""
    done = command(*args, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def compare_equal(folder: Path, budget: str) -> dict[str, Any]:
    """Return the document of a comparison of equal settings, in which b is not shown to differ.

    A verdict may be wrong once in twenty times, by its level. That it is so twice in a row, in the same direction, has
    a probability of less than 0.002: then it is no chance.
    """
    words = []
    while len(words) < 2:
        comparison = run(
            folder,
            "compare",
            "./product.py",
            "--a",
            "tf-default",
            "--b",
            "tf-default",
            "--time-budget",
            budget,
            command=tftune,
        )
        words.append(comparison["verdict"])
        if comparison["verdict"] in ("no difference", "undecided"):
            return comparison
    assert words[0] != words[1]
    return comparison


@pytest.mark.alone
def test_equal_settings_are_not_told_apart(folder: Path) -> None:
    comparison = compare_equal(folder, "30s")
    assert {"a", "b", "speedup", "low", "high", "verdict"} <= comparison.keys()
    assert comparison["a"] == comparison["b"]
    # Two rounds decide nothing; there is time for more where the machine is not too slow.
    assert comparison["rounds"] >= 3 or (comparison["verdict"], comparison["ended"]) == ("undecided", "time")


@pytest.mark.alone
def test_a_machine_that_others_keep_busy_is_told_of(folder: Path) -> None:
    """Twice as many spinning processes as CPUs: whatever is decided then, equal settings do not win."""
    hogs = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * len(os.sched_getaffinity(0)))
    ]
    try:
        # From a process of its own, as those of the one that measures do not count as others.
        comparison = compare_equal(folder, "20s")
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert {"busy", "oversubscribed"} & {warning["code"] for warning in comparison["warnings"]}
    if comparison["verdict"] == "undecided":
        assert "other processes" in comparison["reason"]


def has_paused(pid: int) -> bool:
    """Return whether a process below this one is stopped."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return any(each.status() == psutil.STATUS_STOPPED for each in psutil.Process(pid).children(recursive=True))
    return False


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU has no use for a second thread")
def test_one_thread_loses_even_where_the_tuner_is_stopped_meanwhile(folder: Path) -> None:
    """A laptop whose lid is closed, as far as that can be had: the tuner stands still for six seconds."""
    command = [str(Path(sys.executable).with_name("tftune")), "compare", "./product.py", "--json"]
    options = ["--a", "tf-default", "--b", "intra_op=1", "--time-budget", "2m"]
    process = subprocess.Popen([*command, *options], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert wait_until(lambda: has_paused(process.pid), 180.0)  # its processes are ready, and take turns
        process.send_signal(signal.SIGSTOP)
        time.sleep(6)
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=240)
    finally:
        process.kill()  # it would keep the machine's lock from the other tests
    assert process.returncode == 0, err
    comparison = json.loads(out)
    assert comparison["verdict"] == "worse"
    assert comparison["high"] < 0.9


@pytest.fixture(scope="module")
def searched(folder: Path) -> dict:
    """The document of a search under limits; its study is the last one of the folder."""
    options = ["--trials", "4", "--time-budget", "20s", "--max-memory", "4GiB", "--max-p99", "5000"]
    with forked.everywhere():
        return run(folder, "search", "./product.py", "--batch-size", "512", *options)


@pytest.mark.usefixtures("forks_only")
def test_a_study_is_compared_with_checked_and_its_limits_hold(folder: Path, searched: dict) -> None:
    """A search under limits, and then the two commands that take its name."""
    document = searched
    assert document["limits"] == {"p99_s": 5.0, "memory_bytes": 4 << 30, "power_w": None}
    assert document["recommended"]["limits"] in ("kept", "not known")
    assert document["noise"]["n_pairs"] >= 1
    assert 0 < document["noise"]["block_sd"] < 0.5
    assert document["conditions"]["elapsed_s"] > 5
    assert all(row["first_step_s"] > 0 for row in document["history"] if row["status"] == "ok")
    # A setting stands under the first of its names: the incumbent may be the default.
    default = next(first for first, names in document["finals"]["names"].items() if "tf-default" in names)
    tail = document["finals"]["tails"][default]
    assert tail["n_steps"] > 11
    assert tail["p50"] > 0
    assert tail["peak_memory_bytes"] > 100 << 20
    compared = run(
        folder, "compare", "./product.py", "--a", "tf-default", "--b", str(document["study"]), "--time-budget", "8s"
    )
    assert compared["b"] == document["recommended"]["setting"]
    checked = tftune_here("check", "last", "--time-budget", "8s", "--json", cwd=folder)
    check = json.loads(checked.stdout)
    assert check["study"] == document["study"]
    assert checked.returncode == (1 if check["helps"] is False else 0)
    if document["recommended"]["source"] == "tf-default":
        assert check["helps"] is None


@pytest.mark.usefixtures("forks_only")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU has no use for a second thread")
def test_a_recommendation_that_no_longer_helps_ends_with_1(folder: Path, searched: dict, tmp_path: Path) -> None:
    """In a copy, the study's recommended variables are made to hold it back: one thread for all."""
    import optuna

    from tuner.study.storage import find, open_storage

    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    storage = open_storage(f"sqlite:///{tmp_path}/results/tftune.db", create=False)
    assert storage is not None
    record = find(storage, searched["study"])
    finals = record.get("finals")
    slow = setting(inter_op=1, intra_op=1, batch_size=512)
    for contender in finals["contenders"]:
        if "incumbent" in contender["names"]:
            contender["names"] = ["incumbent"]
            contender.update(setting=slow.to_dict(), **deployed(slow).to_dict())
            winner = "incumbent"
    names = [c["names"][0] for c in finals["contenders"]]
    if "tf-default" not in names:  # it was the incumbent itself
        default = record.get("described")["baselines"]["tf-default"]["setting"]
        finals["contenders"].append({"names": ["tf-default"], "setting": default, "env": {}, "eligible": True})
    some = next(iter(finals["rounds"][0]["slices"].values()))
    quick = [s | {"elapsed_s": s["elapsed_s"] / 2, "step_s": [each / 2 for each in s["step_s"]]} for s in some]
    slices = {c["names"][0]: some for c in finals["contenders"]} | {winner: quick}
    # A short search may have held two rounds, and these decide nothing.
    finals["rounds"] = [finals["rounds"][0] | {"slices": slices}] * 3
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    record.put("finals", finals)
    done = tftune_here("check", record.name, "--time-budget", "90s", "--json", cwd=tmp_path)
    check = json.loads(done.stdout)
    assert done.returncode == 1, check
    assert check["helps"] is False


@pytest.mark.usefixtures("forks_only")
def test_noise_says_what_this_machine_can_find(folder: Path) -> None:
    ended = run(folder, "noise", "./product.py", "--time-budget", "20s")
    assert len(ended["pairs"]) >= 2
    assert 0 < ended["floor"] < ended["detectable"]
    assert ended["conditions"]["n_cpus"] == len(os.sched_getaffinity(0))
    assert ended["conditions"]["foreign_cpus"] < ended["conditions"]["n_cpus"]


@pytest.mark.usefixtures("forks_only")
def test_a_process_tells_of_its_warm_up_and_its_memory(job: Job) -> None:
    process = FreshLauncher(target=job.target()).launch(job.space.reference, job.space.deployment(job.space.reference))
    facts = process.ready()
    process.close()
    assert facts.first_step_s > 0
    assert facts.warm_up.elapsed_s >= 0.25
    # Without a second window, of a first step and a window that a busy machine made long, nothing is known.
    assert facts.settled is not None or facts.first_step_s + facts.warm_up.elapsed_s >= 2.5
    assert facts.memory_bytes is not None
    assert facts.memory_bytes > 100 << 20


@pytest.mark.usefixtures("forks_only")
def test_with_memory_for_one_process_they_live_one_at_a_time(job: Job) -> None:
    """The processes are real; only the free memory is made up."""
    bench = Evaluator(
        job.space,
        FreshLauncher(target=job.target()),
        EvaluatorPlan(free_memory_bytes=lambda: 1 << 20, calibration_passes=2, max_passes=3),
    )
    bench.begin([])
    assert bench.processes.are_alone
    one = job.space.reference.with_values(inter_op=1, intra_op=1)
    default, own = (
        Trial(number=number, setting=each, status=Status.OK) for number, each in enumerate((job.space.reference, one))
    )
    try:
        finished = list(bench.measure([default], []))
        shown = bench.take_noise()
        [done] = bench.measure([own], finished)
    finally:
        bench.close()
    assert shown is not None
    noise, pair = shown
    assert noise.n_blocks == pair.n_blocks == 2
    assert done.status is Status.OK, done.message
    assert done.alone
    assert done.log_ratio is not None
    if len(os.sched_getaffinity(0)) > 1:
        assert done.log_ratio < -0.2
    assert job.objective is Objective.THROUGHPUT
