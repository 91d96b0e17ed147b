"""The commands `env …`: create environments for trials."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.help import SHOWN, Command, Group
from tuner.cli.options import JsonOption, examples
from tuner.cli.output import console, show, show_json

EPILOG = examples(
    "tftune env create openmp --dir .openmp",
    "tftune search resnet50 --python .openmp/bin/python",
)

app = typer.Typer(
    no_args_is_help=True,
    help="Create Python environments for trials.",
    cls=Group,
    rich_markup_mode=None,
    context_settings=SHOWN,
)


@app.command(cls=Command, epilog=EPILOG)
def create(
    build: Annotated[str, typer.Argument(metavar="openmp", help="Build of TensorFlow to install; only openmp so far.")],
    folder: Annotated[Path, typer.Option("--dir", metavar="PATH", help="New or empty folder for the environment.")],
    python: Annotated[
        str | None,
        typer.Option("--python", metavar="PATH", help="Python to build on (default: the first suitable one found)."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Create a virtual environment with an OpenMP build of TensorFlow (intel-tensorflow 2.14, the last one).

    Needs 1.3 GB of disk space and one to two minutes.
    """
    from tuner.job.environment import create as make

    progress = console(stderr=True)
    environment = make(build, folder, python=python, notify=lambda line: progress.print(line, style="dim"))
    tensorflow, onednn = environment.build.tensorflow, environment.build.onednn_runtime
    if json_:
        from tuner.result.inspection import EnvironmentResult

        show_json(EnvironmentResult(python=str(environment.python), tensorflow=tensorflow, onednn=onednn))
    else:
        show(f"TensorFlow {tensorflow} on {onednn} in {folder}")
        show(f"use it with: tftune search resnet50 --python {shlex.quote(str(environment.python))}")
