"""Several processes and calls: what they gain, whether a search decides it, and what a group and `tftune run` cost."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.figures import Figure, job_on
from tuner.machine.locks import machine_lock
from tuner.space.setting import Setting
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import combined

TFTUNE = str(Path(sys.executable).with_name("tftune"))
MODELS = ("resnet50", "densenet121", "mobilenetv2", "bert-base", "ncf")
SINGLE_CALLS = {"mobilenetv2": 2.0, "densenet121": 1.4, "resnet50": 1.2}  # a call an item: what is asked for
N_JOBS = 10
N_SLICES = 30
N_RUNS = 11


def space() -> Iterator[Figure]:
    """A search of the space `serving` for each of five models, against TensorFlow's default and Intel's guide.

    Where the finals had no time for Intel's guide, a comparison with what was found is held on it.
    """
    speed_ups: dict[str, list[float]] = {"tf-default": [], "intel": []}
    n_better = 0
    with tempfile.TemporaryDirectory() as folder:
        for model in MODELS:
            study = _json("search", model, "--space", "serving", folder=folder)
            verdicts = study["verdicts"]
            if verdicts["intel"]["speedup"] is None:
                words = ["--space", "serving", "--a", "intel", "--b", study["study"], "--time-budget", "2m"]
                verdicts["intel"] = _json("compare", model, *words, folder=folder)
            for baseline, each in speed_ups.items():
                each.append(verdicts[baseline]["speedup"] or math.nan)
            n_better += verdicts["tf-default"]["verdict"] == "better"
            setting = " ".join(f"{name}={value}" for name, value in study["finals"]["incumbent"].items())
            against = "; ".join(f"{name} {_verdict(verdicts[name])}" for name in speed_ups)
            yield Figure(f"`search {model} --space serving`: {setting}", against)
    for baseline, ratios in speed_ups.items():
        known = [math.log(ratio) for ratio in ratios if not math.isnan(ratio)]
        mean = math.exp(statistics.fmean(known)) if known else math.nan
        yield Figure(f"geometric mean of the speed-ups over {baseline}, {len(known)} models", f"{mean:.2f}")
    yield Figure("of these called better than tf-default", str(n_better), "at least 4 of 5", n_better >= 4)


def single_calls() -> Iterator[Figure]:
    """A process a core against TensorFlow's default, a call an item."""
    with tempfile.TemporaryDirectory() as folder:
        for model, target in SINGLE_CALLS.items():
            words = ["--space", "serving", "--batch-size", "1", "--a", "tf-default", "--b", "core-each"]
            result = _json("compare", model, *words, "--time-budget", "90s", folder=folder)
            met = (result["speedup"] or 0.0) >= target
            yield Figure(
                f"{model}, batch 1: a process a core over tf-default", _verdict(result), f"at least {target}", met
            )


def jobs() -> Iterator[Figure]:
    """Default jobs in a row: how many end decided about the use of the machine."""
    codes = []
    for _ in range(N_JOBS):
        with tempfile.TemporaryDirectory() as folder:
            study = _json("search", "resnet50", folder=folder)
        several = study["groups"]["verdicts"]["tf-default"]
        codes.append(several["verdict"])
        setting = " ".join(f"{name}={value}" for name, value in study["groups"]["finals"]["incumbent"].items())
        print(
            f"one process: {_verdict(study['verdicts']['tf-default'])}; {setting}: {_verdict(several)} in "
            f"{study['groups']['finals']['rounds']} rounds; {study['wall_s']:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    decided = N_JOBS - codes.count("undecided")
    counted = ", ".join(f"{codes.count(code)} {code}" for code in dict.fromkeys(codes))
    yield Figure(
        f"{N_JOBS} default jobs: decided about several processes", f"{decided} ({counted})", "at least 9", decided >= 9
    )


def group() -> Iterator[Figure]:
    """Two processes of one core each: how far apart their slices begin, and whether their figure is their sum."""
    job, target = job_on(sys.executable, "mobilenetv2")
    launcher = FreshLauncher(target=target)
    setting = Setting.of({"instances": 2, "inter_op": 1, "intra_op": 1, "batch_size": 1})
    deployment = job.space.deployment(setting)
    assert len(deployment.cpu_sets) == 2
    skews_s, differences = [], []
    with machine_lock():
        members = [launcher.launch_one(setting, deployment, number) for number in range(2)]
        try:
            for each in members:
                each.ready()
            for _ in range(N_SLICES):
                for each in members:
                    each.start_slice(0.5)
                slices = [each.end_slice() for each in members]
                skews_s.append(abs(slices[0].start_s - slices[1].start_s))
                together = combined(slices)
                rates = [n_steps / seconds for n_steps, seconds in (each.counted_steps for each in slices)]
                differences.append(together.n_steps / together.elapsed_s / sum(rates) - 1)
        finally:
            for each in members:
                each.close()
    worst, typical = max(skews_s), statistics.median(skews_s)
    yield Figure(
        f"slices of two processes begin within ({N_SLICES} slices): median; longest",
        f"{1000 * typical:.2f} ms; {1000 * worst:.2f} ms",
        "at most 50 ms",
        worst <= 0.05,
    )
    off, furthest = statistics.fmean(differences), max(map(abs, differences))
    yield Figure(
        f"the group's rate against the sum of its members' ({N_SLICES} slices): mean; furthest",
        f"{100 * off:+.2f} %; {100 * furthest:.2f} %",
        "at most 1 %",
        furthest <= 0.01,
    )


def run() -> Iterator[Figure]:
    """What `tftune run` adds to the start of a program that does nothing: by a study, and by a file."""
    with tempfile.TemporaryDirectory() as folder:
        study = _json("search", "lenet5", "--time-budget", "40s", folder=folder)["study"]
        snippet = _run("emit", study, "--instances", "--json", folder=folder)
        Path(folder, "setting.json").write_text(snippet)
        for what, words in {"a study": [study, "--instances"], "a file": ["setting.json"]}.items():
            times = []
            for _ in range(N_RUNS + 1):
                began = time.monotonic()
                _run("run", *words, "--", "true", folder=folder)
                times.append(time.monotonic() - began)
            median = statistics.median(times[1:])
            yield Figure(f"`tftune run` of {what}, over the program", f"{median:.2f} s", "at most 0.3 s", median <= 0.3)


def _run(*words: str, folder: str) -> str:
    command = [TFTUNE, *words]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return done.stdout


def _json(*words: str, folder: str) -> dict:
    document: dict = json.loads(_run(*words, "--json", folder=folder))
    return document


def _verdict(verdict: dict) -> str:
    if verdict["speedup"] is None:
        return str(verdict["verdict"])
    return f"{verdict['verdict']} {verdict['speedup']:.2f} [{verdict['low']:.2f}, {verdict['high']:.2f}]"
