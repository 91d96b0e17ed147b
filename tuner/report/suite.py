"""What `tftune suite` shows: a line for each search."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from tuner.measure.warning import Code
from tuner.quantity import duration_text, ratio_text
from tuner.report.layout import table
from tuner.result.inspection import CaseResult
from tuner.result.study import StudyResult


def outcome(study: StudyResult | None, failure: str) -> str:
    """Return how a search ended, in a few words."""
    if study is None:
        return failure
    advice = study.recommended
    if advice is None:
        return "no finals"
    pinned = "".join(f"; {each.found}" for each in study.warnings if each.code is Code.PINNED)
    gain = advice.gain
    if gain is None or gain.speedup is None:
        return f"keep {study.default}{pinned}"
    return f"{ratio_text(gain.speedup, gain.low, gain.high)} over {study.default} ({advice.source}){pinned}"


def plan(cases: Sequence[CaseResult]) -> RenderableType:
    """Return the searches of a suite, those that are known and those that are to be run."""
    rendered = table(">#", "!workload", "mode", "shape", "runtime", "state", "outcome")
    for case in cases:
        cells = (case.workload, case.mode, case.shape, case.runtime, case.state, case.outcome)
        rendered.add_row(str(case.number), *cells)
    return rendered


def summary(cases: Sequence[CaseResult], wall_s: float) -> str:
    """Return how many searches are there, were made now, failed, and are missing."""
    n = {state: sum(case.state == state for case in cases) for state in ("known", "made", "failed", "missing")}
    parts = [f"{n['known']} already done", f"{n['made']} made now", f"{n['failed']} failed", f"{n['missing']} missing"]
    return f"{', '.join(parts)}; {duration_text(wall_s)}"
