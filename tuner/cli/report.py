"""The command `report`: a study as a page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.help import OUTPUT
from tuner.cli.options import StorageOption, StudyArgument, check_out, examples
from tuner.cli.output import show
from tuner.errors import BadInputError, unknown_name
from tuner.paths import DEFAULT_STORAGE

EPILOG = examples(
    "tftune report last --open",
    "tftune report resnet50 --out resnet50.html",
    "tftune report --format md",
)


def report(
    study: StudyArgument = "last",
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="html|md",
            help="A file for a browser, or Markdown for a pull request.",
            rich_help_panel=OUTPUT,
        ),
    ] = "html",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="File to write (default: STUDY.html; Markdown goes to stdout).",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    open_: Annotated[
        bool,
        typer.Option(
            "--open",
            help="Show the page in the browser.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """Write a study as one page that needs nothing else: its answer, snippets, charts, trials and how to repeat it."""
    from tuner.api.study import REPORT_FORMATS, load_study

    if format_ not in REPORT_FORMATS:
        raise unknown_name("format", format_, REPORT_FORMATS)
    if open_ and format_ != "html":
        raise BadInputError("--open needs --format html", "leave --format out")
    check_out(out)
    loaded = load_study(study, storage)
    text = loaded.report(format_)
    if out is None and format_ == "md":
        sys.stdout.write(text)
        return
    path = Path(f"{loaded.name.replace('/', '-')}.html") if out is None else out
    check_out(path)
    path.write_text(text, encoding="utf-8")
    show(str(path))
    if open_:
        _open(path)


def _open(path: Path) -> None:
    """Show a file in the user's browser; raises BadInputError where there is none."""
    import webbrowser

    try:
        is_shown = webbrowser.get().open(path.absolute().as_uri())
    except webbrowser.Error:
        is_shown = False
    if not is_shown:
        raise BadInputError(f"no browser was found to show {path}", "open the file yourself")
