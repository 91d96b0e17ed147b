"""Draw docs/predicted.svg: ratios that the model predicts, against ratios measured on machines that it has never seen.

python -m docs.predicted PACKRAT
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.benchmarks.predictions import FOLDER
from tests.benchmarks.quick import ON_16
from tests.benchmarks.strangers import beside16, beside_groups, busy_losses, curves_of, guesses, kind_of
from tuner.report.chart import svg_of

Pairs = dict[str, list[tuple[float, float]]]
"""The measured and the predicted ratio of each setting, by the legend's words."""
COLOURS = ("#20759e", "#d2691e", "#3a8f4d", "#8a4fa3")
BAND = 0.2


def on_16_cores() -> Pairs:
    """Return ratios to TensorFlow's default on 16 cores."""
    pairs: Pairs = {}
    for name in ON_16:
        levels, rates, *_ = beside16(name, FOLDER)
        default = next(iter(levels))
        for each in levels:
            if each != default:
                ratios = float(np.exp(levels[each] - levels[default])), rates[each] / rates[default]
                pairs.setdefault(kind_of(each), []).append(ratios)
    return pairs


def of_threads(folder: Path) -> Pairs:
    """Return ratios of held rows to all cores at the same batch size, Packrat."""
    pairs: Pairs = {}
    losses = busy_losses(folder)
    for own in curves_of(folder):
        held = own.held
        guess = dict(zip(held, guesses(own, losses[own.cores]), strict=True))
        for (n, size), latency_s in held.items():
            full = (own.cores, size)
            if n != own.cores and full in held:
                ratios = held[full] / latency_s, guess[n, size] / guess[full]
                pairs.setdefault(own.name.split(",")[0], []).append(ratios)
    return pairs


def of_instances(folder: Path) -> Pairs:
    """Return ratios of instances to one instance with the same items in all, 16 cores, Packrat."""
    return {
        name: [
            (groups[n, b] / groups[16, 16 // n * b], guess[n, b] / guess[16, 16 // n * b])
            for n, b in groups
            if n != 16 and (16, 16 // n * b) in groups
        ]
        for name, groups, guess in beside_groups(folder)
    }


def draw(axes: Axes, title: str, pairs: Pairs, ticks: tuple[float, ...]) -> None:
    """Draw a panel: points, and a band around the diagonal."""
    ends = np.array([ticks[0] / 1.15, ticks[-1] * 1.15])
    axes.fill_between(ends, ends * (1 - BAND), ends * (1 + BAND), color="#888", alpha=0.2, linewidth=0)
    axes.plot(ends, ends, color="#888", linewidth=1)
    size = 16 if sum(map(len, pairs.values())) < 200 else 3
    for colour, (name, own) in zip(COLOURS, pairs.items(), strict=False):
        points = axes.scatter(*np.transpose(own), s=size, color=colour, label=name, linewidth=0, alpha=0.8)
        points.set_rasterized(size == 3)  # hundreds of points are smaller as an image
    names = [f"{tick:g}" for tick in ticks]
    axes.set(title=title, xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    axes.set(xticks=ticks, xticklabels=names, yticks=ticks, yticklabels=names, xlabel="measured", ylabel="predicted")
    axes.minorticks_off()
    axes.legend(loc="upper left", frameon=False, fontsize=8, markerscale=1 if size > 3 else 2.5)
    axes.spines[["top", "right"]].set_visible(False)


def panels(folder: Path) -> Iterator[tuple[str, Pairs, tuple[float, ...]]]:
    """Yield the title of each panel, its points and its ticks."""
    yield "TensorFlow, 16 cores:\nspeed over the default", on_16_cores(), (0.25, 0.5, 1, 2, 4, 8, 12)
    yield "PyTorch, 16 and 18 cores:\nspeed over all threads", of_threads(folder), (0.125, 0.25, 0.5, 1, 1.5)
    yield "PyTorch, 16 cores:\ninstances over one instance", of_instances(folder), (0.5, 1, 2, 3)


def picture(folder: Path) -> str:
    """Return the chart as SVG."""
    figure = Figure(figsize=(10.5, 4.0), layout="constrained", dpi=150)
    for axes, panel in zip(figure.subplots(1, 3), panels(folder), strict=True):
        draw(axes, *panel)
    return svg_of(figure, transparent=False)


if __name__ == "__main__":
    Path(__file__).with_name("predicted.svg").write_text(picture(Path(sys.argv[1])))
