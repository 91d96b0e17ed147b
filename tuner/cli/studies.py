"""The commands on what a storage has: `list`, `show`, `report`, `import` and `export`; `schema`, how documents look."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from tuner.cli import options
from tuner.cli.options import check_out, examples, make_out_folder, other, output
from tuner.cli.output import console, print_skipped, progress, show, show_json
from tuner.errors import BadInputError, unknown_name
from tuner.paths import DEFAULT_STORAGE, FILE_URL, write_whole

if TYPE_CHECKING:
    from tuner.job.selection import Selection
    from tuner.study.record import Record

T = TypeVar("T")
LIST_EPILOG = examples(
    "tftune list",
    "tftune list --machines here --since 7d",
    "tftune list --workloads resnet50,mlp",
    "tftune list --json",
)
SHOW_EPILOG = examples(
    "tftune show last",
    "tftune show last --details",
    "tftune show resnet50 --json",
)
REPORT_EPILOG = examples(
    "tftune report last --open",
    "tftune report resnet50 --out resnet50.html",
    "tftune report --format md",
    "tftune report --suite --out /srv/www/tftune",
    "tftune report --suite --format md",
)
IMPORT_EPILOG = examples(
    "tftune import ../other/results/tftune.db",
    "tftune import postgresql://host/team",
)
EXPORT_EPILOG = examples(
    "tftune export > trials.csv",
    "tftune export --what studies --format parquet --out studies.parquet",
    "tftune export --workloads resnet50,mlp --since 30d > trials.csv",
    "tftune export --what slices > surfaces.csv",
)
SCHEMA_EPILOG = examples(
    "tftune schema show",
    "tftune schema compare > compare.schema.json",
)


def list_studies(
    since: options.Since = None,
    machines: options.Machines = None,
    workloads: options.Workloads = None,
    storage: options.Storage = DEFAULT_STORAGE,
    json_: options.Json = False,
) -> None:
    """List the studies of a storage, the oldest first."""
    from tuner.job.selection import Selection
    from tuner.report import studylist
    from tuner.result.document import describe_line

    selection = Selection(since=since, machines=machines, workloads=workloads)
    rows = described(storage, describe_line, selection)
    if json_:
        show_json(rows)
    elif rows:
        show(*studylist.page(rows))
    else:
        from tuner.study.storage import first_search, is_missing

        is_typed = storage != DEFAULT_STORAGE and is_missing(storage)
        if selection.filters and not is_typed:
            show(f"no study in {storage} passes these filters")
            return
        what = f"there is no file {storage.removeprefix(FILE_URL)}" if is_typed else f"no studies in {storage} yet"
        show(f"{what}; begin with: {first_search(storage)}")


def show_study(
    study: options.Study = "last",
    storage: options.Storage = DEFAULT_STORAGE,
    details: options.Details = False,
    json_: options.Json = False,
) -> None:
    """Show the answer of a study again.

    With --details it also shows the machine, knobs, trials and finals.
    """
    from tuner.api.study import load_study
    from tuner.report import card, terminal, verdicts
    from tuner.report.workload import line

    loaded = load_study(study, storage)
    result = loaded.result
    if json_:
        show_json(result)
        return
    if details:
        show(
            terminal.host(result),
            line(result.workload, result.features),
            "",
            terminal.knobs(result),
            "",
            terminal.baselines(result),
            "",
            terminal.trials(result),
            "",
            *verdicts.details(result),
            "",
        )
    show(*card.rendered(loaded.card))


def report(
    study: Annotated[str | None, options.STUDY] = None,
    suite: Annotated[bool, other("--suite", "A matrix of models and machine types instead of a study.")] = False,
    format_: Annotated[
        str, output("--format html|md", "A file for a browser, or Markdown for a pull request.")
    ] = "html",
    out: Annotated[
        Path | None,
        output(
            "--out FILE|FOLDER",
            "File to write, or with --suite a folder (default: STUDY.html, tftune-suite). Markdown goes to stdout.",
        ),
    ] = None,
    open_: Annotated[bool, output("--open", "Show the page in the browser.")] = False,
    storage: options.Storage = DEFAULT_STORAGE,
) -> None:
    """Write a study as an HTML page, or all studies of a suite as a matrix.

    The page is one file. It has the answer, snippets, charts, trials and how to repeat the study.
    With --suite, the matrix shows the newest study of each model on each machine type. Each study has its own page.
    """
    from tuner.api.study import REPORT_FORMATS, load_study

    if format_ not in REPORT_FORMATS:
        raise unknown_name("format", format_, REPORT_FORMATS)
    if open_ and format_ != "html":
        raise BadInputError("--open needs --format html", "leave --format out")
    if suite and study is not None:
        raise BadInputError(f"--suite with a study, {study}", "leave one of them out")
    if not suite or format_ == "md":
        check_out(out)
    if suite:
        text, path = _suite_report(format_, out, storage)
    else:
        loaded = load_study(study or "last", storage)
        text, path = loaded.report(format_), Path(f"{loaded.name.replace('/', '-')}.html")
    if out is None and format_ == "md":
        sys.stdout.write(text)
        return
    path = path if out is None or (suite and format_ == "html") else out
    check_out(path)
    path.write_text(text, encoding="utf-8")
    show(str(path))
    if open_:
        _open(path)


def _suite_report(format_: str, out: Path | None, storage: str) -> tuple[str, Path]:
    """Return the matrix of a storage and the file that it belongs into, beside the pages of its studies."""
    import functools
    from datetime import UTC, datetime

    from tuner.api.study import Study
    from tuner.errors import DamagedStudyError
    from tuner.job.matrix import read_matrix
    from tuner.report import matrix as pages
    from tuner.result.document import describe_study
    from tuner.result.load import load_of
    from tuner.study.storage import sqlite_file, storage_errors

    folder = Path("tftune-suite") if out is None else out
    matrix = read_matrix(storage)
    if format_ == "html":
        make_out_folder(folder)
    results, place = {}, DEFAULT_STORAGE if sqlite_file(storage) is None else storage  # a URL may hold a password
    with storage_errors():
        for cell in progress([*matrix.cells.values()], "reading the studies"):
            try:
                shown = Study(describe_study(cell.record), storage=place, load=functools.partial(load_of, cell.record))
                if format_ == "html":
                    write_whole(folder / pages.page_name(shown.name), pages.harmless(shown.report()).encode())
                results[shown.name] = shown.result
            except DamagedStudyError as error:
                matrix.unreadable.setdefault(f"damaged: its {error.part} cannot be read", []).append(cell.record.name)
    print_skipped(matrix.unreadable)
    rendered = pages.html if format_ == "html" else pages.markdown
    return rendered(matrix, results, datetime.now(UTC)), folder / f"{pages.INDEX}.html"


def _open(path: Path) -> None:
    """Show a file in the user's browser; raises BadInputError where there is none."""
    import webbrowser

    try:
        is_shown = webbrowser.get().open(path.absolute().as_uri())
    except webbrowser.Error:
        is_shown = False
    if not is_shown:
        raise BadInputError(f"no browser was found to show {path}", "open the file yourself")


def import_studies(
    source: Annotated[str, typer.Argument(metavar="STORAGE", help="File or URL of the storage to copy from.")],
    storage: options.Storage = DEFAULT_STORAGE,
    json_: options.Json = False,
) -> None:
    """Copy the studies of another storage into this one.

    Run it again to copy only new studies.
    """
    from tuner.job.merge import merge
    from tuner.study.storage import storage_errors

    merged = []
    with storage_errors():
        for each in merge(source, storage, waiting=lambda line: console(stderr=True).print(f"waiting: {line}")):
            merged.append(each)
            if not json_ and each.what != "known":
                name = each.source if each.study in (each.source, None) else f"{each.source} as {each.study}"
                show(f"{name}: {each.what}")
    if json_:
        show_json(merged)
    else:
        n = {what: sum(each.what == what for each in merged) for what in ("new", "newer", "known")}
        left_out = len(merged) - sum(n.values())
        left_out_note = f", {left_out} skipped" if left_out else ""
        show(f"{n['new']} new, {n['newer']} updated, {n['known']} already here{left_out_note}")


def export(
    what: Annotated[
        str, output("--what trials|studies|slices", "One row per trial, per study, or per timed slice.")
    ] = "trials",
    format_: Annotated[str, output("--format csv|parquet", "Parquet needs pyarrow.")] = "csv",
    out: options.Out = None,
    since: options.Since = None,
    machines: options.Machines = None,
    workloads: options.Workloads = None,
    storage: options.Storage = DEFAULT_STORAGE,
    json_: options.Json = False,
) -> None:
    """Export the studies as a table for other programs."""
    from tuner.job.selection import Selection
    from tuner.report import frame
    from tuner.study.storage import first_search

    if what not in frame.KINDS:
        raise unknown_name("kind of row", what, frame.KINDS)
    format_ = options.format_of(format_, frame.FORMATS, usual="csv", json_=json_)
    check_out(out)
    selection = Selection(since=since, machines=machines, workloads=workloads)
    describe, tabulated = frame.KINDS[what]
    results = described(storage, describe, selection)
    if not results and selection.filters:
        raise BadInputError(f"no study in {storage} passes these filters", "change them; `tftune list` shows all")
    if not results:
        raise BadInputError(f"no studies in {storage}", f"start with: {first_search(storage)}")
    text = frame.write(tabulated(results), format_, out)
    if text is not None:
        sys.stdout.write(text)


def schema(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="A command with --json, such as show, or workloads show.")
    ],
) -> None:
    """Print the JSON Schema of what a command prints with --json."""
    from tuner.result.schema import schema_of

    show_json(schema_of(" ".join(command)))


def described(storage: str, describe: Callable[[Record], T], selection: Selection) -> list[T]:
    """Return what `describe` says of each selected study of a storage that can be read, and print which cannot."""
    from tuner.api import study

    results, unreadable = study.described(
        storage, describe, selection, progress=lambda records: progress(records, "reading the studies")
    )
    print_skipped(unreadable)
    return results
