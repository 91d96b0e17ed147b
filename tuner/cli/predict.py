"""The command `predict`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.help import OUTPUT, SETTINGS, WORKLOAD
from tuner.cli.options import (
    BatchOption,
    JsonOption,
    PythonOption,
    SetOption,
    SpaceOption,
    TimeoutOption,
    WaitOption,
    examples,
    make_out_folder,
    out_folder_option,
)
from tuner.cli.output import console, json_text, show, show_json
from tuner.cli.workload_options import spec_or_default, takes_model
from tuner.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from tuner.result.prediction import PredictionResult

EPILOG = examples(
    "tftune predict resnet50",
    "tftune predict resnet50 --machine sockets=2,cores=28,smt=2 --ideal",
    "tftune predict resnet50 --setting inter_op=1,intra_op=2 --setting intel",
    "tftune predict resnet50 --profile prediction/capture.json --machine server.json",
)


@takes_model
def predict(
    workload: WorkloadSpec,
    machine: Annotated[
        str | None,
        typer.Option(
            "--machine",
            metavar="WORDS|FILE",
            help="Machine to predict for (default: this one): words such as sockets=2,cores=28,smt=2 (cores per "
            "socket, threads per core; also quota in CPUs, memory in GiB, l3 in MiB and bandwidth in GB/s per "
            "socket), or a file with the output of tftune inspect --json on that machine.",
            rich_help_panel=WORKLOAD,
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting",
            metavar="SETTING",
            help="Predict this setting and the baselines only: knob=value,… or the name of a baseline (of one "
            "with several processes, add --space serving); can be repeated (default: the whole space).",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    space: SpaceOption = None,
    pins: SetOption = None,
    batch_size: BatchOption = None,
    ideal: Annotated[
        bool,
        typer.Option(
            "--ideal",
            help="Also say what a scheduler would gain that gives each operator its own number of threads.",
            rich_help_panel=SETTINGS,
        ),
    ] = False,
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile",
            metavar="FILE",
            help="Profile to predict from: capture.json, as an earlier --out wrote it. Nothing is measured then.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    python: PythonOption = None,
    trial_timeout: TimeoutOption = "2m",
    new: Annotated[
        bool,
        typer.Option("--new", help="Measure the operators anew; they are kept in the cache.", rich_help_panel=SETTINGS),
    ] = False,
    wait: WaitOption = False,
    top: Annotated[
        int, typer.Option("--top", metavar="N", min=1, help="Settings to show.", rich_help_panel=OUTPUT)
    ] = 8,
    out: Annotated[
        Path | None,
        out_folder_option(
            "the settings (CSV), two knobs as a picture (SVG), the document (JSON) and what was measured (capture.json)"
        ),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Predict the throughput of a TensorFlow model under different settings, on this machine or another one.

    Measures the model's operators here, for about a minute on few CPUs, and simulates the settings from that. The
    throughput shown is predicted, not measured: confirm it with tftune search.
    """
    from tuner.api.prediction import run_prediction
    from tuner.api.progress import ProfileShown
    from tuner.job.predict import PredictRequest
    from tuner.job.request import SearchRequest
    from tuner.report.prediction import rendered

    make_out_folder(out)
    request = PredictRequest(
        search=SearchRequest(
            workload=spec_or_default(workload),
            space=space,
            pins=list(pins or ()),
            batch_size=batch_size,
            python=python,
            trial_timeout=trial_timeout,
            instances=True,
        ),
        machine=machine,
        settings=tuple(setting or ()),
        profile=profile,
        ideal=ideal,
        new=new,
        wait=wait,
    )
    prediction = run_prediction(request, ProfileShown(console(stderr=True)))
    if out is not None:  # first: whoever reads what is printed may go away
        _write(prediction.result, out)
        prediction.write_capture(out / "capture.json")
    if json_:
        show_json(prediction.result)
    else:
        show(*rendered(prediction.result, top=top))


def _write(result: PredictionResult, folder: Path) -> None:
    """Write the document, the settings, and the picture where there is one, into a folder."""
    from tuner.report.prediction import as_csv, chart

    (folder / "prediction.json").write_text(json_text(result), encoding="utf-8")
    (folder / "settings.csv").write_text(as_csv(result), encoding="utf-8")
    drawn = chart(result)
    if drawn is not None:
        (folder / "knobs.svg").write_text(drawn, encoding="utf-8")
