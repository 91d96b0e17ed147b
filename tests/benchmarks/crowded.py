"""What is lost where teams of OpenMP have more threads than there are CPUs: what `Terms.openmp_switch` was fitted to.

    python -m tests.benchmarks.crowded WORKLOAD CPUS BATCH_SIZE [BLOCKTIME]     two minutes; nothing else may run

for example `mobilenetv2 0,1 8 200`; BLOCKTIME is in ms. The settings live beside each other, and are timed in turns, in
rounds of new processes. TFTUNE_OPENMP_PYTHON names the interpreter of the OpenMP build, as for the tests.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Iterator
from contextlib import closing

import numpy as np

from tests.benchmarks import grids
from tuner.measure.planning import FinalsPlan
from tuner.trial.forking import ForkLauncher

PLAN, N_ROUNDS = FinalsPlan(passes=1, max_resident=16), 4
POOLS, TEAMS = (1, 2), (1, 2, 4, 8)


def rates(workload: str, batch_size: int, blocktime: int) -> Iterator[tuple[int, int, list[float]]]:
    """Yield pools, threads of a team, and the rate in each round beside that of one pool and one thread."""
    job = grids.job_of(workload + grids.OPENMP)
    one = job.space.reference.with_values(kmp_blocktime=blocktime, batch_size=batch_size, intra_op=1)
    values = list(itertools.product(POOLS, TEAMS))
    settings = [one.with_values(inter_op=pools, omp_num_threads=team) for pools, team in values]
    contenders = grids.contenders_of(job, settings)
    job.export()
    rng = np.random.default_rng(grids.SEED)
    with closing(ForkLauncher(job.target(), notify=print)) as launcher:
        rounds = [grids.held(contenders, launcher, PLAN, rng) for _ in range(N_ROUNDS)]
    log_rates = grids.log_rates_of(rounds, contenders)
    if "0" not in log_rates:
        raise SystemExit(f"one pool with one thread did not run in every round: {settings[0]}")
    for i, (pools, team) in enumerate(values):
        if str(i) in log_rates:
            yield pools, team, np.exp(np.subtract(log_rates[str(i)], log_rates["0"])).tolist()


if __name__ == "__main__":
    name, cpus, size, *blocktimes = sys.argv[1:]
    os.sched_setaffinity(0, set(map(int, cpus.split(","))))
    for n_pools, n_threads, beside_one in rates(name, int(size), int(blocktimes[0]) if blocktimes else 0):
        mean = math.exp(float(np.mean(np.log(beside_one))))
        each = ", ".join(f"{rate:.2f}" for rate in beside_one)
        print(f"| {name} | {cpus} | {n_pools} | {n_threads} | {mean:.2f} | {each} |", flush=True)
