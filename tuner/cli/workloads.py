"""The commands `workloads` and `workloads show`."""

from __future__ import annotations

import typer

from tuner.cli.help import SHOWN, Command, Group
from tuner.cli.options import JsonOption, PythonOption, examples
from tuner.cli.output import show, show_json
from tuner.cli.workload_options import takes_model
from tuner.workload.spec import WorkloadSpec

EPILOG = examples(
    "tftune workloads",
    "tftune workloads --json",
    "tftune workloads show bert-base --param seq_len=384",
)

app = typer.Typer(
    help="List the shipped workloads, or show what one computes.",
    epilog=EPILOG,
    invoke_without_command=True,
    cls=Group,
    rich_markup_mode=None,
    context_settings=SHOWN,
)


@app.callback()
def list_workloads(context: typer.Context, json_: JsonOption = False) -> None:
    """List the shipped workloads. No workload is run."""
    if context.invoked_subcommand is not None:
        return
    from tuner.report.workload import catalogue as table
    from tuner.report.workload import describe
    from tuner.workload.workload import catalogue

    files = catalogue()
    if json_:
        show_json([describe(name, file) for name, file in files.items()])
    else:
        show(table(files))


@app.command("show", cls=Command, epilog=EPILOG)
@takes_model
def show_workload(workload: WorkloadSpec, python: PythonOption = None, json_: JsonOption = False) -> None:
    """Show what a workload computes: variables, operations, heavy operators and their average width.

    The graph is traced once, by the interpreter given with --python, and cached.
    """
    from tuner.job.job import describe_workload
    from tuner.report.workload import page

    document = describe_workload(workload, python)
    if json_:
        show_json(document)
    else:
        show(page(document))
