"""Write the tables of README.md from the documents beside it, between their marks; the words between them are ours.

.venv/bin/python -m results.overhead.page
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from results.marks import filled, machine

FOLDER = Path(__file__).parent
PAGE = FOLDER / "README.md"
MODELS = ("lenet5", "resnet50", "bert-base")


def documents() -> dict[str, dict[str, Any]]:
    """Return the documents that are there, by model."""
    paths = {model: FOLDER / model / "overhead.json" for model in MODELS}
    return {model: json.loads(path.read_text()) for model, path in paths.items() if path.exists()}


def table(document: Mapping[str, Any]) -> str:
    """Return the figures of one model: a line for each batch size, and three columns for each execution."""
    executions = list(document["hiding_batch"])
    heads = [f"{name}: step | exposed overhead | operators" for name in executions]
    heads += [f"{name} over {document['reference']}" for name in executions[1:]]
    lines = [f"| batch | {' | '.join(heads)} |", "| ---: |" + " ---: |" * (4 * len(executions) - 1)]
    rows = {(row["execution"], row["batch_size"]): row for row in document["rows"]}
    for batch_size in sorted({size for _, size in rows}):
        own = [rows.get((name, batch_size)) for name in executions]
        cells = [*map(figures, own), *map(ratio, own[1:])]
        lines.append(f"| {batch_size} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *notes(document)])


def figures(row: Mapping[str, Any] | None) -> str:
    """Return the three cells of a row: its step, its exposed overhead, and its operators."""
    if row is None or row["exposed_overhead"] is None:
        return f"{'—' if row is None else row['status']} | |"
    step_s, low, high = row["step_s"], row["exposed_low"], row["exposed_high"]
    step = f"{1000 * step_s:.3g} ms" if step_s < 1 else f"{step_s:.3g} s"
    ends = "" if low is None else f" [{100 * low:.0f}, {100 * high:.0f}]"
    operators = str(row["operators"])
    if row["operator_s"] is not None:
        each_us = 1e6 * row["operator_s"]
        operators += f" of {each_us:.3g} µs" if each_us < 1000 else f" of {each_us / 1000:.3g} ms"
    return f"{step} | {100 * row['exposed_overhead']:.0f} %{ends} | {operators}"


def ratio(row: Mapping[str, Any] | None) -> str:
    """Return the ratio of a row to the reference."""
    own = None if row is None else row["ratio"]
    return "—" if own is None else f"{own['speedup']:.2f} [{own['low']:.2f}, {own['high']:.2f}]"


def notes(document: Mapping[str, Any]) -> list[str]:
    """Return what hides the overhead, what the profiler costs, and the machine."""
    hiding = ", ".join(f"{name} {hidden(each)}" for name, each in document["hiding_batch"].items())
    rows = [row for row in document["rows"] if row["profiler_cost"] is not None]
    costs, errors = ([row[name] for row in rows] for name in ("profiler_cost", "clock_error"))
    return [
        f"Hidden (below 10 %) from batch size: {hiding}. Steps with the profiler took {min(costs):.2f} to "
        f"{max(costs):.2f} times as long; their parts add up to what a clock says within {100 * max(errors):.1f} %.",
        "",
        machine(document["machine"]),
    ]


def hidden(hiding: Mapping[str, Any]) -> str:
    """Return a hiding batch with its interval."""
    if hiding["estimate"] is None:
        return "none of these"
    low, high = hiding["low"], "more than these" if hiding["high"] is None else hiding["high"]
    return f"{hiding['estimate']}" if low == high else f"{hiding['estimate']} ({low} to {high})"


def all_tables() -> dict[str, str]:
    """Return all tables by the name of their marks."""
    return {model: table(document) for model, document in documents().items()}


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), all_tables()))
