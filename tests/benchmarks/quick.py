"""What does a quick profile lose? Its seconds and predictions beside a thorough one's, beside grids and 16 cores.

    python -m tests.benchmarks.quick measure [WORKLOAD ...]   both profiles, a minute and more; nothing else may run
    python -m tests.benchmarks.quick                          the tables

A quick profile is made as a search makes it: the model is exported and the fork server is up, as a search needs both
anyway. The thorough one follows it. The other tables are of the profiles in results/predictions, whole and with what a
quick one has: predictions of measured grids on two cores, and of what results/cores16 measured on another kind of CPU.
"""

from __future__ import annotations

import json
import lzma
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd

from tests.benchmarks import grids, predictions
from tests.benchmarks.predictions import predictor, score_of, unseen
from tuner.job.predict import Capture, model_of, new_capture, profiled_sizes, quick_capture
from tuner.job.servers import Servers
from tuner.machine.host import Machine
from tuner.machine.locks import machine_lock
from tuner.model.hardware import Hardware, hardware_of
from tuner.model.prediction import rate_of
from tuner.model.predictor import Predictor
from tuner.report.progress import ProfileShown, stderr_console
from tuner.space.groups import INSTANCES
from tuner.space.setting import Setting

FOLDER = predictions.FOLDER / "quick"
SECONDS = FOLDER / "seconds.json"
CORES16 = predictions.FOLDER.parent / "cores16"
WORKLOADS = ("resnet50", "mobilenetv2", "wide-deep")
ON_16 = (*WORKLOADS, "ncf", "bert-tiny")
KINDS = ("quick", "thorough")
GRIDS = (*predictions.FITTED, *predictions.HELD_OUT)


def measure(name: str) -> dict[str, float]:
    """Profile a workload quickly and thoroughly, keep both, and return how long each took (s)."""
    FOLDER.mkdir(exist_ok=True)
    events = ProfileShown(stderr_console())
    job = grids.job_of(name)
    job.export()
    seconds = {}
    with machine_lock(), Servers(job, notify=events.notice) as servers:
        forks = servers.search_launcher()
        assert forks is not None
        assert not forks.is_refused()
        sizes = profiled_sizes(job)
        make = {
            "quick": partial(quick_capture, job, sizes, launcher=forks, limit_s=None, events=events),
            "thorough": partial(new_capture, job, sizes, events=events),
        }
        for kind in KINDS:
            began_s = time.monotonic()
            told = make[kind]()
            seconds[kind] = round(time.monotonic() - began_s, 1)
            (FOLDER / f"{name}.{kind}.capture.json.xz").write_bytes(lzma.compress(msgspec.json.encode(told)))
    return seconds


def ratios(own: Predictor, settings: Sequence[Setting], machine: Machine, hardware: Hardware) -> list[float]:
    """Return the predicted throughput of settings relative to the first."""
    first, *others = (rate_of(own, each, machine, hardware) for each in settings)
    return [each / first for each in others]


def setting(inter_op: int, intra_op: int, batch_size: int, instances: int = 1) -> Setting:
    """Return a setting of so many processes."""
    several = {INSTANCES: instances} if instances > 1 else {}
    return Setting.of({**several, "inter_op": inter_op, "intra_op": intra_op, "batch_size": batch_size})


def own_batch(name: str) -> int:
    """Return the batch size that a workload was profiled at quickly."""
    return max(predictor(f"{name}.quick", FOLDER)[1].traced)


def here() -> Iterator[str]:
    """Yield the lines of a table: seconds, and what both predict for the machine that was profiled."""
    seconds = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
    yield "| workload, batch size | profile | time | one thread | one operator at a time | a process for each core |"
    yield "| --- | --- | ---: | ---: | ---: | ---: |"
    for name in seconds:
        own = own_batch(name)
        for kind in KINDS:
            model, capture = predictor(f"{name}.{kind}", FOLDER)
            machine = capture.machine
            n = machine.usable_cores
            settings = [setting(n, n, own), setting(1, 1, own), setting(1, n, own), setting(1, 1, own, n)]
            hardware = hardware_of(machine, capture.bytes_s, is_here=True, busy_loss=capture.busy_loss)
            figures = " | ".join(f"{each:.2f}" for each in ratios(model, settings, machine, hardware))
            yield f"| {name}, {own} | {kind} | {seconds[name][kind]:.1f} s | {figures} |"


def measured16(name: str) -> dict[Setting, float]:
    """Return the measured log rates of a workload on 16 cores at its own batch size, the default's first."""
    rows = pd.read_csv(CORES16 / "surfaces.csv")
    rows = rows[rows.panel == name]
    own = int(rows[rows.is_default == 1].batch_size.iloc[0])
    rows = rows[rows.batch_size == own].assign(y=np.log(rows.items_per_s))
    rows = rows.sort_values("is_default", ascending=False, kind="stable")
    levels = rows.groupby(["inter_op", "intra_op", INSTANCES], sort=False).y.mean()
    return {setting(int(a), int(b), own, int(n)): float(level) for (a, b, n), level in levels.items()}


def elsewhere() -> Iterator[str]:
    """Yield the lines of a table: predictions for 16 cores from profiles of two, beside what was measured there."""
    machine = msgspec.convert(json.loads((CORES16 / "machine.json").read_text())["machine"], Machine)
    yield "| workload, batch size | of 16 cores | quick | thorough | measured |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for name in ON_16:
        levels = measured16(name)
        default, *others = levels
        shown = [each for each in others if int(each.to_dict().get(INSTANCES, 1)) > 1 or each["intra_op"] == 16]
        whole = predictor(name)[1]
        predicted = []
        for capture in (less_of(whole, sizes=2), whole):
            own, _ = model_of(capture)
            hardware = hardware_of(machine, capture.bytes_s, is_here=False)
            predicted.append(ratios(own, [default, *shown], machine, hardware))
        for i, each in enumerate(shown):
            values = each.to_dict()
            several = f"{values[INSTANCES]} processes" if INSTANCES in values else ""
            words = several or f"inter_op {values['inter_op']}, intra_op {values['intra_op']}"
            told = [*(of[i] for of in predicted), math.exp(levels[each] - levels[default])]
            yield f"| {name}, {each.batch_size} | {words} | {' | '.join(f'{ratio:.2f}' for ratio in told)} |"


def less_of(capture: Capture, *, sizes: int) -> Capture:
    """Return a capture with one thread and all, without the profiler, at its own batch size and `sizes` − 1 smaller."""
    own = sorted(capture.traced)[:2][-sizes:]  # a third is above it
    traced = {
        size: [replace(each, exposed=None) for each in (rows[0], *rows[1:][-1:])]
        for size, rows in capture.traced.items()
        if size in own
    }
    return msgspec.structs.replace(capture, traced=traced)


def of_grids() -> Iterator[str]:
    """Yield the lines of a table: profiles of two cores beside measured grids, whole and with less in them."""
    yield "| workload | whole: rank correlation, median error | its own batch size alone | and a smaller one |"
    yield "| --- | ---: | ---: | ---: |"
    with tempfile.TemporaryDirectory() as folder:
        for name in GRIDS:
            scores = [predictions.score(name)]
            for sizes in (1, 2):
                less = less_of(predictor(name)[1], sizes=sizes)
                own = Path(folder) / str(sizes)
                own.mkdir(exist_ok=True)
                (own / f"{name}.capture.json.xz").write_bytes(lzma.compress(msgspec.json.encode(less)))
                scores.append(score_of(predictions.beside(name, own), partial(unseen, name)))
            figures = " | ".join(f"{each.rank:.2f}, {100 * each.error:.0f} %" for each in scores)
            yield f"| {name} | {figures} |"


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        for workload in sys.argv[2:] or WORKLOADS:
            known = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
            known[workload] = measure(workload)
            SECONDS.write_text(json.dumps(known, indent=1) + "\n")
    else:
        for table in (here(), elsewhere(), of_grids()):
            print(*table, "", sep="\n")
