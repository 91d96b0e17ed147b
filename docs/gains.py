"""Draw docs/gains.svg from the tables of what to expect: 16 cores in the README, two cores in docs/benchmarks.md.

python docs/gains.py
"""

from __future__ import annotations

import re
from pathlib import Path

from matplotlib.figure import Figure

from tuner.report.chart import svg_of

ROOT = Path(__file__).parents[1]
RATIO = r"[\d.]+× \[[\d., ]+\]"
ON_16 = re.compile(rf"^\| (?P<model>[\w& -]+), [\d,]+ \| (?P<ratio>{RATIO}) \| .* → ", re.MULTILINE)
ON_2 = re.compile(rf"^\| (?P<model>[\w-]+) \| .* \| (?P<ratio>{RATIO}) \| {RATIO} \|$", re.MULTILINE)
PANELS = {
    "16 cores: one process per core": ("README.md", ON_16),
    "2 cores: what a search found": ("docs/benchmarks.md", ON_2),
}
COLOUR = "#20759e"


def rows(title: str) -> list[tuple[str, float, float, float]]:
    """Return the models of a panel, each with its ratio to the default and the ends of the interval."""
    page, row = PANELS[title]
    found = row.finditer((ROOT / page).read_text())
    numbers = [(each["model"], *map(float, re.findall(r"\d+\.\d+", each["ratio"]))) for each in found]
    return sorted(numbers, key=lambda each: -each[1])  # type: ignore[return-value]


def picture() -> str:
    """Return the chart as SVG: a point and its interval for each model, on a log scale."""
    figure = Figure(figsize=(8.5, 2.9), layout="constrained")
    for axes, title in zip(figure.subplots(1, 2, sharex=True), PANELS, strict=True):
        panel = rows(title)
        for i, (_, ratio, low, high) in enumerate(panel):
            axes.plot([low, high], [i, i], color=COLOUR, linewidth=2)
            axes.plot(ratio, i, "o", color=COLOUR)
            axes.annotate(f"{ratio:g}×", (ratio, i), textcoords="offset points", xytext=(0, 6), ha="center", size=8)
        axes.axvline(1.0, color="#888", linewidth=1)
        axes.set(title=title, yticks=range(len(panel)), yticklabels=[each[0] for each in panel])
        axes.set(xscale="log", xlim=(0.9, 14), xticks=[1, 2, 4, 8], xticklabels=["1", "2", "4", "8"])
        axes.minorticks_off()
        axes.set_ylim(len(panel) - 0.5, -0.8)
        axes.set_xlabel("times the speed of TensorFlow's defaults")
        axes.spines[["top", "right"]].set_visible(False)
    return svg_of(figure, transparent=False)


if __name__ == "__main__":
    Path(__file__).with_name("gains.svg").write_text(picture())
