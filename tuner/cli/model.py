"""The commands `overhead`, `profile` and `predict`: where the time of a model's step goes, and what that predicts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli import options
from tuner.cli.options import examples, make_out_folder, measuring, of_workload, out_folder, output, setting, takes
from tuner.cli.output import console, show_result
from tuner.cli.search import INTERRUPTED
from tuner.errors import BadInputError
from tuner.job.request import OverheadRequest, PredictRequest, ProfileRequest

OVERHEAD_EPILOG = examples(
    "tftune overhead resnet50",
    "tftune overhead lenet5 --batch-size 1..1024 --execution eager,graph --out lenet5-overhead",
    "tftune overhead ./model.py --batch-size 1,8,32 --json",
)
PROFILE_EPILOG = examples(
    "tftune profile resnet50",
    "tftune profile ./saved_model --batch-size 1 --top 30",
    "tftune profile resnet50 --out resnet50-profile --json",
)
PREDICT_EPILOG = examples(
    "tftune predict resnet50",
    "tftune predict resnet50 --machine sockets=2,cores=28,smt=2 --ideal",
    "tftune predict resnet50 --only inter_op=1,intra_op=2 --only intel",
    "tftune predict resnet50 --from prediction/capture.json --machine server.json",
)


@takes(
    OverheadRequest,
    "batches python trial_timeout wait",
    usual="resnet50",
    executions=setting("--execution NAME[,NAME…]", "Of graph, eager and xla (default: all that the workload has)."),
    time_budget=measuring("--time-budget TIME", "Time to spend, e.g. 90s, 10m."),
)
def overhead(
    request: OverheadRequest,
    out: Annotated[Path | None, out_folder("the table (CSV), the chart (SVG) and the document (JSON)")] = None,
    json_: options.Json = False,
) -> None:
    """Show how much of a step is TensorFlow's own overhead.

    It is the time in which no operator runs: as a graph, operator by operator (eager) and compiled (XLA), batch by
    batch, from TensorFlow's own profiler. That exposed overhead is Python's and the runtime's, and more
    threads do not reduce it: a larger batch, a graph or XLA does.
    """
    from tuner.api.model import RuntimeOverhead
    from tuner.job.overhead import measure_overhead
    from tuner.report.progress import TaskShown

    make_out_folder(out)
    measured = RuntimeOverhead(measure_overhead(request, TaskShown(console(stderr=True))))
    show_result(measured, "overhead", out, json_=json_)
    if measured.result.interrupted:
        raise typer.Exit(INTERRUPTED)


def _batch_size(text: str | int) -> int:
    """Return a batch size; raises BadInputError for several."""
    if not re.fullmatch(r"0*[1-9]\d*", str(text)):
        raise BadInputError(f"--batch-size is '{text}'", "expected one whole number of at least 1, e.g. 8")
    return int(text)


@takes(
    ProfileRequest,
    "python trial_timeout wait",
    usual="resnet50",
    batch_size=setting("--batch-size N", "Batch size (default: the workload's own).", parser=_batch_size),
)
def profile(
    request: ProfileRequest,
    top: Annotated[int, output("--top N", "Operators to show.", min=1)] = 12,
    out: Annotated[Path | None, out_folder("the operators (CSV), the roofline (SVG) and the document (JSON)")] = None,
    json_: options.Json = False,
) -> None:
    """Show the time of each operator with one thread and with more.

    It also shows what bounds each operator: computing, memory or the runtime.
    TensorFlow runs one operator at a time meanwhile, and keeps the statistics itself.
    """
    from tuner.api.model import OperatorProfile
    from tuner.job.profile import profile_workload
    from tuner.report.progress import ProfileShown

    make_out_folder(out)
    measured = OperatorProfile(profile_workload(request, ProfileShown(console(stderr=True))))
    show_result(measured, "profile", out, json_=json_, top=top)


@takes(
    PredictRequest,
    "space pins batch_size python trial_timeout wait",
    usual="resnet50",
    machine=of_workload(
        "--machine WORDS|FILE",
        "Machine to predict for (default: this one), such as sockets=2,cores=28,smt=2 with cores per socket and "
        "threads per core. Also quota (CPUs), memory (GiB), and l3 (MiB) and bandwidth (GB/s) per socket. Or a "
        "file that tftune inspect --json wrote there. Nothing is measured for shipped workloads.",
    ),
    settings=setting(
        "--only SETTING",
        "Predict only this setting and the baselines: knob=value,… or a baseline's name. Can be repeated. Several "
        "processes need --space serving.",
    ),
    ideal=setting("--ideal", "Also show the gain if each operator had its own number of threads."),
    profile=setting(
        "--from FILE",
        "Profile to predict from: capture.json of an earlier --out, here or elsewhere, or packed as .json.xz. "
        "Nothing is measured then.",
    ),
    new=setting("--new", "Measure the operators again, instead of reading the cache."),
)
def predict(
    request: PredictRequest,
    top: Annotated[int, output("--top N", "Settings to show.", min=1)] = 8,
    out: Annotated[
        Path | None,
        out_folder(
            "the settings (CSV), two knobs as a picture (SVG), the document (JSON) and the measurement (capture.json)"
        ),
    ] = None,
    json_: options.Json = False,
) -> None:
    """Predict the throughput of settings, on this machine or another one.

    Measures the model's operators here, for about a minute on few CPUs, and simulates the settings from that. For
    another machine a shipped workload has a profile already, and is predicted at once. The throughput shown is
    predicted, not measured: confirm it with tftune search.
    """
    from tuner.api.model import Prediction
    from tuner.job.predict import predict_workload
    from tuner.report.progress import ProfileShown

    make_out_folder(out)
    prediction = Prediction(*predict_workload(request, ProfileShown(console(stderr=True))))
    show_result(prediction, "prediction", out, json_=json_, top=top)
