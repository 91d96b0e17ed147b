"""Draw docs/drift.svg: what slices of one setting measure over a quarter of an hour, alone and in turns.

python docs/drift.py
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from tuner.report.chart import svg_of

TRACE = Path(__file__).parents[1] / "tests" / "benchmarks" / "traces" / "resnet50-stock.csv"
BATCH_SIZE = 8
ALONE, TURNS = "#20759e", "#b34700"


def slices() -> pd.DataFrame:
    """Return the slices in their order, with the minute, the rate (items/s) and the rate's ratio to the next slice."""
    table = pd.read_csv(TRACE).sort_values("start_s", ignore_index=True)
    table["minute"] = (table.start_s - table.start_s[0]) / 60
    table["rate"] = BATCH_SIZE * table.n_steps / table.elapsed_s
    is_turn = (table.session == table.session.shift(-1)) & (table.process != table.process.shift(-1))
    table["ratio"] = (table.rate / table.rate.shift(-1)).where(is_turn)
    return table


def picture() -> str:
    """Return the chart as SVG: above each slice, relative to the mean, below the ratio of neighbours."""
    table = slices()[::2]  # enough to see
    figure = Figure(figsize=(8.5, 3.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, sharey=True)
    above.plot(table.minute, table.rate / table.rate.median(), ".", color=ALONE, markersize=3)
    above.set_title("one slice of the default (ResNet-50), relative to the median", size=9, loc="left")
    below.plot(table.minute, table.ratio, ".", color=TURNS, markersize=3)
    below.set_title("ratio of two neighbouring slices, of two processes of the default in turns", size=9, loc="left")
    for axes in (above, below):
        axes.axhline(1.0, color="#888", linewidth=0.8)
        axes.set(ylim=(0.7, 1.3), yticks=[0.8, 1.0, 1.2])
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    below.set_xlabel("minutes", size=9)
    return svg_of(figure, transparent=False)


if __name__ == "__main__":
    Path(__file__).with_name("drift.svg").write_text(picture())
    found = slices()
    print(f"slices {found.rate.std() / found.rate.mean():.3f}, ratios {found.ratio.std():.3f}, n {len(found)}")
