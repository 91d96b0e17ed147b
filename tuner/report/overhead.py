"""What `tftune overhead` shows: how much of a step is runtime, what hides it, and where the rest goes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from tuner.frameworks.framework import Part
from tuner.model.overhead import HIDDEN
from tuner.quantity import ms_text, percent, ratio_text
from tuner.report.chart import PALETTE, empty_panels, svg_of
from tuner.report.frameworks import ratio_cells
from tuner.report.layout import csv_text, table
from tuner.report.terminal import inputs_with_warnings, warnings
from tuner.result.overhead import HidingResult, OverheadResult, OverheadRow
from tuner.workload.workload import Execution

_WORDS = {
    Part.OPERATORS: "operators",
    Part.COPIES: "copies",
    Part.EXECUTOR: "executor",
    Part.WAITING: "waiting",
    Part.PYTHON: "Python",
}
_BESIDE = (Part.PYTHON, Part.EXECUTOR, Part.WAITING)
_HELPS = {
    Part.PYTHON: "a larger batch helps, at the price of latency",
    Part.EXECUTOR: "fewer and larger operators help, and a larger batch, at the price of latency",
    Part.WAITING: "a larger batch helps, at the price of latency",
}
_OFF = 0.03  # how far parts may be from a clock before it is said
_MICRO = 1e6


def rendered(result: OverheadResult) -> list[RenderableType]:
    """Return the answer, what helps, and a table for each execution."""
    parts: list[RenderableType] = [Text(line) for line in [*answer_lines(result), *help_lines(result)]]
    parts += [warnings(result.warnings)] if result.warnings else []
    for execution in result.hiding_batch:
        rows = [row for row in result.rows if row.execution is execution]
        if rows:
            parts += [Text(), _table(result, execution, rows)]
    parts += [Text(), *inputs_with_warnings(result.workload.fed)] if result.workload.fed else []
    parts += [Text(), *(Text(line, style="dim") for line in _notes(result))]
    return parts


def answer_lines(result: OverheadResult) -> list[str]:
    """Return what was found, in a sentence for each execution."""
    lines = [
        f"{result.workload.name} on {result.device}: exposed overhead, the share of a step in which no operator runs"
    ]
    for execution, hiding in result.hiding_batch.items():
        rows = [row for row in result.rows if row.execution is execution and row.exposed_overhead is not None]
        if not rows:
            lines.append(f"  {execution}: not measured")
            continue
        first, last = rows[0], rows[-1]
        beside = sorted((part for part in _BESIDE if first.parts.get(part)), key=lambda part: -first.parts[part])
        parts = ", ".join(f"{_WORDS[part]} {percent(first.parts[part], 0)}" for part in beside)
        line = f"  {execution}: {_share(first)} at batch size {first.batch_size} ({parts})"
        if first is not last:
            line += f", {_share(last)} at {last.batch_size}; {_hidden(hiding, last.batch_size)}"
        lines.append(line)
    return lines


def help_lines(result: OverheadResult) -> list[str]:
    """Return what helps more than threads, at the smallest batch size that was measured of all."""
    rows = [row for row in result.rows if row.exposed_overhead is not None]
    if not rows:
        return []
    smallest = min(row.batch_size for row in rows)
    beside = sorted((row for row in rows if row.batch_size == smallest), key=lambda row: row.speed, reverse=True)
    lines = []
    slower = [row for row in beside[1:] if beside[0].is_faster(row)]
    if slower:
        times = [f"{beside[0].speed / row.speed:.2g} times as fast as {row.execution}" for row in slower]
        lines.append(f"  at batch size {smallest}, {beside[0].execution} is {' and '.join(times)}")
    largest_part = max(_BESIDE, key=lambda part: beside[0].parts.get(part, 0.0))
    if (beside[0].exposed_overhead or 0.0) > HIDDEN:
        is_most = beside[0].parts.get(largest_part, 0.0) > (beside[0].exposed_overhead or 0.0) / 2
        share = "most" if is_most else "the largest part"
        lines.append(f"  of {beside[0].execution} {share} is {_WORDS[largest_part]}: {_HELPS[largest_part]}")
    return lines


def _span_text(values: Sequence[float]) -> str:
    """Return the smallest and the largest value, once where they look alike."""
    return " to ".join(dict.fromkeys(f"{each:.2f}" for each in (min(values), max(values))))


def _hidden(hiding: HidingResult, largest: int) -> str:
    """Return the hiding batch with its interval."""
    if hiding.estimate is None:
        return f"hiding batch: none up to {largest}"
    if hiding.low == hiding.high == hiding.estimate:
        return f"hiding batch: {hiding.estimate}"
    high = f"more than {largest}" if hiding.high is None else hiding.high
    return f"hiding batch: {hiding.estimate} ({hiding.low} to {high})"


def _share(row: OverheadRow) -> str:
    return percent(row.exposed_overhead or 0.0, 0)


def _table(result: OverheadResult, execution: Execution, rows: Sequence[OverheadRow]) -> RenderableType:
    """Return the rows of an execution."""
    shown = [part for part in (Part.COPIES, *_BESIDE) if any(row.parts.get(part) for row in rows)]
    is_reference = execution is result.reference
    on_gpu = any(row.launch_s is not None for row in rows)
    drawn = table(
        ">batch", ">step ms", ">item ms", ">exposed", ">ms", *(f">{_WORDS[part]}" for part in shown), ">operators",
        ">µs each", ">op/gap", *([">launch µs"] if on_gpu else []),
        *([] if is_reference else [f">× {result.reference}"]), title=execution.value,
    )  # fmt: skip
    for row in rows:
        if row.exposed_overhead is None:
            drawn.add_row(str(row.batch_size), Text(f"{row.status}: {row.message}", style="red"))
            continue
        ratio, step_ms = row.ratio, 1000 * (row.step_s or 0.0)
        drawn.add_row(
            str(row.batch_size),
            ms_text(step_ms),
            ms_text(1000 * (row.per_item_s or 0.0)),
            _exposed(row),
            ms_text(step_ms * row.exposed_overhead),
            *(percent(row.parts.get(part, 0.0), 0) for part in shown),
            str(row.operators),
            _micro_text(row.operator_s),
            "—" if row.launch_ratio is None else f"{row.launch_ratio:.2f}",
            *([_micro_text(row.launch_s)] if on_gpu else []),
            *([] if is_reference else [ratio_text(ratio.speedup, ratio.low, ratio.high) if ratio else "—"]),
        )
    return drawn


def _exposed(row: OverheadRow) -> str:
    share = percent(row.exposed_overhead or 0.0, 0)
    if row.exposed_low is None or row.exposed_high is None:
        return share
    return f"{share} [{100 * row.exposed_low:.0f}, {100 * row.exposed_high:.0f}]"


def _micro_text(seconds: float | None) -> str:
    """Return a time in µs with three digits at least."""
    return "—" if seconds is None else ms_text(_MICRO * seconds)


def _notes(result: OverheadResult) -> list[str]:
    """Return what the figures are from, and what the columns mean."""
    costs = [row.profiler_cost for row in result.rows if row.profiler_cost is not None]
    if not costs:
        return []
    error = max(row.clock_error or 0.0 for row in result.rows)
    off = [f"The parts of a step miss what a clock says by up to {percent(error, 0)}."] if error > _OFF else []
    return [
        "Exposed: of a step, and in ms. Steps and speeds (×) are without the profiler. Shares are of steps with it, "
        f"which took {_span_text(costs)} times as long. Brackets: intervals of 95 %, over blocks of "
        "steps of one process.",
        "Executor: TensorFlow schedules. Waiting: the caller waits for its graph, and no thread runs any of it. "
        "Python: the program that calls TensorFlow. Op/gap: median operator over median gap between two launches; near "
        "1, operators follow each other at once.",
        "A faster execution can have the larger share: compare times as well.",
        *off,
    ]


def as_csv(result: OverheadResult) -> str:
    """Return the rows as CSV."""
    names = [
        "execution", "batch_size", "status", "step_s", "per_item_s", "exposed_overhead", "exposed_low", "exposed_high",
        "operators", "operator_s", "launch_ratio", "launch_s", "profiler_cost",
    ]  # fmt: skip
    rows = (
        (*(getattr(row, name) for name in names), *(row.parts.get(part) for part in Part), *ratio_cells(row.ratio))
        for row in result.rows
    )
    return csv_text([*names, *(f"{part}_share" for part in Part), "speedup", "low", "high"], rows)


def chart(result: OverheadResult) -> str | None:
    """Return exposed overhead and time an item over batch sizes as SVG; None where there is one size."""
    rows = [row for row in result.rows if row.exposed_overhead is not None]
    sizes = sorted({row.batch_size for row in rows})
    if len(sizes) < 2:
        return None
    figure, (left, right) = empty_panels(9, 3.4, 2)
    left.axhline(100 * HIDDEN, color="#999999", linewidth=0.8, linestyle=":")
    for colour, execution in zip(PALETTE, result.hiding_batch, strict=False):
        own = [row for row in rows if row.execution is execution]
        x = [row.batch_size for row in own]
        exposed = [100 * (row.exposed_overhead or 0.0) for row in own]
        low = [100 * (row.exposed_overhead if row.exposed_low is None else row.exposed_low) for row in own]  # type: ignore[operator]
        high = [100 * (row.exposed_overhead if row.exposed_high is None else row.exposed_high) for row in own]  # type: ignore[operator]
        left.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        left.plot(x, exposed, "-o", color=colour, markersize=3, label=execution.value)
        right.plot(x, [1000 * (row.per_item_s or 0.0) for row in own], "-o", color=colour, markersize=3)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.set_xlabel("batch size")
    left.set_ylim(0, 100)
    left.set_ylabel("exposed overhead, % of a step")
    right.set_yscale("log", subs=(2, 3, 5))
    for set_formatter in (right.yaxis.set_major_formatter, right.yaxis.set_minor_formatter):
        set_formatter("{x:g}")
    right.set_ylabel("ms an item")
    left.legend(frameon=False)
    return svg_of(figure)
