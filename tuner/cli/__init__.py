"""The command line: translate options, call, print, exit code. Heavy modules are imported where they are used."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated, NoReturn

import typer

from tuner import __version__
from tuner.cli import (
    deploy,
    env,
    exchange,
    inspect,
    measure,
    recommend,
    report,
    rules,
    search,
    studies,
    suite,
    workloads,
)
from tuner.cli.output import discard
from tuner.cli.search import INTERRUPTED
from tuner.errors import BadInputError, TunerError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Find the fastest parallelism settings of a TensorFlow or ONNX Runtime workload, and prove the gain.",
    epilog="Start with: tftune search resnet50",
)
app.command(epilog=search.EPILOG)(search.search)
app.command(epilog=suite.EPILOG)(suite.suite)
app.command(epilog=rules.EPILOG)(rules.rules)
app.command(epilog=recommend.EPILOG)(recommend.recommend)
app.command(epilog=measure.COMPARE_EPILOG)(measure.compare)
app.command(epilog=measure.CHECK_EPILOG)(measure.check)
app.command(epilog=measure.NOISE_EPILOG)(measure.noise)
app.command(epilog=inspect.EPILOG)(inspect.inspect)
app.command("list", epilog=studies.LIST_EPILOG)(studies.list_studies)
app.command("show", epilog=studies.SHOW_EPILOG)(studies.show_study)
app.command(epilog=report.EPILOG)(report.report)
app.command(epilog=deploy.EMIT_EPILOG)(deploy.emit)
app.command(epilog=deploy.RUN_EPILOG)(deploy.run)
app.command("import", epilog=exchange.IMPORT_EPILOG)(exchange.import_studies)
app.command(epilog=exchange.EXPORT_EPILOG)(exchange.export)
app.command(epilog=studies.SCHEMA_EPILOG)(studies.schema)
app.add_typer(workloads.app, name="workloads")
app.add_typer(env.app, name="env")


def _version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"tftune {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Find the fastest parallelism settings of a TensorFlow or ONNX Runtime workload, and prove the gain."""


def _interrupt(*_: object) -> NoReturn:
    """End like Ctrl-C. (A background process of a script may ignore SIGINT, so its handler cannot be reused.)"""
    raise KeyboardInterrupt


def main() -> NoReturn:
    """Run the command; every failure of the tool ends in one clear line and its exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123  # for the rest of the process
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = app(standalone_mode=False) or 0
    except typer.TyperException as error:
        code = _usage(error)
    except TunerError as error:
        code = _fail(error)
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        discard(sys.stdout)
        code = 0
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except OSError as error:
        discard(sys.stdout)
        code = _fail(
            TunerError(f"operating system error: {error}", "check the path, its permissions and the free disk space")
        )
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
    sys.stderr.write(f"{error.log.rstrip()}\n" if error.log else "")
    text = " ".join(str(error).split()) if isinstance(error, BadInputError) else str(error)
    sys.stderr.write(f"tftune: {text}\n")
    return error.exit_code
