"""What `tftune suite` shows: a line for each search, and the document of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from tuner.report.layout import duration_text, ratio_text, table

SCHEMA = 1


def outcome(document: Mapping[str, Any] | None, failure: str) -> str:
    """Return how a search ended, in a few words."""
    if document is None:
        return failure
    advice = document["recommended"]
    if advice is None:
        return "no finals"
    gain = advice["gain"]
    if gain is None or gain["speedup"] is None:
        return f"keep {document['default']}"
    return f"{ratio_text(gain['speedup'], gain['low'], gain['high'])} over {document['default']} ({advice['source']})"


def plan(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return the searches of a suite, those that are known and those that are to be run."""
    shown = table(">#", "workload", "mode", "shape", "runtime", "state", "outcome")
    for row in rows:
        cells = (row["workload"], row["mode"], row["shape"], row["runtime"], row["state"], row["outcome"])
        shown.add_row(str(row["number"]), *cells)
    return shown


def summary(rows: Sequence[Mapping[str, Any]], wall_s: float) -> str:
    """Return how many searches are there, were made now, failed, and are missing."""
    n = {state: sum(row["state"] == state for row in rows) for state in ("known", "made", "failed", "missing")}
    parts = [f"{n['known']} known", f"{n['made']} made now", f"{n['failed']} failed", f"{n['missing']} missing"]
    return f"{', '.join(parts)}; {duration_text(wall_s)}"
