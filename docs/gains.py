"""Draw docs/gains.svg from the README's table of what to expect.

python docs/gains.py
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
ROW = re.compile(
    r"^\| (?P<model>[\w-]+) \| .* \| (?P<default>[\d.]+× \[.*?\]) \| (?P<intel>[\d.]+× \[.*?\]) \|$", re.MULTILINE
)
COLOURS = {"default": "#20759e", "intel": "#b34700"}
TITLES = {"default": "over TensorFlow's defaults", "intel": "over Intel's settings"}


def picture() -> str:
    """Return the chart as SVG: a point and its interval for each model and each of the two."""
    rows = list(ROW.finditer((ROOT / "README.md").read_text()))
    figure = Figure(figsize=(7.5, 0.5 + 0.55 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for shift, against in ((-0.14, "default"), (0.14, "intel")):
        for i, row in enumerate(rows):
            ratio, low, high = (float(text) for text in re.findall(r"\d+\.\d+", row[against]))
            axes.plot([low, high], [i + shift] * 2, color=COLOURS[against], linewidth=2)
            axes.plot(ratio, i + shift, "o", color=COLOURS[against], label=TITLES[against] if i == 0 else None)
    axes.axvspan(0.98, 1.02, color="#8883", linewidth=0)
    axes.set(yticks=range(len(rows)), yticklabels=[row["model"] for row in rows], xlim=(0.9, None))
    axes.set_xlabel("times as fast, with 95 % intervals; in the band a difference counts as none")
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper right")
    text = io.StringIO()
    with rc_context({"svg.hashsalt": "tftune", "svg.fonttype": "none"}):  # the same table gives the same text
        FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None, "Creator": None})
    return text.getvalue()


if __name__ == "__main__":
    Path(__file__).with_name("gains.svg").write_text(picture())
