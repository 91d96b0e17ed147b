"""The command `search`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import options
from tuner.cli.options import WORKLOAD_WORDS, check_out, examples, measuring, of_studies, setting, takes
from tuner.cli.output import append_summary, console, show, show_json
from tuner.errors import FindingError, TunerError
from tuner.job.request import SearchRequest

if TYPE_CHECKING:
    from tuner.api.study import Study
    from tuner.result.study import StudyResult
    from tuner.study.record import Record

INTERRUPTED = 130
EPILOG = examples(
    "tftune search resnet50",
    "tftune search resnet50 --time-budget 2m --set inter_op=1",
    "tftune search ./mine.py --batch-size 1,2,4 --json",
    "tftune search bert-base --max-p99 300ms --param seq_len=384",
    "tftune search resnet50 --sessions 3 --every 2h",
    "tftune search ./saved_model --input-range ids=0:30522 --input training=false",
    "tftune search --name mysvc --metric-regex 'images/sec: ([0-9.]+)' -- python bench.py --batch-size {batch_size}",
)


@takes(
    SearchRequest,
    "space objective batch_size pins python storage margin numerics trial_timeout",
    words=WORKLOAD_WORDS,
    trials=measuring("--trials N", "Stop when the study has N trials."),
    time_budget=measuring(
        "--time-budget TIME",
        "Total time, e.g. 90s (default: 5m). Baselines and two rounds of finals are always run.",
    ),
    seed=measuring("--seed N", "Random seed of the sampler and of the order of the finals.", min=0),
    max_p99_ms=setting("--max-p99 TIME", "Longest p99 of a step, or response: 50ms, or 50."),
    max_memory=setting(
        "--max-memory SIZE", "Most memory of a process to accept, e.g. 2GiB. The largest process of a command counts."
    ),
    max_power_w=setting("--max-power WATTS", "Highest mean power of the device: 250W, or 250."),
    instances=setting(
        "--instances/--one-process",
        "Try several processes side by side too, or one alone.",
        show_default=False,
    ),
    predict=measuring(
        "--predict/--no-predict",
        "Begin with predictions (default: from 10m or 8 cores on).",
        show_default=False,
    ),
    new=of_studies("--new", "Start a new study instead of continuing the last one."),
    wait=measuring("--wait", "Wait until no other tftune measures here."),
    launcher=measuring(
        "--launcher fork|fresh",
        "Fork trials from a process that has imported the framework, or start each afresh.",
    ),
)
def search(
    request: SearchRequest,
    sessions: Annotated[
        int, measuring("--sessions N", "Measure the result again at other times: N sessions in total.", min=1)
    ] = 1,
    every: Annotated[
        str | None, measuring("--every TIME", "Time from the start of one session to the next (default: 2h).")
    ] = None,
    details: options.Details = False,
    summary: options.Summary = None,
    json_: options.Json = False,
) -> None:
    """Search for the fastest setting, then prove it against the defaults.

    The same command again continues the study. Ctrl-C loses no finished trial.
    """
    from tuner.api.study import Study
    from tuner.job.run import make_sessions, run_sessions
    from tuner.report.progress import SearchShown

    check_out(summary, "--summary")
    planned = make_sessions(sessions, every)

    def report(record: Record) -> None:
        _report(Study.of(record, request.storage), details=details, json_=json_)

    # In JSON there is one document, and it comes last.
    after_first = (lambda _: None) if json_ else report
    outcome = run_sessions(
        request, planned, SearchShown(console(stderr=True), details=details), after_first=after_first
    )
    study = None if outcome.record is None else Study.of(outcome.record, request.storage)
    _report(study, details=details, json_=json_)
    if study is not None:
        append_summary(summary, f"tftune search {study.result.workload.name}", study.card)
    if outcome.interrupted:
        raise typer.Exit(INTERRUPTED)
    if outcome.failed:
        raise typer.Exit(TunerError.exit_code)
    if study is not None and _carries_nothing(study.result):
        raise typer.Exit(FindingError.exit_code)


def _carries_nothing(study: StudyResult) -> bool:
    """Return whether it was a search for capacity in which no setting keeps to the limits."""
    from tuner.measure.objective import Objective
    from tuner.stats.tail import LimitStatus

    advice = study.recommended
    return study.objective is Objective.CAPACITY and advice is not None and advice.limits is LimitStatus.BROKEN


def _report(study: Study | None, *, details: bool, json_: bool) -> None:
    from tuner.report import card, verdicts
    from tuner.result.study import NoStudyResult

    if json_:
        show_json(NoStudyResult() if study is None else study.result)
    elif study is not None:
        shown_details = ["", *verdicts.details(study.result)] if details else []
        show(*shown_details, "", *card.rendered(study.card))
