"""What `tftune predict` shows: the best setting, the recommended ones beside it, why, and two knobs as a picture."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from tuner.machine.host import Machine
from tuner.quantity import plural, rate_text
from tuner.report.chart import MAX_CELLS, empty_grid, ordered, svg_of
from tuner.report.layout import csv_text, table
from tuner.report.terminal import inputs_with_warnings, setting_text, warnings
from tuner.result.model import PredictionResult, Trust
from tuner.space.values import Value

NOT_MEASURED = "predicted, not measured"
_NOTHING = 1.005  # what is shown as 1.00×
_LARGER = 2.0  # times the largest batch that was profiled, a line is still trusted
_TOP = 8


def rendered(result: PredictionResult, *, top: int = _TOP) -> list[RenderableType]:
    """Return the summary, the best settings, the recommended ones, the reasons, and how far to trust it."""
    item = result.workload.item
    lines: list[RenderableType] = [
        Text(f"{result.workload.name} on {machine_text(result.machine)}: {NOT_MEASURED}", style="bold"),
        Text(
            f"best:    {setting_text(result.best.setting)} — {rate_text(result.best.items_per_s)} {item}s/s, "
            f"{result.best.ratio:.2f}× the default (of those within 2 % of the fastest, the nearest to the default)"
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


def machine_text(machine: Machine) -> str:
    """Return a machine in few words."""
    threads = f", {machine.threads_per_core} hardware threads a core" if machine.threads_per_core > 1 else ""
    sockets = f" in {machine.sockets} sockets" if machine.sockets > 1 else ""
    quota = "" if machine.cpu_quota is None else f", a quota of {machine.cpu_quota:g} CPUs"
    return f"{plural(machine.physical_cores, 'core')}{sockets}{threads}{quota}"


def _settings(result: PredictionResult, top: int) -> RenderableType:
    rows = (
        (f"{each.ratio:.2f}", rate_text(each.items_per_s), setting_text(each.setting))
        for each in result.predicted[:top]
    )
    return table(">× default", f">{result.workload.item}s/s", "!setting", rows=rows)


def _baselines(result: PredictionResult) -> RenderableType:
    rows = (
        (name, f"{each.ratio:.2f}", rate_text(each.items_per_s), f"{result.best.items_per_s / each.items_per_s:.2f}")
        for name, each in result.baselines.items()
    )
    return table("guide", ">× default", f">{result.workload.item}s/s", ">best beside it ×", rows=rows)


def _trust(result: PredictionResult) -> list[str]:
    trust = result.trust
    sizes = ", ".join(map(str, result.batch_sizes))
    where = "this machine" if trust.is_here else "another machine"
    measured = f"operators were measured on {where}, with up to {plural(trust.profiled_threads, 'thread')}"
    lines = [f"{measured}, at {'batch size' if len(result.batch_sizes) == 1 else 'batch sizes'} {sizes}"]
    beyond = [plural(trust.cores, "core")] if trust.cores > trust.profiled_threads else []
    if trust.largest_batch_size > _LARGER * max(result.batch_sizes):
        beyond.append(f"batches of up to {trust.largest_batch_size}")
    how_far = "far beyond that: trust the order of settings that are far apart, not the figures"
    if beyond:
        how_far = how_far if trust.code is Trust.FAR else "beyond that: take it as a first guess"
        lines.append(f"{' and '.join(beyond)} are {how_far}")
    if not trust.is_here:
        fast = "each core is taken to be as fast as a core of that machine"
        wakes = f", and waking a thread to take as long as there: {trust.wake_us:.0f} µs" if trust.is_divided else ""
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
    lines.append("measure before you use it: tftune search")
    return lines


def as_csv(result: PredictionResult) -> str:
    """Return a row for each predicted setting, the fastest first."""
    names = list(dict.fromkeys(name for each in result.predicted for name in each.setting))
    rows = (
        (*(each.setting.get(name) for name in names), f"{each.items_per_s:.6g}", f"{each.ratio:.4f}")
        for each in result.predicted
    )
    return csv_text([*names, "items_per_s", "ratio"], rows)


def chart(result: PredictionResult) -> str | None:
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
