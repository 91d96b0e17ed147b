"""The commands `compare`, `check` and `noise`: single measurements, without a search."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.help import MEASUREMENT, OUTPUT
from tuner.cli.options import (
    MARGIN_PERCENT,
    BatchOption,
    BudgetOption,
    CheckMarginOption,
    DetailsOption,
    JsonOption,
    MarginOption,
    NumericsOption,
    ObjectiveOption,
    PythonOption,
    SpaceOption,
    StorageOption,
    StudyArgument,
    SummaryOption,
    TimeoutOption,
    WaitOption,
    check_out,
    complete_setting,
    examples,
)
from tuner.cli.output import append_summary, console, show, show_json
from tuner.cli.workload_options import spec_or_default, takes_workload
from tuner.paths import DEFAULT_STORAGE
from tuner.workload.spec import WorkloadSpec

NO_LONGER_HELPS = 1
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


@takes_workload
def compare(
    workload: WorkloadSpec,
    a: Annotated[
        str,
        typer.Option(
            "--a",
            metavar="SETTING",
            help="A setting: knob=value,…, the name of a baseline, or a study.",
            autocompletion=complete_setting,
        ),
    ],
    b: Annotated[
        str,
        typer.Option(
            "--b",
            metavar="SETTING",
            help="The setting to compare with --a, given in the same way.",
            autocompletion=complete_setting,
        ),
    ],
    time_budget: BudgetOption = "2m",
    space: SpaceOption = None,
    objective: ObjectiveOption = "throughput",
    batch_size: BatchOption = None,
    numerics: NumericsOption = "keep",
    python: PythonOption = None,
    storage: StorageOption = DEFAULT_STORAGE,
    margin: MarginOption = MARGIN_PERCENT,
    trial_timeout: TimeoutOption = "2m",
    wait: WaitOption = False,
    details: DetailsOption = False,
    summary: SummaryOption = None,
    json_: JsonOption = False,
) -> None:
    """Compare two settings: is b faster than a? Every round starts new processes.

    Knobs that you do not name keep the framework's default.
    """
    from tuner.api.comparison import run_comparison
    from tuner.api.progress import ComparisonShown
    from tuner.job.request import SearchRequest
    from tuner.report import card
    from tuner.report.comparison import comparison

    check_out(summary, "--summary")
    request = SearchRequest(
        workload=workload,
        space=space,
        objective=objective,
        batch_size=batch_size,
        numerics=numerics,
        python=python,
        storage=storage,
        time_budget=time_budget,
        trial_timeout=trial_timeout,
    )
    events = ComparisonShown(console(stderr=True))
    compared = run_comparison(request, a, b, margin=margin / 100, wait=wait, events=events)
    append_summary(summary, "tftune compare", compared.card)
    if json_:
        show_json(compared.result)
    else:
        show(*([comparison(compared.result), ""] if details else []), *card.rendered(compared.card))


def check(
    study: StudyArgument = "last",
    instances: Annotated[
        bool, typer.Option("--instances", help="Check the answer on several processes, instead of that on one.")
    ] = False,
    time_budget: BudgetOption = "2m",
    python: PythonOption = None,
    storage: StorageOption = DEFAULT_STORAGE,
    margin: CheckMarginOption = None,
    fail_on_undecided: Annotated[
        bool,
        typer.Option(
            "--fail-on-undecided",
            help="Exit with 1 where nothing is decided, too.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    trial_timeout: Annotated[
        str | None,
        typer.Option(
            "--trial-timeout",
            metavar="TIME",
            help="Time limit for a process to write the model, become ready, or run one slice (default: the study's).",
            rich_help_panel=MEASUREMENT,
        ),
    ] = None,
    wait: WaitOption = False,
    details: DetailsOption = False,
    summary: SummaryOption = None,
    json_: JsonOption = False,
) -> None:
    """Measure the recommendation of a study against the default again; exit code 1 if it no longer helps.

    Each check adds a session to the study, for example on another day, and the verdict combines all sessions. The exit
    code is 1 if the recommendation is shown to be slower than or equal to the default, and 0 otherwise, also if
    undecided.
    """
    from tuner.api.comparison import Check
    from tuner.api.progress import ComparisonShown
    from tuner.job.check import check_study, describe
    from tuner.report import card
    from tuner.report.comparison import comparison
    from tuner.result.comparison import NothingToCheck

    check_out(summary, "--summary")
    measured = check_study(
        study,
        storage_url=storage,
        python=python,
        budget=time_budget,
        trial_timeout=trial_timeout,
        margin=None if margin is None else margin / 100,
        wait=wait,
        events=ComparisonShown(console(stderr=True)),
        groups=instances,
    )
    checked = Check(describe(measured))
    result = checked.result
    append_summary(summary, "tftune check", checked.card)
    if json_:
        show_json(result)
    else:
        tables = [] if isinstance(result, NothingToCheck) or not details else [comparison(result), ""]
        show(*tables, *card.rendered(checked.card))
    is_undecided = not isinstance(result, NothingToCheck) and checked.helps is None
    if checked.helps is False or (fail_on_undecided and is_undecided):
        raise typer.Exit(NO_LONGER_HELPS)


@takes_workload
def noise(
    workload: WorkloadSpec,
    time_budget: BudgetOption = "90s",
    objective: ObjectiveOption = "throughput",
    batch_size: BatchOption = None,
    python: PythonOption = None,
    trial_timeout: TimeoutOption = "2m",
    wait: WaitOption = False,
    json_: JsonOption = False,
) -> None:
    """Measure how noisy this machine is, by comparing the default setting with itself.

    Shows the smallest gain that a search with the default budget can detect here, and what else the machine did.
    """
    from tuner.api.progress import NoiseShown
    from tuner.job.calibration import calibrate, describe
    from tuner.job.request import SearchRequest
    from tuner.job.request import parse_request as understand
    from tuner.report.comparison import noise as table

    checked = understand(
        SearchRequest(
            workload=spec_or_default(workload),
            objective=objective,
            batch_size=batch_size,
            python=python,
            time_budget=time_budget,
            trial_timeout=trial_timeout,
        ),
        stores=False,
    )
    calibration = calibrate(
        checked,
        wait=wait,
        events=NoiseShown(console(stderr=True)),
    )
    document = describe(calibration)
    if json_:
        show_json(document)
    else:
        show("", table(document))
