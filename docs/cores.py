"""Draw docs/cores.svg: what two levers gain by the number of cores and the average width of a model's graph.

python docs/cores.py
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from tuner.report.chart import svg_of

ROOT = Path(__file__).parents[1]
CORES = (2, 4, 8, 16)
LEVERS = {"threads": ("intel", "threads: Intel's guide"), "processes": ("core-each", "one process per core")}
Gains = Mapping[tuple[str, int], float]
"""Mean ratio to TensorFlow's defaults, by model and cores."""


def gains(group: str, setting: str) -> Gains:
    """Return the geometric means over the studies of stock TensorFlow with oneDNN, without a CPU limit."""
    rules = json.loads((ROOT / "results" / "rules.json").read_text())
    logs = defaultdict(list)
    for study in rules["groups"][group]["proof"]["by_workload"]["studies"]:
        situation, best_over = study["situation"], study["best_over"]
        kind = situation["pool"], situation["onednn"], situation["quota"], situation["mode"]
        cores = int(situation["shape"].split()[0])
        has_column = cores in CORES and "socket" not in situation["shape"]
        if kind == ("eigen", True, False, "inference") and has_column and setting in best_over:
            logs[situation["workload"], cores].append(math.log(best_over["tf-default"] / best_over[setting]))
    return {key: math.exp(statistics.fmean(values)) for key, values in logs.items()}


def picture() -> str:
    """Return the map as SVG: a row per model in the order of its width, a column per number of cores."""
    shown = {title: gains(group, setting) for group, (setting, title) in LEVERS.items()}
    studies = pd.read_csv(ROOT / "results" / "studies.csv")
    width = studies.groupby("workload").graph_width.median()
    models = sorted({model for cells in shown.values() for model, _ in cells}, key=lambda model: (width[model], model))
    figure = Figure(figsize=(8.0, 0.6 + 0.24 * len(models)), layout="constrained")
    for axes, (title, cells) in zip(figure.subplots(1, 2, sharey=True), shown.items(), strict=True):
        for (model, cores), ratio in cells.items():
            x, y = CORES.index(cores), models.index(model)
            strength = min(1.0, abs(math.log2(ratio)) / 1.5)
            axes.barh(y, 1, left=x - 0.5, height=1, color="#20759e" if ratio > 1 else "#b34700", alpha=0.8 * strength)
            axes.text(x, y, f"{ratio:.2f}", ha="center", va="center", size=8, color="#222")
        axes.set(xlim=(-0.5, len(CORES) - 0.5), xticks=range(len(CORES)), xticklabels=CORES)
        axes.set(ylim=(len(models) - 0.5, -0.5), yticks=range(len(models)))
        axes.set_yticklabels([f"{model}  {width[model]:.2f}" for model in models])
        axes.set_title(title, size=9)
        axes.set_xlabel("cores", size=9)
        axes.tick_params(labelsize=8, length=0)
        axes.spines[:].set_visible(False)
    figure.supylabel("model, average width of its graph", size=9)
    return svg_of(figure, transparent=False)


if __name__ == "__main__":
    Path(__file__).with_name("cores.svg").write_text(picture())
