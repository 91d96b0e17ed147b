"""What `tftune load` and `tftune size` show: the rate that each setting carries, its curve, and how many are needed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tuner.quantity import duration_text, gib_text, ms_text, percent, plural, rate_text, ratio_text
from tuner.report.card import Answer, Card, notes
from tuner.report.card import rendered as rendered_card
from tuner.report.layout import csv_text, table
from tuner.report.terminal import setting_text
from tuner.result.load import QUANTILES, CurveResult, LoadPoint, LoadResult, SizeResult
from tuner.stats.equivalence import VerdictCode

_FAR = 1.1  # times: the model of the queue is that much off
_WORDS = {
    VerdictCode.BETTER: "MORE",
    VerdictCode.WORSE: "LESS",
    VerdictCode.NO_DIFFERENCE: "NO DIFFERENCE",
    VerdictCode.UNDECIDED: "UNDECIDED",
}


def load_card(result: LoadResult) -> Card:
    """Return the answer: what each setting carries within the limit, or where the knees of their curves are."""
    rows: list[tuple[str, str]] = []
    for curve in result.curves:
        setting = {name: value for name, value in curve.setting.items() if name != "batch_size"}
        rows.append((curve.name, f"{setting_text(setting)}; {curve.processes_text}, {_batches_text(curve)}"))
        rows.append(("", f"{_price(curve)}; {gib_text(curve.peak_memory_bytes)}"))
    rows.append(("Requests", f"of one {result.item} each, at random times (Poisson), dealt out at random"))
    rows.append(("Proof", f"{plural(result.rounds, 'round')} of new processes in turns, {_seconds(result)} under load"))
    rows += [(name, text) for name, text in result.failures.items()]
    rows += [("Note", text) for text in _model_notes(result)]
    rows += [("Study", result.study)]
    if result.limit_ms is None:
        rows.append(("Next", f"tftune load {result.study} --max-p99 50ms gives the rate that keeps to a limit"))
    else:
        limit = f"--max-p99 {result.limit_ms:g}ms"
        rows.append(("Next", f"tftune size {result.study} --rate R {limit} gives how many carry a load"))
    return Card(answers=tuple(_answers(result)), rows=(*rows, *notes(result.warnings)))


def _answers(result: LoadResult) -> list[Answer]:
    if result.limit_ms is None:
        knees = "; ".join(f"{curve.name} {rate_text(curve.knee.rate)}/s" for curve in result.curves)
        text = f"{result.workload}: beyond these rates requests wait for one another: {knees}"
        return [Answer(code=VerdictCode.NO_DIFFERENCE, word="KNEES", text=text)]
    default, limit = result.curves[0], f"p99 of at most {result.limit_ms:g} ms"
    if result.has_no_rate:
        least = min(result.curves, key=lambda curve: curve.unloaded_ms)
        text = (
            f"{result.workload}: no rate keeps to a {limit}; with hardly any load the p99 is "
            f"{ms_text(least.unloaded_ms)} ms ({least.name})"
        )
        return [Answer(code=VerdictCode.WORSE, word="NO RATE", text=text)]
    answers = []
    for curve in result.curves[1:] or result.curves:
        verdict = curve.against_default
        carried = f"{_capacity_text(curve)} within a {limit}"
        if verdict is None or verdict.speedup is None:
            is_open = curve is not default and curve.carries and not curve.surely_keeps(result.limit_ms)
            unsure = f"not sure to keep to a {limit}: {curve.unloaded_text}"
            text = f"{result.workload}, {curve.name}: {unsure if is_open else carried}"
            if curve is not default:
                text += f"; {default.name} {_capacity_text(default)}"
            word = "UNDECIDED" if is_open else "CARRIES"
            answers.append(Answer(code=VerdictCode.UNDECIDED, word=word, text=text))
            continue
        ratio = ratio_text(verdict.speedup, verdict.low, verdict.high, "×")
        text = f"{result.workload}, {curve.name}: {ratio} the rate of {default.name} ({_both(default, curve)} {limit})"
        answers.append(Answer(code=verdict.code, word=_WORDS[verdict.code], text=text))
    return answers


def _batches_text(curve: CurveResult) -> str:
    """Return how requests become batches."""
    if curve.max_batch == 1:
        return "a call for each request"
    wait = f" wait at most {curve.batch_wait_ms:g} ms" if curve.batch_wait_ms else " do not wait"
    return f"batches of at most {curve.max_batch} that{wait}"


def _both(default: CurveResult, curve: CurveResult) -> str:
    return f"{_rate(default)} → {_rate(curve)} requests/s within a"


def _rate(curve: CurveResult) -> str:
    return "0" if curve.capacity is None else rate_text(curve.capacity.rate)


def _capacity_text(curve: CurveResult) -> str:
    """Return the rate that a setting carries, with its interval."""
    capacity = curve.capacity
    if capacity is None or not capacity.rate:
        return "carries no rate"
    high = math.inf if capacity.high is None else capacity.high
    return f"carries {rate_text(capacity.rate)} [{rate_text(capacity.low)}, {rate_text(high)}] requests/s"


def _price(curve: CurveResult) -> str:
    knee = curve.knee
    return (
        f"p99 {ms_text(curve.unloaded_ms)} ms with hardly any load, {ms_text(knee.p99)} ms at the knee "
        f"({rate_text(knee.rate)}/s), at most {rate_text(curve.saturation)}/s"
    )


def _seconds(result: LoadResult) -> str:
    return duration_text(result.timed_s)


def _model_notes(result: LoadResult) -> list[str]:
    """Return which settings' responses the model of the queue does not give again."""
    return [
        f"{curve.name}: the model of the queue gives {ratio_text(curve.model_ratio, None, None)} times the responses "
        "that were measured; trust the measured points of --details"
        for curve in result.curves
        if curve.model_ratio is not None and not 1 / _FAR <= curve.model_ratio <= _FAR
    ]


def rendered(result: LoadResult, *, details: bool = False) -> list[RenderableType]:
    """Return the answer, and the curves; with `details` all of their points, and those that were measured."""
    parts: list[RenderableType] = [*rendered_card(load_card(result)), Text()]
    parts.append(_curves(result, every=1 if details else 4))
    if details:
        parts += [Text(), _measured(result)]
    return parts


def _curves(result: LoadResult, *, every: int) -> Table:
    """Return the p50 and p99 of each setting at rates of the largest curve, every so many of them."""
    largest = max(result.curves, key=lambda curve: curve.saturation)
    heads = [f">{curve.name}: p50" for curve in result.curves]
    both = [head for name in heads for head in (name, ">p99")]
    rows = table(">requests/s", *both, title="responses (ms)")
    for point in largest.points[1::every]:
        cells = [curve.response_ms(point.rate, name) for curve in result.curves for name in ("p50", "p99")]
        rows.add_row(rate_text(point.rate), *(ms_text(ms) for ms in cells))
    return rows


def _measured(result: LoadResult) -> Table:
    title = f"as measured (ms), with batches of at most {result.curves[0].measured_batch}"
    rows = table("", ">requests/s", ">p50", ">p95", ">p99", ">batch", ">requests", title=title)
    for curve in result.curves:
        for point in curve.measured:
            figures = [ms_text(value) for value in (point.p50, point.p95, point.p99)]
            rows.add_row(curve.name, rate_text(point.rate), *figures, f"{point.batch:.1f}", str(point.n_requests))
    return rows


def as_csv(result: LoadResult) -> str:
    """Return a row for each point of each curve, and for each that was measured."""
    titles = ("setting", "kind", "rate", *QUANTILES, "batch", "requests")

    def row(curve: CurveResult, kind: str, point: LoadPoint) -> Sequence[object]:
        return (curve.name, kind, point.rate, point.p50, point.p95, point.p99, point.batch, point.n_requests)

    rows = [
        row(curve, kind, point)
        for curve in result.curves
        for kind, points in (("curve", curve.points), ("measured", curve.measured))
        for point in points
    ]
    return csv_text(titles, rows)


def chart(result: LoadResult) -> str:
    """Return the p99 and the p50 of each setting over the rate as SVG, with the limit as a line and the knees marked.

    Dots are what was measured: the p50, and the p95 where there were enough requests.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    from tuner.report.chart import PALETTE, empty_figure, svg_of

    figure, axes = empty_figure(8, 4)
    for curve, colour in zip(result.curves, itertools.cycle(PALETTE), strict=False):
        for name, style, width in (("p99", "-", 2), ("p50", "--", 1)):
            label = f"{curve.name}, p99" if name == "p99" else name
            axes.plot(*_line(curve.points, name), style, color=colour, linewidth=width, label=label)
        for name, marker in (("p50", "o"), ("p95", "^")):
            axes.plot(*_line(curve.measured, name), marker, color=colour, markersize=4, linestyle="")
        axes.plot(*_line([curve.knee], "p99"), "D", color=colour, markersize=8, fillstyle="none")
        if curve.capacity is not None and curve.capacity.rate and result.limit_ms is not None:
            axes.plot([curve.capacity.rate], [result.limit_ms], "*", color=colour, markersize=12)
    if result.limit_ms is not None:
        axes.axhline(result.limit_ms, color="#D55E00", linestyle=":", linewidth=1.5, label="limit")
    lows = [point.p50 for curve in result.curves for point in curve.points if point.p50]
    tops = [float(curve.knee.p99 or 0.0) * 4 for curve in result.curves]
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(0.7 * min(lows), max([*tops, 1.3 * (result.limit_ms or 0.0)]))
    axes.set_xlim(left=0)
    axes.set_xlabel("requests per second")
    axes.set_ylabel("response (ms)")
    batches = {curve.measured_batch for curve in result.curves}
    of = f"batches of at most {max(batches)}" if max(batches) > 1 else "a call for each request"
    title = f"diamonds: knees; stars: the rate at the limit; measured with {of}: dots p50, triangles p95"
    axes.set_title(title, loc="left", fontsize=8)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    return svg_of(figure)


def _line(points: Sequence[LoadPoint], name: str) -> tuple[list[float], list[float]]:
    """Return the rates (1/s) and a quantile (ms) of the points that have it."""
    known = [(point.rate, float(ms)) for point in points if (ms := getattr(point, name)) is not None]
    return [rate for rate, _ in known], [ms for _, ms in known]


# ---- sizing ---------------------------------------------------------------------------------------------------------


def size_page(result: SizeResult) -> list[RenderableType]:
    """Return how many copies carry a load: the cheapest first."""
    load = f"{result.rate:g} requests/s with a p99 of at most {result.limit_ms:g} ms"
    load += f" and {percent(result.headroom, 0)} headroom" if result.headroom else ""
    best = next((row for row in result.rows if row.copies is not None), None)
    if best is None:
        least = min(result.rows, key=lambda row: row.unloaded_ms)
        text = f"{result.workload}: no number of copies carries {load}; with hardly any load the p99 is "
        text += f"{ms_text(least.unloaded_ms)} ms ({least.name})"
        return [Text(text, style="yellow"), Text(), _sizes(result)]
    each = f"{plural(best.processes, 'process', 'processes')} on {best.cpus:g} CPUs"
    answer = f"{plural(best.copies or 0, 'copy', 'copies')} of {best.name}, each {each}"
    notes_ = []
    if any(row.is_extrapolated for row in result.rows):
        notes_.append("*: extrapolated, higher than any rate that was measured")
    if best.copies and best.copies > 1:
        notes_.append("assumed: several copies, each on CPUs of its own, do not slow each other down")
    return [
        Text.assemble(f"{result.workload}: ", (answer, "bold green"), f", for {load}"),
        Text(),
        _sizes(result),
        *(Text(note, style="dim") for note in notes_),
    ]


def _sizes(result: SizeResult) -> Table:
    has_cost = any(row.cost is not None for row in result.rows)
    heads = [">copies", ">CPUs", ">each carries", ">each gets", ">p99 ms", *([">cost"] if has_cost else [])]
    rows = table("study", "!setting", "machine", *heads)
    for row in result.rows:
        star = "*" if row.is_extrapolated else ""
        cost = "—" if row.cost is None else f"{row.cost:.3g}"
        each = "—" if row.rate_each is None else f"{rate_text(row.rate_each)}/s"
        rows.add_row(
            row.study,
            row.name,
            row.machine,
            "none" if row.copies is None else str(row.copies),
            "—" if row.copies is None else f"{row.total_cpus:g}",
            f"{rate_text(row.capacity)}/s{star}",
            each,
            ms_text(row.p99_ms),
            *([cost] if has_cost else []),
        )
    return rows


def sizes_csv(result: SizeResult) -> str:
    """Return a row for each setting on each machine."""
    titles = ("study", "machine", "setting", "processes", "cpus", "capacity", "copies", "rate_each", "p99_ms", "cost")
    rows = [
        (r.study, r.machine, r.name, r.processes, r.cpus, r.capacity, r.copies, r.rate_each, r.p99_ms, r.cost)
        for r in result.rows
    ]
    return csv_text(titles, rows)
