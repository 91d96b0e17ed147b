"""What a GPU has to show: how precise a pair is there, and what measuring itself costs. See `tests/gpu/run.sh`."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator

from tests.benchmarks.figures import Figure
from tuner.job.job import Job, prepare
from tuner.job.parsed import parse_request
from tuner.job.request import SearchRequest
from tuner.machine.locks import machine_lock
from tuner.measure.pair import log_ratios, run_pair
from tuner.measure.passes import Live
from tuner.stats.estimate import estimate
from tuner.trial.fresh import FreshLauncher
from tuner.trial.launcher import start_together
from tuner.workload.spec import WorkloadSpec

PYTHON = os.environ.get("TFTUNE_GPU_PYTHON", sys.executable)
N_TURNS = 5
# The model as a user would call it: whenever it is asked, as many steps as take two seconds, and nothing else.
PLAIN = """
import json, sys, time
import numpy as np
import tensorflow as tf
folder, batch_size = sys.argv[1], int(sys.argv[2])
inputs = json.load(open(folder + "/inputs.json"))
call = tf.saved_model.load(folder).signatures["inference"]
with tf.device("CPU:0"):
    tensors = {}
    for each in inputs:
        shape = [batch_size if n is None else n for n in each["shape"]]
        tensors[each["name"]] = tf.constant(np.zeros(shape, each["dtype"]))
def step():
    for output in call(**tensors).values():
        output.numpy()
def step_s(least_s):
    began, n = time.perf_counter(), 0
    while time.perf_counter() - began < least_s:
        step()
        n += 1
    return (time.perf_counter() - began) / n
step_s(3.0)
print("ready", flush=True)
for _ in sys.stdin:
    print(step_s(2.0), flush=True)
"""


def gpu_job(workload: str) -> Job:
    """Return a job on the first GPU, its model exported."""
    spec = WorkloadSpec(words=(workload,), device="gpu")
    job = prepare(parse_request(SearchRequest(workload=spec, python=PYTHON), stores=False))
    job.export()
    return job


def figures() -> Iterator[Figure]:
    """A against A on the GPU, and the step of the worker beside that of a plain loop, in turns."""
    job = gpu_job("resnet50")
    gpu = job.device.describe()
    print(f"{gpu['model']}, driver {gpu['driver']}, CUDA {gpu['cuda']}, {job.build.title}", file=sys.stderr)
    launcher = FreshLauncher(target=job.target())
    setting = job.space.reference
    default = setting, job.space.deployment(setting)
    with machine_lock():
        started = start_together(launcher, [default, default], parallel=1)
        a, b = (each.process for each in started)
        both = (Live(process=each.process, usual_s=[each.facts.step_s]) for each in started)
        pair = run_pair(*both, enough=lambda p: p.timed_s * (1 + 1.1 / p.n_blocks) > 25.0, min_passes=2, max_passes=99)
        paired = estimate(log_ratios(pair, job.objective, batch_sizes=(setting.batch_size, setting.batch_size)))
        b.close()
        with _plain(job) as plain:
            ratios = [math.log(_worker_step_s(a) / _plain_step_s(plain)) for _ in range(N_TURNS)]
        a.close()
    yield Figure(
        "A against A on the GPU, mean ratio", f"{paired.ratio:.4f}", "within 0.5 % of 1", abs(paired.mean) < 5e-3
    )
    yield Figure("its standard error", f"{100 * paired.se:.2f} %", "at most 0.5 %", paired.se <= 0.005)
    cost = math.expm1(statistics.median(ratios))
    yield Figure("step in a slice over that of a plain loop", f"{100 * cost:+.2f} %", "below 2 %", cost < 0.02)


def _worker_step_s(process: object) -> float:
    process.resume()
    slices = [process.slice(0.5) for _ in range(4)]
    process.pause()
    return sum(each.elapsed_s for each in slices) / sum(each.n_steps for each in slices)


@contextlib.contextmanager
def _plain(job: Job) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that runs the model in a plain loop, whenever it is asked."""
    words = [str(job.python), "-c", PLAIN, str(job.export()[0]), str(job.space.reference.batch_size)]
    with subprocess.Popen(words, env=job.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None  # it is a pipe
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError("the plain loop did not start: see its messages above")
            yield process
        finally:
            process.terminate()


def _plain_step_s(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None  # both are pipes
    assert process.stdout is not None
    print(file=process.stdin, flush=True)
    return float(process.stdout.readline())


if __name__ == "__main__":
    print("| what | found | target | |\n| --- | --- | --- | --- |")
    for figure in figures():
        print(figure.row())
