"""The commands `compare`, `check` and `noise`: single measurements, without a search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import options
from tuner.cli.options import (
    WORKLOAD_WORDS,
    check_out,
    complete_setting,
    examples,
    measuring,
    other,
    output,
    parse_margin,
    setting,
    takes,
)
from tuner.cli.output import append_summary, console, show, show_json
from tuner.errors import FindingError
from tuner.job.request import CheckRequest, CompareRequest, NoiseRequest

if TYPE_CHECKING:
    from tuner.api.comparison import Check, Comparison

COMPARE_EPILOG = examples(
    "tftune compare resnet50 --a tf-default --b intel",
    "tftune compare resnet50 --a tf-default --b inter_op=1,intra_op=2,batch_size=16",
    "tftune compare resnet50 --a intel --b resnet50-inference --json",
)
CHECK_EPILOG = examples(
    "tftune check last",
    "tftune check resnet50 --time-budget 5m --json",
    "tftune check last --instances",
    'tftune check last --fail-on-undecided --summary "$GITHUB_STEP_SUMMARY"',
)
NOISE_EPILOG = examples(
    "tftune noise resnet50",
    "tftune noise resnet50 --python .openmp/bin/python --time-budget 3m",
)


@takes(
    CompareRequest,
    "time_budget space objective batch_size numerics python storage margin trial_timeout wait",
    words=WORKLOAD_WORDS,
    a=Annotated[
        str, other("--a SETTING", "A setting: knob=value,…, the name of a baseline, or a study.", complete_setting)
    ],
    b=Annotated[str, other("--b SETTING", "The setting to compare with --a, given in the same way.", complete_setting)],
)
def compare(
    request: CompareRequest,
    details: options.Details = False,
    summary: options.Summary = None,
    json_: options.Json = False,
) -> None:
    """Compare two settings: is b faster than a? Every round starts new processes.

    Knobs that you do not name keep the framework's default.
    """
    from tuner.api.comparison import Comparison
    from tuner.job import compare as comparing
    from tuner.report.progress import ComparisonShown

    check_out(summary, "--summary")
    measured = comparing.compare(request, ComparisonShown(console(stderr=True)))
    compared = Comparison(comparing.describe(measured))
    append_summary(summary, "tftune compare", compared.card)
    _show(compared, details=details, json_=json_)


@takes(
    CheckRequest,
    "study time_budget python storage wait",
    words={},
    instances=Annotated[
        bool | None,
        other(
            "--instances/--no-instances",
            "Check the answer on several processes, or that on one (default: the first that sets anything).",
            show_default=False,
        ),
    ],
    margin=Annotated[
        float | None,
        setting(
            "--margin PERCENT",
            "Smallest difference that matters, in percent (default: the study's own).",
            parser=parse_margin,
        ),
    ],
    trial_timeout=Annotated[
        str | None,
        measuring(
            "--trial-timeout TIME",
            "Time limit for a process to write the model, become ready, or run one slice (default: the study's).",
        ),
    ],
)
def check(
    request: CheckRequest,
    fail_on_undecided: Annotated[
        bool, output("--fail-on-undecided", "Exit with 1 where nothing is decided, too.")
    ] = False,
    details: options.Details = False,
    summary: options.Summary = None,
    json_: options.Json = False,
) -> None:
    """Measure the recommendation of a study against the default again; exit code 1 if it no longer helps.

    Each check adds a session to the study, for example on another day, and the verdict combines all sessions. The exit
    code is 1 if the recommendation is shown to be slower than or equal to the default, and 0 otherwise, also if
    undecided.
    """
    from tuner.api.comparison import Check
    from tuner.job.check import check_study
    from tuner.report.progress import ComparisonShown
    from tuner.result.comparison import NothingToCheck

    check_out(summary, "--summary")
    checked = Check(check_study(request, ComparisonShown(console(stderr=True))))
    append_summary(summary, "tftune check", checked.card)
    _show(checked, details=details, json_=json_)
    is_undecided = not isinstance(checked.result, NothingToCheck) and checked.helps is None
    if checked.helps is False or (fail_on_undecided and is_undecided):
        raise typer.Exit(FindingError.exit_code)


def _show(compared: Comparison | Check, *, details: bool, json_: bool) -> None:
    """Print a comparison: its document, or its card, with `details` after its table."""
    from tuner.report import card, verdicts
    from tuner.result.comparison import NothingToCheck

    result = compared.result
    if json_:
        show_json(result)
        return
    if details and not isinstance(result, NothingToCheck):
        show(verdicts.comparison(result), "")
    show(*card.rendered(compared.card))


@takes(
    NoiseRequest,
    "time_budget objective batch_size python trial_timeout wait",
    words=WORKLOAD_WORDS,
    usual="resnet50",
)
def noise(request: NoiseRequest, json_: options.Json = False) -> None:
    """Measure how noisy this machine is, by comparing the default setting with itself.

    Shows the smallest gain that a search with the default budget can detect here, and what else the machine did.
    """
    from tuner.job.calibration import calibrate
    from tuner.report import verdicts
    from tuner.report.progress import NoiseShown

    report = calibrate(request, NoiseShown(console(stderr=True)))
    if json_:
        show_json(report)
    else:
        show("", verdicts.noise(report))
