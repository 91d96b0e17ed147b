"""What processes of one setting differ by: fresh interpreters beside forks of servers that were each executed afresh.

    python -m tests.benchmarks.replication

In a session live, of one setting, two fresh interpreters and two forks of each of two servers that were executed for
it. They take turns in slices, there and back, so that all meet the same drift. With x_j the log rate of process j
of a session, on average, there are these differences in each:

    d_f = x_1 - x_2                 two fresh interpreters
    d_s = x_3 - x_4, x_5 - x_6      two forks of one server
    d_b = x_3 - x_5, x_4 - x_6      forks of different servers

Means are compared by Student's test over sessions. Variances are compared within sessions, as one session may be much
noisier than another, and what slices scatter by is in all differences of a session alike. Of two differences with
normal errors and variances v_f and v = ρ v_f, the share of the first,

    b = d_f² / (d_f² + d²),   E b = 1 / (1 + √ρ)

as d / d_f is √ρ times a Cauchy variable C, and E 1 / (1 + a² C²) = 1 / (1 + a). So the mean share of the sessions, with
its interval by Student, gives ρ. Where it is 1, a fork is as good a replicate as a fresh interpreter. Nothing else may
run meanwhile.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
from scipy.special import stdtrit

from tests.benchmarks.figures import BUILDS, Figure, job_on
from tuner.machine.locks import machine_lock
from tuner.measure.objective import Objective
from tuner.stats.estimate import Array, estimate
from tuner.trial.forking import ForkLauncher
from tuner.trial.fresh import FreshLauncher
from tuner.trial.launcher import Process

N_SESSIONS = 16
LAPS = 5  # there and back in a session
SLICE_S = 0.5


def session(job: object, target: object) -> Array:
    """Return the mean log rate of six processes: two fresh, two of a server, two of another, shape (6,)."""
    setting = job.space.reference  # type: ignore[attr-defined]
    deployment = job.space.deployment(setting)  # type: ignore[attr-defined]
    with ExitStack() as ending:
        servers = [ForkLauncher(target, notify=lambda line: print(line, file=sys.stderr)) for _ in range(2)]  # type: ignore[arg-type]
        for server in servers:
            ending.callback(server.close)
            server.start_server()
        for server in servers:
            server.is_refused()
        live: list[Process] = []
        fresh = FreshLauncher(target=target)  # type: ignore[arg-type]
        for launcher in (fresh, servers[0], servers[1]):
            pair = [launcher.launch(setting, deployment) for _ in range(2)]
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
        with machine_lock():
            rows = []
            for number in range(N_SESSIONS):
                rows.append(session(job, target))
                print(build, number, np.round(rows[-1] - rows[-1].mean(), 4).tolist(), file=sys.stderr, flush=True)
        yield from figures(build, np.array(rows))


def figures(build: str, x: Array) -> Iterator[Figure]:
    """Yield what sessions of six processes, shape (n, 6), say."""
    n = len(x)
    difference = estimate(x[:, 2:].mean(axis=1) - x[:, :2].mean(axis=1))
    low, high = difference.interval()
    yield Figure(
        f"forks of servers executed afresh against fresh interpreters, {build} build, {n} sessions: mean ratio [95 %]",
        f"{difference.ratio:.4f} [{low:.4f}, {high:.4f}]",
        "1 inside",
        low <= 1 <= high,
    )
    fresh = (x[:, 0] - x[:, 1])[:, None]
    for what, i, j in (("forks of one server", [2, 4], [3, 5]), ("forks of different servers", [2, 3], [4, 5])):
        forked = x[:, i] - x[:, j]
        share = (fresh**2 / (fresh**2 + forked**2)).mean(axis=1)
        half = float(stdtrit(n - 1, 0.975)) * float(share.std(ddof=1)) / math.sqrt(n)
        ratio, low, high = (_ratio_of_variances(float(share.mean()) + way * half) for way in (0, 1, -1))
        yield Figure(
            f"scatter between processes, {build} build, median of {n} sessions: {what} {_scatter(forked)}, fresh "
            f"interpreters {_scatter(fresh)}; ratio of variances [95 %]",
            f"{ratio:.2f} [{low:.2f}, {high:.2f}]",
            "1 inside",
            low <= 1 <= high,
        )


def _ratio_of_variances(share: float) -> float:
    """Return ρ for a mean share; see above."""
    b = min(max(share, 1e-9), 1 - 1e-9)
    return ((1 - b) / b) ** 2


def _scatter(differences: Array) -> str:
    """Return the standard deviation of a process, of the session in the middle."""
    return f"{100 * math.sqrt(float(np.median((differences**2).mean(axis=1))) / 2):.2f} %"


def main() -> None:
    """Print the table."""
    print("| what | found | target | |\n| --- | --- | --- | --- |")
    for figure in replication():
        print(figure.row(), flush=True)


if __name__ == "__main__":
    main()
