"""The command `profile`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.help import OUTPUT, SETTINGS
from tuner.cli.options import (
    JsonOption,
    PythonOption,
    TimeoutOption,
    WaitOption,
    examples,
    make_out_folder,
    out_folder_option,
)
from tuner.cli.output import console, json_text, show, show_json
from tuner.cli.workload_options import spec_or_default, takes_model
from tuner.errors import BadInputError
from tuner.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from tuner.result.profile import ProfileResult

EPILOG = examples(
    "tftune profile resnet50",
    "tftune profile ./saved_model --batch-size 1 --top 30",
    "tftune profile resnet50 --out resnet50-profile --json",
)


def _batch_size(text: str | int) -> int:
    """Return a batch size; raises BadInputError for several."""
    if not re.fullmatch(r"0*[1-9]\d*", str(text)):
        raise BadInputError(f"--batch-size is '{text}'", "expected one whole number of at least 1, e.g. 8")
    return int(text)


@takes_model
def profile(
    workload: WorkloadSpec,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size",
            metavar="N",
            parser=_batch_size,
            help="Batch size (default: the workload's own).",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    python: PythonOption = None,
    trial_timeout: TimeoutOption = "2m",
    wait: WaitOption = False,
    top: Annotated[
        int, typer.Option("--top", metavar="N", min=1, help="Operators to show.", rich_help_panel=OUTPUT)
    ] = 12,
    out: Annotated[
        Path | None, out_folder_option("the operators (CSV), the roofline (SVG) and the document (JSON)")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Show what each operator of a model takes with one thread and with more, and what bounds it.

    TensorFlow runs one operator at a time meanwhile, and keeps the statistics itself.
    """
    from tuner.api.profile import run_profile
    from tuner.api.progress import ProfileShown
    from tuner.job.profile import ProfileRequest
    from tuner.report.profile import rendered

    make_out_folder(out)
    request = ProfileRequest(
        workload=spec_or_default(workload),
        batch_size=batch_size,
        python=python,
        trial_timeout=trial_timeout,
        wait=wait,
    )
    result = run_profile(request, ProfileShown(console(stderr=True))).result
    if out is not None:  # first: whoever reads what is printed may go away
        _write(result, out)
    if json_:
        show_json(result)
    else:
        show(*rendered(result, top=top))


def _write(result: ProfileResult, folder: Path) -> None:
    """Write the document, its operators and its roofline into a folder."""
    from tuner.report.profile import as_csv, roofline

    (folder / "profile.json").write_text(json_text(result), encoding="utf-8")
    (folder / "operators.csv").write_text(as_csv(result), encoding="utf-8")
    (folder / "roofline.svg").write_text(roofline(result), encoding="utf-8")
