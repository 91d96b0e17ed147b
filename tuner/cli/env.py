"""The commands `env …`: environments that trials can run in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import JsonOption
from tuner.cli.output import console, show, show_json

EPILOG = "Examples: tftune env create openmp --dir .openmp | tftune search resnet50 --python .openmp/bin/python"

app = typer.Typer(no_args_is_help=True, help="Make environments that trials can run in.")


@app.command(epilog=EPILOG)
def create(
    build: Annotated[str, typer.Argument(metavar="openmp", help="Which build of TensorFlow: openmp.")],
    folder: Annotated[
        Path, typer.Option("--dir", metavar="PATH", help="A folder that does not exist yet, or is empty.")
    ],
    python: Annotated[
        str | None,
        typer.Option(
            "--python", metavar="PATH", help="The Python to build on; a fitting one is looked for if not given."
        ),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Make a virtual environment with an OpenMP build of TensorFlow: the last intel-tensorflow, 2.14.

    It is 1.3 GB on disk, and takes a minute or two.
    """
    from tuner.job.environment import create as make

    progress = console(stderr=True)
    environment = make(build, folder, python=python, notify=lambda line: progress.print(line, style="dim"))
    tensorflow, onednn = environment.build.tensorflow, environment.build.onednn_runtime
    if json_:
        from tuner.report.result.inspection import EnvironmentResult

        show_json(EnvironmentResult(python=str(environment.python), tensorflow=tensorflow, onednn=onednn))
    else:
        show(f"TensorFlow {tensorflow} on {onednn} in {folder}")
        show(f"try: tftune search resnet50 --python {environment.python}")
