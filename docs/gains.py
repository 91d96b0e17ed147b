"""Draw docs/gains.svg: what each lever gains on the machines that were measured, from the files in results/.

python docs/gains.py
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from scipy import stats

from tuner.report.chart import svg_of

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
COLOUR = "#20759e"


@dataclass(frozen=True, slots=True)
class Gain:
    """What a lever gains over TensorFlow's defaults: a mean over models, with a 95 % interval."""

    lever: str
    ratio: float
    low: float
    high: float
    n_models: int

    def __str__(self) -> str:
        """Return it as all pages have it."""
        return f"{self.ratio:.2f}× [{self.low:.2f}, {self.high:.2f}]"


def panels() -> dict[str, list[Gain]]:
    """Return the gains by machine."""
    rules = json.loads((RESULTS / "rules.json").read_text())["groups"]
    threads, batch, processes = (_strata(rules[name]) for name in ("threads", "batch_size", "processes"))

    def of(
        strata: Sequence[dict[str, Any]], lever: str, shape: str, pool: str = "eigen", *, quota: bool = False
    ) -> Gain:
        kind = {"shape": shape, "pool": pool, "onednn": True, "quota": quota}
        [gained] = [each["gained"] for each in strata if each["kind"] == kind]
        return Gain(lever, gained["ratio"], gained["low"], gained["high"], gained["n_workloads"])

    guide = "threads (Intel's guide)"
    build = "OpenMP build with Intel's guide"
    return {
        "2 cores": [
            of(threads, guide, "2 cores"),
            of(threads, build, "2 cores", "openmp"),
            of(batch, "batch size × 4", "2 cores"),
            of(processes, "one process per core", "2 cores"),
            _openvino(),
        ],
        "2 cores, limit of 1 CPU": [
            of(threads, guide, "2 cores, quota 1", quota=True),
            of(threads, build, "2 cores, quota 1", "openmp", quota=True),
        ],
        "16 cores": [
            _guide(rules["threads"], guide, "16 cores"),
            of(batch, "batch size × 4", "16 cores"),
            of(processes, "one process per core", "16 cores"),
        ],
    }


def _strata(group: dict[str, Any]) -> list[dict[str, Any]]:
    return [stratum for rule in group["rules"] for stratum in rule["advice"]["strata"]]


def _guide(group: dict[str, Any], lever: str, shape: str) -> Gain:
    """Return what Intel's setting gains on a shape that no rule is of, from the estimates of each study."""
    studies = group["proof"]["by_workload"]["studies"]
    logs = [
        math.log(each["best_over"]["tf-default"] / each["best_over"]["intel"])
        for each in studies
        if each["situation"]["shape"] == shape
    ]
    return _mean(lever, logs)


def _openvino() -> Gain:
    """Return what another framework gains: OpenVINO at its own defaults, by the common rounds with TensorFlow's."""
    logs = []
    for path in sorted((RESULTS / "frameworks").glob("*/frameworks.json")):
        document = json.loads(path.read_text())
        rows = [
            row
            for row in document["rows"]
            if (row["framework"], row["kind"], row["batch_size"]) == ("openvino", "default", document["batch_size"])
        ]
        ratios = [row["ratio"] for row in rows if row["ratio"] and "+" not in path.parent.name]
        logs += [math.log(ratio["speedup"]) for ratio in ratios[:1]]
    return _mean("framework (OpenVINO)", logs)


def _mean(lever: str, logs: Sequence[float]) -> Gain:
    """Return the geometric mean over models with Student's 95 % interval."""
    n = len(logs)
    mean = statistics.fmean(logs)
    half = float(stats.t.ppf(0.975, n - 1)) * statistics.stdev(logs) / math.sqrt(n)
    return Gain(lever, math.exp(mean), math.exp(mean - half), math.exp(mean + half), n)


def picture() -> str:
    """Return the chart as SVG: a bar and its interval for each lever and machine, on a log scale."""
    found = panels()
    levers = [gain.lever for gain in found["2 cores"]]
    figure = Figure(figsize=(9.5, 2.7), layout="constrained")
    columns = figure.subplots(1, len(found), sharex=True, sharey=True)
    for axes, (title, gains) in zip(columns, found.items(), strict=True):
        by_lever = {gain.lever: gain for gain in gains}
        for i, lever in enumerate(levers):
            gain = by_lever.get(lever)
            text = "not measured" if gain is None else f"{gain.ratio:.2f}× ({gain.n_models} models)"
            end = 1.0 if gain is None else max(gain.high, 1.0)
            axes.annotate(text, (end, i), (6, 0), textcoords="offset points", va="center", size=8, color="#444")
            if gain is not None:
                axes.barh(i, gain.ratio - 1, left=1, height=0.6, color=COLOUR, alpha=0.45)
                axes.plot([gain.low, gain.high], [i, i], color="#222", linewidth=1.5)
        axes.axvline(1.0, color="#888", linewidth=1)
        axes.set(yticks=range(len(levers)), yticklabels=levers)
        axes.set_title(title, size=10)
        axes.set(xscale="log", xlim=(0.8, 16), xticks=[1, 2, 4], xticklabels=["1", "2", "4"])
        axes.minorticks_off()
        axes.set_ylim(len(levers) - 0.4, -0.6)
        axes.tick_params(labelsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("times the speed of TensorFlow's defaults, 95 % intervals", size=9)
    return svg_of(figure, transparent=False)


if __name__ == "__main__":
    Path(__file__).with_name("gains.svg").write_text(picture())
    for title, gains in panels().items():
        print(title, *(f"  {gain.lever}: {gain} ({gain.n_models} models)" for gain in gains), sep="\n")
