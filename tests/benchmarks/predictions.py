"""How right are predictions? Profiles of workloads, and the throughput of whole grids beside what was predicted.

    python -m tests.benchmarks.predictions measure [WORKLOAD ...]   five minutes each; nothing else may run
    python -m tests.benchmarks.predictions capture [WORKLOAD ...]   the profiles alone, a minute each
    python -m tests.benchmarks.predictions                          the figures, from what was measured
    python -m tests.benchmarks.predictions page                     writes the scores into results/predictions/README.md

A grid is inter_op x intra_op x batch size on all CPUs, on one, and under a quota of one; each setting runs in a new
process, in turns with TensorFlow's default on the same CPUs. What was measured lies in results/predictions. The terms
of the model were looked at beside the workloads that are not `HELD_OUT`.
"""

from __future__ import annotations

import itertools
import json
import lzma
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from scipy.stats import spearmanr

from tests.benchmarks.figures import Figure
from tuner.api.progress import ProfileShown, stderr_console
from tuner.job.capture import Capture, captured
from tuner.job.job import Job, prepare
from tuner.job.predict import profiled_sizes
from tuner.job.request import SearchRequest, parse_request
from tuner.machine.confine import CpuShape, confined
from tuner.machine.host import Machine, detect
from tuner.machine.locks import machine_lock
from tuner.machine.spec import parse_spec
from tuner.measure.cell import Cell, CellPlan, Reference, measure_cell
from tuner.measure.finals import Contender
from tuner.measure.objective import Objective
from tuner.measure.pair import PairPlan
from tuner.model.configuration import Configuration
from tuner.model.executor import Pools
from tuner.model.hardware import hardware_of
from tuner.model.ideal import ideal_makespan_s
from tuner.model.prediction import rate_of
from tuner.model.predictor import Predictor, predictor_of
from tuner.space.setting import Setting
from tuner.trial.launcher import Launcher
from tuner.workload.spec import WorkloadSpec

FOLDER = Path(__file__).parents[2] / "results" / "predictions"
FITTED = ("resnet50", "lenet5", "inceptionv3", "lstm", "bert-tiny")
HELD_OUT = ("mobilenetv2", "ncf", "dcgan-training")
SHAPED = ("densenet201", "vgg19")
"""Workloads of which only the shape of their curves is looked at (tests/test_shapes.py)."""
LIU = ("resnet50-training", "dcgan-training", "inceptionv3-training", "lstm-training")
"""What Liu et al. (IPDPS 2019) schedule by their model, on 68 cores with four hardware threads each."""
KNL = "cores=68,smt=4"
SHAPES = ("all", "one", "quota")
RANK, ERROR, NEAR = 0.9, 0.15, 0.05
_PAIR_S, _HALF_WIDTH = 4.0, 0.03
_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A setting on CPUs of a shape, with the items a second that were measured, drift taken out."""

    shape: str
    machine: Machine
    setting: Setting
    items_per_s: float


def spec(name: str) -> WorkloadSpec:
    """Return a workload by its name here: a mode follows a dash."""
    workload, _, mode = name.rpartition("-") if name.endswith("-training") else (name, "", "")
    return replace(WorkloadSpec.of_name(workload), mode=mode or "inference")


def job_of(name: str) -> Job:
    """Return the job of a workload on the CPUs that this process may use."""
    return prepare(parse_request(SearchRequest(workload=spec(name)), stores=False))


def grid(job: Job, shape: str) -> list[Setting]:
    """Return the settings of a grid: three batch sizes, and the threads that CPUs of a shape leave to choose from."""
    reference = job.space.reference
    own = reference.batch_size
    sizes = sorted({*profiled_sizes(job), 2 * own})
    threads = [(a, b) for a in (1, 2) for b in (1, 2)] if shape == "all" else [(1, 1), (1, 2), (2, 1)]
    return [
        reference.with_values(inter_op=inter_op, intra_op=intra_op, batch_size=batch_size)
        for batch_size in sizes
        for inter_op, intra_op in threads
    ]


def capture(names: Sequence[str]) -> None:
    """Profile workloads."""
    FOLDER.mkdir(exist_ok=True)
    events = ProfileShown(stderr_console(quiet=False))
    for name in names:
        job = job_of(name)
        told = captured(job, profiled_sizes(job), deadline_s=_TIMEOUT_S, wait=True, new=True, events=events)
        (FOLDER / f"{name}.capture.json.xz").write_bytes(lzma.compress(msgspec.json.encode(told)))


def measure(names: Sequence[str]) -> None:
    """Profile workloads and measure their grids."""
    for name in names:
        capture([name])
        rows: list[dict[str, Any]] = []
        for shape in SHAPES:
            cpus = sorted(os.sched_getaffinity(0))
            own_cpus = frozenset(cpus[:1] if shape == "one" else cpus)
            with confined(CpuShape(cpus=own_cpus, quota=1.0 if shape == "quota" else None)) as enter:
                done = subprocess.run(
                    [sys.executable, "-m", "tests.benchmarks.predictions", "cells", name, shape],
                    stdout=subprocess.PIPE,
                    preexec_fn=enter,
                    check=True,
                )
            rows += json.loads(done.stdout)
        (FOLDER / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n")
        print(summary(name, unseen(name, rows_of(rows))), file=sys.stderr, flush=True)


def cells(name: str, shape: str) -> list[dict[str, Any]]:
    """Return the grid of a workload as it is measured on the CPUs that this process has."""
    job = job_of(name)
    machine = detect()
    with machine_lock(wait=True):
        launcher = job.launcher(deadline_s=_TIMEOUT_S)
        reference = job.space.reference
        process = launcher.launch(reference, job.space.deployment(reference))
        facts = process.ready()
        process.pause()
        live = Reference(process=process, facts=facts, batch_size=reference.batch_size)
        try:
            measured = [(setting, _cell(job, setting, launcher, live)) for setting in grid(job, shape)]
        finally:
            process.close()
    slices = [each for _, cell in measured if cell.pair for each in cell.pair.reference]
    level = np.mean([Objective.THROUGHPUT.log_rate(each, reference.batch_size) for each in slices])
    rows = []
    for setting, cell in measured:
        estimate = cell.estimate()
        if estimate is None:
            print(f"{name}, {setting}: {cell.status}: {cell.message}", file=sys.stderr)
            continue
        rows.append(
            {
                "shape": shape,
                "machine": msgspec.to_builtins(machine),
                "setting": setting.to_dict(),
                "items_per_s": float(np.exp(level + estimate.mean)),
                "log_se": estimate.se,
            }
        )
    return rows


def _cell(job: Job, setting: Setting, launcher: Launcher, reference: Reference) -> Cell:
    contender = Contender(
        names=(str(setting),), setting=setting, deployment=job.space.catalogue.deploy(setting.to_dict())
    )
    plan = CellPlan(pair=PairPlan(), max_pair_s=_PAIR_S, half_width=_HALF_WIDTH)
    return replace(
        measure_cell(
            contender,
            launcher,
            reference,
            plan,
            lambda _: Cell(contender=str(setting), batch_size=setting.batch_size),
        ),
        paired_batch_size=reference.batch_size,
    )


def rows_of(rows: Iterable[dict[str, Any]]) -> list[Measured]:
    """Return rows as they are stored."""
    return [
        Measured(
            shape=row["shape"],
            machine=msgspec.convert(row["machine"], Machine),
            setting=Setting.of(row["setting"]),
            items_per_s=row["items_per_s"],
        )
        for row in rows
    ]


def predictor(name: str) -> tuple[Predictor, Capture]:
    """Return the predictor of a workload, and what it is from."""
    text = lzma.decompress((FOLDER / f"{name}.capture.json.xz").read_bytes())
    capture = msgspec.json.decode(text, type=Capture)
    own = hardware_of(capture.machine, capture.bytes_s, is_here=True)
    return predictor_of(capture.profiles, own, has_teams=capture.has_teams), capture


def predicted(name: str, measured: Sequence[Measured]) -> list[float]:
    """Return the predicted items a second of settings that were measured."""
    own, capture = predictor(name)
    return [
        rate_of(own, each.setting, each.machine, hardware_of(each.machine, capture.bytes_s, is_here=True))
        for each in measured
    ]


def unseen(name: str, measured: Sequence[Measured]) -> list[Measured]:
    """Return those that are not what the profile itself was scaled to: one operator at a time on all CPUs."""
    sizes = predictor(name)[1].profiles
    return [
        each
        for each in measured
        if each.shape != "all" or each.setting["inter_op"] != 1 or each.setting.batch_size not in sizes
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How right predictions are: of ranks, of figures, and how far the one predicted best is from the best."""

    rank: float
    error: float
    loss: float
    n: int


def score(measured: Sequence[Measured], rates: Sequence[float]) -> Score:
    """Return how right they are; the loss is the worst over the shapes, each of which has a best of its own."""
    truth = np.array([each.items_per_s for each in measured])
    guess = np.array(rates)
    losses = []
    for shape in {each.shape for each in measured}:
        at = np.array([each.shape == shape for each in measured])
        losses.append(1 - truth[at][np.argmax(guess[at])] / truth[at].max())
    return Score(
        rank=float(spearmanr(truth, guess).statistic),
        error=float(np.median(np.abs(guess / truth - 1))),
        loss=float(max(losses)),
        n=len(measured),
    )


def scores() -> dict[str, Score]:
    """Return how right predictions are of each workload that was measured."""
    names = [name for name in (*FITTED, *HELD_OUT) if (FOLDER / f"{name}.json").exists()]
    rows = {name: unseen(name, rows_of(json.loads((FOLDER / f"{name}.json").read_text()))) for name in names}
    return {name: score(measured, predicted(name, measured)) for name, measured in rows.items()}


def page_with_scores(page: str) -> str:
    """Return the page of the results with the scores, and the ideal schedules, between its marks."""
    lines = [
        "| workload | settings | rank correlation | median error | the setting predicted best is below the best by |"
    ]
    lines.append("| --- | ---: | ---: | ---: | ---: |")
    for name, own in scores().items():
        held_out = " (held out)" if name in HELD_OUT else ""
        row = f"| {name}{held_out} | {own.n} | {own.rank:.2f} | {100 * own.error:.0f} % | {100 * own.loss:.0f} % |"
        lines.append(row)
    return _filled(_filled(page, "scores", lines), "ideal", ideal_rows())


def ideal_rows() -> list[str]:
    """Return what an ideal scheduler is predicted to gain on Liu et al.'s machine, as the lines of a table."""
    lines = ["| workload | batch size | over one operator at a time on 68 cores | over the best setting |"]
    lines.append("| --- | ---: | ---: | ---: |")
    machine = parse_spec(KNL).machine()
    for name in LIU:
        if not (FOLDER / f"{name}.capture.json.xz").exists():
            continue
        own, told = predictor(name)
        hardware = hardware_of(machine, told.bytes_s, is_here=False)
        batch_size = max(told.profiles)
        makespans_s = {
            (inter_op, intra_op): own.step(
                Configuration(batch_size=batch_size, pools=Pools(inter_op=inter_op, intra_op=intra_op)), hardware
            ).makespan_s
            for inter_op, intra_op in itertools.product((1, 2, 4, 8, 16), (1, 8, 17, 34, 68, 136))
        }
        ideal_s = ideal_makespan_s(own, batch_size, hardware)
        over = [each / ideal_s for each in (makespans_s[1, 68], min(makespans_s.values()))]
        lines.append(f"| {name} | {batch_size} | {over[0]:.2f}× | {over[1]:.2f}× |")
    return lines if len(lines) > 2 else ["Not computed yet: the profiles of these trainings are not here."]


def _filled(page: str, name: str, lines: Sequence[str]) -> str:
    """Return a page with lines between the marks of that name."""
    before, _, rest = page.partition(f"<!-- {name} -->\n")
    _, _, after = rest.partition(f"<!-- end of {name} -->")
    return f"{before}<!-- {name} -->\n" + "\n".join(lines) + f"\n<!-- end of {name} -->{after}"


def summary(name: str, measured: Sequence[Measured]) -> str:
    """Return a line on a workload."""
    own = score(measured, predicted(name, measured))
    return (
        f"{name}: {own.n} settings, rank correlation {own.rank:.2f}, median error {100 * own.error:.0f} %, "
        f"the one predicted best is {100 * own.loss:.0f} % below the best"
    )


def figures() -> Iterator[Figure]:
    """Predicted beside measured throughput, as far as it was measured."""
    near = total = 0
    for name, own in scores().items():
        kind = ", held out" if name in HELD_OUT else ""
        yield Figure(
            f"{name}{kind}: rank correlation over {own.n} settings",
            f"{own.rank:.2f}",
            f"at least {RANK}",
            own.rank >= RANK,
        )
        yield Figure(
            f"{name}{kind}: median relative error", f"{100 * own.error:.0f} %", "at most 15 %", own.error <= ERROR
        )
        total += 1
        near += own.loss <= NEAR
    yield Figure(
        "workloads whose setting predicted best is within 5 % of the best, on each shape",
        f"{near} of {total}",
        f"at least {len(FITTED + HELD_OUT) - 1} of {len(FITTED + HELD_OUT)}",
        total == len(FITTED + HELD_OUT) and near >= total - 1,
    )


def speed() -> Iterator[Figure]:
    """How long predictions take: of one setting of ResNet-50, and of a lattice of 20,000 on a server."""
    own, capture = predictor("resnet50")
    machine = parse_spec("sockets=2,cores=28,smt=2").machine()
    hardware = hardware_of(machine, capture.bytes_s, is_here=False)
    times_s = []
    for inter_op, intra_op in itertools.product((1, 2, 4, 8), (1, 7, 28, 56)):
        setting = Setting.of({"inter_op": inter_op, "intra_op": intra_op, "batch_size": 8})
        began_s = time.perf_counter()
        rate_of(own, setting, machine, hardware)
        times_s.append(time.perf_counter() - began_s)
    slowest_s = max(times_s)
    yield Figure(
        "one prediction for ResNet-50, the slowest of 16",
        f"{1000 * slowest_s:.0f} ms",
        "at most 20 ms",
        slowest_s <= 0.02,
    )
    settings = [
        Setting.of({"inter_op": a, "intra_op": b, "batch_size": c, "instances": d})
        for a, b, c, d in itertools.product(
            (1, 2, 3, 4, 6, 8, 12, 16), range(2, 102, 2), (1, 2, 4, 8, 16), range(1, 11)
        )
    ]
    began_s = time.perf_counter()
    for setting in settings:
        rate_of(own, setting, machine, hardware)
    total_s = time.perf_counter() - began_s
    yield Figure(f"{len(settings)} settings of it", f"{total_s:.0f} s", "at most 60 s", total_s <= 60)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(sys.argv[2:] or [*FITTED, *HELD_OUT])
    elif sys.argv[1:2] == ["capture"]:
        capture(sys.argv[2:] or [*FITTED, *HELD_OUT, *SHAPED, *LIU])
    elif sys.argv[1:2] == ["page"]:
        readme = FOLDER / "README.md"
        readme.write_text(page_with_scores(readme.read_text()))
    elif sys.argv[1:2] == ["cells"]:
        json.dump(cells(*sys.argv[2:]), sys.stdout)
    else:
        for figure in itertools.chain(figures(), speed()):
            print(figure.row())
