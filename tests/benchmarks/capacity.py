"""Is the capacity that `tftune load` reports what an independent generator of load finds?

    python -m tests.benchmarks.capacity                        two models, three limits each, about an hour
    python -m tests.benchmarks.capacity --limits 1 mobilenetv2

Nothing else may run meanwhile. The generator below shares no code with tftune: it builds the model of the workload's
file in a process of its own, and answers requests at random times, one at a time or in batches. A capacity C is right
to 5 % if the p99 keeps to the limit at 0.95 C, and breaks it at 1.05 C. It is run at both, and the rate at the limit is
read off between and beyond them.

A shared machine drifts by 20 % within minutes, and a capacity with it. So both are held against each other at one
speed, too: if a request alone takes the generator f times as long, the limit and the rate are those of a clock that
runs f times as fast, C(L; f s) = C(L/f; s) / f.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.benchmarks.figures import Figure

TFTUNE = str(Path(sys.executable).with_name("tftune"))
WORKLOADS = Path(__file__).parents[2] / "workloads"
MODELS = ("resnet50", "bert-base")
LIMITS = (1.5, 2.5, 5.0)
"""Times the p99 with hardly any load."""
AROUND = (0.95, 1.05)
N_REQUESTS = 2000
MAX_BATCH = 4
TOLERANCE = 0.05

GENERATOR = """
import importlib.util, json, os, sys, time
import numpy as np
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
file, most, rate, n, seed = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
sys.path.insert(0, os.path.dirname(file))
import tensorflow as tf
spec = importlib.util.spec_from_file_location("model_under_load", file)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
params = getattr(module, 'PARAMS', {})
model = module.build(**params)
call = tf.function(lambda *inputs: model(inputs[0] if len(inputs) == 1 else list(inputs), training=False))
sizes = [k for k in (1, 2, 4, 8, 16, 32) if k < most] + [most]
arrays = {k: [tf.constant(a) for a in module.inputs(k, **params)] for k in sizes}
signature = [tf.TensorSpec([None, *a.shape[1:]], a.dtype) for a in arrays[most]]
run = call.get_concrete_function(*signature)
def step(k):
    out = run(*arrays[k])
    for each in tf.nest.flatten(out):
        each.numpy()
for k in sizes:
    end = time.perf_counter() + 2
    while time.perf_counter() < end:
        step(k)
due = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, n))
took = np.empty(n)
singles = []
at, start = 0, time.perf_counter()
while at < n:
    now = time.perf_counter() - start
    if now < due[at]:
        time.sleep(due[at] - now)
        now = time.perf_counter() - start
    end = min(max(at + 1, int(np.searchsorted(due, now, side="right"))), at + most)
    size = next(k for k in sizes if k >= end - at)
    began = time.perf_counter()
    step(size)
    if size == sizes[0]:
        singles.append(time.perf_counter() - began)
    took[at:end] = time.perf_counter() - start - due[at:end]
    at = end
counted = took[n // 20:]
print(json.dumps({"p99_s": float(np.quantile(counted, 0.99)), "single_s": float(np.median(singles))}))
"""


def generated(model: str, rate: float, seed: int) -> tuple[float, float]:
    """Return the p99 (ms) that the generator measures at a rate (1/s), and how long (ms) a request alone takes it."""
    command = [sys.executable, "-c", GENERATOR, str(WORKLOADS / f"{model}.py")]
    command += [str(MAX_BATCH), str(rate), str(N_REQUESTS), str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    measured = json.loads(done.stdout.splitlines()[-1])
    return 1000 * measured["p99_s"], 1000 * measured["single_s"]


def figures(models: Sequence[str] = MODELS, limits: Sequence[float] = LIMITS) -> Iterator[Figure]:
    """Measure a short study of each model under load, and let the generator look at each capacity."""
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            batch = ("--batch-size", str(MAX_BATCH))
            search = ("search", model, *batch, "--time-budget", "60s", "--no-instances")
            study = _json(*search, folder=folder)["study"]
            load = _json("load", study, "--max-batch", str(MAX_BATCH), "--time-budget", "5m", folder=folder)
            [default] = [curve for curve in load["curves"] if curve["name"] == "tf-default"]
            # The curve gives the rate at any limit.
            for number, times in enumerate(limits):
                limit_ms = times * default["unloaded_ms"]
                capacity = _rate_at(default["points"], limit_ms)
                runs = [generated(model, share * capacity, 100 * number + i) for i, share in enumerate(AROUND)]
                as_it_is = _off([p99 for p99, _ in runs], [limit_ms, limit_ms])
                # By how much the generator's clock ran slower, and what the curve has at its rates in its time.
                slower = [single / default["points"][0]["p50"] for _, single in runs]
                expected = [
                    f * _p99_at(default["points"], f * share * capacity)
                    for f, share in zip(slower, AROUND, strict=True)
                ]
                at_one_speed = _off([p99 for p99, _ in runs], expected)
                print(model, limit_ms, capacity, runs, slower, as_it_is, at_one_speed, file=sys.stderr, flush=True)
                yield Figure(
                    f"{model}: capacity at p99 ≤ {times:g} times the unloaded ({limit_ms:.0f} ms), {capacity:.2f}/s: "
                    "what an independent generator finds beside it; at the speed of the same minute",
                    f"{100 * as_it_is:+.1f} %; {100 * at_one_speed:+.1f} %",
                    f"within {100 * TOLERANCE:g} %",
                    abs(at_one_speed) <= TOLERANCE,
                )


def _off(found_ms: Sequence[float], expected_ms: Sequence[float]) -> float:
    """Return by how much (share) the rate differs at which the p99 of the generator is what is expected."""
    steps = [math.log(expected / found) for found, expected in zip(found_ms, expected_ms, strict=True)]
    slope = math.log(found_ms[1] / found_ms[0]) / math.log(AROUND[1] / AROUND[0])
    return math.expm1(sum(steps) / len(steps) / slope) if slope > 0 else math.nan


def _p99_at(points: Sequence[dict], rate: float) -> float:
    """Return the p99 (ms) of a curve at a rate (1/s)."""
    before, after = next((a, b) for a, b in itertools.pairwise(points) if a["rate"] <= rate < b["rate"])
    share = (rate - before["rate"]) / (after["rate"] - before["rate"])
    return float(before["p99"] ** (1 - share) * after["p99"] ** share)


def _rate_at(curve: Sequence[dict], limit_ms: float) -> float:
    """Return the rate (1/s) of a curve at a p99 (ms)."""
    before, after = next((a, b) for a, b in itertools.pairwise(curve) if a["p99"] <= limit_ms < b["p99"])
    share = math.log(limit_ms / before["p99"]) / math.log(after["p99"] / before["p99"])
    return float(before["rate"] + share * (after["rate"] - before["rate"]))


def _json(*words: str, folder: str) -> dict:
    done = subprocess.run(
        [TFTUNE, *words, "--json", "--wait"], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    )
    document: dict = json.loads(done.stdout)
    return document


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--limits", type=int, default=len(LIMITS), help="how many of the limits")
    asked = parser.parse_args()
    for figure in figures(asked.models, LIMITS[: asked.limits]):
        print(figure.row(), flush=True)
