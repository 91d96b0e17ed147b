"""The command `frameworks`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.help import MEASUREMENT, SETTINGS
from tuner.cli.options import (
    MARGIN_PERCENT,
    BatchesOption,
    JsonOption,
    MarginOption,
    NumericsOption,
    SpaceOption,
    StorageOption,
    TimeoutOption,
    WaitOption,
    examples,
    make_out_folder,
    out_folder_option,
)
from tuner.cli.output import console, json_text, show, show_json
from tuner.cli.search import INTERRUPTED
from tuner.cli.workload_options import spec_or_default, takes_model
from tuner.errors import TunerError
from tuner.paths import DEFAULT_STORAGE
from tuner.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from tuner.result.frameworks import FrameworksResult

EPILOG = examples(
    "tftune frameworks resnet50",
    "tftune frameworks resnet50 --batch 1..64 --out resnet50-frameworks",
    "tftune frameworks ./saved_model --frameworks onnxruntime,openvino --time-budget 15m --json",
    "tftune frameworks resnet50 --stored --json",
    "tftune frameworks resnet50 --python openvino=/opt/openvino/bin/python --numerics may-change",
)


@takes_model
def frameworks(
    workload: WorkloadSpec,
    names: Annotated[
        str | None,
        typer.Option(
            "--frameworks",
            metavar="NAME[,NAME…]",
            help="Frameworks to compare with TensorFlow (default: all that are installed): tensorflow-xla, "
            "onnxruntime, openvino, tensorrt (on a GPU), or a plugin's.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    batch: BatchesOption = "1,4,16,64,256,1024",
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size",
            metavar="N",
            help="Batch size that is tuned for, and of the verdicts (default: the workload's own).",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    space: SpaceOption = None,
    numerics: NumericsOption = "keep",
    margin: MarginOption = MARGIN_PERCENT,
    time_budget: Annotated[
        str,
        typer.Option(
            "--time-budget",
            metavar="TIME",
            help="Time to spend, searches included; the same command goes on where it stopped.",
            rich_help_panel=MEASUREMENT,
        ),
    ] = "30m",
    pythons: Annotated[
        list[str] | None,
        typer.Option(
            "--python",
            metavar="[NAME=]PATH",
            help="Python interpreter of one framework, or of all; can be repeated.",
            rich_help_panel=MEASUREMENT,
        ),
    ] = None,
    storage: StorageOption = DEFAULT_STORAGE,
    trial_timeout: TimeoutOption = "5m",
    new: Annotated[bool, typer.Option("--new", help="Measure everything anew.", rich_help_panel=MEASUREMENT)] = False,
    stored: Annotated[
        bool, typer.Option("--stored", help="Show what is stored; measure nothing.", rich_help_panel=MEASUREMENT)
    ] = False,
    wait: WaitOption = False,
    out: Annotated[Path | None, out_folder_option("the table (CSV), the chart (SVG) and the document (JSON)")] = None,
    json_: JsonOption = False,
) -> None:
    """Compare frameworks on one model: each one's default and its tuned setting, in turns with TensorFlow's default.

    Outputs are compared before anything is timed; each framework is tuned by a search of its own.
    """
    from tuner.api.frameworks import run_comparison
    from tuner.api.progress import FrameworksShown
    from tuner.job.frameworks.comparison import FrameworksRequest
    from tuner.report.frameworks import rendered
    from tuner.result.frameworks import INTERRUPTED as WAS_INTERRUPTED

    make_out_folder(out)
    request = FrameworksRequest(
        workload=spec_or_default(workload),
        frameworks=names,
        batches=batch,
        batch_size=batch_size,
        space=space,
        time_budget=time_budget,
        pythons=pythons or (),
        numerics=numerics,
        margin=margin / 100,
        storage=storage,
        trial_timeout=trial_timeout,
        new=new,
        wait=wait,
        measures=not stored,
    )
    result = run_comparison(request, FrameworksShown(console(stderr=True))).result
    if json_:
        show_json(result)
    else:
        show(*rendered(result))
    if out is not None:
        _write(result, out)
    if result.ended == WAS_INTERRUPTED and not stored:
        raise typer.Exit(INTERRUPTED)
    if not stored and _has_nothing(result):
        raise typer.Exit(TunerError.exit_code)


def _has_nothing(result: FrameworksResult) -> bool:
    """Return whether no framework was measured, or every search failed."""
    is_measured = any(row.items_per_s is not None for row in result.rows)
    searches = result.searches.values()
    return not is_measured or (bool(searches) and all(each.study is None for each in searches))


def _write(result: FrameworksResult, folder: Path) -> None:
    """Write the document, its table and its chart into a folder."""
    from tuner.report.frameworks import as_csv, chart

    (folder / "frameworks.json").write_text(json_text(result), encoding="utf-8")
    (folder / "table.csv").write_text(as_csv(result), encoding="utf-8")
    drawn = chart(result)
    if drawn is None:
        (folder / "chart.svg").unlink(missing_ok=True)  # of an earlier run, with more batch sizes
    else:
        (folder / "chart.svg").write_text(drawn, encoding="utf-8")
