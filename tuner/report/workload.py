"""What workloads are and compute, for people and as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from tuner.quantity import duration_text, plural
from tuner.report.layout import table
from tuner.result import fields_of
from tuner.result.inspection import WorkloadLine
from tuner.workload import feed
from tuner.workload.workload import Kind

if TYPE_CHECKING:
    from tuner.model.graph import Features
    from tuner.result.inspection import WorkloadResult
    from tuner.study.subject import WorkloadFacts
    from tuner.workload.pyfile import PythonFile

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SHOWN_OPERATORS = 12
_RUNS = 30  # the noise, each baseline once, and two rounds of finals


def describe(name: str, file: PythonFile) -> WorkloadLine:
    """Return what a workload file says of itself."""
    return WorkloadLine(**fields_of(WorkloadLine, file) | {"name": name, "params": dict(file.params)})


GRAPH_UNKNOWN = "its graph is not analysed: only graphs that TensorFlow exports are, and not all of their parts"


def catalogue(files: Mapping[str, PythonFile]) -> RenderableType:
    """Return the list of workload files."""
    rows = table("workload", "what it computes; modes, parameters, items per step, source")
    rows.columns[0].no_wrap = True
    for name, file in files.items():
        step = f"{plural(file.batch_size, file.item)} per step"
        params = " ".join(f"{key}={value}" for key, value in file.params.items())
        details = "; ".join(part for part in (" or ".join(file.modes), params, step, file.source) if part)
        rows.add_row(Text(name), Text.assemble(file.description, "\n", (details, "dim")))
    return rows


def page(result: WorkloadResult) -> RenderableType:
    """Return what is known of one workload: what it is, and what one item of it computes."""
    workload, features = result.workload, result.features
    params = " ".join(f"{key}={value}" for key, value in workload.params.items())
    facts = (
        ("workload", f"{workload.name}: {workload.description}"),
        ("mode", f"{workload.mode}, executed as {workload.execution}"),
        ("parameters", params),
        ("step", f"{workload.batch_size} × {workload.item} by default"),
        ("inputs", feed.inputs_text(workload.fed)),
        ("source", result.source),
    )
    rows = table("", "", show_header=False, rows=((title, Text(text)) for title, text in facts if text))
    if features is None:
        return Group(rows, Text(), Text(GRAPH_UNKNOWN))
    return Group(rows, Text(), computes(features, workload.item), Text(), operators(features))


def computes(features: Features, item: str) -> RenderableType:
    """Return what one item costs and how its graph looks."""
    rows = table(escape(f"one {item}"), ">", "")
    least = "" if features.known else "at least (the length of a loop, or a shape, is unknown)"
    rows.add_row("variables", quantity(features.parameters), f"{quantity(features.parameter_bytes)}B")
    rows.add_row("operations", f"{quantity(features.flops)}FLOP", least or "a multiply-add counts as two")
    rows.add_row("read and written", f"{quantity(features.moved_bytes)}B", f"{features.intensity:.1f} FLOP per byte")
    rows.add_row("heavy operators", str(features.heavy_operators), "matrix products, convolutions, lookups")
    rows.add_row("layers", str(features.layers), "heavy operators on the longest path")
    rows.add_row("average width", f"{features.width:.2f}", "heavy operators divided by layers (Wang et al., 2021)")
    rows.add_row("depth", str(features.depth), "operators on the longest path")
    return rows


def operators(features: Features) -> RenderableType:
    """Return how many operators of each type the graph has, the most frequent first."""
    counted = list(features.operators.items())
    text = ", ".join(f"{name} {n}" for name, n in counted[:_SHOWN_OPERATORS])
    n_others = sum(n for _, n in counted[_SHOWN_OPERATORS:])
    return Text(f"operators: {text}" + (f", others {n_others}" if n_others else ""), style="dim")


def line(workload: WorkloadFacts, features: Features | None) -> RenderableType:
    """Return the workload of a study in a line or two, with what one item of it computes."""
    if workload.kind == Kind.COMMAND:
        return Text(f"workload {workload.description}")
    params = "".join(f" {key}={value}" for key, value in workload.params.items())
    text = f"workload {workload.name}, {workload.mode}, {workload.execution}{params}"
    if features is not None:
        text += (
            f": {quantity(features.parameters).rstrip()} variables, {quantity(features.flops)}FLOP and "
            f"{quantity(features.moved_bytes)}B per item, average width {features.width:.2f}"
        )
    if workload.fed:
        text += f"\ninputs: {feed.inputs_text(workload.fed)}"
    return Text(text)


def precision(run_s: float) -> RenderableType:
    """Return what is to be expected of a command's figures."""
    return Text(
        f"a run takes {duration_text(run_s)}. Commands are run whole, in turns: a comparison of two settings takes at "
        f"least 12 runs, a search some {_RUNS}.\ntftune cannot remove drift within a run, and cannot see whether a "
        "variable took effect."
    )


def quantity(value: float) -> str:
    """Return a number with three digits and a prefix, ready for its unit: 7.76 G."""
    for size, prefix in _PREFIXES:
        if value >= size:
            return f"{value / size:.3g} {prefix}"
    return f"{value:.3g} "
