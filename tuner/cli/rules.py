"""The commands `rules`, `recommend`, `import` and `export`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import (
    BudgetOption,
    JsonOption,
    PythonOption,
    StorageOption,
    WaitOption,
    examples,
)
from tuner.cli.output import console, show, show_json
from tuner.cli.studies import described
from tuner.cli.workload_options import takes_model
from tuner.errors import BadInputError, TunerError, unknown_name
from tuner.paths import DEFAULT_STORAGE, check_writable
from tuner.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from tuner.job.job import Job
    from tuner.job.request import ParsedRequest
    from tuner.report.result.comparison import ComparisonResult
    from tuner.rules.rule import RuleSet
    from tuner.space.setting import Setting

RULES_EPILOG = examples(
    "tftune rules",
    "tftune rules --save",
    "tftune rules --format md --out rules.md",
    "tftune rules --format html --out rules.html --since 30d",
    "tftune rules --machine here --workloads resnet50,mlp",
)
RECOMMEND_EPILOG = examples(
    "tftune recommend resnet50",
    "tftune recommend bert-base --mode training --format k8s",
    "tftune recommend ./mine.py --verify",
    "tftune recommend resnet50 --python .openmp/bin/python --batch --json",
)
IMPORT_EPILOG = examples(
    "tftune import ../other/results/tftune.db",
    "tftune import postgresql://host/team",
)
EXPORT_EPILOG = examples(
    "tftune export > trials.csv",
    "tftune export --what studies --format parquet --out studies.parquet",
)
FORMATS = ("text", "md", "html", "json")

RulesOption = Annotated[
    Path | None,
    typer.Option(
        "--rules",
        metavar="FILE",
        help="Rules file to use (default: results/tftune-rules.json if it exists, else the shipped rules).",
    ),
]
RecommendBatchOption = Annotated[
    int | None, typer.Option("--batch-size", metavar="N", min=1, help="Batch size that you run with.")
]
OutOption = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write to a file instead of stdout.")]


def rules(
    storage: StorageOption = DEFAULT_STORAGE,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="text|md|html|json",
            help="Output format: for a terminal, a wiki, a browser or a program.",
        ),
    ] = "text",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Write to a file; the pictures of a Markdown page are written next to it."
        ),
    ] = None,
    save: Annotated[
        bool,
        typer.Option(
            "--save", help="Save the rules in results/tftune-rules.json, where recommend and search look for them."
        ),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="DATE|DAYS",
            help="Use only studies started since a date (2026-11-01, UTC) or in the last days (30d).",
        ),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            "--machine",
            metavar="ID|here",
            help="Use only studies of this machine ('here') or of the machine with this id.",
        ),
    ] = None,
    workloads: Annotated[
        str | None, typer.Option("--workloads", metavar="NAME[,NAME…]", help="Use only studies of these workloads.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Learn a few general rules from the stored studies, and test them on studies that they were not learned from.

    A rule is kept only if noise alone would rarely produce it. `tftune suite` creates the studies.
    """
    from tuner.job import rulebook
    from tuner.report import rules as report

    output_format = "json" if json_ else format_
    if output_format not in FORMATS:
        raise unknown_name("format", output_format, FORMATS)
    request = rulebook.RulesRequest(storage=storage, since=since, machine=machine, workloads=workloads)
    if save and request.filters:
        raise BadInputError(
            "--save cannot be combined with --since, --machine or --workloads",
            "drop the filters, or write the rules to a file with --out",
        )
    _check_out(out)
    if save:
        check_writable(rulebook.LOCAL_RULES.parent, "run this command in the folder that contains your results/")
    progress = console(stderr=True)

    def notify(line: str) -> None:
        if progress.is_terminal:
            progress.print(line, style="dim")

    rule_set = rulebook.make(request, notify=notify)
    if save:
        rulebook.save(rule_set)
        n_studies_text = report.n_studies(rule_set.provenance.n_studies)
        progress.print(
            f"saved in {rulebook.LOCAL_RULES}: recommend and search in this folder now use these rules (from "
            f"{n_studies_text}) instead of the shipped ones; delete the file to undo this",
            style="dim",
        )
    if output_format == "text" and out is None:
        show(*report.page(rule_set))
        if not save and not request.filters:
            show(
                "",
                "to use these rules in recommend and search: tftune rules --save; to save them as a page: tftune "
                "rules --format md --out rules.md",
            )
    else:
        _write_page(rule_set, output_format, out)


def _write_page(rules: RuleSet, format_: str, out: Path | None) -> None:
    """Write rules as Markdown, HTML or JSON; pictures of Markdown lie beside its file."""
    from tuner.report import picture, rulepage
    from tuner.report import rules as report

    if format_ == "json":
        import json

        from msgspec import to_builtins

        text = json.dumps(to_builtins(rules), indent=2, allow_nan=False) + "\n"
    elif format_ == "text":
        from rich.console import Console

        with Path(str(out)).open("w") as file:
            Console(file=file, width=140, highlight=False).print(*report.page(rules), sep="\n")
        return
    else:
        drawn = {rulepage.SPEEDUPS: picture.speedups(rules), rulepage.LOSSES: picture.losses(rules)}
        available = {name: svg for name, svg in drawn.items() if svg is not None}
        if format_ == "html":
            text = rulepage.html(rules, available)
        elif out is None:
            text = rulepage.markdown(rules, {})
        else:
            files = {name: f"{out.stem}-{name}.svg" for name in available}
            text = rulepage.markdown(rules, files)
            for name, file_name in files.items():
                out.with_name(file_name).write_text(available[name] + "\n")
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text)


def _check_out(out: Path | None) -> None:
    if out is None:
        return
    if out.is_dir():
        raise BadInputError(f"--out {out} is a folder", "give a file name")
    if not out.parent.is_dir():
        raise BadInputError(f"--out: folder {out.parent} does not exist", "create it first")
    check_writable(out.parent, "give --out a path that you can write to")


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
            help="Print only the snippet, in this format.",
        ),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Recommend a setting in seconds, without running trials, from rules learned on other workloads."""
    from msgspec import structs

    from tuner.job.advise import advise
    from tuner.job.job import prepare
    from tuner.job.request import SearchRequest, parse_request
    from tuner.job.rulebook import load
    from tuner.report import advice
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
    if not json_ and format_ is None:
        show(*advice.page(result), "")
    verified = _verify(job, setting, checked, wait=wait) if verify else None
    if json_:
        show_json(structs.replace(result, verified=verified))
        if verified is not None and verified.code is VerdictCode.WORSE:
            raise typer.Exit(TunerError.exit_code)
        return
    if verified is not None and format_ is not None:
        console(stderr=True).print(advice.verified(verified), soft_wrap=True)
    elif verified is not None:
        show(advice.verified(verified), "")
    if verified is not None and verified.code is VerdictCode.WORSE:
        raise TunerError("the recommended setting is slower than the default here", "keep the default")
    title = f"tftune recommend {result.workload}: {'; '.join(rule.sentence for rule in result.followed)}"
    ways = Ways(server_flags=job.framework.server_flags, calls=job.framework.calls)
    facts = advice.facts(result, verified)
    sys.stdout.write(emit(result.deployment, Format(format_ or Format.SH), title=title, facts=facts, ways=ways))


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


def import_studies(
    source: Annotated[str, typer.Argument(metavar="STORAGE", help="File or URL of the storage to copy from.")],
    storage: StorageOption = DEFAULT_STORAGE,
    json_: JsonOption = False,
) -> None:
    """Copy the studies of another storage into this one.

    Running it again copies only what is new.
    """
    from tuner.job.merge import merge

    merged = []
    for each in merge(source, storage, waiting=lambda line: console(stderr=True).print(f"waiting: {line}")):
        merged.append(each)
        if not json_ and each.outcome != "known":
            name = each.source if each.name in (each.source, "") else f"{each.source} as {each.name}"
            show(f"{name}: {each.outcome}")
    if json_:
        from tuner.report.result.inspection import ImportLine

        show_json([ImportLine(source=each.source, study=each.name or None, what=each.outcome) for each in merged])
    else:
        n = {what: sum(each.outcome == what for each in merged) for what in ("new", "newer", "known")}
        left_out = len(merged) - sum(n.values())
        left_out_note = f", {left_out} skipped" if left_out else ""
        show(f"{n['new']} new, {n['newer']} updated, {n['known']} already here{left_out_note}")


def export(
    what: Annotated[
        str, typer.Option("--what", metavar="trials|studies", help="One row per trial, or one row per study.")
    ] = "trials",
    format_: Annotated[
        str, typer.Option("--format", metavar="csv|json|parquet", help="Parquet needs pyarrow.")
    ] = "csv",
    out: OutOption = None,
    storage: StorageOption = DEFAULT_STORAGE,
) -> None:
    """Export the studies as a table for other programs."""
    from tuner.report import frame
    from tuner.report.document import describe_study

    if what not in frame.KINDS:
        raise unknown_name("kind of row", what, frame.KINDS)
    if format_ not in frame.FORMATS:
        raise unknown_name("format", format_, frame.FORMATS)
    _check_out(out)
    results = described(storage, describe_study)
    if not results:
        raise BadInputError(f"no studies in {storage}", "start with: tftune search resnet50")
    table = frame.trials(results) if what == "trials" else frame.studies(results)
    text = frame.write(table, format_, out)
    if text is not None:
        sys.stdout.write(text)
