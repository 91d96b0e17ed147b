"""Forked processes beside fresh ones: how soon they are ready, whether they give the same numbers, what they leave."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import psutil

from tests.benchmarks.figures import BUILDS, Figure, job_on
from tuner.job.job import Job
from tuner.machine.locks import machine_lock
from tuner.measure.objective import Objective
from tuner.measure.pair import log_ratios, run_pair
from tuner.measure.passes import Live
from tuner.space.setting import Setting
from tuner.stats.estimate import Estimate, estimate
from tuner.trial.forking import ForkLauncher
from tuner.trial.fresh import FreshLauncher
from tuner.trial.launcher import Launcher, Target
from tuner.trial.outcome import ReadyReport

N_READY = 7
COUPLE_S = 14.0
MIN_COUPLES, MAX_COUPLES = 4, 16  # of processes, for each setting
WIDTH = 0.03
N_LEAK = 200
SMALL = '''"""One product of matrices: what a trial costs beside its model."""
ITEM = "row"
BATCH_SIZE = 8
def build():
    import tensorflow as tf
    w = tf.Variable(tf.ones((64, 64)))
    return lambda x: tf.linalg.matmul(x, w)
def inputs(batch_size):
    import numpy as np
    return (np.ones((batch_size, 64), np.float32),)
'''


def context() -> Iterator[Figure]:
    """From the request to a TensorFlow context, fork and fresh in turn; and the memory of the idle server."""
    for build, python in BUILDS.items():
        job, target = job_on(python)
        reference = (job.space.reference, job.space.deployment(job.space.reference))
        with machine_lock(), closing(ForkLauncher(target, notify=_tell)) as forks:
            _ready(forks, *reference)  # the server comes up once for all trials
            [server] = forks.servers()
            memory = psutil.Process(server.pid).memory_full_info()
            forked, fresh = [], []
            for _ in range(N_READY):
                forked.append(_ready(forks, *reference))
                fresh.append(_ready(FreshLauncher(target=target), *reference))
        a, b = (statistics.median(facts.context_s for facts in each) for each in (forked, fresh))
        yield Figure(
            f"from request to a ready TensorFlow context, {build} build, fork (fresh interpreter: {b:.2f} s)",
            f"{a:.2f} s",
            "at most 0.3 s",
            a <= 0.3,
        )
        yield Figure(
            f"memory of an idle fork server, {build} build",
            f"{memory.rss / 2**20:.0f} MiB resident, {memory.uss / 2**20:.0f} MiB of it its own",
            "",
            True,
        )


def _ready(launcher: Launcher, setting: Setting, env: Mapping[str, str]) -> ReadyReport:
    process = launcher.launch(setting, env)
    try:
        return process.ready()
    finally:
        process.close()


def same() -> Iterator[Figure]:
    """A fork against a fresh interpreter, the same setting, in pairs of processes that are made anew each time."""
    for build, python in BUILDS.items():
        job, target = job_on(python)
        for name, setting in _settings(job).items():
            ratio, n = _fork_against_fresh(target, setting, job.space.deployment(setting))
            low, high = ratio.interval()
            print(f"fork/fresh {build} {name}: {ratio.ratio:.4f} [{low:.4f}, {high:.4f}]", file=sys.stderr, flush=True)
            yield Figure(
                f"fork against fresh, {build} build, {name}, {n} couples of processes: ratio [95 %]",
                f"{ratio.ratio:.4f} [{low:.4f}, {high:.4f}]",
                "1 inside, at most 3 % wide",
                low <= 1 <= high and high - low <= WIDTH,
            )


def _settings(job: Job) -> dict[str, Setting]:
    default = job.space.reference
    if "omp_num_threads" in default.to_dict():
        one = default.with_values(inter_op=1, omp_num_threads=1, kmp_blocktime=200)
        return {"tf-default": default, "intel": job.space.baselines["intel"], "OMP_NUM_THREADS=1": one}
    return {
        "tf-default": default,
        "intel": job.space.baselines["intel"],
        "one thread": default.with_values(inter_op=1, intra_op=1),
    }


def _fork_against_fresh(target: Target, setting: Setting, env: Mapping[str, str]) -> tuple[Estimate, int]:
    """Return the ratio fork/fresh over couples of processes, and their number: a couple is the unit of replication."""
    batch_sizes = (setting.batch_size, setting.batch_size)
    means: list[float] = []
    with machine_lock(), closing(ForkLauncher(target, notify=_tell)) as forks:
        makers: tuple[Launcher, Launcher] = (FreshLauncher(target=target), forks)
        # It goes on until the interval is narrow enough, wherever it lies.
        while len(means) < MIN_COUPLES or (_width(means) > WIDTH and len(means) < MAX_COUPLES):
            fresh, fork = (_warm(maker, setting, env) for maker in makers)
            pair = run_pair(fresh, fork, enough=lambda pair: pair.is_long(COUPLE_S), max_passes=99)
            means.append(float(np.mean(log_ratios(pair, Objective.THROUGHPUT, batch_sizes=batch_sizes))))
            fresh.process.close()
            fork.process.close()
    return estimate(means), len(means)


def rebatch() -> Iterator[Figure]:
    """A process that was loaded at another batch size, against one that was started with it, in pairs made anew."""
    for build, python in BUILDS.items():
        job, target = job_on(python)
        default = job.space.reference
        large = default.with_values(batch_size=4 * default.batch_size)
        batch_sizes = (large.batch_size, large.batch_size)
        means: list[float] = []
        with machine_lock(), closing(ForkLauncher(target, notify=_tell)) as forks:
            while len(means) < MIN_COUPLES or (_width(means) > WIDTH and len(means) < MAX_COUPLES):
                own = _warm(forks, large, job.space.deployment(large))
                other = _warm(forks, default, job.space.deployment(default))
                other.process.resume()
                other = Live(process=other.process, usual_s=[other.process.set_batch_size(large.batch_size).step_s])
                other.process.pause()
                pair = run_pair(own, other, enough=lambda pair: pair.is_long(COUPLE_S), max_passes=99)
                means.append(float(np.mean(log_ratios(pair, Objective.THROUGHPUT, batch_sizes=batch_sizes))))
                own.process.close()
                other.process.close()
        ratio = estimate(means)
        low, high = ratio.interval()
        yield Figure(
            f"batch {large.batch_size} in a process begun at {default.batch_size}, against one of its own, {build} "
            f"build, {len(means)} couples: ratio [95 %]",
            f"{ratio.ratio:.4f} [{low:.4f}, {high:.4f}]",
            "1 inside, at most 3 % wide",
            low <= 1 <= high and high - low <= WIDTH,
        )


def _width(means: list[float]) -> float:
    low, high = estimate(means).interval()
    return high - low


def _warm(launcher: Launcher, setting: Setting, env: Mapping[str, str]) -> Live:
    process = launcher.launch(setting, env)
    facts = process.ready()
    process.pause()
    return Live(process=process, usual_s=[facts.step_s])


def leak() -> Iterator[Figure]:
    """Many forked trials of a small model; what the server and the tuner hold before and after."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "small.py").write_text(SMALL)
        for build, python in BUILDS.items():
            job, target = job_on(python, f"{folder}/small.py")
            reference = (job.space.reference, job.space.deployment(job.space.reference))
            with machine_lock(), closing(ForkLauncher(target, notify=_tell)) as forks:
                for _ in range(10):
                    _ready(forks, *reference)
                [server] = forks.servers()
                before, began = _held(server.pid), time.monotonic()
                for _ in range(N_LEAK):
                    _ready(forks, *reference)
                wall_s, after = time.monotonic() - began, _held(server.pid)
            grown = (after["memory"] - before["memory"]) / 2**20
            same_counts = all(after[key] == before[key] for key in before if key != "memory")
            counts = ", ".join(f"{after[key] - before[key]:+d} {key}" for key in before if key != "memory")
            yield Figure(
                f"left after {N_LEAK} forked trials, {build} build ({wall_s / N_LEAK:.2f} s a trial)",
                f"server {grown:+.1f} MiB, {counts}",
                "at most 1 MiB, nothing else",
                grown <= 1.0 and same_counts,
            )


def _held(server: int) -> dict[str, int]:
    """Return what the server and this process hold once the last fork is gone: pages are shared with it until then."""
    server_process, this = psutil.Process(server), psutil.Process(os.getpid())
    end = time.monotonic() + 5.0
    while server_process.children() and time.monotonic() < end:
        time.sleep(0.05)
    return {
        "memory": server_process.memory_full_info().uss,
        "descriptors of the server": server_process.num_fds(),
        "processes": len(server_process.children(recursive=True)),
        "descriptors of the tuner": this.num_fds(),
    }


def _tell(line: str) -> None:
    print(line, file=sys.stderr)
