"""The command `overhead`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.help import MEASUREMENT, SETTINGS
from tuner.cli.options import (
    BatchesOption,
    JsonOption,
    PythonOption,
    TimeoutOption,
    WaitOption,
    examples,
    make_out_folder,
    out_folder_option,
)
from tuner.cli.output import console, json_text, show, show_json
from tuner.cli.search import INTERRUPTED
from tuner.cli.workload_options import spec_or_default, takes_model
from tuner.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from tuner.result.overhead import OverheadResult

EPILOG = examples(
    "tftune overhead resnet50",
    "tftune overhead lenet5 --batch 1..1024 --execution eager,graph --out lenet5-overhead",
    "tftune overhead ./model.py --batch 1,8,32 --json",
)


@takes_model
def overhead(
    workload: WorkloadSpec,
    batch: BatchesOption = "1..256",
    execution: Annotated[
        str | None,
        typer.Option(
            "--execution",
            metavar="NAME[,NAME…]",
            help="Of graph, eager and xla (default: all that the workload has).",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    time_budget: Annotated[
        str,
        typer.Option(
            "--time-budget", metavar="TIME", help="Time to spend, e.g. 90s, 10m.", rich_help_panel=MEASUREMENT
        ),
    ] = "10m",
    python: PythonOption = None,
    trial_timeout: TimeoutOption = "2m",
    wait: WaitOption = False,
    out: Annotated[Path | None, out_folder_option("the table (CSV), the chart (SVG) and the document (JSON)")] = None,
    json_: JsonOption = False,
) -> None:
    """Show in how much of a step no operator runs: as a graph, operator by operator (eager) and compiled (XLA).

    Batch by batch, from TensorFlow's own profiler. That exposed overhead is Python's and the runtime's, and more
    threads do not reduce it: a larger batch, a graph or XLA does.
    """
    from tuner.api.overhead import run_overhead
    from tuner.api.progress import OverheadShown
    from tuner.job.overhead import OverheadRequest
    from tuner.report.overhead import rendered

    make_out_folder(out)
    request = OverheadRequest(
        workload=spec_or_default(workload),
        batches=batch,
        executions=[] if execution is None else [name.strip() for name in execution.split(",")],
        python=python,
        trial_timeout=trial_timeout,
        time_budget=time_budget,
        wait=wait,
    )
    result = run_overhead(request, OverheadShown(console(stderr=True))).result
    if out is not None:  # first: whoever reads what is printed may go away
        _write(result, out)
    if json_:
        show_json(result)
    else:
        show(*rendered(result))
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)


def _write(result: OverheadResult, folder: Path) -> None:
    """Write the document, its table and its chart into a folder."""
    from tuner.report.overhead import as_csv, chart

    (folder / "overhead.json").write_text(json_text(result), encoding="utf-8")
    (folder / "overhead.csv").write_text(as_csv(result), encoding="utf-8")
    drawn = chart(result)
    if drawn is not None:
        (folder / "chart.svg").write_text(drawn, encoding="utf-8")
