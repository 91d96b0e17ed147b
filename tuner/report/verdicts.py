"""Answers for people: of studies their finals and what is recommended, of comparisons, and of a machine's noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tuner.machine.conditions import Conditions, DeviceConditions
from tuner.measure.objective import Objective
from tuner.measure.rounds import GROUP, INCUMBENT, SAME_LATENCY
from tuner.quantity import (
    duration_text,
    energy_text,
    gib_text,
    interval_text,
    ms_text,
    percent,
    plural,
    rate_text,
    ratio_text,
)
from tuner.report import terminal
from tuner.report.layout import table
from tuner.result.comparison import ComparisonResult, NoiseReport, SideResult
from tuner.result.study import (
    AT_SAME_LATENCY,
    ONE,
    SEVERAL,
    FinalsResult,
    PooledResult,
    StudyResult,
    VerdictResult,
)
from tuner.result.wording import PLACES, disagreement, sessions_words
from tuner.stats.equivalence import Verdict, VerdictCode
from tuner.stats.tail import QUANTILES, LimitStatus, samples_needed

_MIN_SESSION_SPACING_S = 1800.0  # sessions of less than this between them may well meet the machine in one state
VERDICT_STYLES = {
    VerdictCode.BETTER: "green",
    VerdictCode.WORSE: "red",
    VerdictCode.NO_DIFFERENCE: "cyan",
    VerdictCode.UNDECIDED: "yellow",
}


def verdicts(study: StudyResult) -> RenderableType:
    """Return the finals: the incumbent against each distinct baseline."""
    final = study.finals
    if study.objective is Objective.CAPACITY and study.recommended is not None:
        return Text(f"under load: tftune load {study.study} --stored --details")
    if final is None or study.verdicts is None:
        text = "no finals yet" if study.planned is None else "the study was planned: it has no finals"
        return Text(text, style="yellow")
    notes = []
    best = study.incumbent
    # Where the default is the best of the search, the best of the others stands against it.
    if best is not None and best.setting not in (final.incumbent, final.default):
        notes.append(
            Text(
                "the search has found a better setting since these finals: run it again for new finals", style="yellow"
            )
        )
    of = "finals" if len(study.answers) < 2 else f"finals {PLACES[ONE]}"
    return Group(_finals_table(final, study.verdicts, INCUMBENT, title=of), *notes)


def _finals_table(
    final: FinalsResult, by_name: Mapping[str, VerdictResult], incumbent: str, *, title: str
) -> RenderableType:
    """Return finals: the contender `incumbent`, which is called that, against each of the others."""
    rendered = table(
        f"{incumbent} against",
        f">{final.unit}",
        ">speed-up [interval]",
        "verdict",
        title=f"{title}: {rounds_text(final)}; differences under {percent(final.margin)} are treated as equal",
    )
    for first, names in final.names.items():
        aliases = [name for name in names if name != incumbent]
        rate = final.rates.get(first)
        figure = "—" if rate is None else rate_text(rate)
        if incumbent in names:
            rendered.add_row(Text(f"{incumbent}{_alias_text(aliases)}", style="bold"), figure, "", "")
            continue
        verdict = by_name[first]
        style = VERDICT_STYLES[verdict.code]
        rendered.add_row(
            f"{first}{_alias_text(aliases[1:])}", figure, speedup_text(verdict), Text(verdict.code, style=style)
        )
    return Group(rendered, *(Text(f"{name}: {text}", style="red") for name, text in final.failures.items()))


def rounds_text(final: FinalsResult | ComparisonResult) -> str:
    """Return how many rounds there were, and of which processes."""
    n, fresh = final.rounds, final.fresh_rounds
    processes = "fresh interpreters" if fresh == n else f"new processes, {fresh} of them with fresh interpreters"
    return f"{plural(n, 'round')} of {processes}"


def sessions_text(gain: PooledResult, closest_s: float | None) -> str:
    """Return how many sessions a gain rests on, and whether they agree; `closest_s` (s) lie between the closest two."""
    if gain.sessions < 2:
        return "from one session; run `tftune check` on another day to confirm it"
    is_close = not gain.nodes and closest_s is not None and closest_s < _MIN_SESSION_SPACING_S
    spacing_note = f", two of them only {duration_text(closest_s)} apart (better: several hours)" if is_close else ""
    return f"{sessions_words(gain)}{disagreement(gain)}{spacing_note}"


def speedup_text(verdict: Verdict | VerdictResult | ComparisonResult | None) -> str:
    """Return a verdict's speed-up with its interval; of an undecided one the interval alone."""
    if verdict is None:
        return "—"
    if verdict.code is VerdictCode.UNDECIDED and verdict.low is not None and verdict.high is not None:
        return interval_text(verdict.low, verdict.high)
    return ratio_text(verdict.speedup, verdict.low, verdict.high)


def tails(final: FinalsResult | None, objective: Objective) -> RenderableType:
    """Return the contenders' quantiles of the step, memory and limits; nothing of a command, which shows no steps."""
    if final is None or not final.tails or objective.is_of_command:
        return Text()
    is_open = objective is Objective.RESPONSE
    title = "responses in the finals (ms), the wait in the queue included" if is_open else "steps in the finals (ms)"
    count = "requests" if is_open else "steps"
    is_metered = any(tail.energy_j is not None for tail in final.tails.values())
    energy = [">energy per item"] if is_metered else []
    rendered = table("", ">p50", ">p90", ">p99", f">{count}", ">peak memory", *energy, "", title=title)
    for name, tail in final.tails.items():
        answer = final.kept.get(name)
        rendered.add_row(
            name,
            *(ms_text(value) for value in (tail.p50, tail.p90, tail.p99)),
            str(tail.n_steps),
            gib_text(tail.peak_memory_bytes),
            *([energy_text(tail.energy_j)] if is_metered else []),
            Text("" if answer is None else f"limits {answer}", style="red" if answer is LimitStatus.BROKEN else "dim"),
        )
    needed = ", ".join(f"{name} from {samples_needed(p)}" for name, p in QUANTILES.items())
    return Group(rendered, Text(f"{count} needed: {needed}", style="dim"))


def details(study: StudyResult) -> list[RenderableType]:
    """Return what stands behind the answers of a study: its finals, and how its search went."""
    parts: list[RenderableType] = [
        terminal.incumbent_line(study),
        Text(),
        verdicts(study),
        tails(study.finals, study.objective),
    ]
    for of, first in ((SEVERAL, GROUP), (AT_SAME_LATENCY, SAME_LATENCY)):
        if of in study.answers:
            finals = study.answers[of].finals
            shown = _finals_table(finals, study.answers[of].verdicts, first, title=f"finals {PLACES[of]}")
            parts += [Text(), shown, tails(finals, study.objective)]
    together = None if study.recommended is None else study.recommended.together
    if together is not None:
        sessions = sessions_text(together, together.closest_s)
        parts += [Text(), Text(f"speed-up over {study.default}: {speedup_text(together)}, {sessions}")]
    if study.recommended is not None:
        parts.append(Text(study.recommended.reason))
    return [*parts, Text(), terminal.noise_line(study), *terminal.space_notes(study), terminal.summary(study)]


def _alias_text(names: Sequence[str]) -> str:
    return f" (= {', '.join(names)})" if names else ""


# ---- comparisons and noise ------------------------------------------------------------------------------------------


def comparison(result: ComparisonResult) -> RenderableType:
    """Return the two sides, the verdict on b against a, and what stands behind it."""
    titles = () if result.objective.is_of_command else (">p50 ms", ">p90 ms", ">p99 ms")
    rows = table("", "!setting", f">{result.unit}", *titles)
    for name, setting in (("a", result.a), ("b", result.b)):
        side = result.sides[name]
        figures = [ms_text(value) for value in (side.p50, side.p90, side.p99)]
        rate = "—" if side.rate is None else rate_text(side.rate)
        rows.add_row(name, f"{terminal.setting_text(setting)}{asked_text(side)}", rate, *figures[: len(titles)])
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
    return Group(
        rows, Text(), verdict, *dim, *failures, *terminal.inputs(result.inputs), terminal.warnings(result.warnings)
    )


def asked_text(side: SideResult) -> str:
    """Return what a side of a comparison was called, if that is not its setting."""
    return "" if "=" in side.asked else f"  ({side.asked})"


def noise(report: NoiseReport) -> RenderableType:
    """Return the noise of a machine: pairs, spreads, what they mean for finals, and what the machine did meanwhile."""
    sds = report.noise
    rows = table("", ">", "", title="noise: the default setting compared with itself", show_header=False)
    longest = max(report.pairs, key=lambda pair: pair.n_blocks)
    pair = ratio_text(longest.ratio, longest.low, longest.high)
    between_processes = terminal.process_sd_text(sds.process_sd, 2, "±")
    rows.add_row("one slice, unpaired", f"±{percent(report.unpaired_sd, 2)}", "noise and drift together")
    rows.add_row("one ABBA block", f"±{percent(sds.block_sd, 2)}", f"{sds.n_blocks} blocks, drift removed")
    rows.add_row("one pair of processes", pair, f"ratio with 95 % interval, from {longest.n_blocks} blocks")
    rows.add_row("between pairs of new processes", f"±{percent(report.between_sd, 2)}", f"{sds.n_pairs} pairs")
    rows.add_row("between processes", between_processes, "only more processes reduce this, not longer runs")
    rows.add_row("drift of the machine", f"±{percent(sds.drift, 2)}", "common to both processes of a pair")
    shown = f"what {report.rounds} rounds of finals can show (default time budget)"
    finals = table("", ">", "", title=shown, show_header=False)
    finals.add_row("noise floor", percent(report.floor), "equal settings differ by less in 95 % of finals")
    finals.add_row("smallest detectable gain", percent(report.detectable), "found in 90 % of finals if it is real")
    fed = terminal.inputs(report.inputs)
    return Group(rows, Text(), finals, Text(), conditions(report.conditions), *fed, terminal.warnings(report.warnings))


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
