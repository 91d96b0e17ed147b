"""What `tftune overhead`, `profile` and `predict` show: where the time of a step goes, and what that predicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from tuner.frameworks import registry
from tuner.frameworks.framework import Part
from tuner.machine.host import Machine
from tuner.model.overhead import HIDDEN
from tuner.model.profile import Bound
from tuner.quantity import ms_text, percent, plural, rate_text, ratio_text
from tuner.report.chart import MAX_CELLS, PALETTE, empty_figure, empty_grid, empty_panels, ordered, svg_of
from tuner.report.frameworks import ratio_cells
from tuner.report.layout import csv_text, table
from tuner.report.terminal import inputs_with_warnings, setting_text, warnings
from tuner.result.model import (
    LARGER,
    HidingResult,
    OperatorResult,
    OverheadResult,
    OverheadRow,
    PredictedSetting,
    PredictionResult,
    ProfileResult,
    SourceKind,
    Trust,
)
from tuner.space.values import Value
from tuner.workload.workload import Execution

# ---- overhead -------------------------------------------------------------------------------------------------------

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


def overhead_page(result: OverheadResult) -> list[RenderableType]:
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
    off = [f"The parts of a step differ from the clock by up to {percent(error, 0)}."] if error > _OFF else []
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


def overhead_csv(result: OverheadResult) -> str:
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


def overhead_chart(result: OverheadResult) -> str | None:
    """Return exposed overhead and time per item over batch sizes as SVG; None where there is one size."""
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
    right.set_ylabel("ms per item")
    left.legend(frameon=False)
    return svg_of(figure)


# ---- profile --------------------------------------------------------------------------------------------------------

_COLOURS = {Bound.COMPUTE: "#0072B2", Bound.MEMORY: "#E69F00", Bound.OVERHEAD: "#D55E00"}
_WHY = {
    Bound.COMPUTE: "arithmetic",
    Bound.MEMORY: "moving data",
    Bound.OVERHEAD: "neither: calls, small sizes, or slow code",
}


def profile_page(result: ProfileResult, *, top: int) -> list[RenderableType]:
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
        ">FLOPs per byte",
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


def profile_csv(result: ProfileResult) -> str:
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
    """Return the roofline with one thread as SVG: GFLOP/s against FLOPs per byte, a dot per operator by its time."""

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
    axes.set_xlabel("FLOPs per byte moved")
    axes.set_ylabel("GFLOP/s with one thread")
    axes.legend(loc="lower right", frameon=False, markerscale=0.6)
    return svg_of(figure, transparent=False)


# ---- prediction -----------------------------------------------------------------------------------------------------

NOT_MEASURED = "predicted, not measured"
_NOTHING = 1.005  # what is shown as 1.00×
_TOP = 8
_TRIED = 18  # cores, at most, of machines whose measured ratios were compared


def prediction_page(result: PredictionResult, *, top: int = _TOP) -> list[RenderableType]:
    """Return the summary, the best settings, the recommended ones, the reasons, and how far to trust it."""
    item = result.workload.item
    lines: list[RenderableType] = [
        Text(f"{result.workload.name} on {machine_text(result.machine)}: {NOT_MEASURED}", style="bold"),
        *_source(result),
        Text(
            f"best:    {setting_text(result.best.setting)} — {rate_text(result.best.items_per_s)} {item}s/s, "
            f"{_ratio(result.best)} the default (of those within 2 % of the fastest, the nearest to the default)"
        ),
        Text(
            f"default: {setting_text(result.reference.setting)} — {rate_text(result.reference.items_per_s)} {item}s/s"
        ),
        *([warnings(result.warnings)] if result.warnings else []),
        *inputs_with_warnings(result.workload.fed),
        Text(),
        _settings(result, top),
        Text(),
        _baselines(result),
        Text(),
        Text("Why", style="bold"),
        *(Text(f"• {each.sentence}") for each in result.reasons),
    ]
    if result.ideal is not None:
        over, batch_size = result.ideal.over_best, result.ideal.batch_size
        reach = f"reach {over:.2f}×" if over > _NOTHING else "not be faster than"
        lines.append(
            Text(
                f"• a scheduler that gives each operator its own number of threads would {reach} the best setting of "
                f"one process at batch size {batch_size}"
            )
        )
    return [*lines, Text(), Text("How far to trust it", style="bold"), *(Text(f"• {line}") for line in _trust(result))]


def _source(result: PredictionResult) -> list[Text]:
    """Return which profile it is predicted from, where that is not one of this machine that was made here."""
    source, machine, runtime = result.source, result.profiled_on, result.runtime
    if source.kind is SourceKind.OWN and result.trust.is_here:
        return []
    names = {
        SourceKind.OWN: "the profile made here",
        SourceKind.FILE: source.file,
        SourceKind.SHIPPED: f"the shipped profile of {result.workload.name}",
    }
    framework = registry.for_build(runtime)
    article = "an" if machine.cpu_model[:1] in "AEIOUaeiou" else "a"
    facts = [
        f"{machine_text(machine)} of {article} {machine.cpu_model}",
        f"{framework.title} {runtime.get(framework.name, '')}",
        *([source.created] if source.created else []),
    ]
    return [Text(f"predicted from {names[source.kind]}: {', '.join(facts)}")]


def machine_text(machine: Machine) -> str:
    """Return a machine in few words."""
    threads = f", {machine.threads_per_core} hardware threads per core" if machine.threads_per_core > 1 else ""
    sockets = f" in {machine.sockets} sockets" if machine.sockets > 1 else ""
    quota = "" if machine.cpu_quota is None else f", a quota of {machine.cpu_quota:g} CPUs"
    return f"{plural(machine.physical_cores, 'core')}{sockets}{threads}{quota}"


def _settings(result: PredictionResult, top: int) -> RenderableType:
    rows = ((_ratio(each), rate_text(each.items_per_s), setting_text(each.setting)) for each in result.predicted[:top])
    return table(">× default", f">{result.workload.item}s/s", "!setting", rows=rows)


def _baselines(result: PredictionResult) -> RenderableType:
    rows = (
        (name, _ratio(each), rate_text(each.items_per_s), f"{result.best.items_per_s / each.items_per_s:.2f}")
        for name, each in result.baselines.items()
    )
    return table("guide", ">× default", f">{result.workload.item}s/s", ">best over it ×", rows=rows)


def _ratio(each: PredictedSetting) -> str:
    return ratio_text(each.ratio, each.low, each.high, "×")


def _trust(result: PredictionResult) -> list[str]:
    trust = result.trust
    sizes = ", ".join(map(str, result.batch_sizes))
    where = "this machine" if trust.is_here else "another machine"
    measured = f"operators were measured on {where}, with up to {plural(trust.profiled_threads, 'thread')}"
    lines = [f"{measured}, at {'batch size' if len(result.batch_sizes) == 1 else 'batch sizes'} {sizes}"]
    beyond = [plural(trust.cores, "core")] if trust.cores > trust.profiled_threads else []
    if trust.largest_batch_size > LARGER * max(result.batch_sizes):
        beyond.append(f"batches of up to {trust.largest_batch_size}")
    how_far = "far beyond that: trust the order of settings that are far apart, not the figures"
    if beyond:
        how_far = how_far if trust.code is Trust.FAR else "beyond that: take it as a first guess"
        lines.append(f"{' and '.join(beyond)} are {how_far}")
    if not trust.is_here:
        fast = "each core is taken to be as fast as a core of that machine"
        how_known = "by its file" if trust.is_wake_known else "as long as there"
        wakes = f", and a hop to another thread to take {trust.wake_us:.0f} µs, {how_known}" if trust.is_divided else ""
        lines.append(fast + wakes)
    if not trust.is_divided and trust.cores > 1:
        lines.append(
            "no two cores could be profiled side by side: how operators gain from threads is a guess "
            f"(a tenth of each is not divided, and waking a thread takes {trust.wake_us:.0f} µs)"
        )
    if trust.ignored_knobs:
        lines.append(f"not modelled, and taken to be at their defaults: {', '.join(trust.ignored_knobs)}")
    if trust.left_out:
        lines.append(f"{trust.left_out} settings were left out: those that are shown are the best of a sample")
    if result.machine.core_kinds:
        lines.append("its cores are of several kinds, and are taken to be equally fast")
    tried = "nine of ten measured ratios lay inside such intervals, on machines of 2 to 18 cores"
    lines.append(tried + ("" if trust.cores <= _TRIED else "; on more cores none was measured"))
    lines.append("measure before you use it: tftune search")
    return lines


def prediction_csv(result: PredictionResult) -> str:
    """Return a row for each predicted setting, the fastest first."""
    names = list(dict.fromkeys(name for each in result.predicted for name in each.setting))
    rows = (
        (
            *(each.setting.get(name) for name in names),
            f"{each.items_per_s:.6g}",
            *(f"{ratio:.4f}" for ratio in (each.ratio, each.low, each.high)),
        )
        for each in result.predicted
    )
    return csv_text([*names, "items_per_s", "ratio", "low", "high"], rows)


def prediction_chart(result: PredictionResult) -> str | None:
    """Return the predicted ratio to the default over the two knobs that matter most, each cell the best of its kind.

    None where fewer than two knobs matter.
    """
    names = [name for name in result.knobs if 1 < len(_values(result, name)) <= MAX_CELLS]
    if len(names) < 2:
        return None
    across, down = names[:2]
    columns, rows = ordered(_values(result, across)), ordered(_values(result, down))
    figure, axes = empty_grid((across, columns), (down, rows), cell=(0.6, 0.42))
    best: dict[tuple[int, int], float] = {}
    for each in result.predicted:
        at = columns.index(each.setting.get(across, 1)), rows.index(each.setting.get(down, 1))
        best[at] = max(each.ratio, best.get(at, 0.0))
    grid = [[best.get((x, y), float("nan")) for x in range(len(columns))] for y in range(len(rows))]
    axes.imshow(grid, origin="lower", aspect="auto", cmap="cividis", alpha=0.85)
    low, high = min(best.values()), max(best.values())
    for (x, y), ratio in best.items():
        colour = "white" if ratio < (low + high) / 2 else "black"
        axes.annotate(f"{ratio:.2f}", (x, y), ha="center", va="center", fontsize=7, color=colour)
    axes.set_title(
        f"{result.workload.name} on {machine_text(result.machine)}: ratio to the default, {NOT_MEASURED}",
        loc="left",
        fontsize=8,
    )
    return svg_of(figure)


def _values(result: PredictionResult, name: str) -> set[Value]:
    return {each.setting.get(name, 1) for each in result.predicted}
