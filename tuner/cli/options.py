"""Options and arguments that several commands share, with their completion."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tuner.cli.help import MEASUREMENT, OUTPUT, SETTINGS, STUDIES
from tuner.errors import BadInputError, TunerError
from tuner.paths import DEFAULT_STORAGE, check_writable, storage_url
from tuner.quantity import PERCENT

MARGIN_PERCENT = 2.0
"""The margin unless the user gives another: `tuner.stats.equivalence.MARGIN`, without what loading that would cost."""
_MAX_PERCENT = 50.0


def examples(*commands: str) -> str:
    """Return the end of a help page: examples, one a line."""
    return "\n".join(["Examples:", *(f"  {command}" for command in commands)])


def complete_study(incomplete: str) -> list[str]:
    """Return the studies of the default storage that begin so."""
    from tuner.study.storage import all_records, open_storage, storage_errors

    try:
        with storage_errors():
            storage = open_storage(DEFAULT_STORAGE, create=False)
            study_names = [] if storage is None else [record.name for record in all_records(storage)]
    except TunerError:  # a shell that completes words has no place for it
        study_names = []
    return [name for name in ["last", *study_names] if name.startswith(incomplete)]


def complete_setting(incomplete: str) -> list[str]:
    """Return the baselines, the studies and the knobs that begin so."""
    from tuner.frameworks import registry

    catalogues = [registry.find(name).catalogue for name in registry.names()]
    candidates = [baseline.name for each in catalogues for baseline in each.baselines]
    candidates += dict.fromkeys(f"{name}=" for each in catalogues for name in each.knobs)
    return [name for name in candidates if name.startswith(incomplete)] + complete_study(incomplete)


def complete_space(incomplete: str) -> list[str]:
    """Return the shipped search spaces that begin so."""
    from tuner.frameworks import registry
    from tuner.space.spacefile import names

    folders = [registry.find(name).spaces for name in registry.names()]
    return [name for folder in folders for name in names(folder) if name.startswith(incomplete)]


def _margin(text: str | float) -> float:
    """Return a margin in percent; typer's own range lets NaN through in some versions, or words it strangely."""
    value = PERCENT.parse(text, "--margin")
    if not 0 < value <= _MAX_PERCENT:
        raise BadInputError(
            f"--margin is {value:g}", f"expected a percentage above 0 and at most {_MAX_PERCENT:g}, e.g. 2%"
        )
    return value


def check_out(out: Path | None, option: str = "--out") -> None:
    """Raise BadInputError where the file of an option cannot be written, before the work that it is for."""
    if out is None:
        return
    if out.is_dir():
        raise BadInputError(f"{option} {out} is a folder", "give a file name")
    if not out.parent.is_dir():
        raise BadInputError(f"{option}: folder {out.parent} does not exist", "create it first")
    check_writable(out.parent, f"give {option} a path that you can write to")


def out_folder_option(written: str) -> Any:
    """Return the option that names a folder for what a command also writes."""
    help_text = f"Also write {written} to a folder."
    return typer.Option("--out", metavar="FOLDER", help=help_text, rich_help_panel=OUTPUT)


def make_out_folder(out: Path | None) -> None:
    """Make the folder that a command writes into; raises BadInputError where it cannot, before the work it is for."""
    if out is None:
        return
    if out.exists() and not out.is_dir():
        raise BadInputError(f"--out {out} is a file", "give the name of a folder")
    out.mkdir(parents=True, exist_ok=True)


StudyArgument = Annotated[
    str,
    typer.Argument(
        help="Name of a study, a unique prefix of one, or 'last' for the newest.", autocompletion=complete_study
    ),
]
StorageOption = Annotated[
    str,
    typer.Option(
        "--storage",
        metavar="FILE|URL",
        envvar="TFTUNE_STORAGE",
        callback=storage_url,
        help="The database with the studies: an SQLite file, or the URL of another database.",
        rich_help_panel=STUDIES,
    ),
]
PythonOption = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="PATH",
        help="Python interpreter that runs the trials (default: the one that runs tftune).",
        rich_help_panel=MEASUREMENT,
    ),
]
SpaceOption = Annotated[
    str | None,
    typer.Option(
        "--space",
        metavar="NAME|FILE",
        help="Name of a shipped search space, or a TOML file (default: cpu, or gpu with --device gpu).",
        autocompletion=complete_space,
        rich_help_panel=SETTINGS,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KNOB=VALUE", help="Fix a knob at one value; can be repeated.", rich_help_panel=SETTINGS
    ),
]
BatchOption = Annotated[
    str | None,
    typer.Option(
        "--batch-size",
        metavar="N[,N…]",
        help="Batch sizes to try, instead of the space's.",
        rich_help_panel=SETTINGS,
    ),
]
ObjectiveOption = Annotated[
    str,
    typer.Option(
        "--objective",
        metavar="throughput|latency|energy",
        help="What to optimise: items per second, the time of a step, or the energy of an item.",
        rich_help_panel=SETTINGS,
    ),
]
NumericsOption = Annotated[
    str,
    typer.Option(
        "--numerics",
        metavar="keep|may-change",
        help="Whether other precisions may be tried (GPUs, OpenVINO).",
        autocompletion=lambda: ["keep", "may-change"],
        rich_help_panel=SETTINGS,
    ),
]
MarginOption = Annotated[
    float,
    typer.Option(
        "--margin",
        metavar="PERCENT",
        parser=_margin,
        help="Smallest difference that matters, in percent.",
        rich_help_panel=SETTINGS,
    ),
]
CheckMarginOption = Annotated[
    float | None,
    typer.Option(
        "--margin",
        metavar="PERCENT",
        parser=_margin,
        help="Smallest difference that matters, in percent (default: the study's own).",
        rich_help_panel=SETTINGS,
    ),
]
BudgetOption = Annotated[
    str,
    typer.Option(
        "--time-budget",
        metavar="TIME",
        help="Time to spend, e.g. 90s or 5m; at least two rounds (or pairs) are always run.",
        rich_help_panel=MEASUREMENT,
    ),
]
TimeoutOption = Annotated[
    str,
    typer.Option(
        "--trial-timeout",
        metavar="TIME",
        help="Time limit for a process to write the model, become ready, or run one slice.",
        rich_help_panel=MEASUREMENT,
    ),
]
WaitOption = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="Wait until no other tftune measures here, instead of failing.",
        rich_help_panel=MEASUREMENT,
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="DATE|DAYS",
        help="Only studies started since a date (2026-11-01, UTC) or in the last days (30d).",
        rich_help_panel=STUDIES,
    ),
]
MachineOption = Annotated[
    str | None,
    typer.Option(
        "--machine",
        metavar="ID|here",
        help="Only studies of this machine ('here'), or of the machine with this id.",
        rich_help_panel=STUDIES,
    ),
]
WorkloadsOption = Annotated[
    str | None,
    typer.Option(
        "--workloads", metavar="NAME[,NAME…]", help="Only studies of these workloads.", rich_help_panel=STUDIES
    ),
]
BatchesOption = Annotated[
    str,
    typer.Option(
        "--batch",
        metavar="FROM..TO|N,N…",
        help="Batch sizes to measure, the smallest first: 1..64 is 1, 2, 4 … 64; ends where memory or the time does.",
        rich_help_panel=SETTINGS,
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="Write to a file instead of the terminal.",
        rich_help_panel=OUTPUT,
    ),
]
SummaryOption = Annotated[
    Path | None,
    typer.Option(
        "--summary",
        metavar="FILE",
        help="Also append the answer to a file as Markdown, such as $GITHUB_STEP_SUMMARY.",
        rich_help_panel=OUTPUT,
    ),
]
DetailsOption = Annotated[
    bool,
    typer.Option(
        "--details",
        help="Also show the tables behind the answer.",
        rich_help_panel=OUTPUT,
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON document on stdout; everything else goes to stderr.", rich_help_panel=OUTPUT
    ),
]
