"""The command `recommend`: a setting in seconds, from rules."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import BudgetOption, DetailsOption, JsonOption, PythonOption, WaitOption, examples
from tuner.cli.output import console, show, show_json
from tuner.cli.workload_options import takes_model
from tuner.errors import TunerError, unknown_name
from tuner.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from tuner.job.job import Job
    from tuner.job.request import ParsedRequest
    from tuner.report.result.comparison import ComparisonResult
    from tuner.space.setting import Setting

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
    ),
]
RecommendBatchOption = Annotated[
    int | None, typer.Option("--batch-size", metavar="N", min=1, help="Batch size that you run with.")
]


@takes_model
def recommend(
    workload: WorkloadSpec,
    batch_size: RecommendBatchOption = None,
    python: PythonOption = None,
    rules: RulesOption = None,
    batch: Annotated[
        bool, typer.Option("--batch", help="Also apply the rules on batch sizes, not only those on threads.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also measure the setting against the default, like `tftune compare`.")
    ] = False,
    time_budget: BudgetOption = "2m",
    wait: WaitOption = False,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="sh|dotenv|docker|compose|k8s|systemd|tfserving|python|json",
            help="Print only what applies the setting, in this format.",
        ),
    ] = None,
    details: DetailsOption = False,
    json_: JsonOption = False,
) -> None:
    """Recommend a setting in seconds, without running trials, from rules learned on other workloads."""
    from msgspec import structs

    from tuner.job.advise import advise
    from tuner.job.job import prepare
    from tuner.job.request import SearchRequest, parse_request
    from tuner.job.rulebook import load
    from tuner.report import advice
    from tuner.report.card import rendered
    from tuner.report.emit import Format, Ways, emit
    from tuner.rules.recipe import THREADS
    from tuner.stats.equivalence import VerdictCode

    if format_ is not None and format_ not in list(Format):
        raise unknown_name("format", format_, list(Format))
    rule_set, place = load(rules)
    batch_sizes = None if batch_size is None else str(batch_size)
    request = SearchRequest(
        workload=workload, space=THREADS, python=python, time_budget=time_budget, batch_size=batch_sizes
    )
    checked = parse_request(request, stores=False)
    job = prepare(checked)
    job.launcher(deadline_s=checked.deadline_s)
    setting, result = advise(job, rule_set, place, batch=batch)
    if verify:
        result = structs.replace(result, verified=_verify(job, setting, checked, wait=wait))
    verified = result.verified
    is_worse = verified is not None and verified.code is VerdictCode.WORSE
    if json_:
        show_json(result)
        if is_worse:
            raise typer.Exit(TunerError.exit_code)
        return
    card = rendered(advice.recommendation_card(result, command=_typed(workload, python, batch_sizes)))
    if format_ is None:
        show(*([*advice.details(result), ""] if details else []), *card)
    elif verified is not None:
        for line in card:
            console(stderr=True).print(line, soft_wrap=True)
    if is_worse:
        raise TunerError("the recommended setting is slower than the default here", "keep the default")
    if format_ is None:
        return
    title = f"tftune recommend {result.workload}: {'; '.join(rule.sentence for rule in result.followed)}"
    ways = Ways(server_flags=job.framework.server_flags, calls=job.framework.calls)
    facts = advice.facts(result)
    sys.stdout.write(emit(result.deployment, Format(format_), title=title, facts=facts, ways=ways))


def _typed(workload: WorkloadSpec, python: str | None, batch_size: str | None) -> str:
    """Return the words and options that another command for the same workload has to be given, too."""
    options = {"--python": python, "--batch-size": batch_size}
    others = [f"{name} {shlex.quote(value)}" for name, value in options.items() if value is not None]
    return " ".join([workload.command_line, *others])


def _verify(job: Job, setting: Setting, checked: ParsedRequest, *, wait: bool) -> ComparisonResult | None:
    """Measure a setting against the default; None where it is the default."""
    from tuner.cli.events import VerificationShown
    from tuner.job.compare import describe, measure
    from tuner.job.compared import ComparedSetting
    from tuner.machine.locks import machine_lock

    out = console(stderr=True)
    default = job.space.reference
    if setting == default:
        out.print("nothing to verify: the recommendation is the default")
        return None
    a, b = (
        ComparedSetting(name=text, setting=s, deployment=job.space.deployment(s))
        for text, s in ((job.space.default, default), ("rules", setting))
    )
    events = VerificationShown(out)
    with machine_lock(wait=wait, on_wait=events.waiting):
        result = measure(
            job,
            a,
            b,
            checked,
            events=events,
        )
    return describe(result)
