"""How right are predictions? Profiles of workloads, and the throughput of whole grids beside what was predicted.

    python -m tests.benchmarks.predictions measure [WORKLOAD ...]   eight minutes each; nothing else may run
    python -m tests.benchmarks.predictions capture [WORKLOAD ...]   the profiles alone, a minute each
    python -m tests.benchmarks.predictions again [WORKLOAD ...]     other profiles, of another day, to compare with
    python -m tests.benchmarks.predictions                          the figures, from what was measured
    python -m tests.benchmarks.predictions page                     writes scores and curves into results/predictions
    python -m tests.benchmarks.predictions ship                     writes what is shipped into results/profiles

`tests.benchmarks.grids` says how a grid is measured; what was measured lies in results/predictions. The constants of
the model were fitted to workloads that are not `HELD_OUT`.
"""

from __future__ import annotations

import functools
import itertools
import json
import lzma
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from scipy.stats import spearmanr

from results.marks import filled
from tests.benchmarks import grids
from tests.benchmarks.curves import curves
from tests.benchmarks.figures import Figure
from tests.benchmarks.grids import Measured
from tuner.job.predict import Capture, captured, profiled_sizes
from tuner.machine.host import Machine
from tuner.machine.spec import parse_spec
from tuner.model.configuration import Configuration
from tuner.model.executor import Pools
from tuner.model.hardware import hardware_of
from tuner.model.ideal import ideal_makespan_s
from tuner.model.prediction import rate_of
from tuner.model.predictor import Predictor, predictor_of
from tuner.report.progress import ProfileShown, stderr_console
from tuner.space.setting import Setting
from tuner.stats.estimate import Array, Estimate

FOLDER = Path(__file__).parents[2] / "results" / "predictions"
FITTED = ("resnet50", "lenet5", "bert-tiny", "mobilenetv2", "ncf")
HELD_OUT = ("wide-deep", "efficientnetb0", "dcgan-training")
BUILDS = ("lenet5-openmp", "mobilenetv2-openmp")
"""What was profiled and measured on an OpenMP build."""
SHAPED = ("inceptionv3", "densenet201", "vgg19")
"""Workloads of which only the shape of their curves is looked at (tests/test_shapes.py)."""
LIU = ("resnet50-training", "dcgan-training", "inceptionv3-training", "lstm-training")
"""What Liu et al. (IPDPS 2019) schedule by their model, on 68 cores with four hardware threads each."""
KNL = "cores=68,smt=4"
AGAIN = FOLDER / "again"
"""Profiles that were made on another day than the grids."""
SHIPPED = {
    "bert-tiny": ("cores/bert-tiny", "2026-11-27"),
    "dcgan-training": ("again/dcgan-training", "2026-11-26"),
    "densenet201": ("densenet201", "2026-11-25"),
    "efficientnetb0": ("again/efficientnetb0", "2026-11-26"),
    "inceptionv3": ("inceptionv3", "2026-11-25"),
    "lenet5": ("again/lenet5", "2026-11-26"),
    "lstm-training": ("lstm-training", "2026-11-26"),
    "mobilenetv2": ("again/mobilenetv2", "2026-11-26"),
    "ncf": ("again/ncf", "2026-11-26"),
    "resnet50": ("again/resnet50", "2026-11-26"),
    "vgg19": ("vgg19", "2026-11-25"),
    "wide-deep": ("again/wide-deep", "2026-11-26"),
}
"""The profile of each workload that is shipped, and the date on which it was made or kept."""
DIGITS = 3
"""Of the time of an operator in what is shipped: profiles of one machine differ by more."""
RANK, ERROR, NEAR = 0.9, 0.15, 0.05


def capture(names: Sequence[str], folder: Path = FOLDER) -> None:
    """Profile workloads."""
    folder.mkdir(exist_ok=True)
    events = ProfileShown(stderr_console(quiet=False))
    for name in names:
        job = grids.job_of(name)
        told = captured(job, profiled_sizes(job), wait=True, new=True, events=events)
        (folder / f"{name}.capture.json.xz").write_bytes(lzma.compress(msgspec.json.encode(told)))


def ship(folder: Path = FOLDER.parent / "profiles") -> None:
    """Write the profiles that are shipped, with their dates, and with times of operators rounded to be small."""
    folder.mkdir(exist_ok=True)
    for name, (source, created) in SHIPPED.items():
        told = msgspec.structs.replace(predictor(source)[1], created=created)
        traced = {
            size: [replace(row, nodes=list(map(_rounded, row.nodes))) for row in rows]
            for size, rows in told.traced.items()
        }
        text = msgspec.json.encode(msgspec.structs.replace(told, traced=traced))
        (folder / f"{name}.json.xz").write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))


def _rounded(node: Sequence[Any]) -> list[Any]:
    *facts, time_s = node
    return [*facts, float(f"{time_s:.{DIGITS}g}")]


def measure(names: Sequence[str]) -> None:
    """Profile workloads and measure their grids."""
    for name in names:
        capture([name])
        (FOLDER / f"{name}.json").write_text(json.dumps(grids.measure(name), indent=1) + "\n")
        print(summary(name), file=sys.stderr, flush=True)


@functools.cache
def predictor(name: str, folder: Path = FOLDER) -> tuple[Predictor, Capture]:
    """Return the predictor of a workload, and what it is from."""
    text = lzma.decompress((folder / f"{name}.capture.json.xz").read_bytes())
    capture = msgspec.json.decode(text, type=Capture)
    own = hardware_of(capture.machine, capture.bytes_s, is_here=True, busy_loss=capture.busy_loss)
    return predictor_of(capture.profiles, own, has_teams=capture.has_teams), capture


def predicted(name: str, settings: Sequence[Setting], machine: Machine, folder: Path = FOLDER) -> list[float]:
    """Return the predicted items per second of settings on some of the CPUs of the machine that was profiled."""
    own, capture = predictor(name, folder)
    hardware = hardware_of(machine, capture.bytes_s, is_here=True, busy_loss=capture.busy_loss)
    return [rate_of(own, each, machine, hardware) for each in settings]


def unseen(name: str, measured: Sequence[Measured], folder: Path = FOLDER) -> Array:
    """Return which are not what the profile itself was scaled to, shape (n,).

    That is one operator at a time on all CPUs, and one thread anywhere.
    """
    traced = predictor(name, folder)[1].traced
    threads = {size: {row.threads for row in rows} for size, rows in traced.items()}

    def is_seen(each: Measured) -> bool:
        values = each.setting.to_dict()
        teams = values.get("omp_num_threads", values["intra_op"])
        one_at_a_time = values["inter_op"] == 1 and teams == values["intra_op"] and (each.shape == "all" or teams == 1)
        return one_at_a_time and teams in threads.get(each.setting.batch_size, ())

    return ~np.array([is_seen(each) for each in measured])


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How right predictions are: of ranks, of figures, and how far the one predicted best is from the best."""

    rank: float
    repeat: float
    """The rank correlation of one round of the measurement with the others: what noise leaves to reach."""
    error: float
    loss: Estimate
    """Of the log rate, between the best and the one predicted best."""
    n: int

    @property
    def below(self) -> str:
        """Return how far the one predicted best is below the best, with the interval."""
        low, high = (100 * (1 - 1 / each) for each in self.loss.interval())
        return f"{100 * (1 - 1 / self.loss.ratio):.0f} % [{low:.0f}, {high:.0f}]"

    @property
    def is_near(self) -> bool:
        """Return whether the one predicted best is within 5 % of the best."""
        return 1 - 1 / self.loss.ratio <= NEAR


def measured_names() -> list[str]:
    """Return the workloads whose grids are here."""
    return [name for name in (*FITTED, *HELD_OUT, *BUILDS) if (FOLDER / f"{name}.json").exists()]


def beside(name: str, folder: Path = FOLDER) -> list[tuple[list[Measured], list[float]]]:
    """Return what was measured of a workload on CPUs of each shape, and what is predicted of it (items/s)."""
    both = []
    for _, group in itertools.groupby(grids.read(FOLDER / f"{name}.json"), key=lambda each: each.shape):
        own = list(group)
        both.append((own, predicted(name, [each.setting for each in own], own[0].machine, folder)))
    return both


def score(name: str, folder: Path = FOLDER) -> Score:
    """Return how right the predictions of a workload are; the loss is that of the shape where it is greatest."""
    return score_of(beside(name, folder), functools.partial(unseen, name, folder=folder))


def score_of(
    both: Sequence[tuple[Sequence[Measured], Sequence[float]]], counting: Callable[[Sequence[Measured]], Array]
) -> Score:
    """Return how right predictions (items/s) are beside grids; `counting` tells which settings count."""
    grid = [each for measured, _ in both for each in measured]
    counts = counting(grid)
    truth = np.array([each.items_per_s for each in grid])[counts]
    guess = np.array([rate for _, rates in both for rate in rates])[counts]
    rounds = np.array([each.grid for each in grid])[counts]
    repeats = [spearmanr(rounds[:, i], np.delete(rounds, i, axis=1).mean(axis=1)) for i in range(rounds.shape[1])]
    return Score(
        rank=float(spearmanr(truth, guess).statistic),
        repeat=float(np.median([each.statistic for each in repeats])),
        error=float(np.median(np.abs(guess / truth - 1))),
        loss=max((grids.loss(*each) for each in both), key=lambda each: each.mean),
        n=len(truth),
    )


def drawn(name: str) -> str:
    """Return the predicted curves of a workload beside the measured ones."""
    both = beside(name)
    return curves(name, [each for own, _ in both for each in own], [rate for _, rates in both for rate in rates])


def page_with_scores(page: str) -> str:
    """Return the page of the results with the scores, and the ideal schedules, between its marks."""
    lines = [
        "| workload | settings | rank correlation | of one round of the measurement with the others | median error | "
        "the setting predicted best is below the best by | "
        "with a profile of another day: rank correlation, median error |"
    ]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in measured_names():
        own = score(name)
        again = score(name, AGAIN) if (AGAIN / f"{name}.capture.json.xz").exists() else None
        held_out = " (held out)" if name in HELD_OUT else ""
        other = "—" if again is None else f"{again.rank:.2f}, {100 * again.error:.0f} %"
        figures_of = f"{own.rank:.2f} | {own.repeat:.2f} | {100 * own.error:.0f} % | {own.below} | {other}"
        row = f"| {name}{held_out} | {own.n} | {figures_of} |"
        lines.append(row)
    return filled(page, {"scores": "\n".join(lines), "ideal": "\n".join(ideal_rows())})


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
        best_s = min(makespans_s.values())
        ideal_s = min(best_s, ideal_makespan_s(own, batch_size, hardware))
        over = [each / ideal_s for each in (makespans_s[1, 68], best_s)]
        lines.append(f"| {name} | {batch_size} | {over[0]:.2f}× | {over[1]:.2f}× |")
    return lines if len(lines) > 2 else ["Not computed yet: the profiles of these trainings are not here."]


def summary(name: str) -> str:
    """Return a line on a workload."""
    own = score(name)
    return (
        f"{name}: {own.n} settings, rank correlation {own.rank:.2f}, median error {100 * own.error:.0f} %, "
        f"the one predicted best is {own.below} below the best"
    )


def figures() -> Iterator[Figure]:
    """Predicted beside measured throughput, as far as it was measured."""
    near = total = 0
    for name in measured_names():
        own = score(name)
        kind = ", held out" if name in HELD_OUT else ""
        yield Figure(
            f"{name}{kind}: rank correlation over {own.n} settings (of one round of the measurement with the others)",
            f"{own.rank:.2f} ({own.repeat:.2f})",
            f"at least {RANK}",
            own.rank >= RANK,
        )
        yield Figure(
            f"{name}{kind}: median relative error", f"{100 * own.error:.0f} %", "at most 15 %", own.error <= ERROR
        )
        total += 1
        near += own.is_near
    yield Figure(
        "workloads whose setting predicted best is within 5 % of the best, on each shape",
        f"{near} of {total}",
        f"at least {max(total, len(FITTED + HELD_OUT)) - 1} of {max(total, len(FITTED + HELD_OUT))}",
        total >= len(FITTED + HELD_OUT) and near >= total - 1,
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
    elif sys.argv[1:2] == ["again"]:
        capture(sys.argv[2:] or measured_names(), AGAIN)
    elif sys.argv[1:2] == ["capture"]:
        capture(sys.argv[2:] or [*FITTED, *HELD_OUT, *SHAPED, *LIU])
    elif sys.argv[1:2] == ["ship"]:
        ship()
    elif sys.argv[1:2] == ["page"]:
        readme = FOLDER / "README.md"
        readme.write_text(page_with_scores(readme.read_text()))
        for name in measured_names():
            (FOLDER / f"{name}.svg").write_text(drawn(name))
    elif sys.argv[1:2] == ["serve"]:
        name, shape = sys.argv[2:]
        words = map(str.strip, sys.stdin)
        for answer in grids.serve(name, shape, functools.partial(predicted, name), words):
            print(json.dumps(answer), flush=True)
    else:
        for figure in itertools.chain(figures(), speed()):
            print(figure.row())
