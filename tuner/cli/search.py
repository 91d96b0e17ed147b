"""The command `search`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.help import MEASUREMENT, SETTINGS, STUDIES
from tuner.cli.options import (
    MARGIN_PERCENT,
    BatchOption,
    DetailsOption,
    JsonOption,
    MarginOption,
    NumericsOption,
    ObjectiveOption,
    PythonOption,
    SetOption,
    SpaceOption,
    StorageOption,
    SummaryOption,
    TimeoutOption,
    check_out,
    examples,
)
from tuner.cli.output import append_summary, console, show, show_json
from tuner.cli.workload_options import takes_workload
from tuner.errors import TunerError
from tuner.paths import DEFAULT_STORAGE
from tuner.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from tuner.api.study import Study

INTERRUPTED = 130
EPILOG = examples(
    "tftune search resnet50",
    "tftune search resnet50 --time-budget 2m --set inter_op=1",
    "tftune search ./mine.py --batch-size 1,2,4 --json",
    "tftune search resnet50 --max-p99 400 --max-memory 2GiB",
    "tftune search bert-base --param seq_len=384 --mode training",
    "tftune search resnet50 --sessions 3 --every 2h",
    "tftune search ./saved_model --input-range ids=0:30522 --input training=false",
    "tftune search resnet50+vgg19",
    "tftune search --name mysvc --metric-regex 'images/sec: ([0-9.]+)' -- python bench.py --batch-size {batch_size}",
)


@takes_workload
def search(
    workload: WorkloadSpec,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials",
            metavar="N",
            help="Stop when the study has N trials.",
            rich_help_panel=MEASUREMENT,
        ),
    ] = None,
    time_budget: Annotated[
        str | None,
        typer.Option(
            "--time-budget",
            metavar="TIME",
            help="Total time, e.g. 90s (default: 5m). Baselines and two rounds of finals are always run.",
            rich_help_panel=MEASUREMENT,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            min=0,
            help="Random seed of the sampler and of the order of the finals.",
            rich_help_panel=MEASUREMENT,
        ),
    ] = 0,
    space: SpaceOption = None,
    objective: ObjectiveOption = "throughput",
    batch_size: BatchOption = None,
    pins: SetOption = None,
    python: PythonOption = None,
    storage: StorageOption = DEFAULT_STORAGE,
    margin: MarginOption = MARGIN_PERCENT,
    max_p99: Annotated[
        str | None,
        typer.Option(
            "--max-p99",
            metavar="TIME",
            help="Longest p99 of a step to accept: 50ms, or 50.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            "--max-memory",
            metavar="SIZE",
            help="Most memory of a process to accept, e.g. 2GiB.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    max_power: Annotated[
        str | None,
        typer.Option(
            "--max-power",
            metavar="WATTS",
            help="Highest mean power of the device: 250W, or 250.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    numerics: NumericsOption = "keep",
    trial_timeout: TimeoutOption = "2m",
    instances: Annotated[
        bool,
        typer.Option(
            "--instances/--no-instances",
            help="Whether to try several processes side by side, too.",
            rich_help_panel=SETTINGS,
        ),
    ] = True,
    predict: Annotated[
        bool | None,
        typer.Option(
            "--predict/--no-predict",
            help="Begin with predictions (default: from 10m or 8 cores on).",
            rich_help_panel=MEASUREMENT,
            show_default=False,
        ),
    ] = None,
    sessions: Annotated[
        int,
        typer.Option(
            "--sessions",
            metavar="N",
            min=1,
            help="Measure the result again at other times: N sessions in total.",
            rich_help_panel=MEASUREMENT,
        ),
    ] = 1,
    every: Annotated[
        str | None,
        typer.Option(
            "--every",
            metavar="TIME",
            help="Time from the start of one session to the next (default: 2h).",
            rich_help_panel=MEASUREMENT,
        ),
    ] = None,
    new: Annotated[
        bool,
        typer.Option(
            "--new",
            help="Start a new study instead of continuing the last one.",
            rich_help_panel=STUDIES,
        ),
    ] = False,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Wait until no other tftune measures here.",
            rich_help_panel=MEASUREMENT,
        ),
    ] = False,
    launcher: Annotated[
        str,
        typer.Option(
            "--launcher",
            metavar="fork|fresh",
            help="Fork trials from a process that has imported the framework, or start each afresh.",
            rich_help_panel=MEASUREMENT,
        ),
    ] = "fork",
    details: DetailsOption = False,
    summary: SummaryOption = None,
    json_: JsonOption = False,
) -> None:
    """Search for the best setting, then compare it with the recommended ones.

    Running the same command again continues the study. Finished trials are saved at once: Ctrl-C loses nothing.
    """
    from tuner.api.progress import SearchShown
    from tuner.api.search import run_search
    from tuner.job.request import SearchRequest
    from tuner.job.sessions import make_sessions

    check_out(summary, "--summary")
    planned = make_sessions(sessions, every)
    request = SearchRequest(
        workload=workload,
        trials=trials,
        time_budget=time_budget,
        seed=seed,
        space=space,
        objective=objective,
        batch_size=batch_size,
        pins=pins or [],
        python=python,
        storage=storage,
        margin=margin / 100,
        max_p99_ms=max_p99,
        max_memory=max_memory,
        max_power_w=max_power,
        numerics=numerics,
        trial_timeout=trial_timeout,
        new=new,
        wait=wait,
        launcher=launcher,
        instances=instances,
        predict=predict,
    )

    def report(study: Study | None) -> None:
        _report(study, details=details, json_=json_)

    # In JSON there is one document, and it comes last.
    after_first = (lambda _: None) if json_ else report
    outcome = run_search(request, planned, SearchShown(console(stderr=True), details=details), after_first=after_first)
    report(outcome.study)
    if outcome.study is not None:
        append_summary(summary, f"tftune search {outcome.study.result.workload.name}", outcome.study.card)
    if outcome.interrupted:
        raise typer.Exit(INTERRUPTED)
    if outcome.failed:
        raise typer.Exit(TunerError.exit_code)


def _report(study: Study | None, *, details: bool, json_: bool) -> None:
    from tuner.report import card, verdicts
    from tuner.result.study import NoStudyResult

    if study is None:
        if json_:
            show_json(NoStudyResult())
    elif json_:
        show_json(study.result)
    else:
        shown_details = ["", *verdicts.details(study.result)] if details else []
        show(*shown_details, "", *card.rendered(study.card))
