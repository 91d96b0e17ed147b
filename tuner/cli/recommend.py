"""The command `recommend`: a setting in seconds, from rules."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.help import MEASUREMENT, OUTPUT, SETTINGS
from tuner.cli.options import BudgetOption, DetailsOption, JsonOption, PythonOption, WaitOption, examples
from tuner.cli.output import console, show, show_json
from tuner.cli.workload_options import takes_model
from tuner.errors import TunerError, unknown_name
from tuner.workload.spec import WorkloadSpec

EPILOG = examples(
    "tftune recommend resnet50",
    "tftune recommend bert-base --mode training --format k8s",
    "tftune recommend ./mine.py --verify",
    "tftune recommend resnet50 --python .openmp/bin/python --batch --json",
)
RulesOption = Annotated[
    Path | None,
    typer.Option(
        "--rules",
        metavar="FILE|shipped",
        help="Rules file to use (default: results/tftune-rules.json if it exists, else the shipped rules).",
        rich_help_panel=SETTINGS,
    ),
]
RecommendBatchOption = Annotated[
    int | None,
    typer.Option(
        "--batch-size",
        metavar="N",
        min=1,
        help="Batch size that you run with.",
        rich_help_panel=SETTINGS,
    ),
]


@takes_model
def recommend(
    workload: WorkloadSpec,
    batch_size: RecommendBatchOption = None,
    python: PythonOption = None,
    rules: RulesOption = None,
    batch: Annotated[
        bool,
        typer.Option(
            "--batch", help="Also apply the rules on batch sizes, not only those on threads.", rich_help_panel=SETTINGS
        ),
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Also measure the setting against the default, like `tftune compare`.",
            rich_help_panel=MEASUREMENT,
        ),
    ] = False,
    time_budget: BudgetOption = "2m",
    wait: WaitOption = False,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="sh|dotenv|docker|compose|k8s|systemd|tfserving|python|json",
            help="Print only what applies the setting, in this format.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    details: DetailsOption = False,
    json_: JsonOption = False,
) -> None:
    """Recommend a setting in seconds, without running trials, from rules learned on other workloads."""
    from tuner.api.progress import VerificationShown
    from tuner.api.recommendation import RecommendationRequest, run_recommendation
    from tuner.report import advice
    from tuner.report.card import rendered
    from tuner.report.emit import Format

    if format_ is not None and format_ not in list(Format):
        raise unknown_name("format", format_, list(Format))
    request = RecommendationRequest(
        workload=workload,
        batch_size=None if batch_size is None else str(batch_size),
        python=python,
        rules=rules,
        batch=batch,
        verify=verify,
        time_budget=time_budget,
        wait=wait,
    )
    recommendation = run_recommendation(request, VerificationShown(console(stderr=True)))
    result = recommendation.result
    if json_:
        show_json(result)
        if recommendation.is_slower:
            raise typer.Exit(TunerError.exit_code)
        return
    card = rendered(recommendation.card)
    if format_ is None:
        show(*([*advice.details(result), ""] if details else []), *card)
    elif result.verified is not None:
        for line in card:
            console(stderr=True).print(line, soft_wrap=True)
    if recommendation.is_slower:
        raise TunerError("the recommended setting is slower than the default here", "keep the default")
    if format_ is not None:
        sys.stdout.write(recommendation.emit(format_))
