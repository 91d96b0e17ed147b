"""The command line: translate options, call, print, exit code. Heavy modules are imported where they are used."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tuner import __version__
from tuner.errors import BadInputError, BaselineError, TunerError
from tuner.places import DEFAULT_STORAGE

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from tuner.search.record import Record

_INTERRUPTED = 130

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Find, prove and explain the parallelism settings of a TensorFlow workload.",
    epilog="Begin with: tftune search resnet50",
)


def _complete_workload(incomplete: str) -> list[str]:
    from tuner.workload.workload import names

    return [name for name in names() if name.startswith(incomplete)]


def _complete_study(incomplete: str) -> list[str]:
    from tuner.search.storage import all_records, open_storage

    storage = open_storage(DEFAULT_STORAGE, create=False)
    found = [] if storage is None else [record.name for record in all_records(storage)]
    return [name for name in ["last", *found] if name.startswith(incomplete)]


def _complete_space(incomplete: str) -> list[str]:
    from tuner.space.spacefile import names

    return [name for name in names() if name.startswith(incomplete)]


WorkloadArgument = Annotated[
    str,
    typer.Argument(
        help="A workload that tftune ships, or the path of a Python file of the same form.",
        autocompletion=_complete_workload,
    ),
]
StudyArgument = Annotated[
    str,
    typer.Argument(help="A study's name, the beginning of one, or 'last'.", autocompletion=_complete_study),
]
StorageOption = Annotated[
    str, typer.Option("--storage", metavar="URL", envvar="TFTUNE_STORAGE", help="The database that keeps the studies.")
]
PythonOption = Annotated[
    str | None,
    typer.Option("--python", metavar="PATH", help="The interpreter that the trials run in; this one if not given."),
]
SpaceOption = Annotated[
    str,
    typer.Option(
        "--space",
        metavar="NAME|FILE",
        help="A search space that tftune ships, or a TOML file.",
        autocompletion=_complete_space,
    ),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KNOB=VALUE", help="Hold a knob at one value; may be given again.")
]
BatchOption = Annotated[
    str | None, typer.Option("--batch-size", metavar="N[,N…]", help="The batch sizes to try, instead of the space's.")
]
ObjectiveOption = Annotated[
    str,
    typer.Option("--objective", metavar="throughput|latency", help="Items a second, or short steps at one batch size."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]


@app.command(
    epilog="Examples: tftune search resnet50 | tftune search resnet50 --time-budget 2m --set inter_op=1 | "
    "tftune search ./mine.py --batch-size 1,2,4 --json"
)
def search(
    workload: WorkloadArgument,
    trials: Annotated[
        int | None, typer.Option("--trials", metavar="N", help="End when the study has N trials.")
    ] = None,
    time_budget: Annotated[
        str | None,
        typer.Option(
            "--time-budget",
            metavar="TIME",
            help="Such as 90s or 5m; 5m if no budget is given. The baselines and 2 rounds of finals run in any case.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the sampler and of the order of the finals.")] = 0,
    space: SpaceOption = "cpu",
    objective: ObjectiveOption = "throughput",
    batch_size: BatchOption = None,
    pins: SetOption = None,
    python: PythonOption = None,
    storage: StorageOption = DEFAULT_STORAGE,
    threshold: Annotated[
        float,
        typer.Option("--threshold", metavar="PERCENT", min=0.0, max=100.0, help="The gain that matters in practice."),
    ] = 2.0,
    trial_timeout: Annotated[
        str, typer.Option("--trial-timeout", metavar="TIME", help="For a process to become ready, or to run one slice.")
    ] = "2m",
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin a new study instead of continuing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Queue behind another search on this machine.")] = False,
    launcher: Annotated[
        str,
        typer.Option(
            "--launcher",
            metavar="fork|fresh",
            help="Begin trials as forks of one imported TensorFlow, or as fresh interpreters (as finals always are).",
        ),
    ] = "fork",
    json_: JsonOption = False,
) -> None:
    """Search for the best setting, then prove it against the recommended ones.

    The same command again continues the same study. What is found is kept as it comes: Ctrl-C loses nothing.
    """
    from tuner.job.request import Request
    from tuner.job.run import run

    request = Request(
        workload=workload,
        trials=trials,
        time_budget=time_budget,
        seed=seed,
        space=space,
        objective=objective,
        batch_size=batch_size,
        pins=pins or [],
        python=python,
        storage=storage,
        threshold=threshold / 100,
        trial_timeout=trial_timeout,
        fresh=fresh,
        wait=wait,
        launcher=launcher,
    )
    signal.signal(signal.SIGTERM, _interrupt)
    record, interrupted = run(request, _console(stderr=True))
    _report_search(record, storage, json_=json_)
    if interrupted:
        raise typer.Exit(_INTERRUPTED)


def _interrupt(*_: object) -> NoReturn:
    """End as Ctrl-C does; a process in the background of a script has no handler of SIGINT to borrow."""
    raise KeyboardInterrupt


def _report_search(record: Record | None, storage: str, *, json_: bool) -> None:
    from tuner.report import terminal
    from tuner.report.document import NO_STUDY, describe_study

    if json_:
        _print_json(NO_STUDY if record is None else describe_study(record))
    elif record is not None:
        document = describe_study(record)
        _print(
            terminal.incumbent_line(document),
            "",
            terminal.verdicts(document),
            "",
            *terminal.recommendation(document, storage),
            "",
            terminal.summary(document),
        )


@app.command(epilog="Examples: tftune inspect | tftune inspect resnet50 --space quick | tftune inspect --json")
def inspect(
    workload: WorkloadArgument = "resnet50",
    space: SpaceOption = "cpu",
    batch_size: BatchOption = None,
    pins: SetOption = None,
    objective: ObjectiveOption = "throughput",
    python: PythonOption = None,
    json_: JsonOption = False,
) -> None:
    """Show the machine, the TensorFlow runtime, the knobs (on, or off and why) and the baselines."""
    from tuner.job.job import prepare
    from tuner.job.request import Request, check
    from tuner.report import document, terminal

    request = Request(
        workload=workload, space=space, batch_size=batch_size, pins=pins or [], objective=objective, python=python
    )
    job = prepare(check(request, stores=False))
    described = job.described()
    if json_:
        _print_json({"schema": document.SCHEMA, **described})
    else:
        _print(terminal.host(described), "", terminal.knobs(described), "", terminal.baselines(described))


@app.command("list", epilog="Examples: tftune list | tftune list --json")
def list_(storage: StorageOption = DEFAULT_STORAGE, json_: JsonOption = False) -> None:
    """List the studies of a storage, the oldest first."""
    from tuner.report import terminal
    from tuner.report.document import describe_line
    from tuner.search.storage import all_records, open_storage

    opened = open_storage(storage, create=False)
    rows = [] if opened is None else [describe_line(record) for record in all_records(opened)]
    if json_:
        _print_json(rows)
    elif rows:
        _print(terminal.studies(rows))
    else:
        _print(f"no studies in {storage} yet; begin with: tftune search resnet50")


@app.command(epilog="Examples: tftune show last | tftune show resnet50 --json")
def show(study: StudyArgument = "last", storage: StorageOption = DEFAULT_STORAGE, json_: JsonOption = False) -> None:
    """Show a study again, from its storage."""
    from tuner.report import terminal
    from tuner.report.document import describe_study

    document = describe_study(_find(study, storage))
    if json_:
        _print_json(document)
        return
    _print(
        terminal.host(document),
        "",
        terminal.knobs(document),
        "",
        terminal.baselines(document),
        "",
        terminal.trials(document),
        "",
        terminal.verdicts(document),
        "",
        *terminal.recommendation(document, storage),
        "",
        terminal.summary(document),
    )


@app.command(epilog='Examples: eval "$(tftune emit last)" | tftune emit last --format k8s')
def emit(
    study: StudyArgument,
    format_: Annotated[
        str,
        typer.Option("--format", metavar="sh|dotenv|docker|k8s|systemd|python|json", help="What reads the snippet."),
    ] = "sh",
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """Print the recommendation of a study as a snippet that applies it."""
    from tuner.errors import unknown
    from tuner.report.document import describe_study
    from tuner.report.emit import Format
    from tuner.report.emit import emit as write

    if format_ not in list(Format):
        raise unknown("format", format_, list(Format))
    document = describe_study(_find(study, storage))
    if document["recommended"] is None:
        raise TunerError(f"study {document['study']} has no finals yet", "run its search again to continue it")
    title = f"tftune, study {document['study']}: {document['recommended']['reason']}"
    sys.stdout.write(write(document["recommended"]["env"], Format(format_), title=title))


def _find(study: str, storage: str) -> Record:
    from tuner.search.storage import find, open_storage

    opened = open_storage(storage, create=False)
    if opened is None:
        raise BadInputError(f"no study '{study}': {storage} does not exist", "begin with: tftune search resnet50")
    return find(opened, study)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"tftune {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Find, prove and explain the parallelism settings of a TensorFlow workload."""


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def _print(*parts: RenderableType) -> None:
    from rich.text import Text

    console = _console()
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str | Text))


def _print_json(data: Any) -> None:
    import json

    sys.stdout.write(json.dumps(data, indent=2, allow_nan=False) + "\n")


def main() -> NoReturn:
    """Run the command; every failure of the tool ends in one clear line and its exit code."""
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  # for the rest of the process
    try:
        code = app(standalone_mode=False) or 0
    except typer.TyperException as error:
        code = _usage(error)
    except BaselineError as error:
        sys.stderr.write(f"{error.log.rstrip()}\n" if error.log else "")
        code = _fail(error)
    except TunerError as error:
        code = _fail(error)
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter tries again at its end
        code = _fail(TunerError(f"the system refused: {error}", "free space, or check the place named"))
    sys.exit(code)


def _usage(error: typer.TyperException) -> int:
    """Say in one line what is wrong with the options; a bare command shows its help instead."""
    context = getattr(error, "ctx", None)
    message = getattr(error, "format_message", error.__str__)()
    if context is not None and not sys.argv[1:]:
        sys.stdout.write(context.get_help() + "\n")
        return 0
    command = context.command_path if context is not None else "tftune"
    return _fail(BadInputError(" ".join(message.split()).rstrip("."), f"see {command} --help"))


def _fail(error: TunerError) -> int:
    sys.stderr.write(f"tftune: {error}\n")
    return error.exit_code
