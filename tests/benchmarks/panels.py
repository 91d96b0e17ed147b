"""Panels: what many settings of threads, processes and batch size do on the cores of a machine, as open surfaces.

    python -m tests.benchmarks.panels FOLDER SECONDS [PANEL ...]        nothing else may run
    python -m tests.benchmarks.panels table FOLDER                      what processes gain, as a table

for example `panels /tmp/panels 590 resnet50 bert-base-training wide-deep@8 resnet50~4 profile:ncf`: `@8` takes eight
CPUs by the mask, `~4` lays a quota of four CPUs on all of them, and `profile:` profiles the workload at its own batch
size instead. Panels begin in this order until the seconds are over. FOLDER gets `surfaces.csv`, a row for each slice,
`machine.json`, and the profiles; all of it is kept after each panel.

A panel is one round of all its settings in live processes: they start, and are timed one at a time in random order and
back, so that drift is in all of them alike. All panels export their models and start their fork servers together
before the first one is measured, as that needs cores, and no quiet.
"""

from __future__ import annotations

import csv
import functools
import json
import lzma
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np
import pandas as pd
from scipy.special import stdtrit

from tests.benchmarks import grids
from tuner.job.job import Job
from tuner.job.predict import captured
from tuner.machine.confine import CpuShape, choose_cpus, confined
from tuner.machine.host import detect
from tuner.machine.topology import read_topology
from tuner.measure.objective import Objective
from tuner.measure.planning import FinalsPlan
from tuner.report.progress import ProfileShown, stderr_console
from tuner.space.groups import INSTANCES
from tuner.space.setting import Setting
from tuner.trial.forking import ForkLauncher

PANELS = (
    *("resnet50", "wide-deep", "bert-base", "mobilenetv2", "ncf", "inceptionv3", "transformer", "lstm", "densenet121"),
    *("efficientnetb0", "mlp", "bert-tiny", "resnet50-training", "bert-base-training", "wide-deep-training"),
)
PLAN = FinalsPlan(passes=1, max_resident=64, n_parallel_starts=10)
_LARGER = 4  # times the workload's own batch size, and a fourth or an eighth of it
_PROFILE = "profile:"
_COLUMNS = (
    *("panel", "workload", "mode", "cpus", "quota", "instances", "inter_op", "intra_op", "batch_size", "is_default"),
    *("slice", "start_s", "elapsed_s", "n_steps", "items_per_s", "step_p50_ms", "step_max_ms", "first_step_ms"),
    "memory_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """What is measured: a workload in a mode, on a shape of the machine."""

    name: str
    workload: str
    cpus: int | None = None
    quota: float | None = None

    @classmethod
    def of_name(cls, name: str) -> Self:
        """Return the panel of a name such as `resnet50-training@8`, `ncf~4` or `profile:ncf`."""
        workload, _, quota = name.removeprefix(_PROFILE).partition("~")
        workload, _, cpus = workload.partition("@")
        return cls(
            name=name, workload=workload, cpus=int(cpus) if cpus else None, quota=float(quota) if quota else None
        )

    @property
    def shape(self) -> CpuShape:
        """Return the CPUs of the machine that its processes may use."""
        mask = frozenset(os.sched_getaffinity(0))
        cpus = mask if self.cpus is None else choose_cpus(read_topology(), mask, self.cpus)
        return CpuShape(cpus=cpus, quota=self.quota)


def settings(job: Job, *, all_sizes: bool = True) -> list[Setting]:
    """Return the settings of a panel: threads, then processes with cores of their own, then both at other batch sizes.

    Without `all_sizes` they have the workload's own batch size. Threads are (inter_op, intra_op) in powers of two up to
    the usable cores n, one operator at a time and several. Processes are one for each core, two, four, … cores, with as
    many threads each.
    """
    reference = job.space.reference
    n = job.machine.usable_cores
    powers = [1 << i for i in range(n.bit_length())]
    threads = [*((1, k) for k in powers), (2, n), (2, max(1, n // 2)), (4, max(1, n // 4)), (n, 1)]
    splits = [(n // k, k) for k in powers if n // k > 1]
    few = splits[:1] + splits[len(splits) // 2 :][:1]
    own = reference.batch_size
    sizes = sorted({max(1, own // 8), _LARGER * own} - {own}) if all_sizes else []

    def one(inter_op: int, intra_op: int, batch_size: int) -> Setting:
        return reference.with_values(inter_op=inter_op, intra_op=intra_op, batch_size=batch_size)

    def several(instances: int, each: int, batch_size: int) -> Setting:
        values = one(each, each, batch_size).to_dict()
        return Setting.of({INSTANCES: instances, **values})

    at_own = [reference, *(one(a, b, own) for a, b in threads), *(several(*split, own) for split in splits)]
    at_others = [
        setting
        for size in sizes
        for setting in (
            reference.with_values(batch_size=size),
            *(one(1, k, size) for k in {1, max(1, n // 4), n}),
            *(several(*split, size) for split in few),
        )
    ]
    return list(dict.fromkeys([*at_own, *at_others]))


def serve(name: str, folder: Path) -> Iterator[str]:
    """Make a panel ready; then measure it. Yield a line after each."""
    panel = Panel.of_name(name)
    job = grids.job_of(panel.workload)
    job.export()
    if name.startswith(_PROFILE):
        yield "ready"
        sizes = [job.space.reference.batch_size]
        told = captured(job, sizes, wait=True, new=True, events=ProfileShown(stderr_console(quiet=False)))
        file = folder / f"{panel.workload}.capture.json.xz"
        file.write_bytes(lzma.compress(msgspec.json.encode(told)))
        yield f"{file.stat().st_size} bytes"
        return
    is_whole = panel.cpus is None and panel.quota is None
    if is_whole:
        (folder / "machine.json").write_text(json.dumps(described(job), indent=1) + "\n")
    contenders = grids.contenders_of(job, settings(job, all_sizes=is_whole))
    tell = functools.partial(print, file=sys.stderr, flush=True)
    with closing(ForkLauncher(job.target(), notify=tell)) as launcher:
        launcher.start_server()
        launcher.is_refused()
        yield "ready"
        began_s = time.monotonic()
        own = grids.held(contenders, launcher, PLAN, np.random.default_rng(grids.SEED))
        rows = [
            row | {"memory_bytes": own.memory.get(each.names[0])}
            for each in contenders
            for row in rows_of(panel, job, each.setting, own.slices.get(each.names[0], []))
        ]
    write_rows(folder / "surfaces.csv", rows)
    best, ratio = best_of(rows)
    ran = f"{len(own.slices)} of {len(contenders)} settings in {time.monotonic() - began_s:.0f} s"
    yield f"{ran}, {own.timed_s:.0f} s of them timed; best: {ratio:.2f} times the default with {best}"


def described(job: Job) -> dict[str, Any]:
    """Return the whole machine and the build, as plain data."""
    subject = job.subject
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": msgspec.to_builtins(detect()),
        "runtime": msgspec.to_builtins(subject.runtime),
    }


def rows_of(panel: Panel, job: Job, setting: Setting, slices: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each slice of a setting."""
    values = setting.to_dict()
    for number, each in enumerate(slices):
        steps_ms = 1000 * np.array(each.latency_samples_s)
        yield {
            "panel": panel.name,
            "workload": job.workload.name,
            "mode": job.workload.mode,
            "cpus": job.machine.usable_cpus if panel.quota is None else len(panel.shape.cpus),
            "quota": panel.quota,
            **{knob: values.get(knob, 1) for knob in (INSTANCES, "inter_op", "intra_op", "batch_size")},
            "is_default": int(setting == job.space.reference),
            "slice": number,
            "start_s": round(each.start_s, 3),
            "elapsed_s": round(each.elapsed_s, 6),
            "n_steps": each.n_steps,
            "items_per_s": round(math.exp(Objective.THROUGHPUT.log_rate(each, setting.batch_size)), 4),
            "step_p50_ms": round(float(np.median(steps_ms)), 4),
            "step_max_ms": round(float(steps_ms.max()), 4),
            "first_step_ms": round(1000 * each.step_s[0], 4),
        }


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Append rows to a table; its first line names the columns."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        table = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
        if is_new:
            table.writeheader()
        table.writerows(rows)


def best_of(rows: Sequence[dict[str, Any]]) -> tuple[str, float]:
    """Return the fastest setting at the default's batch size, and its rate over the default's."""
    rates: dict[tuple[int, ...], list[float]] = {}
    default = next(row for row in rows if row["is_default"])
    keys = (INSTANCES, "inter_op", "intra_op")
    for row in rows:
        if row["batch_size"] == default["batch_size"]:
            rates.setdefault(tuple(row[key] for key in keys), []).append(math.log(row["items_per_s"]))
    level = {key: float(np.mean(own)) for key, own in rates.items()}
    best = max(level, key=lambda key: level[key])
    words = " ".join(f"{key}={value}" for key, value in zip(keys, best, strict=True))
    return words, math.exp(level[best] - level[tuple(default[key] for key in keys)])


def table(folder: Path) -> Iterator[str]:
    """Yield the lines of a table: what processes gain over the default at each batch size, with 95 % intervals.

    The slices of a panel's settings scatter alike, by s (log scale); the ratio of two means of two slices each is
    known to t s, with as many degrees of freedom as the panel has settings.
    """
    rows = pd.read_csv(folder / "surfaces.csv")
    yield "| panel | batch size | default: items/s, step (ms) | processes: gain over the default [95 %], step (ms) |"
    yield "| --- | ---: | ---: | --- |"
    for name, panel in rows.groupby("panel", sort=False):
        panel = panel.assign(y=np.log(panel.items_per_s))
        own = panel.groupby([INSTANCES, "inter_op", "intra_op", "batch_size"])
        known = own.agg(y=("y", "mean"), sd=("y", "std"), p50_ms=("step_p50_ms", "median")).reset_index()
        spread = math.exp(-float(stdtrit(len(known), 0.025)) * math.sqrt(float((known.sd**2).mean())))
        for size, at_size in known.groupby("batch_size"):
            one = at_size[at_size[INSTANCES] == 1]
            default = one[(one.inter_op == panel.cpus.iloc[0]) & (one.intra_op == panel.cpus.iloc[0])].iloc[0]
            gains = [
                f"{row.instances:.0f}: {gain:.2f} [{gain / spread:.2f}, {gain * spread:.2f}], {row.p50_ms:.3g}"
                for row in at_size[at_size[INSTANCES] > 1].itertuples()
                for gain in [math.exp(row.y - default.y)]
            ]
            of_default = f"{math.exp(default.y):.4g}, {default.p50_ms:.3g}"
            yield f"| {name} | {size} | {of_default} | {' · '.join(gains)} |"


def measure(folder: Path, limit_s: float, names: Sequence[str]) -> None:
    """Measure panels one after another, while there is time; each is a process that is made ready before the first."""
    began_s = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)

    def say(text: str) -> None:
        print(f"{time.monotonic() - began_s:5.0f} s  {text}", flush=True)

    with ExitStack() as live:
        processes = {}
        for name in names:
            enter = live.enter_context(confined(Panel.of_name(name).shape))
            command = [sys.executable, "-m", "tests.benchmarks.panels", "serve", name, str(folder)]
            log = live.enter_context((folder / f"{name.replace(':', '-')}.log").open("w"))
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, preexec_fn=enter, text=True
            )
            live.callback(process.kill)
            processes[name] = process
        for process in processes.values():
            assert process.stdout
            process.stdout.readline()
        say("all panels are ready")
        longest_s = 0.0
        for name, process in processes.items():
            left_s = limit_s - (time.monotonic() - began_s)
            if left_s < longest_s:
                say(f"{name}: no time left")
                break
            panel_s = time.monotonic()
            assert process.stdin and process.stdout
            try:
                print(file=process.stdin, flush=True)
                say(f"{name}: {process.stdout.readline().strip() or 'failed: see its log'}")
            except BrokenPipeError:
                say(f"{name}: failed: see its log")
                continue
            longest_s = max(longest_s, time.monotonic() - panel_s)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        for line in serve(sys.argv[2], Path(sys.argv[3])):
            print(line, flush=True)
            if line == "ready":
                sys.stdin.readline()
    elif sys.argv[1] == "table":
        print(*table(Path(sys.argv[2])), sep="\n")
    else:
        measure(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:] or PANELS)
