"""Is the capacity that `tftune load` reports what an independent generator of load finds?

    python -m tests.benchmarks.capacity                        two models, three limits each, about an hour
    python -m tests.benchmarks.capacity --limits 1 mobilenetv2

Nothing else may run meanwhile. The generator below shares no code with tftune: it builds the model of the workload's
file in a process of its own, and answers requests at random times, one at a time or in batches. A capacity C is right
to 5 % if the p99 keeps to the limit at 0.95 C, and breaks it at 1.05 C. It is run at both, and the rate at the limit is
read off between and beyond them.
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
at, start = 0, time.perf_counter()
while at < n:
    now = time.perf_counter() - start
    if now < due[at]:
        time.sleep(due[at] - now)
        now = time.perf_counter() - start
    end = min(max(at + 1, int(np.searchsorted(due, now, side="right"))), at + most)
    step(next(k for k in sizes if k >= end - at))
    took[at:end] = time.perf_counter() - start - due[at:end]
    at = end
counted = took[n // 20:]
print(json.dumps({str(p): float(np.quantile(counted, p / 100)) for p in (50, 95, 99)}))
"""


def p99_ms(model: str, rate: float, seed: int) -> float:
    """Return the p99 (ms) that the generator measures at a rate (1/s)."""
    command = [sys.executable, "-c", GENERATOR, str(WORKLOADS / f"{model}.py")]
    command += [str(MAX_BATCH), str(rate), str(N_REQUESTS), str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return 1000 * float(json.loads(done.stdout.splitlines()[-1])["99"])


def figures(models: Sequence[str] = MODELS, limits: Sequence[float] = LIMITS) -> Iterator[Figure]:
    """Measure a short study of each model under load, and let the generator look at each capacity."""
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            batch = ("--batch-size", str(MAX_BATCH))
            search = ("search", model, *batch, "--time-budget", "60s", "--no-instances")
            study = _json(*search, folder=folder)["study"]
            load = _json("load", study, "--time-budget", "5m", folder=folder)
            [default] = [curve for curve in load["curves"] if curve["name"] == "tf-default"]
            # The curve gives the rate at any limit.
            for number, times in enumerate(limits):
                limit_ms = times * default["unloaded_ms"]
                capacity = _rate_at(default["points"], limit_ms)
                found = [p99_ms(model, share * capacity, 100 * number + i) for i, share in enumerate(AROUND)]
                slope = math.log(found[1] / found[0]) / math.log(AROUND[1] / AROUND[0])
                off = math.log(AROUND[0]) + math.log(limit_ms / found[0]) / slope if slope > 0 else math.nan
                line = f"{model}, limit {limit_ms:.0f} ms: {capacity:.2f}/s; independent p99 {found[0]:.0f} ms at 0.95"
                print(f"{line}, {found[1]:.0f} ms at 1.05; off by {100 * math.expm1(off):+.1f} %", file=sys.stderr)
                yield Figure(
                    f"{model}: capacity at p99 ≤ {times:g} times the unloaded ({limit_ms:.0f} ms), {capacity:.2f}/s: "
                    "what an independent generator finds beside it",
                    f"{100 * math.expm1(off):+.1f} %",
                    f"within {100 * TOLERANCE:g} %",
                    abs(math.expm1(off)) <= TOLERANCE,
                )


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
