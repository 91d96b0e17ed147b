"""Draw docs/limit.svg: what 32 threads and 4 threads do with a limit of 4 CPUs. It is arithmetic, not a measurement.

python docs/limit.py
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from tuner.report.chart import svg_of

LIMIT_CPUS = 4
PERIOD_MS = 100.0  # the kernel's usual one, cpu.cfs_period_us
N_PERIODS = 3
BUSY, WAITING = "#20759e", "#b34700"


def busy_ms(threads: int) -> float:
    """Return for how long of a period so many busy threads run, until the quota of the period is used up."""
    return min(PERIOD_MS, LIMIT_CPUS * PERIOD_MS / threads)


def picture() -> str:
    """Return the chart as SVG: busy CPUs over time, for two numbers of threads."""
    figure = Figure(figsize=(8.5, 2.8), layout="constrained")
    for axes, threads in zip(figure.subplots(2, 1, sharex=True), (32, LIMIT_CPUS), strict=True):
        run_ms = busy_ms(threads)
        for begin_ms in (PERIOD_MS * i for i in range(N_PERIODS)):
            axes.bar(begin_ms, threads, width=run_ms, align="edge", color=BUSY)
            if run_ms < PERIOD_MS:
                text = f"throttled for {PERIOD_MS - run_ms:g} ms"
                axes.annotate(text, (begin_ms + (run_ms + PERIOD_MS) / 2, 13), ha="center", size=9, color=WAITING)
        axes.set_title(f"{threads} threads with a limit of {LIMIT_CPUS} CPUs", size=10, loc="left")
        axes.set(xlim=(0, N_PERIODS * PERIOD_MS), ylim=(0, 34), yticks=[0, LIMIT_CPUS, 32], ylabel="busy CPUs")
        axes.tick_params(labelsize=8)
        axes.yaxis.label.set_size(8)
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("ms", size=9)
    return svg_of(figure, transparent=False)


if __name__ == "__main__":
    Path(__file__).with_name("limit.svg").write_text(picture())
