"""What `tftune frameworks` shows: who is fastest, a table at one batch size, and rates over batch sizes."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tuner.report.layout import energy_text, ms_text, plural, rate_text, ratio_text, table
from tuner.report.result.frameworks import FrameworksResult, RowResult
from tuner.report.verdicts import VERDICT_STYLES, speedup_text
from tuner.space.values import Value

_GIB = 1024**3


def rendered(result: FrameworksResult) -> list[RenderableType]:
    """Return the answer: the fastest, the table of its batch size, the batch scan, and who takes no part."""
    parts: list[RenderableType] = [*_headline(result), Text(), _table(result)]
    if len({row.batch_size for row in result.rows}) > 1:
        parts += [Text(), _scan(result)]
    parts += [Text(f"{each.framework}: {each.status}: {each.reason}", style="yellow") for each in result.absent]
    parts += [Text(f"{each.found}; {each.advice}", style="yellow") for each in result.warnings]
    if result.ended != "complete":
        parts.append(Text(f"ended: {result.ended}; the same command goes on where it stopped", style="yellow"))
    return parts


def _headline(result: FrameworksResult) -> list[Text]:
    """Return who is fastest, and what is said of that against each other framework."""
    first = result.fastest
    if first is None:
        return [Text("nothing is compared yet", style="yellow")]
    best = next(row for row in result.rows if _is(row, first.framework, first.kind, result.batch_size))
    of = f"{first.framework} ({first.kind}) is the fastest at batch size {result.batch_size}"
    lines = [Text(f"{of}: {rate_text(best.items_per_s or 0.0)} items/s", style="bold")]
    for name, verdict in first.over.items():
        line = Text(f"  over {name} at its best: {speedup_text(verdict)}, ")
        lines.append(line.append(verdict.code, style=VERDICT_STYLES[verdict.code]))
    return lines


def _is(row: RowResult, framework: str, kind: str, batch_size: int) -> bool:
    return (row.framework, row.kind, row.batch_size) == (framework, kind, batch_size)


def _table(result: FrameworksResult) -> RenderableType:
    """Return the rows at the batch size of the verdicts."""
    rows = [row for row in result.rows if row.batch_size == result.batch_size]
    is_metered = any(row.energy_j_per_item is not None for row in rows)
    energy = [">energy an item"] if is_metered else []
    drawn = table(
        "framework", "", ">items/s", f">over {result.reference}'s default", "", "in", ">deviation",
        ">p50 ms", ">load s", ">cold", ">memory", *energy, "setting",
        title=f"batch size {result.batch_size}: {plural(result.rounds, 'round')} of new processes",
    )  # fmt: skip
    for row in rows:
        verdict = Text("" if row.verdict is None else row.verdict, style=VERDICT_STYLES.get(row.verdict, ""))  # type: ignore[arg-type]
        drawn.add_row(
            row.framework,
            row.kind,
            _rate(row),
            _ratio(row, result),
            verdict if not row.message else Text(row.message, style="red"),
            row.precision or "—",
            "—" if row.deviation is None else f"{row.deviation:.0e}",
            ms_text(row.p50_ms),
            _seconds(row.load_s),
            _seconds(row.cold_load_s),
            "—" if row.peak_memory_bytes is None else f"{row.peak_memory_bytes / _GIB:.2f} GiB",
            *([energy_text(row.energy_j_per_item)] if is_metered else []),
            "the default" if row.is_default else _setting(row),
        )
    return drawn


def _scan(result: FrameworksResult) -> RenderableType:
    """Return the rates over batch sizes, a column for each framework and kind."""
    columns = list(dict.fromkeys((row.framework, row.kind) for row in result.rows if not _repeats(row)))
    drawn = table(">batch", *(f">{framework} {kind}" for framework, kind in columns), title="items/s by batch size")
    for batch_size in sorted({row.batch_size for row in result.rows}):
        cells = {(row.framework, row.kind): row for row in result.rows if row.batch_size == batch_size}
        drawn.add_row(str(batch_size), *(_rate(cells[key]) if key in cells else "" for key in columns))
    latency = [row for row in result.rows if row.batch_size == 1 and not _repeats(row)]
    if not latency:
        return drawn
    steps = table("", ">p50", ">p95", ">p99", title="one item at a time (ms)")
    for row in latency:
        steps.add_row(f"{row.framework} {row.kind}", ms_text(row.p50_ms), ms_text(row.p95_ms), ms_text(row.p99_ms))
    return Group(drawn, Text(), steps)


def _repeats(row: RowResult) -> bool:
    """Return whether a row repeats that of the default."""
    return row.kind != "default" and row.is_default


def _rate(row: RowResult) -> str:
    return str(row.status) if row.items_per_s is None and row.status != "ok" else rate_text(row.items_per_s or 0.0)


def _ratio(row: RowResult, result: FrameworksResult) -> str:
    if row.ratio is None:
        return "1" if row.framework == result.reference and row.is_default else "—"
    return ratio_text(row.ratio.speedup, row.ratio.low, row.ratio.high)


def _seconds(seconds: float | None) -> str:
    return "—" if seconds is None else f"{seconds:.1f}"


def _setting(row: RowResult) -> str:
    values: Sequence[tuple[str, Value]] = [item for item in row.setting.items() if item[0] != "batch_size"]
    return " ".join(f"{name}={value}" for name, value in values)


def as_csv(result: FrameworksResult) -> str:
    """Return the rows as CSV, their settings as words."""
    names = [name for name in RowResult.__struct_fields__ if name not in ("setting", "ratio")]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, "speedup", "low", "high", "setting"])
    for row in result.rows:
        ratio = row.ratio
        ends = ["", "", ""] if ratio is None else [ratio.speedup, ratio.low, ratio.high]
        values = ["" if getattr(row, name) is None else getattr(row, name) for name in names]
        writer.writerow([*values, *ends, _setting(row)])
    return out.getvalue()


def chart(result: FrameworksResult) -> str | None:
    """Return rates over batch sizes as SVG, dashed lines for defaults; None where there is one size."""
    from tuner.report.chart import empty_figure, svg_of

    if len({row.batch_size for row in result.rows}) < 2:
        return None
    figure, axes = empty_figure(8, 4)
    colours = dict(zip(dict.fromkeys(row.framework for row in result.rows), _COLOURS, strict=False))
    for framework, kind in dict.fromkeys((row.framework, row.kind) for row in result.rows if not _repeats(row)):
        points = [
            (row.batch_size, row.items_per_s)
            for row in result.rows
            if (row.framework, row.kind) == (framework, kind) and row.items_per_s is not None
        ]
        style = "--" if kind == "default" else "-"
        x, y = [batch for batch, _ in points], [rate for _, rate in points]
        axes.plot(x, y, style, color=colours[framework], marker="o", markersize=3, label=f"{framework}, {kind}")
    axes.set_xscale("log", base=2)
    sizes = sorted({row.batch_size for row in result.rows})
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("batch size")
    axes.set_ylabel("items/s")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    return svg_of(figure)


# Okabe & Ito's palette, which stays apart for colour-blind eyes.
_COLOURS = ("#0072B2", "#56B4E9", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#000000")
