"""The commands `import` and `export`: studies from another storage, and tables for other programs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tuner.cli.help import OUTPUT
from tuner.cli.options import (
    JsonOption,
    MachineOption,
    OutOption,
    SinceOption,
    StorageOption,
    WorkloadsOption,
    check_out,
    examples,
)
from tuner.cli.output import console, show, show_json
from tuner.cli.studies import described
from tuner.errors import BadInputError, unknown_name
from tuner.paths import DEFAULT_STORAGE

IMPORT_EPILOG = examples(
    "tftune import ../other/results/tftune.db",
    "tftune import postgresql://host/team",
)
EXPORT_EPILOG = examples(
    "tftune export > trials.csv",
    "tftune export --what studies --format parquet --out studies.parquet",
    "tftune export --workloads resnet50,mlp --since 30d > trials.csv",
)


def import_studies(
    source: Annotated[str, typer.Argument(metavar="STORAGE", help="File or URL of the storage to copy from.")],
    storage: StorageOption = DEFAULT_STORAGE,
    json_: JsonOption = False,
) -> None:
    """Copy the studies of another storage into this one.

    Running it again copies only what is new.
    """
    from tuner.job.merge import merge
    from tuner.study.storage import storage_errors

    merged = []
    with storage_errors():
        for each in merge(source, storage, waiting=lambda line: console(stderr=True).print(f"waiting: {line}")):
            merged.append(each)
            if not json_ and each.outcome != "known":
                name = each.source if each.name in (each.source, "") else f"{each.source} as {each.name}"
                show(f"{name}: {each.outcome}")
    if json_:
        from tuner.result.inspection import ImportLine

        show_json([ImportLine(source=each.source, study=each.name or None, what=each.outcome) for each in merged])
    else:
        n = {what: sum(each.outcome == what for each in merged) for what in ("new", "newer", "known")}
        left_out = len(merged) - sum(n.values())
        left_out_note = f", {left_out} skipped" if left_out else ""
        show(f"{n['new']} new, {n['newer']} updated, {n['known']} already here{left_out_note}")


def export(
    what: Annotated[
        str,
        typer.Option(
            "--what", metavar="trials|studies", help="One row per trial, or one row per study.", rich_help_panel=OUTPUT
        ),
    ] = "trials",
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="csv|json|parquet",
            help="Parquet needs pyarrow.",
            rich_help_panel=OUTPUT,
        ),
    ] = "csv",
    out: OutOption = None,
    since: SinceOption = None,
    machine: MachineOption = None,
    workloads: WorkloadsOption = None,
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """Export the studies as a table for other programs."""
    from tuner.job.selection import Selection
    from tuner.report import frame
    from tuner.result.document import describe_study
    from tuner.study.storage import first_search

    if what not in frame.KINDS:
        raise unknown_name("kind of row", what, frame.KINDS)
    if format_ not in frame.FORMATS:
        raise unknown_name("format", format_, frame.FORMATS)
    check_out(out)
    selection = Selection(since=since, machine=machine, workloads=workloads)
    results = described(storage, describe_study, selection)
    if not results and selection.filters:
        raise BadInputError(f"no study in {storage} passes these filters", "change them; `tftune list` shows all")
    if not results:
        raise BadInputError(f"no studies in {storage}", f"start with: {first_search(storage)}")
    table = frame.trials(results) if what == "trials" else frame.studies(results)
    text = frame.write(table, format_, out)
    if text is not None:
        sys.stdout.write(text)
