"""The command `report`: a study as a page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import StorageOption, StudyArgument, examples
from tuner.cli.output import show
from tuner.errors import BadInputError, unknown_name
from tuner.paths import DEFAULT_STORAGE, check_writable

if TYPE_CHECKING:
    from tuner.report.result.study import StudyResult

EPILOG = examples(
    "tftune report last --open",
    "tftune report resnet50 --out resnet50.html",
    "tftune report --format md",
)
FORMATS = ("html", "md")
_SNIPPETS = ("sh", "docker", "k8s", "tfserving", "systemd", "python")


def report(
    study: StudyArgument = "last",
    format_: Annotated[
        str, typer.Option("--format", metavar="html|md", help="A file for a browser, or Markdown for a pull request.")
    ] = "html",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="File to write (default: STUDY.html; Markdown goes to stdout)."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """Write a study as one page that needs nothing else: its answer, snippets, charts, trials and how to repeat it."""
    from tuner.cli.studies import find_study
    from tuner.report import chart, studycard, studypage
    from tuner.report.document import describe_study

    if format_ not in FORMATS:
        raise unknown_name("format", format_, FORMATS)
    if open_ and format_ != "html":
        raise BadInputError("--open needs --format html", "leave --format out")
    result = describe_study(find_study(study, storage))
    of_study = studycard.study_card(result, handle=study, storage=storage)
    if format_ == "md":
        text = studypage.markdown(result, of_study, _snippets(result, ("sh",)))
    else:
        text = studypage.html(result, of_study, _snippets(result, _SNIPPETS), chart.all_of(result))
    if out is None and format_ == "md":
        sys.stdout.write(text)
        return
    path = Path(f"{result.study.replace('/', '-')}.html") if out is None else out
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise BadInputError(f"--out {path}: not a file in a folder that exists", "give a file name")
    check_writable(path.absolute().parent, "give --out a path that you can write to")
    path.write_text(text, encoding="utf-8")
    show(str(path))
    if open_:
        _open(path)


def _snippets(study: StudyResult, formats: tuple[str, ...]) -> dict[str, str]:
    """Return what applies the study's answers, by format; those of several processes for a shell alone."""
    from tuner.report import studycard
    from tuner.report.emit import Format

    snippets: dict[str, str] = {}
    advice = study.recommended
    if advice is not None and advice.deployment and not advice.deployment.members:
        fitting = [name for name in formats if name != Format.TFSERVING or study.framework.server_flags]
        snippets = {name: studycard.snippet(study, advice, Format(name)) for name in fitting}
    several = None if study.groups is None else study.groups.recommended
    if several is not None and several.deployment.processes > 1:
        snippets["sh, several processes"] = studycard.snippet(study, several, Format.SH)
    return snippets


def _open(path: Path) -> None:
    """Show a file in the user's browser; raises BadInputError where there is none."""
    import webbrowser

    try:
        is_shown = webbrowser.get().open(path.absolute().as_uri())
    except webbrowser.Error:
        is_shown = False
    if not is_shown:
        raise BadInputError(f"no browser was found to show {path}", "open the file yourself")
