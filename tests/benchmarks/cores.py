"""How right are predictions on a machine of many cores?

    python -m tests.benchmarks.cores measure [WORKLOAD ...]   some five minutes each; nothing else may run
    python -m tests.benchmarks.cores                          the figures

`tests.benchmarks.predictions` asks the same of two CPUs, where more can be measured in a night. Here a grid is inter_op
x intra_op, from one to all CPUs, at two batch sizes. And a profile that goes on to all CPUs tells what one that had
ended with fewer would have predicted: what is asked of a laptop that speaks for a server.
"""

from __future__ import annotations

import functools
import itertools
import json
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np

from tests.benchmarks import grids, predictions
from tests.benchmarks.figures import Figure
from tests.benchmarks.predictions import ERROR, NEAR, RANK, Score, capture, predicted, predictor, score_of, unseen
from tuner.job.job import Job
from tuner.job.predict import Capture, profiled_sizes
from tuner.machine.host import Machine
from tuner.measure.planning import FinalsPlan
from tuner.model.hardware import hardware_of
from tuner.model.prediction import rate_of
from tuner.model.predictor import predictor_of
from tuner.model.profile import profile
from tuner.space.setting import Setting
from tuner.trial.forking import ForkLauncher

FOLDER = predictions.FOLDER / "cores"
WORKLOADS = ("resnet50", "inceptionv3", "bert-tiny")
N_ROUNDS = 2
PLAN = FinalsPlan(passes=1, max_resident=16, n_parallel_starts=4)


def settings(job: Job, machine: Machine) -> list[Setting]:
    """Return the settings of a grid: threads in powers of four for inter_op, of two for intra_op, and all CPUs."""
    n = machine.logical_cpus
    own = job.space.reference.batch_size
    sizes = sorted({own, *(each for each in profiled_sizes(job) if each > own)})
    inter_ops = sorted({1, *(4**k for k in range(1, 5) if 4**k < n), n})
    intra_ops = sorted({*(2**k for k in range(9) if 2**k < n), n})
    knobs = [{"inter_op": a, "intra_op": b} for a, b in itertools.product(inter_ops, intra_ops)]
    return [
        job.space.reference.with_values(batch_size=int(size), **each) for size, each in itertools.product(sizes, knobs)
    ]


def measure(name: str, folder: Path = FOLDER) -> None:
    """Profile a workload, and measure its grid in rounds of new processes."""
    capture([name], folder)
    job, machine = grids.job_of(name), predictor(name, folder)[1].machine
    grid = settings(job, machine)
    rates = predicted(name, grid, machine, folder)
    job.export()
    contenders = grids.contenders_of(job, grid)
    began_s = time.monotonic()
    rng = np.random.default_rng(grids.SEED)
    tell = functools.partial(print, file=sys.stderr, flush=True)
    with closing(ForkLauncher(job.target(), notify=tell)) as launcher:
        rounds = [grids.held(contenders, launcher, PLAN, rng) for _ in range(N_ROUNDS)]
        level = grids.log_rates_of(rounds, contenders)
        finalists = grids.choose_finalists(contenders, level, rates)
        n_finals = grids.FINAL_ROUNDS[0] if len(finalists) > 1 else 0
        finals = [grids.held(finalists, launcher, grids.FINAL_PLAN, rng) for _ in range(n_finals)]
    finals_level = grids.log_rates_of(finals, finalists)
    rows = [
        {"setting": each.setting.to_dict(), "grid": level[i], "finals": finals_level.get(i, [])}
        for each in contenders
        if (i := each.names[0]) in level
    ]
    grid_row = {"shape": "all", "machine": msgspec.to_builtins(machine), "rows": rows}
    (folder / f"{name}.json").write_text(json.dumps([grid_row], indent=1) + "\n")
    print(f"{name}: {len(rows)} of {len(grid)} settings in {time.monotonic() - began_s:.0f} s", file=sys.stderr)


def score(name: str, folder: Path = FOLDER) -> Score:
    """Return how right the predictions of a workload are."""
    measured = grids.read(folder / f"{name}.json")
    rates = predicted(name, [each.setting for each in measured], measured[0].machine, folder)
    return score_of([(measured, rates)], functools.partial(unseen, name, folder=folder))


def other_threads(capture: Capture, counts: Collection[int]) -> dict[int, float]:
    """Return predicted over measured time of a step with other numbers of threads, from those of a profile in `counts`.

    At the largest batch size, one operator at a time; the machine's memory is known.
    """
    own = hardware_of(capture.machine, capture.bytes_s, is_here=True, busy_loss=capture.busy_loss)
    known = {size: profile([row for row in rows if row.threads in counts]) for size, rows in capture.traced.items()}
    from_known = predictor_of(known, own, has_teams=capture.has_teams)
    largest = max(known)
    ratios = {}
    for row in capture.traced[largest]:
        setting = Setting.of({"inter_op": 1, "intra_op": row.threads, "batch_size": largest})
        if row.threads not in counts:
            ratios[row.threads] = largest / rate_of(from_known, setting, capture.machine, own) / row.step_s
    return ratios


def figures(folder: Path = FOLDER) -> Iterator[Figure]:
    """Predicted beside measured, as far as it was measured."""
    for name in WORKLOADS:
        if (folder / f"{name}.capture.json.xz").exists():
            told = predictor(name, folder)[1]
            counts = [row.threads for row in told.traced[max(told.traced)]]
            for known in ([*counts[:2], counts[-1]], *(counts[:n] for n in range(2, len(counts)))):
                ratios = other_threads(told, known)
                if not ratios:
                    continue
                yield Figure(
                    f"{name}: steps with other numbers of threads, predicted over measured, from a profile of "
                    f"{', '.join(map(str, known))} threads",
                    ", ".join(f"{ratio:.2f} ({threads})" for threads, ratio in ratios.items()),
                    f"within {100 * ERROR:.0f} % of 1",
                    all(abs(ratio - 1) <= ERROR for ratio in ratios.values()),
                )
        if (folder / f"{name}.json").exists():
            yield from _of_grid(name, folder)


def _of_grid(name: str, folder: Path) -> Iterator[Figure]:
    own = score(name, folder)
    what = f"{name} on {grids.read(folder / f'{name}.json')[0].machine.logical_cpus} CPUs"
    yield Figure(
        f"{what}: rank correlation over {own.n} settings (of one round of the measurement with the others)",
        f"{own.rank:.2f} ({own.repeat:.2f})",
        f"at least {RANK}",
        own.rank >= RANK,
    )
    error = f"{100 * own.error:.0f} %"
    yield Figure(f"{what}: median relative error", error, f"at most {100 * ERROR:.0f} %", own.error <= ERROR)
    below = f"{what}: the setting predicted best is below the best by"
    yield Figure(below, own.below, f"at most {100 * NEAR:.0f} %", own.is_near)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        for workload in sys.argv[2:] or WORKLOADS:
            measure(workload)
    else:
        for figure in figures():
            print(figure.row())
