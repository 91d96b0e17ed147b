"""What `tftune profile` shows: where a step's time goes, by kind of bound and by operator, and a roofline."""

from __future__ import annotations

from collections import defaultdict

from rich.console import RenderableType
from rich.text import Text

from tuner.model.profile import Bound
from tuner.quantity import ms_text, percent, plural
from tuner.report.layout import csv_text, table
from tuner.report.terminal import inputs_with_warnings, warnings
from tuner.result.model import OperatorResult, ProfileResult

_COLOURS = {Bound.COMPUTE: "#0072B2", Bound.MEMORY: "#E69F00", Bound.OVERHEAD: "#D55E00"}
_WHY = {
    Bound.COMPUTE: "arithmetic",
    Bound.MEMORY: "moving data",
    Bound.OVERHEAD: "neither: calls, small sizes, or slow code",
}


def rendered(result: ProfileResult, *, top: int) -> list[RenderableType]:
    """Return the summary, the shares by bound, and the operators that take most."""
    noted = [warnings(result.warnings)] if result.warnings else []
    return [
        *_summary(result),
        *noted,
        Text(),
        _bounds(result),
        Text(),
        _types(result, top),
        Text(),
        _operators(result, top),
    ]


def _summary(result: ProfileResult) -> list[RenderableType]:
    steps = ", ".join(
        f"{ms_text(1000 * each.step_s)} ms with {plural(each.threads, 'thread')}" for each in result.threads
    )
    first = result.threads[0]
    return [
        Text(f"{result.workload.name}, batch size {result.batch_size}: a step takes {steps}", style="bold"),
        Text(
            f"between operators: {_between(result)} of a step with one thread; recording these times makes a step "
            f"{first.profiler_cost:.2f} times as long"
        ),
        Text(
            f"one thread reaches {first.flops / 1e9:.0f} GFLOP/s and {first.bytes_s / 1e9:.0f} GB/s; "
            "shares are of all operators' time with one thread"
        ),
        *inputs_with_warnings(result.workload.fed),
    ]


def _between(result: ProfileResult) -> str:
    """Return the share of a step between operators, between those that are too little and too much."""
    ends = " to ".join(dict.fromkeys(percent(share, 0) for share in result.between_share))
    exposed = result.exposed_overhead
    return ends if exposed is None else f"{ends}, {percent(exposed, 0)} by TensorFlow's profiler,"


def _bounds(result: ProfileResult) -> RenderableType:
    shares = {bound: sum(each.share for each in result.operators if each.bound is bound) for bound in Bound}
    rows = ((bound, percent(share, 0), _WHY[bound]) for bound, share in shares.items())
    return table("bound by", ">share", "what the time goes into", rows=rows)


def _types(result: ProfileResult, top: int) -> RenderableType:
    grouped: dict[str, list[OperatorResult]] = defaultdict(list)
    for each in result.operators:
        grouped[each.op].append(each)
    counts = [each.threads for each in result.threads]
    drawn = table("operators", ">number", ">share", *(f">ms, {n} threads" for n in counts), ">GFLOP/s, 1 thread")
    by_share = sorted(grouped.items(), key=lambda item: -sum(each.share for each in item[1]))
    for op, members in by_share[:top]:
        one_s = sum(each.time_s[1] for each in members)
        drawn.add_row(
            op,
            str(len(members)),
            percent(sum(each.share for each in members), 0),
            *(_ms(sum(each.time_s.get(n, 0.0) for each in members)) for n in counts),
            f"{sum(each.flops for each in members) / one_s / 1e9:.1f}",
        )
    return drawn


def _operators(result: ProfileResult, top: int) -> RenderableType:
    counts = [each.threads for each in result.threads]
    drawn = table(
        "operator",
        "type",
        "bound by",
        ">share",
        *(f">ms, {n} threads" for n in counts),
        ">FLOPs a byte",
        ">best threads",
    )
    for each in result.operators[:top]:
        intensity = f"{each.flops / each.n_bytes:.1f}" if each.n_bytes else "—"
        measured = (_ms(each.time_s.get(n)) for n in counts)
        name = "/".join(each.name.split("/")[-2:])
        drawn.add_row(name, each.op, each.bound, percent(each.share, 1), *measured, intensity, str(each.best_threads))
    return drawn


def _ms(seconds: float | None) -> str:
    return "—" if seconds is None else ms_text(1000 * seconds)


def as_csv(result: ProfileResult) -> str:
    """Return the operators as CSV, a column of times (s) for each number of threads."""
    counts = [each.threads for each in result.threads]
    fields = zip(OperatorResult.__struct_encode_fields__, OperatorResult.__struct_fields__, strict=True)
    names = {title: name for title, name in fields if name != "time_s"}
    rows = (
        (*(getattr(each, name) for name in names.values()), *(each.time_s.get(n) for n in counts))
        for each in result.operators
    )
    return csv_text([*names, *(f"time_s_{n}" for n in counts)], rows)


def roofline(result: ProfileResult) -> str:
    """Return the roofline with one thread as SVG: GFLOP/s against FLOPs a byte, a dot an operator by its time."""
    from tuner.report.chart import empty_figure, svg_of

    first = result.threads[0]
    figure, axes = empty_figure(7, 4.2)
    shown = [each for each in result.operators if each.flops and each.n_bytes and each.share > 0.0005]
    x = [each.flops / each.n_bytes for each in shown]
    low, high = min([*x, 0.05]) / 2, max([*x, 100.0]) * 2
    ridge = first.flops / first.bytes_s
    axes.plot([low, ridge, high], [low * first.bytes_s / 1e9, first.flops / 1e9, first.flops / 1e9], color="#999999")
    for bound, colour in _COLOURS.items():
        members = [(at, each) for at, each in zip(x, shown, strict=True) if each.bound is bound]
        if not members:
            continue
        axes.scatter(
            [at for at, _ in members],
            [each.flops / each.time_s[1] / 1e9 for _, each in members],
            s=[8 + 1200 * each.share for _, each in members],
            color=colour,
            alpha=0.5,
            linewidths=0,
            label=bound.value,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("FLOPs a byte moved")
    axes.set_ylabel("GFLOP/s with one thread")
    axes.legend(loc="lower right", frameon=False, markerscale=0.6)
    return svg_of(figure)
