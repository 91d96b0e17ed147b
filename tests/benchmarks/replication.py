"""What processes of one setting differ by: fresh interpreters beside forks of servers that were each executed afresh.

    python -m tests.benchmarks.replication

In a session live, of one setting, two fresh interpreters and two forks of each of two servers that were executed for
it. They take turns in slices, there and back, so that all have the same weather. With x_j the log rate of process j
of a session, on average, there are these differences in each:

    d_f = x_1 - x_2                            of fresh interpreters       Var = 2 σ_fresh²
    d_s                                        of two forks of one server  Var = 2 σ_fork²
    d_b = mean of one server's - the other's   between servers             Var = 2 (σ_server² + σ_fork²/2)

What slices themselves scatter by is in all of them alike. Means are compared by Student's test over sessions,
variances by F; where they are the same, a fork is as good a replicate as a fresh interpreter. Nothing else may run
meanwhile.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
from scipy import stats

from tests.benchmarks.bench import BUILDS, Figure, job_on
from tuner.machine.exclusive import measuring_alone
from tuner.measure.objective import Objective
from tuner.measure.statistics import Array, estimate
from tuner.trial.forking import ForkLauncher
from tuner.trial.fresh import FreshLauncher
from tuner.trial.launcher import Process

N_SESSIONS = 16
LAPS = 5  # there and back in a session
SLICE_S = 0.5


def session(job: object, target: object) -> Array:
    """Return the mean log rate of six processes: two fresh, two of a server, two of another, shape (6,)."""
    setting = job.space.reference  # type: ignore[attr-defined]
    env = job.space.env(setting)  # type: ignore[attr-defined]
    with ExitStack() as ending:
        servers = [ForkLauncher(target, told=lambda line: print(line, file=sys.stderr)) for _ in range(2)]  # type: ignore[arg-type]
        for server in servers:
            ending.callback(server.close)
            server.warm()
        for server in servers:
            server.wait()
        live: list[Process] = []
        fresh = FreshLauncher(target=target)  # type: ignore[arg-type]
        for launcher in (fresh, servers[0], servers[1]):
            pair = [launcher.launch(setting, env) for _ in range(2)]
            for process in pair:
                ending.callback(process.close)
            for process in pair:
                process.ready()
                process.pause()
            live += pair
        rates: list[list[float]] = [[] for _ in live]
        turns = [*range(len(live)), *reversed(range(len(live)))]
        for _ in range(LAPS):
            for turn in turns:
                live[turn].resume()
                slice_ = live[turn].slice(SLICE_S)
                live[turn].pause()
                rates[turn].append(Objective.THROUGHPUT.log_rate(slice_, setting.batch_size))
    return np.array([np.mean(each) for each in rates])


def replication() -> Iterator[Figure]:
    """Measure both builds."""
    for build, python in BUILDS.items():
        job, target = job_on(python)
        with measuring_alone():
            rows = []
            for number in range(N_SESSIONS):
                rows.append(session(job, target))
                print(build, number, np.round(rows[-1] - rows[-1].mean(), 4).tolist(), file=sys.stderr, flush=True)
        yield from figures(build, np.array(rows))


def figures(build: str, x: Array) -> Iterator[Figure]:
    """Yield what sessions of six processes, shape (n, 6), say."""
    n = len(x)
    apart = estimate(x[:, 2:].mean(axis=1) - x[:, :2].mean(axis=1))
    low, high = apart.interval()
    yield Figure(
        f"forks of servers executed afresh against fresh interpreters, {build} build, {n} sessions: mean ratio [95 %]",
        f"{apart.ratio:.4f} [{low:.4f}, {high:.4f}]",
        "1 inside",
        low <= 1 <= high,
    )
    fresh = float(np.mean((x[:, 0] - x[:, 1]) ** 2)) / 2
    fork = float(np.mean(np.concatenate([(x[:, 2] - x[:, 3]) ** 2, (x[:, 4] - x[:, 5]) ** 2]))) / 2
    server = float(np.mean((x[:, 2:4].mean(axis=1) - x[:, 4:6].mean(axis=1)) ** 2))
    for what, variance, df in (
        ("forks of one server", fork, 2 * n),
        ("forks of different servers", (server - fork) / 2 + fork if server > fork else server, n),
    ):
        ratio = variance / fresh
        edges = [ratio / stats.f.ppf(p, df, n) for p in (0.975, 0.025)]
        yield Figure(
            f"scatter between processes, {build} build: {what} {100 * math.sqrt(variance):.2f} %, fresh interpreters "
            f"{100 * math.sqrt(fresh):.2f} %: ratio of variances [95 %]",
            f"{ratio:.2f} [{edges[0]:.2f}, {edges[1]:.2f}]",
            "1 inside",
            edges[0] <= 1 <= edges[1],
        )


def main() -> None:
    """Print the table."""
    print("| what | found | target | |\n| --- | --- | --- | --- |")
    for figure in replication():
        print(figure.row(), flush=True)


if __name__ == "__main__":
    main()
