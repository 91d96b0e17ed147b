"""Grids of settings as they are measured: the truth that predictions are compared with.

A grid is inter_op x intra_op (x omp_num_threads on an OpenMP build) x batch size: on all CPUs, on one, and under a
quota of one. The settings of a grid live beside each other and are timed in turns, there and back, in rounds of new
processes, and a round of one grid is followed by one of each other grid, so that drift is in all of them alike. The
highest of many noisy figures is higher than it is: those that may be the best, and the one that was predicted best, are
measured once more, in rounds of their own.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from tests.benchmarks.figures import OPENMP_PYTHON
from tuner.job.job import Job, prepare
from tuner.job.parsed import parse_request
from tuner.job.predict import profiled_sizes
from tuner.job.request import SearchRequest
from tuner.machine.confine import CpuShape, confined
from tuner.machine.host import Machine, detect
from tuner.machine.locks import machine_lock
from tuner.measure.objective import Objective
from tuner.measure.planning import FinalsPlan
from tuner.measure.rates import log_rates
from tuner.measure.rounds import Contender, Round, run_round
from tuner.space.setting import Setting
from tuner.stats.estimate import Estimate, estimate
from tuner.trial.forking import ForkLauncher
from tuner.workload.spec import WorkloadSpec

SHAPES = ("all", "one", "quota")
GRID, FINAL, GRIDS = "grid", "final", "grids"
TRAINING, OPENMP = "-training", "-openmp"
BATCH_SIZES = {"dcgan-training": (1, 4, 8)}
"""Of workloads whose own batch size takes seconds a step."""
SEED = 20220
TIMEOUT = "3m"
GRID_PLAN, GRID_ROUNDS = FinalsPlan(passes=1, max_resident=32), 6
FINAL_PLAN, FINAL_ROUNDS = FinalsPlan(passes=2), (4, 9)
_N_FINALISTS, _NEAR = 3, 0.12  # this many at most, of those whose rate is so near the highest (log)
_HALF_WIDTH = 0.025  # of how far the predicted best is below the best, at which the finals end


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A setting on CPUs of a shape: its log items per second in each round of the grid, and in each of the finals."""

    shape: str
    machine: Machine
    setting: Setting
    grid: tuple[float, ...]
    finals: tuple[float, ...] = ()

    @property
    def items_per_s(self) -> float:
        """Return the geometric mean over the rounds of the grid."""
        return math.exp(sum(self.grid) / len(self.grid))


def job_of(name: str) -> Job:
    """Return the job of a workload by its name here, on the CPUs that this process may use.

    A mode follows a dash, and so does the OpenMP build: lstm-training, resnet50-openmp.
    """
    workload = name.removesuffix(OPENMP)
    mode = "training" if workload.endswith(TRAINING) else "inference"
    spec = replace(WorkloadSpec.of_name(workload.removesuffix(TRAINING)), mode=mode)
    sizes = BATCH_SIZES.get(workload)
    request = SearchRequest(
        workload=spec,
        python=OPENMP_PYTHON if name.endswith(OPENMP) else None,
        batch_size=sizes and ",".join(map(str, sizes)),
        trial_timeout=TIMEOUT,
    )
    return prepare(parse_request(request, stores=False))


def settings(job: Job, shape: str) -> list[Setting]:
    """Return the settings of a grid: three batch sizes, and the threads that CPUs of a shape leave to choose from."""
    reference = job.space.reference
    sizes = job.space.domains["batch_size"]
    batch_sizes = sizes if len(sizes) == 3 else profiled_sizes(job)
    threads = [(a, b) for a in (1, 2) for b in (1, 2)] if shape == "all" else [(1, 1), (1, 2), (2, 1)]
    knobs = [{"inter_op": a, "intra_op": b} for a, b in threads]
    if "omp_num_threads" in reference.to_dict():
        knobs = [{**each, "omp_num_threads": n} for each in knobs for n in (1, 2)]
    return [reference.with_values(batch_size=int(size), **each) for size, each in itertools.product(batch_sizes, knobs)]


def measure(name: str) -> list[dict[str, Any]]:
    """Return the grids of a workload on all shapes, as they are stored.

    Each shape has a process of its own, and a round is held on each of them before the next: so drift is in all
    shapes alike.
    """
    with contextlib.ExitStack() as live:
        shaped = {shape: live.enter_context(_Shaped(name, shape)) for shape in SHAPES}
        for _, each in itertools.product(range(GRID_ROUNDS), shaped.values()):
            each.ask(GRID)
        waiting = list(shaped.values())
        while waiting:
            waiting = [each for each in waiting if each.ask(FINAL)]
        return [{"shape": shape, **each.ask(GRIDS)} for shape, each in shaped.items()]


class _Shaped:
    """A process on CPUs of a shape that measures one grid, a round at a time: see `serve`."""

    def __init__(self, name: str, shape: str) -> None:
        cpus = sorted(os.sched_getaffinity(0))
        own_cpus = frozenset(cpus[:1] if shape == "one" else cpus)
        self._shape = CpuShape(cpus=own_cpus, quota=1.0 if shape == "quota" else None)
        self._words = [sys.executable, "-m", "tests.benchmarks.predictions", "serve", name, shape]
        self._live = contextlib.ExitStack()

    def __enter__(self) -> Self:
        enter = self._live.enter_context(confined(self._shape))
        started = subprocess.Popen(
            self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=enter, text=True
        )
        self._process = self._live.enter_context(started)
        self._live.callback(started.terminate)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.close()

    def ask(self, what: str) -> Any:
        """Return what it answers to one of the words of `serve`."""
        assert self._process.stdin and self._process.stdout  # both are pipes
        print(what, file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


def serve(
    name: str,
    shape: str,
    predict: Callable[[Sequence[Setting], Machine], Sequence[float]],
    words: Iterable[str],
) -> Iterator[Any]:
    """Measure one grid on the CPUs that this process has, a round for each word; yield an answer to each.

    `GRID` is a round of the whole grid, `FINAL` one of the finalists (answered by whether another one is needed), and
    `GRIDS` is answered by what was measured. `predict` returns the predicted items per second of settings, by which one
    of the finalists is chosen.
    """
    job, machine = job_of(name), detect()
    grid = settings(job, shape)
    job.export()
    contenders = contenders_of(job, grid)
    rng = np.random.default_rng(SEED)
    finalists: list[Contender] = []
    rounds: dict[str, list[Round]] = {GRID: [], FINAL: []}
    with closing(ForkLauncher(job.target(), notify=_tell)) as launcher:
        for word in words:
            if word == GRID:
                rounds[GRID].append(held(contenders, launcher, GRID_PLAN, rng))
                yield True
                continue
            rates = {of: log_rates_of(own, contenders) for of, own in rounds.items()}
            if word == FINAL:
                finalists = finalists or choose_finalists(contenders, rates[GRID], predict(grid, machine))
                if len(finalists) > 1:
                    rounds[FINAL].append(held(finalists, launcher, FINAL_PLAN, rng))
                yield len(finalists) > 1 and _goes_on(log_rates_of(rounds[FINAL], finalists), finalists[0].names[0])
                continue
            rows = [
                {"setting": each.setting.to_dict(), "grid": rates[GRID][i], "finals": rates[FINAL].get(i, [])}
                for each in contenders
                if (i := each.names[0]) in rates[GRID]
            ]
            yield {"machine": msgspec.to_builtins(machine), "rows": rows}


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def contenders_of(job: Job, of: Sequence[Setting]) -> list[Contender]:
    """Return settings as contenders, named by their numbers."""
    return [
        Contender(names=(str(i),), setting=each, deployment=job.space.deployment(each)) for i, each in enumerate(of)
    ]


def held(contenders: Sequence[Contender], launcher: ForkLauncher, plan: FinalsPlan, rng: np.random.Generator) -> Round:
    """Return a round of new processes; one that was interrupted is held once more."""
    settings_by_name = {each.names[0]: each.setting for each in contenders}
    for _ in range(2):
        with machine_lock(wait=True):
            own = run_round(contenders, launcher, plan, rng, fresh=False)
        for name, reason in own.failures.items():
            _tell(f"{settings_by_name[name]}: {reason}")
        if not own.interruptions:
            break
    return own


def log_rates_of(rounds: Sequence[Round], contenders: Sequence[Contender]) -> dict[str, list[float]]:
    """Return the log rates of those that ran in all rounds, by name."""
    if not rounds:
        return {}
    names, y = log_rates(rounds, contenders, Objective.THROUGHPUT)
    return {name: y[:, j].tolist() for j, name in enumerate(names) if np.isfinite(y[:, j]).all()}


def _goes_on(finals: dict[str, list[float]], predicted_best: str) -> bool:
    """Return whether another round is needed to know how far the predicted best is below the best other one."""
    others = [name for name in finals if name != predicted_best]
    n_rounds = max(map(len, finals.values()), default=0)
    least, most = FINAL_ROUNDS
    if n_rounds < least or predicted_best not in finals or not others:
        return n_rounds < least
    best = max(others, key=lambda name: float(np.mean(finals[name])))
    low, high = estimate(np.array(finals[best]) - np.array(finals[predicted_best])).interval()
    return n_rounds < most and math.log(high / low) / 2 > _HALF_WIDTH


def choose_finalists(
    contenders: Sequence[Contender], held: dict[str, list[float]], predicted: Sequence[float]
) -> list[Contender]:
    """Return the one predicted best, first, and those that were measured best."""
    level = {name: float(np.mean(own)) for name, own in held.items()}
    highest = max(level.values())
    near = sorted((name for name in level if level[name] > highest - _NEAR), key=lambda name: -level[name])
    best = max(level, key=lambda name: predicted[int(name)])
    names = list(dict.fromkeys([best, *near]))[:_N_FINALISTS]
    return [contenders[int(name)] for name in names]


def read(path: Path) -> list[Measured]:
    """Return the settings of stored grids."""
    return [
        Measured(
            shape=grid["shape"],
            machine=msgspec.convert(grid["machine"], Machine),
            setting=Setting.of(row["setting"]),
            grid=tuple(row["grid"]),
            finals=tuple(row["finals"]),
        )
        for grid in json.loads(path.read_text())
        for row in grid["rows"]
    ]


def loss(measured: Sequence[Measured], predicted: Sequence[float]) -> Estimate:
    """Return how far the setting predicted best is below the best (log ratio), on CPUs of one shape.

    From the finals where it was in them, else from the grid; 0 where it is the best itself.
    """
    chosen = measured[int(np.argmax(predicted))]
    rates = {each.setting: (each.finals if chosen.finals else each.grid) for each in measured}
    rates = {setting: own for setting, own in rates.items() if len(own) == len(rates[chosen.setting])}
    best = max(rates, key=lambda setting: np.mean(rates[setting]))
    return estimate(np.array(rates[best]) - np.array(rates[chosen.setting]))
