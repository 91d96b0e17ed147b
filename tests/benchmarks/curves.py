"""Predicted curves beside measured ones, drawn: a panel for all CPUs, for one, and for a quota of one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.benchmarks.grids import Measured
from tuner.report.chart import PALETTE, empty_panels, svg_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLES = {"all": "all CPUs", "one": "one CPU", "quota": "a quota of one CPU"}


def curves(name: str, measured: Sequence[Measured], predicted: Sequence[float]) -> str:
    """Return items/s over batch sizes: lines are predicted, points measured, with the range of their rounds."""
    figure, panels = empty_panels(9, 2.8, len(TITLES), sharey=True)
    rows = [(each, rate) for each, rate in zip(measured, predicted, strict=True)]
    threads = sorted({threads_of(each) for each in measured})
    for axes, shape in zip(panels, TITLES, strict=True):
        _panel(axes, [row for row in rows if row[0].shape == shape], threads)
        axes.set_title(TITLES[shape], loc="left", fontsize=9)
    panels[0].set_ylabel(f"{name}: items/s")
    panels[0].set_ylim(bottom=0)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    return svg_of(figure)


def threads_of(measured: Measured) -> str:
    """Return the threads of a setting in words."""
    values = measured.setting.to_dict()
    names = [name for name in ("inter_op", "intra_op", "omp_num_threads") if name in values]
    return ", ".join(f"{name.removesuffix('_num_threads')} {values[name]}" for name in names)


def _panel(axes: Axes, rows: Sequence[tuple[Measured, float]], threads: Sequence[str]) -> None:
    """Draw a curve for each number of threads."""
    for colour, own_threads in zip(itertools.cycle(PALETTE), threads, strict=False):
        own = [row for row in rows if threads_of(row[0]) == own_threads]
        x = [each.setting.batch_size for each, _ in own]
        axes.plot(x, [rate for _, rate in own], "-", color=colour, linewidth=1, label=own_threads)
        for at, (each, _) in zip(x, own, strict=True):
            axes.plot([at, at], [math.exp(min(each.grid)), math.exp(max(each.grid))], color=colour, linewidth=1)
            axes.plot([at], [each.items_per_s], "o", color=colour, markersize=4)
    axes.set_xscale("log", base=2)
    sizes = sorted({each.setting.batch_size for each, _ in rows})
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xlabel("batch size")
