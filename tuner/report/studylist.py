"""The list of a storage's studies, those of one machine and build together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from tuner.report.layout import plural, table
from tuner.report.result.study import StudyLine, VerdictResult
from tuner.report.verdicts import VERDICT_STYLES
from tuner.stats.equivalence import VerdictCode

_DEFAULTS = "the defaults"


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
    rendered = table("study", "verdict", ">best other", "created", "recommended")
    for column in rendered.columns:
        column.no_wrap = column.header not in ("verdict", "recommended")
    rendered.columns[0].min_width = study_width
    rendered.columns[-1].min_width = len(_DEFAULTS)
    for row in rows:
        created = str(row.created)[:10]
        rendered.add_row(row.study, _verdict(row.verdict), _speedup_text(row.verdict), created, _setting_text(row))
        if row.groups is not None:
            rendered.add_row("  several processes", _verdict(row.groups), _speedup_text(row.groups), "", "")
    return rendered


def _verdict(verdict: VerdictResult | None) -> Text:
    if verdict is None:
        return Text("no finals", style="dim")
    return Text(verdict.code, style=VERDICT_STYLES[verdict.code])


def _speedup_text(verdict: VerdictResult | None) -> str:
    """Return a speed-up with its interval, or the interval alone where nothing was decided."""
    if verdict is None or verdict.low is None or verdict.high is None:
        return "—"
    interval = f"[{verdict.low:.2f}–{verdict.high:.2f}]"
    is_decided = verdict.code is not VerdictCode.UNDECIDED and verdict.speedup is not None
    return f"{verdict.speedup:.2f} {interval}" if is_decided else interval


def _setting_text(row: StudyLine) -> str:
    """Return what a study recommends: what differs from the default."""
    if row.setting is None:
        return "—"
    return " ".join(f"{name}={value}" for name, value in row.setting.items()) or _DEFAULTS
