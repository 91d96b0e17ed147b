"""Where memory holds one process: how often the interval of the default against itself holds 1, under load.

    python -m tests.benchmarks.alone [N]      times two trials, 12 if not given: a quarter of an hour

The load takes all CPUs for a second or two, then none for as long, as another container does to a small one.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import sys
import time

import numpy as np

from tests.benchmarks.figures import job_on
from tuner.job.job import Job
from tuner.machine.locks import machine_lock
from tuner.study.evaluator import Evaluator
from tuner.study.plan import EvaluatorPlan
from tuner.study.trials import Trial
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import Status

WORKLOAD = "mobilenetv2"
SEED = 20261
_BURST_S = 1.0, 2.0


def load(seed: int) -> None:
    """Multiply matrices in bursts, until killed."""
    rng = random.Random(seed)
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[seed % os.cpu_count()]})
    a = np.ones((256, 256), "float32")
    while True:
        ends_s = time.monotonic() + rng.uniform(*_BURST_S)
        while time.monotonic() < ends_s:
            a @ a
        time.sleep(rng.uniform(*_BURST_S))


def estimates(job: Job, n: int) -> list[tuple[float, float, float]]:
    """Return (ratio, low, high) of two trials of the default against itself after each of `n` calibrations."""
    told = []
    for _ in range(n):
        plan = EvaluatorPlan(free_memory_bytes=lambda: 1 << 20)
        bench = Evaluator(job.space, FreshLauncher(target=job.target()), plan)
        try:
            bench.calibrate([])
            for number in range(2):  # the first goes on with the calibration
                trial = Trial(number=number, setting=job.space.reference, status=Status.OK)
                [done] = bench.measure([trial], [])
                assert done.estimate is not None, done.message
                low, high = done.estimate.interval()
                told.append((math.exp(done.estimate.mean), low, high))
                print(f"{told[-1][0]:.2f} [{low:.2f}, {high:.2f}]", file=sys.stderr, flush=True)
        finally:
            bench.close()
    return told


def main(n: int) -> None:
    """Measure, and print how many intervals hold 1."""
    job, _ = job_on(sys.executable, WORKLOAD)
    loads = [multiprocessing.Process(target=load, args=(SEED + i,), daemon=True) for i in range(os.cpu_count() or 1)]
    with machine_lock(wait=True):
        for each in loads:
            each.start()
        told = estimates(job, n)
        for each in loads:
            each.kill()
    held = sum(low <= 1 <= high for _, low, high in told)
    width = float(np.median([math.log(high / low) / 2 for _, low, high in told]))
    print(f"{held} of {len(told)} intervals hold 1; half of one is {100 * width:.0f} % wide in the median")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
