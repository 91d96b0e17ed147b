"""Is the capacity that `tftune load` reports what an independent generator of load finds?

    python -m tests.benchmarks.capacity                   two models, three limits each, about two hours
    python -m tests.benchmarks.capacity bert-tiny --requests 3000

Nothing else may run meanwhile. The generator below shares no code with tftune: it builds the model of the workload's
file in a process of its own, and answers requests at random times, one at a time or in batches.

A shared machine drifts by 20 % within minutes, and a capacity with it. So short runs of `tftune load` and of the
generator take turns, and their logarithms are averaged. The generator runs at the capacity C(L) of the first curve. By
how much a capacity is off follows from how far the generator's p99 is from that of the curves at this rate, and from
the slope of the curves, d log p99 / d log rate.

Few requests meet a p99 that is off by several per cent for their arrivals alone. The same arrivals are
simulated before a server that takes the generator's own median times, and so are fifty times as many: the ratio of the
two p99 is what these arrivals did, and is taken off (a control variate).
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

import numpy as np

from tests.benchmarks.figures import Figure

TFTUNE = str(Path(sys.executable).with_name("tftune"))
WORKLOADS = Path(__file__).parents[2] / "workloads"
MODELS = ("resnet50", "bert-base")
LIMITS = (2.5, 3.5, 5.0)
"""Times the p99 with hardly any load. Below twice, it is nearly the same at all rates: a request waits for one."""
QUANTILES = {"p99": 0.99, "p95": 0.95, "p50": 0.5}
N_TURNS = 4
N_REQUESTS = 500
"""At each rate in each turn, unless `--requests` says otherwise: at one request per second they take eight minutes."""
MAX_BATCH = 4
TOLERANCE = 0.05

GENERATOR = """
import importlib.util, json, os, sys, time
import numpy as np
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
file, most, n, seed = sys.argv[1], *map(int, sys.argv[2:5])
rates = list(map(float, sys.argv[5:]))
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
for i, rate in enumerate(rates):
    gaps = np.random.default_rng([seed, i]).exponential(1 / rate, n)
    due = np.cumsum(gaps)
    took = np.empty(n)
    service = {k: [] for k in sizes}
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
        service[size].append(time.perf_counter() - began)
        took[at:end] = time.perf_counter() - start - due[at:end]
        at = end
    print(json.dumps({"gaps_s": gaps.tolist(), "responses_s": took.tolist(), "service_s": service}))
"""


def generated(model: str, rates: Sequence[float], seed: int, n_requests: int) -> list[dict]:
    """Return what the generator measures at each rate (1/s): gaps, responses, and service times by size (s)."""
    command = [sys.executable, "-c", GENERATOR, str(WORKLOADS / f"{model}.py")]
    command += [str(MAX_BATCH), str(n_requests), str(seed), *map(str, rates)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()[-len(rates) :]]


def figures(models: Sequence[str] = MODELS, n_requests: int = N_REQUESTS) -> Iterator[Figure]:
    """Measure a short study of each model under load in turns with the generator."""
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            batch = ("--batch-size", str(MAX_BATCH))
            study = _json("search", model, *batch, "--time-budget", "60s", "--one-process", folder=folder)["study"]
            curves, runs = [_points(study, folder)], []
            limits_ms = [times * curves[0][0]["p99"] for times in LIMITS]
            capacities = [_rate_at(curves[0], limit_ms) for limit_ms in limits_ms]
            for turn in range(N_TURNS):
                # There and back, as a process may be slower at first.
                there = 1 if turn % 2 == 0 else -1
                runs.append(generated(model, capacities[::there], turn, n_requests)[::there])
                curves.append(_points(study, folder))
            for times, limit_ms, rate, *loads in zip(LIMITS, limits_ms, capacities, *runs, strict=True):
                off = {name: _off(curves, loads, rate, name) for name in QUANTILES}
                at = f"{model}: capacity at p99 ≤ {times:g} times the unloaded ({limit_ms:.0f} ms), {rate:.2f}/s"
                yield Figure(
                    f"{at}: what an independent generator finds beside it, by {', '.join(QUANTILES)}; in brackets the "
                    f"standard error of both, from {N_TURNS} runs and {N_TURNS + 1} curves",
                    "; ".join(f"{100 * share:+.1f} % ({100 * se:.1f} %)" for share, se in off.values()),
                    f"within {100 * TOLERANCE:g} %",
                    abs(off["p99"][0]) <= TOLERANCE,
                )


def _off(curves: Sequence[Sequence[dict]], loads: Sequence[dict], rate: float, name: str) -> tuple[float, float]:
    """Return by what share the rate is off at which a quantile is reached, with its standard error.

    The error is what the runs of the generator scatter by, and what the curves do: each is of other processes, and of
    another minute.
    """
    p = QUANTILES[name]
    # Each run of the generator lies between two curves.
    weights = np.array([0.5, *[1.0] * (N_TURNS - 1), 0.5]) / N_TURNS
    by_curve = np.log([_quantile_at(curve, rate, name) for curve in curves])
    expected = float(weights @ by_curve)
    slope = float(weights @ [_slope(curve, rate, name) for curve in curves])
    by_turn = np.log([1000 * np.quantile(each["responses_s"], p) for each in loads])
    measured = math.log(1000 * np.quantile(np.concatenate([each["responses_s"] for each in loads]), p))
    luck = _luck(loads, rate, p)
    seen = {"expected": expected, "measured": measured, "luck": luck, "slope": slope}
    seen |= {"by turn": by_turn.tolist(), "by curve": by_curve.tolist()}
    print(rate, name, seen, file=sys.stderr, flush=True)
    se = math.sqrt(np.var(by_turn, ddof=1) / len(by_turn) + np.var(by_curve, ddof=1) / len(by_curve))
    return math.expm1((expected - measured + luck) / slope), se / slope


def _luck(loads: Sequence[dict], rate: float, p: float) -> float:
    """Return the logarithm of a quantile of these arrivals over that of any, before a server of constant times."""
    pooled = {size: [t for load in loads for t in load["service_s"][size]] for size in loads[0]["service_s"]}
    took_s = {int(size): float(np.median(times)) for size, times in pooled.items() if times}
    own = np.concatenate([_simulated(np.array(load["gaps_s"]), took_s) for load in loads])
    many = np.random.default_rng(0).exponential(1 / rate, 50 * sum(len(load["gaps_s"]) for load in loads))
    # In pieces as long as a run, as each run begins with an empty queue.
    any_other = np.concatenate([_simulated(piece, took_s) for piece in many.reshape(-1, len(loads[0]["gaps_s"]))])
    return math.log(np.quantile(own, p) / np.quantile(any_other, p))


def _simulated(gaps_s: np.ndarray, took_s: dict[int, float]) -> np.ndarray:
    """Return the responses (s) of a server whose batches of each size take so long (s)."""
    due = np.cumsum(gaps_s)
    responses = np.empty(len(due))
    at, free = 0, 0.0
    while at < len(due):
        begin = max(free, due[at])
        end = min(max(at + 1, int(np.searchsorted(due, begin, side="right"))), at + MAX_BATCH)
        size = min((k for k in took_s if k >= end - at), default=max(took_s))
        free = begin + took_s[size]
        responses[at:end] = free - due[at:end]
        at = end
    return responses


def _points(study: str, folder: str) -> list[dict]:
    """Return the curve of the default that a short `tftune load` measures."""
    load = _json("load", study, "--max-batch", str(MAX_BATCH), "--time-budget", "70s", folder=folder)
    [default] = [curve for curve in load["curves"] if curve["name"] == "tf-default"]
    points: list[dict] = default["points"]
    return points


def _slope(points: Sequence[dict], rate: float, name: str) -> float:
    """Return d log quantile / d log rate of a curve around a rate (1/s)."""
    low, high = (_quantile_at(points, share * rate, name) for share in (0.9, 1.1))
    return math.log(high / low) / math.log(1.1 / 0.9)


def _quantile_at(points: Sequence[dict], rate: float, name: str) -> float:
    """Return a quantile (ms) of a curve at a rate (1/s); beyond the last point the last two are continued."""
    pairs = list(itertools.pairwise(points))
    before, after = next(((a, b) for a, b in pairs if a["rate"] <= rate < b["rate"]), pairs[-1])
    share = (rate - before["rate"]) / (after["rate"] - before["rate"])
    return float(before[name] ** (1 - share) * after[name] ** share)


def _rate_at(points: Sequence[dict], limit_ms: float) -> float:
    """Return the rate (1/s) of a curve at a p99 (ms)."""
    before, after = next((a, b) for a, b in itertools.pairwise(points) if a["p99"] <= limit_ms < b["p99"])
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
    parser.add_argument("--requests", type=int, default=N_REQUESTS)
    options = parser.parse_args()
    for figure in figures(options.models, options.requests):
        print(figure.row(), flush=True)
