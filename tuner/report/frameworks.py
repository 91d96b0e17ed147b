"""What `tftune frameworks` shows: who is fastest, a table at one batch size, and rates over batch sizes."""

from __future__ import annotations

import itertools

from rich.console import Group, RenderableType
from rich.text import Text

from tuner.quantity import energy_text, gib_text, ms_text, percent, plural, rate_text, ratio_text
from tuner.report.card import Answer, Card, input_rows, notes
from tuner.report.card import rendered as rendered_card
from tuner.report.layout import csv_text, table
from tuner.report.terminal import setting_text
from tuner.report.verdicts import VERDICT_STYLES
from tuner.result.frameworks import COMPLETE, FrameworksResult, RatioResult, RowResult, SettingKind
from tuner.result.wording import range_text, speed_up
from tuner.stats.equivalence import VerdictCode


def rendered(result: FrameworksResult) -> list[RenderableType]:
    """Return the answer: the fastest, the table of its batch size, the batch scan, and who takes no part."""
    parts: list[RenderableType] = [*rendered_card(frameworks_card(result))]
    if _measured(result):
        parts += [Text(), _table(result)]
    if len({row.batch_size for row in _measured(result)}) > 1:
        parts += [Text(), _scan(result)]
    return parts


def frameworks_card(result: FrameworksResult) -> Card:
    """Return the answer: whether another framework is faster than the reference, each at its best, and by how much."""
    rows = [*_rivals(result), *_proof(result)]
    rows += [
        ("Left out", f"{each.framework}: {'; '.join(filter(None, (each.reason, each.hint)))}") for each in result.absent
    ]
    untuned: dict[str, list[str]] = {}
    for name, search in result.searches.items():
        if search.failure:
            untuned.setdefault(search.failure, []).append(name)
    rows += [("Not tuned", f"{', '.join(names)}: {failure}") for failure, names in untuned.items()]
    unseen = [row.framework for row in _compared(result) if row.deviation is None and row.kind == SettingKind.DEFAULT]
    if unseen:
        why = "they differ from run to run, or are no numbers other than zero"
        rows.append(("Unchecked", f"{', '.join(unseen)}: outputs could not be compared: {why}"))
    if result.ended != COMPLETE:
        rows.append(("Ended", f"{result.ended}; the same command (without --new) continues"))
    rows += input_rows(result.workload.fed)
    return Card(answers=(_answer(result),), rows=(*rows, *notes(result.warnings)))


def _answer(result: FrameworksResult) -> Answer:
    """Return the answer about the reference, against the fastest."""
    first, reference = result.fastest, f"{result.reference} at its best"
    if first is None:
        text = "no framework was compared with another yet"
        return Answer(code=VerdictCode.UNDECIDED, word="NOTHING COMPARED", text=text)
    at = f"at batch size {result.batch_size}"
    if first.framework == result.reference:
        return _answer_for_reference(result, f"{reference}, {at}")
    at_best = first.framework, first.kind, result.batch_size
    best = next(row for row in _measured(result) if (row.framework, row.kind, row.batch_size) == at_best)
    name = f"{first.framework}, {first.kind}"
    verdict = first.over.get(result.reference)
    if verdict is None or verdict.code is VerdictCode.UNDECIDED:
        known = verdict is not None and verdict.low is not None and verdict.high is not None
        if known and verdict is not None:
            text = f"the fastest was {name}: {range_text(verdict)} the speed of {reference}, {at}"
        else:  # never in one round, or in too few
            text = f"the fastest was {name}; how it compares with {reference}, {at}, is not known yet"
        return Answer(code=VerdictCode.UNDECIDED, word="UNDECIDED", text=text)
    if verdict.code is VerdictCode.BETTER:
        rate = f"{rate_text(best.items_per_s or 0.0)} items/s"
        text = f"{name}, runs at {speed_up(verdict)} the speed of {reference}, {at}: {rate}"
        setting = tuple(_setting(best).split()) if best.kind != SettingKind.DEFAULT else ()
        return Answer(code=verdict.code, word="FASTER", text=text, setting=setting)
    text = f"the fastest, {name}, runs at {speed_up(verdict)} the speed of {reference}, {at}"
    return Answer(code=VerdictCode.NO_DIFFERENCE, word=f"STAY WITH {result.reference.upper()}", text=text)


def _answer_for_reference(result: FrameworksResult, reference: str) -> Answer:
    """Return the answer where nobody was faster than the reference: whether that is shown."""
    assert result.fastest is not None  # it is the reference
    shown = (VerdictCode.BETTER, VerdictCode.NO_DIFFERENCE)
    unknown = [name for name, verdict in result.fastest.over.items() if verdict.code not in shown]
    if unknown or not result.fastest.over:
        text = f"the fastest was {reference}; the proof against {', '.join(unknown) or 'the others'} is missing"
        return Answer(code=VerdictCode.UNDECIDED, word="UNDECIDED", text=text)
    text = f"no framework is faster than {reference}"
    return Answer(code=VerdictCode.NO_DIFFERENCE, word=f"STAY WITH {result.reference.upper()}", text=text)


def _rivals(result: FrameworksResult) -> list[tuple[str, str]]:
    """Return a row for each framework that the fastest is compared with, but for the reference."""
    if result.fastest is None:
        return []
    rows: list[tuple[str, str]] = []
    for name, verdict in result.fastest.over.items():
        is_said = name == result.reference and result.fastest.framework != result.reference
        if not is_said:
            known = verdict.speedup is not None and verdict.low is not None
            text = f"{speed_up(verdict)} the speed of {name} at its best" if known else f"{name}: not known yet"
            rows.append(("Others" if not rows else "", f"{text}: {verdict.code}" if known else text))
    return rows


def _proof(result: FrameworksResult) -> list[tuple[str, str]]:
    """Return what the answer is from."""
    if not result.rounds:
        return []
    rounds = plural(result.rounds, "round")
    same = f"differences under {percent(result.margin, 0)} are treated as equal"
    deviations = [row.deviation for row in _compared(result) if row.deviation is not None]
    agree = f"; outputs agree within {max(deviations):.0e}" if deviations else ""
    until = "one for each framework and setting until its ratio is known within 3 %"
    return [("Proof", f"up to {rounds} of new processes, {until}{agree}; {same}")]


def _measured(result: FrameworksResult) -> list[RowResult]:
    """Return the rows without those of frameworks that are left out, of which a line of its own tells."""
    left_out = {each.framework for each in result.absent}
    return [row for row in result.rows if row.framework not in left_out]


def _compared(result: FrameworksResult) -> list[RowResult]:
    """Return the rows of the verdicts whose outputs were held against the reference's, in its precision."""
    rows = [row for row in _measured(result) if row.batch_size == result.batch_size and row.status == "ok"]
    own = next((row.precision for row in rows if row.framework == result.reference), None)
    return [row for row in rows if row.framework != result.reference and row.precision == own]


def _table(result: FrameworksResult) -> RenderableType:
    """Return the rows at the batch size of the verdicts."""
    rows = [row for row in _measured(result) if row.batch_size == result.batch_size]
    is_metered = any(row.energy_j_per_item is not None for row in rows)
    energy = [">energy per item"] if is_metered else []
    drawn = table(
        "framework", "", ">items/s", f">over {result.reference}'s default", "", "precision", ">deviation",
        ">p50 ms", ">load s", ">cold", ">memory", *energy, "setting",
        title=f"batch size {result.batch_size}",
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
            _deviation(row, result),
            ms_text(row.p50_ms),
            _seconds(row.load_s),
            _seconds(row.cold_load_s),
            gib_text(row.peak_memory_bytes),
            *([energy_text(row.energy_j_per_item)] if is_metered else []),
            "the default" if row.is_default else _setting(row),
        )
    return drawn


def _scan(result: FrameworksResult) -> RenderableType:
    """Return the rates over batch sizes, a column for each framework and kind."""
    rows = _measured(result)
    columns = list(dict.fromkeys((row.framework, row.kind) for row in rows if not _repeats(row)))
    drawn = table(">batch", *(f">{framework} {kind}" for framework, kind in columns), title="items/s by batch size")
    for batch_size in sorted({row.batch_size for row in rows}):
        by_column = {(row.framework, row.kind): row for row in rows if row.batch_size == batch_size}
        drawn.add_row(str(batch_size), *(_rate(by_column[key]) if key in by_column else "" for key in columns))
    latency = [row for row in rows if row.batch_size == 1 and not _repeats(row)]
    if not latency:
        return drawn
    steps = table("", ">p50", ">p95", ">p99", title="one item at a time (ms)")
    for row in latency:
        steps.add_row(f"{row.framework} {row.kind}", ms_text(row.p50_ms), ms_text(row.p95_ms), ms_text(row.p99_ms))
    return Group(drawn, Text(), steps)


def _repeats(row: RowResult) -> bool:
    """Return whether a row repeats that of the default."""
    return row.kind != SettingKind.DEFAULT and row.is_default


def _rate(row: RowResult) -> str:
    if row.items_per_s is None:
        return "—" if row.status == "ok" else str(row.status)
    return rate_text(row.items_per_s)


def _ratio(row: RowResult, result: FrameworksResult) -> str:
    if row.ratio is None:
        return "1" if row.framework == result.reference and row.is_default else "—"
    return ratio_text(row.ratio.speedup, row.ratio.low, row.ratio.high)


def _deviation(row: RowResult, result: FrameworksResult) -> str:
    if row.deviation is None or row.framework == result.reference:
        return "—"
    return f"{row.deviation:.0e}" if row.deviation else "0"


def _seconds(seconds: float | None) -> str:
    return "—" if seconds is None else f"{seconds:.1f}"


def _setting(row: RowResult) -> str:
    return setting_text(row.setting, ("batch_size",))


def as_csv(result: FrameworksResult) -> str:
    """Return the rows as CSV, their settings as words."""
    names = [name for name in RowResult.__struct_fields__ if name not in ("setting", "ratio", "batch_ratio")]
    rows = ((*(getattr(row, name) for name in names), *ratio_cells(row.ratio), _setting(row)) for row in result.rows)
    return csv_text([*names, "speedup", "low", "high", "setting"], rows)


def ratio_cells(ratio: RatioResult | None) -> tuple[float | None, ...]:
    """Return a ratio and the ends of its interval, as cells of a table for programs."""
    return (None, None, None) if ratio is None else (ratio.speedup, ratio.low, ratio.high)


def chart(result: FrameworksResult) -> str | None:
    """Return rates over batch sizes as SVG, dashed lines for defaults; None where there is one size."""
    from tuner.report.chart import PALETTE, empty_figure, svg_of

    rows = _measured(result)
    if len({row.batch_size for row in rows}) < 2:
        return None
    figure, axes = empty_figure(8, 4)
    colours = dict(zip(dict.fromkeys(row.framework for row in rows), itertools.cycle(PALETTE), strict=False))
    for framework, kind in dict.fromkeys((row.framework, row.kind) for row in rows if not _repeats(row)):
        points = [
            (row.batch_size, row.items_per_s)
            for row in rows
            if (row.framework, row.kind) == (framework, kind) and row.items_per_s is not None
        ]
        style = "--" if kind == SettingKind.DEFAULT else "-"
        x, y = [batch for batch, _ in points], [rate for _, rate in points]
        axes.plot(x, y, style, color=colours[framework], marker="o", markersize=3, label=f"{framework}, {kind}")
    axes.set_xscale("log", base=2)
    sizes = sorted({row.batch_size for row in rows})
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("batch size")
    axes.set_ylabel("items/s")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    return svg_of(figure)
