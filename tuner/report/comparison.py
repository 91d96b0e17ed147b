"""What `tftune compare`, `tftune check` and `tftune noise` show."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from tuner.machine.conditions import Conditions, DeviceConditions
from tuner.measure.objective import METRIC
from tuner.quantity import duration_text, ms_text, percent, rate_text, ratio_text
from tuner.report.layout import table
from tuner.report.terminal import inputs, process_sd_text, setting_text, warnings
from tuner.report.verdicts import VERDICT_STYLES, rounds_text, speedup_text
from tuner.result.comparison import ComparisonResult, NoiseReport
from tuner.stats.equivalence import VerdictCode


def comparison(result: ComparisonResult) -> RenderableType:
    """Return the two sides, the verdict on b against a, and what stands behind it."""
    titles = () if result.unit == METRIC else (">p50 ms", ">p90 ms", ">p99 ms")
    rows = table("", "!setting", f">{result.unit}", *titles)
    for name, setting in (("a", result.a), ("b", result.b)):
        side = result.sides[name]
        figures = [ms_text(value) for value in (side.p50, side.p90, side.p99)]
        rate = "—" if side.rate is None else rate_text(side.rate)
        rows.add_row(name, f"{setting_text(setting)}{_asked(side.asked)}", rate, *figures[: len(titles)])
    verdict = Text.assemble(
        "b compared with a: ", (result.code, VERDICT_STYLES[result.code]), f"  {speedup_text(result)}"
    )
    notes = [
        f"{rounds_text(result)}, {duration_text(result.timed_s)} of measuring; differences under "
        f"{percent(result.margin)} are treated as equal"
    ]
    if result.code is VerdictCode.UNDECIDED:
        notes.append(f"undecided: {result.reason}")
    failures = [Text(f"{name} {text}", style="red") for name, text in result.failures.items()]
    dim = [Text(note, style="dim") for note in notes]
    return Group(rows, Text(), verdict, *dim, *failures, *inputs(result.inputs), warnings(result.warnings))


def _asked(text: str) -> str:
    return "" if "=" in text else f"  ({text})"


def noise(report: NoiseReport) -> RenderableType:
    """Return the noise of a machine: pairs, spreads, what they mean for finals, and what the machine did meanwhile."""
    sds = report.noise
    rows = table("", ">", "", title="noise: the default setting compared with itself")
    rows.show_header = False
    longest = max(report.pairs, key=lambda pair: pair.n_blocks)
    pair = ratio_text(longest.ratio, longest.low, longest.high)
    between_processes = process_sd_text(sds.process_sd, 2, "±")
    rows.add_row("one slice, unpaired", f"±{percent(report.unpaired_sd, 2)}", "noise and drift together")
    rows.add_row("one ABBA block", f"±{percent(sds.block_sd, 2)}", f"{sds.n_blocks} blocks, drift removed")
    rows.add_row("one pair of processes", pair, f"ratio with 95 % interval, from {longest.n_blocks} blocks")
    rows.add_row("between pairs of new processes", f"±{percent(report.between_sd, 2)}", f"{sds.n_pairs} pairs")
    rows.add_row("between processes", between_processes, "only more processes reduce this, not longer runs")
    rows.add_row("drift of the machine", f"±{percent(sds.drift, 2)}", "common to both processes of a pair")
    finals = table("", ">", "", title=f"what {report.rounds} rounds of finals can show (default time budget)")
    finals.show_header = False
    finals.add_row("noise floor", percent(report.floor), "equal settings differ by less in 95 % of finals")
    finals.add_row("smallest detectable gain", percent(report.detectable), "found in 90 % of finals if it is real")
    fed = inputs(report.inputs)
    return Group(rows, Text(), finals, Text(), conditions(report.conditions), *fed, warnings(report.warnings))


def conditions(measured: Conditions) -> Text:
    """Return what the machine did while something was measured."""
    unknown = "not available"
    pressure, mhz, hot = measured.pressure_share, measured.mhz, measured.hot
    parts = [
        f"steal {percent(measured.steal_share)}",
        f"other processes {measured.foreign_cpus:.2f} of {measured.n_cpus} CPUs",
        f"CPU pressure {unknown if pressure is None else percent(pressure)} (our own threads included)",
        f"throttled by the CPU quota {percent(measured.throttled_share)}",
        f"frequency {unknown if mhz is None else f'{mhz:.0f} MHz'}",
        f"thermal throttling {unknown if hot is None else f'{hot} times'}",
    ]
    if measured.device is not None:
        parts += _device_parts(measured.device)
    return Text(
        f"machine during the measurement ({duration_text(measured.elapsed_s)}): {', '.join(parts)}", style="dim"
    )


def _device_parts(seen: DeviceConditions) -> list[str]:
    """Return what was seen of a device of its own."""
    parts = [] if seen.mhz is None else [f"GPU clock {seen.mhz[0]} to {seen.mhz[1]} MHz"]
    parts += [] if seen.power_w is None else [f"GPU power {seen.power_w:.0f} W"]
    parts += [] if seen.temperature_c is None else [f"GPU at {seen.temperature_c} °C at most"]
    parts += [f"GPU slowed by {reason} {percent(share)} of the time" for reason, share in seen.throttled.items()]
    return parts
