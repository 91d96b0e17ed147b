"""Pictures, as SVG: of a study its finals, its trials, and what two of its knobs do together; and of rules.

Of rules: what tuning gains over each baseline, and what they lose on what they have not seen.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import geometric_mean
from typing import TYPE_CHECKING

from tuner.measure.objective import Objective
from tuner.report.rules import SHOWN_BASELINES
from tuner.result.study import ONE, AnswerResult, StudyResult, TrialResult, VerdictResult
from tuner.rules.proof import HeldOut, HeldOutStudy
from tuner.rules.recipe import THREADS
from tuner.rules.rule import RuleSet
from tuner.space.values import Value
from tuner.stats.equivalence import VerdictCode

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito's palette, which stays apart for colour-blind eyes.
_COLOURS = {
    VerdictCode.BETTER: "#009E73",
    VerdictCode.NO_DIFFERENCE: "#56B4E9",
    VerdictCode.UNDECIDED: "#E69F00",
    VerdictCode.WORSE: "#D55E00",
}
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
"""Of lines: Okabe & Ito's too."""
_ONE, _SEVERAL, _BEST, _GREY = "#0072B2", "#CC79A7", "#009E73", "#999999"
_RULE_COLOURS = ("#882255", "#D55E00", "#000000", "#56B4E9", "#0072B2", "#009E73", "#CC79A7", "#E69F00")
_RULE_STYLES = dict(
    zip(("policy", "rules", *SHOWN_BASELINES), zip(_RULE_COLOURS, "dDos^vPX", strict=True), strict=True)
)
"""Of the settings that are held against each other; the shapes differ too."""
_MAX_ROWS = 40  # workloads of a picture of rules
MAX_CELLS = 14  # values of a knob that a surface has room for


def finals(study: StudyResult) -> str | None:
    """Return a forest plot of the finals: each comparison with its interval, and the margin as a band."""
    rows = []
    for of, answer in study.answers.items():
        rows += _comparisons(answer, "" if of == ONE else f"{of} ")
    if not rows or study.finals is None:
        return None
    figure, axes = empty_figure(8, 0.9 + 0.34 * len(rows))
    margin = study.finals.margin
    axes.axvspan(1 / (1 + margin), 1 + margin, color=_GREY, alpha=0.25, linewidth=0)
    axes.axvline(1.0, color=_GREY, linewidth=0.8)
    for at, (_, verdict) in enumerate(reversed(rows)):
        low, high, middle = (float(value or 1.0) for value in (verdict.low, verdict.high, verdict.speedup))
        colour = _COLOURS[verdict.code]
        axes.plot([low, high], [at, at], color=colour, linewidth=2, solid_capstyle="butt")
        axes.plot([middle], [at], "o", color=colour, markersize=5)
        axes.annotate(f" {verdict.code}", (high, at), va="center", fontsize=8, color=colour)
    axes.set_yticks(range(len(rows)), [title for title, _ in reversed(rows)])
    axes.set_xlabel(f"speed-up in new processes; the band is the margin of {100 * margin:g} %")
    return svg_of(figure)


def _comparisons(answer: AnswerResult, of: str) -> list[tuple[str, VerdictResult]]:
    """Return each distinct rival with what was said of it, those that were measured."""
    verdicts = answer.verdicts
    first_names = [name for name in answer.finals.names if name in verdicts]
    return [(f"{of}over {name}", verdicts[name]) for name in first_names if verdicts[name].speedup is not None]


def trials(study: StudyResult) -> str | None:
    """Return the ratio of each trial to the default with its interval, in the order in which they ran."""
    if all(trial.ratio is None for trial in study.history):
        return None
    figure, axes = empty_figure(8, 3.0)
    axes.axhline(1.0, color=_GREY, linewidth=0.8)
    best = None if study.incumbent is None else study.incumbent.setting
    for trial in study.history:
        if trial.ratio is None:
            continue
        colour = _SEVERAL if trial.is_group else _BEST if trial.setting == best else _ONE
        low, high = trial.low or trial.ratio, trial.high or trial.ratio
        alpha = 0.5 if trial.pruned else 1.0
        axes.plot([trial.number] * 2, [low, high], color=colour, linewidth=1.5, alpha=alpha)
        axes.plot([trial.number], [trial.ratio], "o", color=colour, markersize=4, alpha=alpha)
    axes.set_xlabel("trial")
    axes.locator_params(axis="x", integer=True)
    axes.set_ylabel("ratio to the default")
    axes.set_title(
        "one process (the best in green), several processes in pink; pale: stopped early", loc="left", fontsize=9
    )
    return svg_of(figure)


def surface(study: StudyResult) -> str | None:
    """Return what two knobs do together: the best ratio that was measured for each pair of their values.

    The two are the batch size and the knob of which most values were tried. A cell says the ratio and half the width of
    its interval; empty ones were not measured.
    """
    measured = [trial for trial in study.history if trial.ratio is not None and not trial.is_group]
    tried: dict[str, set[Value]] = defaultdict(set)
    for trial in measured:
        for name, value in trial.setting.items():
            tried[name].add(value)
    names = [name for name in tried if 1 < len(tried[name]) <= MAX_CELLS]
    names.sort(key=lambda name: (name != "batch_size", -len(tried[name])))
    if len(names) < 2:
        return None
    across, down = names[0], names[1]
    columns, rows = ordered(tried[across]), ordered(tried[down])
    best: dict[tuple[Value, Value], TrialResult] = {}
    for trial in sorted(measured, key=lambda each: each.ratio or 0.0):
        best[trial.setting[across], trial.setting[down]] = trial
    figure, axes = empty_grid((across, columns), (down, rows), cell=(0.75, 0.5))
    for (x, y), trial in best.items():
        ratio = float(trial.ratio or 1.0)
        colour = _BEST if ratio >= 1 else "#D55E00"
        at = columns.index(x), rows.index(y)
        axes.fill_between(
            [at[0] - 0.48, at[0] + 0.48], at[1] - 0.46, at[1] + 0.46, color=colour,
            alpha=min(0.75, 0.12 + 1.5 * abs(ratio - 1)), linewidth=0,
        )  # fmt: skip
        half = "" if trial.low is None or trial.high is None else f"\n±{(trial.high - trial.low) / 2:.2f}"
        axes.annotate(f"{ratio:.2f}{half}", at, ha="center", va="center", fontsize=7)
    return svg_of(figure)


def latency(study: StudyResult) -> str | None:
    """Return the ratio of each trial against the 99th percentile of its steps, with the limit where there is one."""
    points = [(trial, trial.p99_ms) for trial in study.history if trial.p99_ms is not None]
    if study.objective in (Objective.MAXIMIZE, Objective.MINIMIZE):
        return None  # of a command no steps are seen
    limit = study.limits.p99_s
    drawn = _against(points, None if limit is None else 1000 * limit)
    if drawn is None:
        return None
    figure, axes = drawn
    best: dict[Value, tuple[float, float]] = {}  # of each batch size, which is named once
    for trial, p99_ms in points:
        if trial.ratio is not None:
            batch_size = trial.setting["batch_size"]
            best[batch_size] = max((trial.ratio, p99_ms), best.get(batch_size, (0.0, 0.0)))
    for batch_size, (ratio, p99_ms) in best.items():
        axes.annotate(f"batch {batch_size}", (p99_ms, ratio), (4, 4), textcoords="offset points", fontsize=7)
    axes.set_xscale("log")
    axes.set_xlabel(f"p99 of a {'response' if study.objective is Objective.RESPONSE else 'step'} (ms)")
    return svg_of(figure)


def memory(study: StudyResult) -> str | None:
    """Return the ratio of each trial against the peak memory of its process, with the limit where there is one."""
    peaks = [(trial, trial.peak_memory_bytes) for trial in study.history if trial.peak_memory_bytes is not None]
    limit = study.limits.memory_bytes
    drawn = _against([(trial, n / 2**30) for trial, n in peaks], None if limit is None else limit / 2**30)
    if drawn is None:
        return None
    figure, axes = drawn
    axes.set_xlabel("peak memory (GiB)")
    return svg_of(figure)


def _against(points: Sequence[tuple[TrialResult, float]], limit: float | None) -> tuple[Figure, Axes] | None:
    """Return the ratio of each trial against a figure of it, with a limit of that; None of fewer than two."""
    measured = [(trial, x, trial.ratio) for trial, x in points if trial.ratio is not None]
    if len(measured) < 2:
        return None
    figure, axes = empty_figure(8, 3.0)
    for trial, x, ratio in measured:
        axes.plot([x], [ratio], "o", color=_SEVERAL if trial.is_group else _ONE, markersize=5)
    if limit is not None:
        axes.axvline(limit, color="#D55E00", linestyle="--", linewidth=1)
    axes.set_ylabel("ratio to the default")
    return figure, axes


def ordered(values: set[Value]) -> list[Value]:
    """Return the values of a knob, numbers before words."""
    return sorted(values, key=lambda value: (isinstance(value, str), value))


def empty_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Return an empty figure (inches), whose background is that of the page."""
    figure, [axes] = empty_panels(width, height, 1)
    return figure, axes


def empty_panels(width: float, height: float, n: int, *, sharey: bool = False) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure (inches) with so many empty panels beside each other."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"font.size": 9}):
        figure = Figure(figsize=(width, height), layout="constrained")
        [panels] = figure.subplots(1, n, sharey=sharey, squeeze=False)
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels


def empty_grid(
    across: tuple[str, Sequence[Value]], down: tuple[str, Sequence[Value]], *, cell: tuple[float, float]
) -> tuple[Figure, Axes]:
    """Return a figure with a cell, of that width and height (inches), for each pair of values of two knobs."""
    (x_name, columns), (y_name, rows) = across, down
    figure, axes = empty_figure(1.5 + cell[0] * len(columns), 1.2 + cell[1] * len(rows))
    axes.set_xticks(range(len(columns)), [str(value) for value in columns])
    axes.set_yticks(range(len(rows)), [str(value) for value in rows])
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    axes.set_xlabel(x_name)
    axes.set_ylabel(y_name)
    return figure, axes


DARK_STYLE = (
    "<style>@media(prefers-color-scheme:dark){svg:root{color-scheme:dark}"
    ".tftune-chart{filter:invert(1) hue-rotate(180deg)}}</style>"
)
"""Inverts the lightness of a picture on a dark screen and keeps its hues; a picture alone gets a dark page."""


def svg_of(figure: Figure, *, transparent: bool = True) -> str:
    """Return a figure; the same figures give the same text: no date in it, and no random names."""
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context({"svg.hashsalt": "tftune", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", transparent=transparent, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return (
        text[text.index("<svg") :]
        .replace("<svg", '<svg class="tftune-chart"', 1)
        .replace("<defs>", f"{DARK_STYLE}<defs>", 1)
    )


def all_of(study: StudyResult) -> Sequence[tuple[str, str]]:
    """Return the charts that a study has something for, each with its title."""
    drawn = {
        "Finals": finals(study),
        "Trials": trials(study),
        "Two knobs together": surface(study),
        "Speed and latency": latency(study),
        "Speed and memory": memory(study),
    }
    return [(title, svg) for title, svg in drawn.items() if svg is not None]


# ---- rules ----------------------------------------------------------------------------------------------------------


def speedups(rules: RuleSet) -> str | None:
    """Return the best setting found over each baseline, by workload; None where nothing was held out."""
    proof = _proof(rules)
    if proof is None:
        return None
    names = [name for name in _RULE_STYLES if name in proof.studies[0].best_over]
    means = _means(proof.studies, lambda study: study.best_over, names)
    return _dots(means, names, title="speed-up of the best setting found over each baseline", label="ratio of rates")


def losses(rules: RuleSet) -> str | None:
    """Return what rules and baselines reach of the best found, on workloads that the rules had not seen."""
    proof = _proof(rules)
    if proof is None:
        return None
    names = [name for name in _RULE_STYLES if name in {row.name for row in proof.rows}]
    means = _means(proof.studies, lambda study: study.of_best, names)
    title = "held-out workloads: share of the best rate found"
    return _dots(means, names, title=title, label="share of the best found")


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


def _dots(means: Mapping[str, Mapping[str, float]], names: Sequence[str], *, title: str, label: str) -> str:
    from matplotlib import rc_context

    figure, axes = empty_figure(8, 1.4 + 0.24 * len(means))
    with rc_context({"font.size": 9}):
        for name in reversed(names):
            colour, marker = _RULE_STYLES[name]
            x = [values[name] for values in means.values()]
            axes.scatter(x, range(len(means)), color=colour, marker=marker, s=26, label=name, alpha=0.85, zorder=3)
        axes.axvline(1.0, color="#888888", linewidth=0.8, zorder=1)
        axes.set_yticks(range(len(means)), list(means))
        axes.set_xlabel(label)
        axes.set_title(title, loc="left", fontsize=10)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6, zorder=0)
        handles, labels = axes.get_legend_handles_labels()
        axes.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
        return svg_of(figure, transparent=False)
