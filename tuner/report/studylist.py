"""Lists of studies: those of a storage, by machine and build, and those of a suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from tuner.measure.rounds import INCUMBENT
from tuner.measure.warning import Code
from tuner.quantity import duration_text, percent, plural, ratio_text
from tuner.report.layout import table
from tuner.report.terminal import setting_text
from tuner.report.verdicts import VERDICT_STYLES, speedup_text
from tuner.result.inspection import CaseResult
from tuner.result.study import AT_SAME_LATENCY, SEVERAL, StudyLine, StudyResult, VerdictResult
from tuner.result.wording import planned_text
from tuner.space.values import Value


def page(rows: Sequence[StudyLine]) -> Iterator[RenderableType]:
    """Yield a table for each machine and build, in the order of their first studies."""
    places = dict.fromkeys((row.machine, row.build) for row in rows)
    for machine, build in places:
        of_place = [row for row in rows if (row.machine, row.build) == (machine, build)]
        yield Text.assemble((f"{of_place[0].cores}; {build}", "bold"), (f"  machine {machine}", "dim"))
        yield _table(of_place, study_width=max(len(row.study) for row in rows))
        yield ""
    n = plural(len(rows), "study", "studies")
    yield Text(
        f"{n}; best other: the best other setting over the defaults; tftune show STUDY has each answer", style="dim"
    )


def _table(rows: Sequence[StudyLine], *, study_width: int) -> RenderableType:
    rendered = table("study", "verdict", ">best other", "date", "recommended")
    for column in rendered.columns:
        column.no_wrap = column.header in ("study", "best other")
    rendered.columns[0].min_width = study_width
    for row in rows:
        date = str(row.created)[5:10]
        rendered.add_row(
            row.study,
            Text("planned", style="dim") if row.planned else _verdict(row.verdict),
            speedup_text(row.verdict),
            date,
            _setting_text(row.setting),
        )
        for of, verdict, setting in (
            (SEVERAL, row.groups, row.groups_setting),
            (AT_SAME_LATENCY, row.same_latency, row.same_latency_setting),
        ):
            if verdict is not None:
                rendered.add_row(f"  {of}", _verdict(verdict), speedup_text(verdict), "", _setting_text(setting))
    return rendered


def _verdict(verdict: VerdictResult | None) -> Text:
    if verdict is None:
        return Text("no finals", style="dim")
    return Text(verdict.code, style=VERDICT_STYLES[verdict.code])


def _setting_text(setting: Mapping[str, Value] | None) -> str:
    """Return what is recommended: what differs from the default."""
    if setting is None:
        return "—"
    return setting_text(setting) or "the defaults"


# ---- suites ---------------------------------------------------------------------------------------------------------


def outcome(study: StudyResult | None, failure: str) -> str:
    """Return how a search ended, in a few words."""
    if study is None:
        return failure
    if study.planned is not None:
        return planned_text(study.planned)
    advice = study.recommended
    if advice is None:
        return "no finals"
    pinned = "".join(f"; {each.found}" for each in study.warnings if each.code is Code.PINNED)
    gain = advice.gain
    if gain is None or gain.speedup is None:
        return f"keep {study.default}{pinned}"
    guide = "" if advice.source == INCUMBENT else f" ({advice.source})"
    return f"{ratio_text(gain.speedup, gain.low, gain.high, '×')} over {study.default}{guide}{pinned}"


def suite_table(cases: Sequence[CaseResult]) -> RenderableType:
    """Return the searches of a suite, those that are known and those that are to be run."""
    rows = (
        (
            str(case.number),
            case.workload,
            case.mode,
            shape_text(case.shape, case.batch_sizes),
            case.runtime,
            case.state,
            case.outcome or ", ".join(case.stale),
        )
        for case in cases
    )
    return table(">#", "!workload", "mode", "shape", "runtime", "state", "outcome", rows=rows)


def shape_text(shape: str, batch_sizes: Sequence[int]) -> str:
    """Return the shape of a case, with its batch sizes where it has several."""
    return f"{shape} at {', '.join(map(str, batch_sizes))}" if len(batch_sizes) > 1 else shape


def planned_table(cases: Sequence[CaseResult]) -> RenderableType:
    """Return what the studies of a plan came to, of those that were begun, and why others failed.

    Nothing of it is proven.
    """
    heads = "workload", "mode", "shape", ">settings", "best estimate [95 %]", ">a call takes", ">known to", ">minutes"
    rendered = table(*heads, "state")
    for case in cases:
        known, is_failed = case.planned, case.state == "failed"
        if known is None and not is_failed:
            continue
        best = call = width = "—"
        if known is not None and known.ratio is not None:
            best = f"{ratio_text(known.ratio, known.low, known.high)}  {setting_text(known.best or {})}"
            call = "—" if known.call is None else f"{known.call:.2f}×"
        if known is not None and known.width is not None:
            width = f"±{percent(known.width)}"
        wall_s = case.wall_s if known is None else known.wall_s
        rendered.add_row(
            case.workload,
            case.mode,
            shape_text(case.shape, case.batch_sizes),
            "0" if known is None else str(known.settings),
            case.outcome if is_failed else best,
            call,
            width,
            "—" if wall_s is None else f"{wall_s / 60:.1f}",
            case.state,
        )
    return rendered


def suite_summary(cases: Sequence[CaseResult], wall_s: float) -> str:
    """Return how many searches are there, were made now, failed, and are missing."""
    n = {state: sum(case.state == state for case in cases) for state in ("known", "made", "failed", "missing", "begun")}
    parts = [f"{n['known']} already done", f"{n['made']} made now", f"{n['failed']} failed", f"{n['missing']} missing"]
    parts += [f"{n['begun']} measured in part"] if n["begun"] else []
    return f"{', '.join(parts)}; {duration_text(wall_s)}"
