"""Pictures of rules, as SVG: what tuning gains over each baseline, and what rules lose on what they have not seen."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import geometric_mean
from typing import TYPE_CHECKING

from tuner.rules.proof import HeldOut, HeldOutStudy
from tuner.rules.recipe import THREADS
from tuner.rules.rule import RuleSet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito's palette, which stays apart for colour-blind eyes; the shapes differ too.
_STYLES = {
    "policy": ("#882255", "d"),
    "rules": ("#D55E00", "D"),
    "tf-default": ("#000000", "o"),
    "tf-guide": ("#56B4E9", "s"),
    "tf-guide-mkl": ("#0072B2", "^"),
    "intel": ("#009E73", "v"),
    "intel-zoo": ("#CC79A7", "P"),
    "wang-width": ("#E69F00", "X"),
}
_MAX_ROWS = 40


def speedups(rules: RuleSet) -> str | None:
    """Return the best setting found over each baseline, by workload; None where nothing was held out."""
    proof = _proof(rules)
    if proof is None:
        return None
    names = [name for name in _STYLES if name in proof.studies[0].best_over]
    means = _means(proof.studies, lambda study: study.best_over, names)
    return _dots(
        means, names, title="speed-up of the best setting found over each baseline", label="ratio of rates", at=1.0
    )


def losses(rules: RuleSet) -> str | None:
    """Return what rules and baselines reach of the best found, on workloads that the rules had not seen."""
    proof = _proof(rules)
    if proof is None:
        return None
    names = [name for name in _STYLES if name in {row.name for row in proof.rows}]
    means = _means(proof.studies, lambda study: study.of_best, names)
    title = "held-out workloads: share of the best rate found"
    return _dots(means, names, title=title, label="share of the best found", at=1.0)


def _proof(rules: RuleSet) -> HeldOut | None:
    """Return the test of rules on threads with each workload left out, if there is one."""
    proof = rules.groups[THREADS].proof.by_workload if THREADS in rules.groups else None
    return proof if proof is not None and proof.studies else None


def _means(
    studies: Sequence[HeldOutStudy], figures_of: Callable[[HeldOutStudy], Mapping[str, float]], names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return the geometric mean of each workload, by name; those that differ most first, of too many."""
    by_workload: dict[str, list[Mapping[str, float]]] = defaultdict(list)
    for study in studies:
        by_workload[study.situation.workload].append(figures_of(study))
    means = {w: {name: geometric_mean(row[name] for row in rows) for name in names} for w, rows in by_workload.items()}
    widest = sorted(means, key=lambda w: min(means[w].values()) - max(means[w].values()))[:_MAX_ROWS]
    return {workload: means[workload] for workload in sorted(widest, reverse=True)}


def _dots(means: Mapping[str, Mapping[str, float]], names: Sequence[str], *, title: str, label: str, at: float) -> str:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # The same figures give the same file: no date in it, and no random names.
    with rc_context({"svg.hashsalt": "tftune", "font.size": 9, "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 1.4 + 0.24 * len(means)), layout="constrained")
        axes = figure.subplots()
        for name in reversed(names):
            colour, marker = _STYLES[name]
            x = [values[name] for values in means.values()]
            axes.scatter(x, range(len(means)), color=colour, marker=marker, s=26, label=name, alpha=0.85, zorder=3)
        axes.axvline(at, color="#888888", linewidth=0.8, zorder=1)
        _finish(axes, list(means), title, label)
        return _svg(figure)


def _finish(axes: Axes, workloads: Sequence[str], title: str, label: str) -> None:
    axes.set_yticks(range(len(workloads)), workloads)
    axes.set_xlabel(label)
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)


def _svg(figure: Figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg") :]
