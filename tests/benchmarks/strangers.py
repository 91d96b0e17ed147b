"""How right is the model about machines that it was not made on?

    python -m tests.benchmarks.strangers                  16 cores in results/cores16, from profiles of two cores
    python -m tests.benchmarks.strangers PACKRAT          and the tables of Packrat in a folder

Packrat (Bhardwaj et al., ICML 2025) published latencies of four PyTorch models on 16 and 18 cores, by threads and batch
size, and of several instances at once. They are not part of this project. The model is made from the rows with 1, 2 and
4 threads, all batch sizes, and one row of 16 instances of ResNet-50 on the same machine. All other rows are held out.
A step is one operator here, as no other is known.
"""

from __future__ import annotations

import itertools
import json
import lzma
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from tests.benchmarks import predictions
from tests.benchmarks.figures import Figure
from tests.benchmarks.predictions import AGAIN, FOLDER, predictor
from tests.benchmarks.quick import CORES16, ON_16, measured16
from tuner.machine.host import Machine
from tuner.model.configuration import DEFAULT_BLOCKTIME_S, Configuration, configuration_of
from tuner.model.executor import Pools
from tuner.model.hardware import TERMS, Hardware, hardware_of
from tuner.model.prediction import T90, best_of, log_sd, rate_of, ratio_sd
from tuner.model.predictor import Predictor, predictor_of
from tuner.model.profile import Bound, Operator, Profile, Roof, Traced, fit
from tuner.space.groups import INSTANCES
from tuner.space.setting import Setting
from tuner.stats.estimate import Array

KNOWN_THREADS = (1, 2, 4)
RANK, ERROR, NEAR = 0.95, 0.12, 0.05
"""Of Packrat's curves: rank correlation, median error, how far the predicted best may be below the best."""
COVERED = 0.88
"""Of 90 %, with what a few hundred ratios, which are not independent, scatter by."""
RATIO_ERROR, WORST_ERROR = 0.10, 0.20
"""Of ratios on 16 cores: the median, and of several processes the worst."""

Key = tuple[int, int]
"""Threads and batch size."""


# ---- 16 cores -------------------------------------------------------------------------------------------------------


def kind_of(setting: Setting) -> str:
    """Return whether a setting is of one process or of several."""
    return "several processes" if INSTANCES in setting.to_dict() else "one process"


def beside16(name: str, folder: Path) -> tuple[dict[Setting, float], dict[Setting, float], Predictor, Machine]:
    """Return log(items/s) measured and items/s predicted of a workload's settings on 16 cores, the default first.

    Then come the model of the workload and the machine. A profile that the folder lacks is from results/predictions.
    """
    machine = msgspec.convert(json.loads((CORES16 / "machine.json").read_text())["machine"], Machine)
    levels = measured16(name)
    own, capture = predictor(name, folder if (folder / f"{name}.capture.json.xz").exists() else FOLDER)
    hardware = hardware_of(machine, capture.bytes_s, is_here=False)
    return levels, {each: rate_of(own, each, machine, hardware) for each in levels}, own, machine


def on_16_cores(folder: Path, profiles: str) -> Iterator[Figure]:
    """Yield how far predicted ratios to the default are from measured ones, and what the predicted best would lose."""
    errors: dict[str, list[float]] = {"one process": [], "several processes": []}
    losses, scores = [], []
    for name in ON_16:
        levels, rates, own, machine = beside16(name, folder)
        default = next(iter(levels))
        of_default = configuration_of(default, machine, has_teams=own.has_teams)
        for each, level in levels.items():
            if each != default:
                errors[kind_of(each)].append(math.log(rates[each] / rates[default]) - (level - levels[default]))
                scores.append(errors[kind_of(each)][-1] / ratio_sd(own, each, of_default, machine))
        best = best_of(rates, default)
        losses.append((1 - math.exp(levels[best] - max(levels.values())), name))
    for kind, of_kind in errors.items():
        sizes = np.expm1(np.abs(of_kind))
        worst = WORST_ERROR if kind == "several processes" else math.inf
        yield Figure(
            f"16 cores, {profiles}, {kind}: predicted over measured ratio to the default, off by (median, worst of "
            f"{len(sizes)})",
            f"{100 * np.median(sizes):.0f} %, {100 * sizes.max():.0f} %",
            f"at most {100 * RATIO_ERROR:.0f} %" + ("" if math.isinf(worst) else f", {100 * worst:.0f} %"),
            bool(np.median(sizes) <= RATIO_ERROR and sizes.max() <= worst),
        )
    yield _coverage(f"16 cores, {profiles}", scores)
    loss, name = max(losses)
    yield Figure(
        f"16 cores, {profiles}: the predicted best setting is below the best measured by, at most ({name})",
        f"{100 * loss:.0f} %",
        f"at most {100 * NEAR:.0f} %",
        loss <= NEAR,
    )


def on_2_cores() -> Iterator[Figure]:
    """Yield how many of the grids' ratios to the default the predicted intervals hold."""
    scores = []
    for name in predictions.measured_names():
        own = predictor(name)[0]
        for measured, rates in predictions.beside(name):
            settings = [each.setting for each in measured]
            logs = np.log(rates) - np.log([each.items_per_s for each in measured])
            default = max(settings, key=lambda each: (each["inter_op"], each["intra_op"]))
            at_default = logs[settings.index(default)]
            machine = measured[0].machine
            of_default = configuration_of(default, machine, has_teams=own.has_teams)
            scores += [
                float(log - at_default) / ratio_sd(own, each, of_default, machine)
                for log, each in zip(logs, settings, strict=True)
                if each != default
            ]
    yield _coverage("2 cores, grids of results/predictions", scores)


def _coverage(what: str, scores: Sequence[float]) -> Figure:
    inside = float(np.mean(np.abs(scores) <= T90))
    text = f"{100 * inside:.0f} % of {len(scores)}"
    return Figure(f"{what}: measured ratios inside their predicted 90 % intervals", text, "90 %", inside >= COVERED)


# ---- Packrat --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Latencies (s) of one model on one machine by threads and batch size, and the cores of that machine."""

    name: str
    cores: int
    latency_s: Mapping[Key, float]

    @property
    def held(self) -> dict[Key, float]:
        """Return the rows that the model is not made from."""
        return {key: latency_s for key, latency_s in self.latency_s.items() if key[0] not in KNOWN_THREADS}


@cache
def table(folder: Path, name: str) -> pd.DataFrame:
    """Return one of Packrat's tables, latencies in s."""
    text = lzma.decompress((folder / f"{name}.csv.xz").read_bytes()).decode()
    rows = pd.read_csv(StringIO(text), comment="#")
    return rows.assign(latency_s=rows["latency(avg)"] / 1000, model=rows.file.str.extract(r"(\w+)_latency")[0])


def curves_of(folder: Path) -> list[Curves]:
    """Return all curves of one instance: each model on 16 and on 18 cores."""
    tables = [
        ("packrat_pytorch_c6420_granular", "16 cores", 16),
        ("packrat_pytorch_skylake2x18_large_batches", "18 cores", 18),
    ]
    curves = []
    for file, machine, cores in tables:
        rows = table(folder, file)
        rows = rows[(rows.topology == "sequential") & (rows.interop_threads == 1) & (rows.intraop_threads <= cores)]
        for model, own in rows.groupby("model"):
            latency_s = own.groupby(["intraop_threads", "batch_size"]).latency_s.median()
            known = {(int(n), int(b)): float(s) for (n, b), s in latency_s.items()}
            curves.append(Curves(name=f"{model}, {machine}", cores=cores, latency_s=known))
    return curves


def groups_of(folder: Path) -> dict[str, dict[Key, float]]:
    """Return items/s of 16 cores' worth of instances at once, by model, threads of each and batch of each.

    The tables do not say which machine that is. One instance of 16 threads takes as long there as on the 16 cores of
    the curves (within 5 % in the median), and not as on the 18.
    """
    rows = table(folder, "packrat_pytorch_multiinstance")
    rows = rows[rows.file.str.contains("/fiddle/")]
    groups: dict[str, dict[Key, float]] = {}
    for (model, n, b), latency_s in rows.groupby(["model", "intraop_threads", "batch_size"]).latency_s.mean().items():
        groups.setdefault(model, {})[int(n), int(b)] = 16 // int(n) * int(b) / float(latency_s)
    return groups


def predictor_from(curves: Curves, busy_loss: float) -> tuple[Predictor, Hardware]:
    """Return the model by the known rows of a curve, and its machine."""
    hardware = Hardware(
        cores=curves.cores,
        smt=1.0,
        sockets=1,
        quota=None,
        one_bytes_s=1e10,
        most_bytes_s=1e11,
        cache_bytes=2e7,
        busy_loss=busy_loss,
    )
    sizes = sorted({size for _, size in curves.latency_s})
    profiles = {}
    for size in sizes:
        times_s = {n: curves.latency_s[n, size] for n in KNOWN_THREADS if (n, size) in curves.latency_s}
        if 1 in times_s:
            profiles[size] = _profile(times_s)
    return predictor_of(profiles, hardware, has_teams=True), hardware


def _profile(times_s: Mapping[int, float]) -> Profile:
    roof = Roof(flops=1e11, bytes_s=1e10)
    traced = [
        Traced(threads=n, step_s=s, plain_s=s, traced_s=s, busy_s=s, roof=roof, nodes=()) for n, s in times_s.items()
    ]
    step = Operator(
        name="step",
        op="_MklStep",
        inputs=(),
        runs=1,
        flops=0,
        n_bytes=0,
        times_s=times_s,
        scaling=fit(times_s),
        bound=Bound.COMPUTE,
    )
    return Profile(traced=traced, operators=[step])


def predicted(own: Predictor, hardware: Hardware, threads: int, batch_size: int, instances: int = 1) -> float:
    """Return the predicted items/s of instances."""
    pools = Pools(inter_op=1, intra_op=threads, team=threads, blocktime_s=DEFAULT_BLOCKTIME_S)
    return own.items_per_s(Configuration(batch_size=batch_size, pools=pools, instances=instances), hardware)


def guesses(curves: Curves, busy_loss: float) -> Array:
    """Return the predicted items/s of the held rows of a curve."""
    model, hardware = predictor_from(curves, busy_loss)
    return np.array([predicted(model, hardware, n, size) for n, size in curves.held])


def busy_losses(folder: Path) -> dict[int, float]:
    """Return what all cores at work lose, by how many there are: one row of those on 16, the prior for 18."""
    text = lzma.decompress((folder / "packrat_resnet50_interference_c6420.csv.xz").read_bytes()).decode()
    ms = pd.read_csv(StringIO(text), comment="#").set_index("case").latency_ms
    loss = float(ms["16 thin instances at once"] / ms["thin(1) alone t=1 b=16"]) - 1
    return {16: loss, 18: TERMS.busy_loss}


def beside_groups(folder: Path) -> Iterator[tuple[str, dict[Key, float], dict[Key, float]]]:
    """Yield each model with the items/s of instances on 16 cores, measured and predicted."""
    curves = {each.name: each for each in curves_of(folder)}
    loss = busy_losses(folder)[16]
    for name, groups in groups_of(folder).items():
        model, hardware = predictor_from(curves[f"{name}, 16 cores"], loss)
        yield name, groups, {(n, b): predicted(model, hardware, n, b, instances=16 // n) for n, b in groups}


def of_packrat(folder: Path) -> Iterator[Figure]:
    """Yield how right the model is on each of Packrat's curves, and what its choice of instances would lose."""
    curves = curves_of(folder)
    losses, scores = busy_losses(folder), []
    for own in curves:
        held = own.held
        truth = np.array([size / latency_s for (_, size), latency_s in held.items()])
        guess = guesses(own, losses[own.cores])
        rank = float(spearmanr(truth, guess).statistic)
        errors = guess / truth - 1
        error = float(np.median(np.abs(errors)))
        most = np.array([n == own.cores for n, _ in held])
        at_most = {size: i for i, (n, size) in enumerate(held) if n == own.cores}
        scores += [
            (math.log(guess[i] / truth[i]) - math.log(guess[j] / truth[j]))
            / log_sd(n, own.cores, known=max(KNOWN_THREADS))
            for i, (n, size) in enumerate(held)
            if n != own.cores and (j := at_most.get(size)) is not None
        ]
        yield Figure(
            f"{own.name}: rank correlation, median error over {len(held)} held rows; mean error with all cores",
            f"{rank:.2f}, {100 * error:.0f} %; {100 * errors[most].mean():+.0f} %",
            f"at least {RANK}, at most {100 * ERROR:.0f} %",
            rank >= RANK and error <= ERROR,
        )
    yield _coverage("Packrat, ratios to all cores", scores)
    for name, groups, guess_of in beside_groups(folder):
        lost, gains = [], []
        for total in sorted({16 // n * b for n, b in groups}):
            same = [key for key in groups if 16 // key[0] * key[1] == total]
            if len(same) < 2:
                continue
            chosen, best = max(same, key=guess_of.__getitem__), max(same, key=groups.__getitem__)
            lost.append(1 - groups[chosen] / groups[best])
            if (16, total) in same and chosen != (16, total):
                gains.append(guess_of[chosen] / guess_of[16, total] / (groups[chosen] / groups[16, total]) - 1)
        off = float(np.median(np.abs(gains)))
        yield Figure(
            f"{name}, instances x threads at {len(lost)} total batches: the predicted best is below the best (worst); "
            "predicted over measured gain (median)",
            f"{100 * max(lost):.0f} %; {100 * float(np.median(gains)):+.0f} %, off by {100 * off:.0f} %",
            f"at most {100 * NEAR:.0f} %; within {100 * RATIO_ERROR:.0f} %",
            max(lost) <= NEAR and off <= RATIO_ERROR,
        )


if __name__ == "__main__":
    of_day, of_another = "profiles of results/predictions", "profiles of another day, as they are shipped"
    for figure in itertools.chain(on_2_cores(), on_16_cores(FOLDER, of_day), on_16_cores(AGAIN, of_another)):
        print(figure.row())
    for path in sys.argv[1:]:
        for figure in of_packrat(Path(path)):
            print(figure.row())
