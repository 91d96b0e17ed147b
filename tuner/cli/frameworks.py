"""The command `frameworks`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import options
from tuner.cli.options import examples, make_out_folder, measuring, out_folder, setting, takes
from tuner.cli.output import console, show_result
from tuner.cli.search import INTERRUPTED
from tuner.errors import TunerError
from tuner.job.request import FrameworksRequest

if TYPE_CHECKING:
    from tuner.result.frameworks import FrameworksResult

EPILOG = examples(
    "tftune frameworks resnet50",
    "tftune frameworks resnet50 --batch 1..64 --out resnet50-frameworks",
    "tftune frameworks ./saved_model --frameworks onnxruntime,openvino --time-budget 15m --json",
    "tftune frameworks resnet50 --stored --json",
    "tftune frameworks resnet50 --python openvino=/opt/openvino/bin/python --numerics may-change",
)


@takes(
    FrameworksRequest,
    "batches space numerics margin storage trial_timeout wait",
    usual="resnet50",
    frameworks=setting(
        "--frameworks NAME[,NAME…]",
        "Frameworks to compare with TensorFlow (default: all that are installed): tensorflow-xla, onnxruntime, "
        "openvino, tensorrt (on a GPU), or a plugin's.",
    ),
    batch_size=setting("--batch-size N", "Batch size that is tuned for, and of the verdicts (default: the workload's own)."),
    time_budget=measuring("--time-budget TIME", "Time to spend, searches included; the same command goes on where it stopped."),
    pythons=measuring("--python [NAME=]PATH", "Python interpreter of one framework, or of all; can be repeated."),
    new=measuring("--new", "Measure everything anew."),
    stored=measuring("--stored", "Show what is stored; measure nothing."),
)
def frameworks(
    request: FrameworksRequest,
    out: Annotated[Path | None, out_folder("the table (CSV), the chart (SVG) and the document (JSON)")] = None,
    json_: options.Json = False,
) -> None:
    """Compare frameworks on one model: each one's default and its tuned setting, in turns with TensorFlow's default.

    Outputs are compared before anything is timed; each framework is tuned by a search of its own.
    """
    from tuner.api.comparison import Frameworks
    from tuner.job.frameworks import compare_frameworks
    from tuner.report.progress import FrameworksShown
    from tuner.result.frameworks import INTERRUPTED as WAS_INTERRUPTED

    make_out_folder(out)
    compared = Frameworks(compare_frameworks(request, FrameworksShown(console(stderr=True))))
    show_result(compared, "frameworks", out, json_=json_)
    if compared.result.ended == WAS_INTERRUPTED and not request.stored:
        raise typer.Exit(INTERRUPTED)
    if not request.stored and _has_nothing(compared.result):
        raise typer.Exit(TunerError.exit_code)


def _has_nothing(result: FrameworksResult) -> bool:
    """Return whether no framework was measured, or every search failed."""
    is_measured = any(row.items_per_s is not None for row in result.rows)
    searches = result.searches.values()
    return not is_measured or (bool(searches) and all(each.study is None for each in searches))
