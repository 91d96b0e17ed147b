"""The commands `list` and `show`: what is in a storage already; and `schema`, what documents look like."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from tuner.cli.options import (
    DetailsOption,
    JsonOption,
    MachineOption,
    SinceOption,
    StorageOption,
    StudyArgument,
    WorkloadsOption,
    examples,
)
from tuner.cli.output import print_skipped, progress, show, show_json
from tuner.paths import DEFAULT_STORAGE, FILE_URL

if TYPE_CHECKING:
    from tuner.job.selection import Selection
    from tuner.study.record import Record

T = TypeVar("T")
LIST_EPILOG = examples(
    "tftune list",
    "tftune list --machine here --since 7d",
    "tftune list --workloads resnet50,mlp",
    "tftune list --json",
)
SHOW_EPILOG = examples(
    "tftune show last",
    "tftune show last --details",
    "tftune show resnet50 --json",
)
SCHEMA_EPILOG = examples(
    "tftune schema show",
    "tftune schema compare > compare.schema.json",
)


def list_studies(
    since: SinceOption = None,
    machine: MachineOption = None,
    workloads: WorkloadsOption = None,
    storage: StorageOption = DEFAULT_STORAGE,
    json_: JsonOption = False,
) -> None:
    """List the studies of a storage, the oldest first."""
    from tuner.job.selection import Selection
    from tuner.report import studylist
    from tuner.result.document import describe_line

    selection = Selection(since=since, machine=machine, workloads=workloads)
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
    study: StudyArgument = "last",
    storage: StorageOption = DEFAULT_STORAGE,
    details: DetailsOption = False,
    json_: JsonOption = False,
) -> None:
    """Show the answer of a study; with --details also its machine, knobs, trials and finals."""
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
