"""Suites on several machines: what kills lose, what the engine costs, and how many nodes a driver can serve.

    python -m tests.benchmarks.cluster kills [WORKERS [SCHEDULERS [DRIVERS]]]    20, 5 and 10 if not given
    python -m tests.benchmarks.cluster cost [UNITS]                              20 if not given
    python -m tests.benchmarks.cluster many [NODES [UNITS]]                      1,000 and 20,000 if not given

The nodes of the first are processes of this machine, confined to masks: two types, three nodes. They measure real
searches of LeNet-5 and MLP, one at a time, as they are on one host. Nothing else may run meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.benchmarks.figures import Figure
from tests.frameworks import MADE_MACHINE, STOCK, read_space, resolve
from tests.made_cluster import MadeEngine, MadeNode, Template, cases
from tests.real_cluster import SUITE, TFTUNE, Cluster
from tests.scripted import noisy, run
from tuner.cluster.fleet import Fleet
from tuner.job.request import SuiteRequest
from tuner.measure.budget import Budget
from tuner.report.studylist import outcome
from tuner.study.storage import all_records, open_storage
from tuner.workload import workload as workloads

SEED = 20261
_N_UNITS = 4  # of SUITE, two for each type
_UNIT_S = 50.0  # about how long a unit of SUITE takes, with starting, next to three nodes that start


def kills(n_workers: int = 20, n_schedulers: int = 5, n_drivers: int = 10) -> Iterator[Figure]:
    """Kill workers, schedulers and drivers in the middle of units until there were so many; then let the suite end."""
    chance = random.Random(SEED)
    left = Counter(worker=n_workers, scheduler=n_schedulers, driver=n_drivers)
    done: Counter[str] = Counter()
    lost = doubled = n_units = n_suites = 0
    cpus = sorted(os.sched_getaffinity(0))
    masks = {"a": {cpus[0]}, "b": {cpus[0]}, "c": set(cpus)}
    while left.total():
        with tempfile.TemporaryDirectory() as folder:
            cluster = Cluster(Path(folder))
            cluster.start()
            nodes = {name: cluster.node(name, mask) for name, mask in masks.items()}
            driver = cluster.suite()
            before: set[str] = set()
            while driver.poll() is None or driver.returncode != 0:
                if driver.poll() is None and left.total():
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        driver.wait(chance.uniform(0.1, 2.0) * _UNIT_S)
                if driver.poll() is None and not left.total():
                    driver.wait()
                elif driver.poll() is None:
                    kind = chance.choices([*left], [*left.values()])[0]
                    left[kind] -= 1
                    done[kind] += 1
                    print(f"{dict(done)} killed, {len(before)} units at home", file=sys.stderr, flush=True)
                    if kind == "worker":
                        name = chance.choice([*masks])
                        nodes[name].send_signal(signal.SIGKILL)
                        nodes[name].wait()
                        nodes[name] = cluster.node(name, masks[name])
                    elif kind == "driver":
                        driver.send_signal(signal.SIGKILL)
                        driver.wait()
                    else:
                        assert cluster.scheduler is not None
                        cluster.scheduler.send_signal(signal.SIGKILL)
                        cluster.scheduler.wait()
                        driver.wait()
                        cluster.start()
                now = studies(folder)
                lost += len(before - {*now})
                before = {*now}
                if driver.poll() is not None and driver.returncode != 0:
                    driver = cluster.suite()
            rows = json.loads(driver.communicate()[0])["cases"]
            held = Counter(studies(folder).values())
            n_suites, n_units = n_suites + 1, n_units + _N_UNITS
            lost += _N_UNITS - len(rows)  # of a type that did not come back
            lost += sum(row["state"] not in ("made", "known") for row in rows)
            doubled += sum(n - 1 for n in held.values())
            cluster.close()
    yield Figure(
        f"a suite of 4 units on 3 nodes of 2 types, {n_suites} times, with {done['worker']} workers, "
        f"{done['scheduler']} schedulers and {done['driver']} drivers killed: units lost, and doubled, of {n_units}",
        f"{lost}, {doubled}",
        "0, 0",
        not lost and not doubled,
    )


def studies(folder: str) -> dict[str, tuple[str, str]]:
    """Return what each study of the suite's storage is of, by its name."""
    storage = open_storage(f"sqlite:///{folder}/results/tftune.db", create=False)
    subjects = {} if storage is None else {r.name: r.attributes().subject for r in all_records(storage)}
    return {name: (each.workload.name, each.machine.affinity) for name, each in subjects.items()}


def cost(n_units: int = 20) -> Iterator[Figure]:
    """Time a suite on one node of a cluster; before it half of its units by `tftune suite` alone, after it the rest."""
    names = [f"{model}-{batch_size}" for batch_size in range(1, n_units // 2 + 1) for model in ("lenet5", "mlp")]
    half = len(names) // 2
    alone_s = _suite_s(names[:half])
    cluster_s = _suite_s(names, "--cluster", "local")
    alone_s += _suite_s(names[half:])
    yield Figure(
        f"a suite of {len(names)} searches of 5 s on one node, with the start of scheduler and node, over the same "
        "alone: time",
        f"{100 * (cluster_s / alone_s - 1):+.1f} % ({cluster_s:.0f} s, {cluster_s / len(names):.1f} s per search)",
        "at most +3 %",
        cluster_s <= 1.03 * alone_s,
    )


def _suite_s(names: Sequence[str], *options: str) -> float:
    """Return how long (s) a suite takes, of models at batch sizes as MODEL-BATCH_SIZE."""
    with tempfile.TemporaryDirectory() as folder:
        tables = [
            f'[workloads.{model}-{batch_size}]\nworkload = "{model}"\nbatch-size = {batch_size}\n'
            for model, batch_size in (name.split("-") for name in names)
        ]
        Path(folder, "suite.toml").write_text("".join(tables))
        words = [TFTUNE, SUITE[0], "suite.toml", *SUITE[1:], *options, "--json"]
        began_s = time.monotonic()
        said = subprocess.run(words, cwd=folder, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        took_s = time.monotonic() - began_s
    states = Counter(row["state"] for row in json.loads(said)["cases"])
    assert states == {"made": len(names)}, states
    print(f"{len(names)} searches {' '.join(options)}: {took_s:.1f} s", file=sys.stderr, flush=True)
    return took_s


def many(n_nodes: int = 1000, n_units: int = 20000) -> Iterator[Figure]:
    """Plan, place and merge made results of so many units on so many nodes of five types."""
    with tempfile.TemporaryDirectory() as folder:
        template = Template.of(_study(Path(folder)))
        names = [f"w{n}" for n in range(n_units // 5)]
        menus = [cases(template, names, f"{kind}") for kind in range(5)]
        nodes = {f"made://{n}": MadeNode(f"n{n}", f"h{n}", menus[n % 5]) for n in range(n_nodes)}
        engine = _Ready(template, nodes)
        url = f"sqlite:///{folder}/suite.db"
        made = {(name, "inference"): name for name in names}  # no file has them
        request = SuiteRequest(workloads="lenet5", storage=url)
        listens = {"events": _Silent(), "outcome": lambda study: outcome(study, "")}
        fleet = Fleet(request=request, engine=engine, fingerprints=made, look_s=0.0, join_s=0.0, **listens)
        began_s = time.process_time()
        fleet.run()
        took_s = time.process_time() - began_s - engine.own_s
        n_made = sum(case.state == "made" for case in fleet.cases())
    yield Figure(
        f"{n_units} units with made results on {n_nodes} nodes: CPU time of the driver to plan, place and merge them",
        f"{took_s / 60:.1f} min ({1000 * took_s / n_units:.1f} ms each; {n_made} at home)",
        "at most 5 min",
        took_s <= 300 and n_made == n_units,
    )


class _Ready(MadeEngine):
    """Made nodes whose own CPU time is known."""

    own_s = 0.0

    def answers(self, timeout_s: float) -> Sequence:
        began_s = time.process_time()
        ready = super().answers(timeout_s)
        self.own_s += time.process_time() - began_s
        return ready

    def ask(self, *words, **options) -> None:
        began_s = time.process_time()
        super().ask(*words, **options)
        self.own_s += time.process_time() - began_s


class _Silent:
    """Listens to nothing."""

    def __getattr__(self, name: str):
        return lambda *_: None


def _study(folder: Path) -> Path:
    """Return the storage of a short scripted study."""
    file = read_space("cpu", MADE_MACHINE)
    space = resolve(file, machine=MADE_MACHINE, build=STOCK, workload=workloads.load("resnet50"))
    run(space, noisy(), folder=folder, budget=Budget(trials=5))
    return folder / "t.db"


if __name__ == "__main__":
    kind, *numbers = sys.argv[1:] or ["many"]
    for figure in {"kills": kills, "cost": cost, "many": many}[kind](*map(int, numbers)):
        print(figure.row(), flush=True)
