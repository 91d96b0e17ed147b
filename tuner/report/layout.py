"""Tables in the house style, and numbers as people read them. Light: a list has to be there at once."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table


def table(*headers: str, title: str | None = None) -> Table:
    """Return an empty table in the house style; a header that begins with '>' is right-aligned."""
    styled = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for header in headers:
        styled.add_column(header.lstrip(">"), justify="right" if header.startswith(">") else "left", overflow="fold")
    return styled


def left_out_text(reason: str, names: Sequence[str], *, most: int = 3) -> str:
    """Return which studies were left out, and why."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"skipped ({reason}): {', '.join(names[:most])}{more}"


def plural(n: int, noun: str, nouns: str | None = None) -> str:
    """Return a count with its noun; `nouns` where its plural has another ending."""
    return f"{n} {noun if n == 1 else nouns or f'{noun}s'}"


def percent(share: float, digits: int = 1) -> str:
    """Return a share in percent."""
    return f"{100 * share:.{digits}f} %"


def ratio_text(ratio: float | None, low: float | None, high: float | None) -> str:
    """Return a ratio with its interval, to the digits that the interval leaves meaning."""
    if ratio is None:
        return "—"
    if low is None or high is None:
        return f"{ratio:.2f}"
    digits = 3 if high - low < 0.02 else 2
    return f"{ratio:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def rate_text(rate: float) -> str:
    """Return a rate with three digits at least."""
    return f"{rate:.1f}" if rate >= 10 else f"{rate:.3g}"


def ms_text(ms: float | None) -> str:
    """Return a step time in ms with three digits at least."""
    return "—" if ms is None else f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"


def energy_text(joules: float | None) -> str:
    """Return an energy with three digits at least."""
    return "—" if joules is None else f"{joules:.3g} J" if joules >= 0.1 else f"{1000 * joules:.3g} mJ"


def duration_text(seconds: float | None) -> str:
    """Return a duration as people say it."""
    if seconds is None:
        return "—"
    whole_s = round(max(0.0, seconds))
    return f"{whole_s // 60} min {whole_s % 60:02d} s" if whole_s >= 60 else f"{whole_s} s"


def clock_text(seconds: float) -> str:
    """Return a duration as a clock shows it, `4:05`."""
    whole_s = round(max(0.0, seconds))
    return f"{whole_s // 60}:{whole_s % 60:02d}"
