"""Printing: documents as JSON, renderables on the console."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from tuner.api.shown import Tabled
    from tuner.report.card import Card

T = TypeVar("T")
_PIPED_WIDTH = 200
"""Of what is no terminal: a table's row is a line there, so that it can be searched and cut."""


def console(*, stderr: bool = False) -> Console:
    """Return a console; what is printed on it is never coloured by guess, and brackets in names are no markup."""
    from tuner.report.layout import Shell

    class Piped(Shell):
        def on_broken_pipe(self) -> None:
            # A reader that closes the pipe early, such as head, is not an error; typer would report one.
            discard(self.file)
            raise SystemExit(0)

    stream = sys.stderr if stderr else sys.stdout  # None where it was closed before we began
    terminal = stream is not None and stream.isatty()
    width = None if terminal or "COLUMNS" in os.environ else _PIPED_WIDTH
    return Piped(stderr=stderr, highlight=False, markup=False, width=width)


def discard(stream: IO[str]) -> None:
    """Let what is yet written to a stream vanish: the interpreter would try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def show(*parts: RenderableType) -> None:
    """Print on stdout; text is not cut, so that it can be copied."""
    from rich.text import Text

    out = console()
    for part in parts:
        out.print(part, soft_wrap=isinstance(part, str | Text))


def progress(things: Sequence[T], what: str) -> Iterable[T]:
    """Return the same things, with a bar on a terminal that is gone once they are through."""
    from rich.progress import track

    out = console(stderr=True)
    return track(things, what, console=out, transient=True, disable=not out.is_terminal)


def print_skipped(unreadable: Mapping[str, Sequence[str]]) -> None:
    """Say on stderr which studies of a storage cannot be read, by reason."""
    from tuner.report.layout import left_out_text

    for reason, names in unreadable.items():
        console(stderr=True).print(left_out_text(reason, names), soft_wrap=True, markup=False)


def json_text(document: object) -> str:
    """Return one JSON document: of a typed result, a list of them, or plain data."""
    import json

    from msgspec import to_builtins

    return json.dumps(to_builtins(document), indent=2, allow_nan=False) + "\n"


def show_json(document: object) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.write(json_text(document))


def show_result(shown: Tabled, name: str, out: Path | None, *, json_: bool, **page: int) -> None:
    """Write a result, called `name`, into a folder if there is one, with its table and its pictures; and print it.

    In this order: whoever reads what is printed may go away.
    """
    if out is not None:
        for file, text in {f"{name}.json": json_text(shown.result), **shown.files()}.items():
            if text is None:
                (out / file).unlink(missing_ok=True)  # of an earlier run, which had something to draw
            else:
                (out / file).write_text(text, encoding="utf-8")
    if json_:
        show_json(shown.result)
    else:
        show(*shown.page(**page))


def append_summary(path: Path | None, title: str, card: Card) -> None:
    """Append a card to a file as Markdown, as the summary of a job in CI; nothing without a file."""
    from tuner.report import pages

    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write("\n".join([f"### {title}", "", *pages.card_markdown(card), "", ""]))
