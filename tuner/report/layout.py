"""Lines and tables in the house style. Light: a list has to be there at once."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import (
    Console,
    ConsoleOptions,
    JustifyMethod,
    RenderableType,
    RenderResult,
)
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tuner.plain import printable

_WIDE = 10_000  # columns: a screen that any table fits
_GAP = 2  # columns between two cells
_SHORT_WORD = 12  # characters: a longer word may be cut, unless it is a name
_LONGEST_LABEL = 20  # characters: a longer header is a sentence of its own
_FIRST_CELL = re.compile(r" *\S.{0,16}? {2,}")  # a title, or a number, before what is to be read
_COPIED = re.compile(r" *(?:tftune |python3? |[A-Z_]+=|https?://)")


class Shell(Console):
    """A console that breaks long lines of prose between words, under where they begin, if it is a terminal.

    What is printed with `soft_wrap` stays in one line elsewhere. Commands and variables always do, so that they can be
    copied.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield what is written, without characters that would move the cursor: names may come from other machines."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        """Print objects as `rich.console.Console` does."""
        [one, *others] = objects or [""]
        if not (soft_wrap and self.is_terminal and not others and isinstance(one, str | Text)):
            super().print(*objects, soft_wrap=soft_wrap, **options)
            return
        for line in broken(self, Text(one) if isinstance(one, str) else one):
            super().print(line, soft_wrap=True, **options)


def broken(console: Console, line: Text) -> Iterator[Text]:
    """Yield a line in parts as wide as a console, those after the first below where its text begins."""
    first = _FIRST_CELL.match(line.plain)
    begin = first.end() if first else 0
    room = console.width - begin
    if line.cell_len <= console.width or room < console.width // 2 or _COPIED.match(line.plain, begin):
        yield line
        return
    parts = line[begin:].wrap(console, room)
    for part in parts:
        part.rstrip()
    yield Text.assemble(line[:begin], parts[0])
    yield from (Text.assemble(" " * begin, part) for part in parts[1:])


class StackingTable(Table):
    """A table whose cells stand below one another where the screen is too narrow for them side by side.

    Words that were cut in two, such as names, could not be read or copied.
    """

    def __init__(self, heading: str | None, **options: Any) -> None:
        """`heading` stands above: in one line, also where the table is narrower."""
        super().__init__(**options)
        self.heading = heading
        self.names: set[int] = set()
        """The columns whose words stay in one piece."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table, or each row as lines with the headers before their cells."""
        if self.heading:
            yield Text(self.heading, style="bold")
        least, full = self._widths(console, options.update(max_width=_WIDE))
        room = options.max_width - _GAP * (len(self.columns) - 1)
        if sum(least) <= room:
            if sum(full) > room:
                for column, width in zip(self.columns, shared(room, least, full), strict=True):
                    column.width = width
            yield from super().__rich_console__(console, options)
            return
        headers = [str(column.header) if self.show_header else "" for column in self.columns]
        for cells in zip(*(column.cells for column in self.columns), strict=True):
            for number, (header, cell) in enumerate(zip(headers, cells, strict=True)):
                text = cell if isinstance(cell, Text) else Text(str(cell))
                if text:
                    label = f"{header}: " if number and 0 < len(header) <= _LONGEST_LABEL else ""
                    yield Padding(
                        Text.assemble((label, "dim"), text, overflow="fold"), (0, 0, 0, 2 * bool(number)), expand=False
                    )

    def _widths(self, console: Console, options: ConsoleOptions) -> tuple[list[int], list[int]]:
        """Return how wide each column has to be, as names are in one piece, and how wide it is with nothing wrapped."""
        least: list[int] = []
        full: list[int] = []
        for number, column in enumerate(self.columns):
            cells = column.cells if not self.show_header else (column.header, *column.cells)
            measured = [Measurement.get(console, options, cell) for cell in cells]
            full.append(max((cell.maximum for cell in measured), default=0))
            word = max((cell.minimum for cell in measured), default=0)
            least.append(full[-1] if column.no_wrap else word if number in self.names else min(word, _SHORT_WORD))
        return least, full


def shared(room: int, least: Sequence[int], full: Sequence[int]) -> list[int]:
    """Return the widths of columns that share what is left of the room evenly, beyond the least that each needs.

    None has more than it would fill.
    """
    widths = list(least)
    left = room - sum(least)
    while left and (lacking := [i for i, width in enumerate(widths) if width < full[i]]):
        for i in lacking[:left]:
            widths[i] += 1
        left -= min(left, len(lacking))
    return widths


def table(
    *headers: str,
    title: str | None = None,
    show_header: bool = True,
    rows: Iterable[Sequence[RenderableType]] = (),
) -> Table:
    """Return a table in the house style.

    A header that begins with '>' is right-aligned; the words of one that begins with '!' stay in one piece, as those of
    the first do.
    """
    styled = StackingTable(title, box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for header in headers:
        justify: JustifyMethod = "right" if header.startswith(">") else "left"
        styled.add_column(header.lstrip(">!"), justify=justify, overflow="fold")
        if header.startswith("!") or len(styled.columns) == 1:
            styled.names.add(len(styled.columns) - 1)
    styled.show_header = show_header
    for row in rows:
        styled.add_row(*row)
    return styled


def csv_text(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV with a header; what is None stays empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(titles)
    writer.writerows(rows)
    return out.getvalue()


def left_out_text(reason: str, names: Sequence[str], *, most: int = 3) -> str:
    """Return which studies were left out, and why."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"skipped ({reason}): {', '.join(names[:most])}{more}"
