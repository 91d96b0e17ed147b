"""The commands `rules` and `recommend`: what many studies say together, and a setting from that in seconds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import options
from tuner.cli.options import check_out, examples, measuring, of_studies, output, setting, takes
from tuner.cli.output import console, json_text, show, show_json
from tuner.errors import BadInputError, FindingError, unknown_name
from tuner.job.request import RecommendRequest
from tuner.paths import DEFAULT_STORAGE, check_writable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tuner.api.rules import Rules

RULES_EPILOG = examples(
    "tftune rules",
    "tftune rules --rules shipped",
    "tftune rules --details",
    "tftune rules --save",
    "tftune rules --format md --out rules.md",
    "tftune rules --machines here --workloads resnet50,mlp",
    "tftune rules --simulated",
)
RECOMMEND_EPILOG = examples(
    "tftune recommend resnet50",
    "tftune recommend bert-base --mode training --format k8s",
    "tftune recommend ./mine.py --verify",
    "tftune recommend resnet50 --python .openmp/bin/python --any-batch-size --json",
)
FORMATS = ("text", "md", "html")


def rules(
    details: Annotated[
        bool, output("--details", "Also show the evidence of each rule, and the tests on held-out studies.")
    ] = False,
    format_: Annotated[
        str,
        output("--format text|md|html", "Output format: for a terminal, a wiki or a browser."),
    ] = "text",
    out: Annotated[
        Path | None,
        output("--out FILE", "Write to a file. The pictures of a Markdown page are written next to it."),
    ] = None,
    save: Annotated[
        bool,
        output("--save", "Save the rules in results/tftune-rules.json, where recommend and search look for them."),
    ] = False,
    rules_file: Annotated[
        Path | None,
        of_studies("--rules FILE|shipped", "Show the rules of a file, or the shipped ones, and learn none."),
    ] = None,
    device: Annotated[
        str,
        of_studies("--device cpu|gpu", "Kind of device. Each kind has rules of its own."),
    ] = "cpu",
    simulated: Annotated[
        bool,
        of_studies(
            "--simulated",
            "Learn nothing from studies: show which rules simulations suggest for machines of 2 to 128 cores, and what "
            "would test them. Needs profiles: tftune predict.",
        ),
    ] = False,
    profiles: Annotated[
        list[Path] | None,
        of_studies(
            "--from FILE",
            "With --simulated: use this profile (capture.json) instead of the cache. Can be repeated.",
        ),
    ] = None,
    since: options.Since = None,
    machines: options.Machines = None,
    workloads: options.Workloads = None,
    storage: options.Storage = DEFAULT_STORAGE,
    json_: options.Json = False,
) -> None:
    """Learn rules from stored studies: what to set when, and what it gains.

    `tftune suite` measures the studies, `tftune recommend` applies the rules to one model. The rules are tested on
    studies that they were not learned from. A rule is kept only if noise alone would rarely produce it.
    """
    from tuner.api.rules import learn_rules, load_rules
    from tuner.job import rulebook
    from tuner.job.selection import Selection
    from tuner.machine.host import detect
    from tuner.report import rules as report
    from tuner.result.recommendation import n_studies

    output_format = options.format_of(format_, FORMATS, usual="text", json_=json_)
    if profiles and not simulated:
        raise BadInputError("--from is for simulations", "add --simulated, or leave it out")
    if simulated:
        is_learning = details or save or rules_file or device != "cpu" or since or machines or workloads
        if is_learning or output_format in ("md", "html"):
            raise BadInputError(
                "--simulated goes with --from, --out and --json only",
                "leave the others out, or leave --simulated out to learn from measured studies",
            )
        _show_simulated(profiles or [], out, as_json=output_format == "json")
        return
    selection = Selection(since=since, machines=machines, workloads=workloads)
    if save and selection.filters:
        raise BadInputError(
            "--save cannot be combined with --since, --machines or --workloads",
            "drop the filters, or write the rules to a file with --out",
        )
    if rules_file is not None and (save or selection.filters):
        raise BadInputError(
            "--rules shows rules that were learned already: it goes with neither --save nor filters", "drop --rules"
        )
    check_out(out)
    if save:
        check_writable(
            rulebook.local_rules(device).parent, "run this command in the folder that contains your results/"
        )
    progress = console(stderr=True)

    def notify(line: str) -> None:
        if progress.is_terminal:
            progress.print(line, style="dim")

    is_learned = rules_file is None
    learned = (
        learn_rules(storage, **selection.filters, device=device, notify=notify)
        if is_learned
        else load_rules(rules_file)
    )
    rule_set = learned.rule_set
    if save:
        learned.save()
        place = rulebook.local_rules(rule_set.device)
        progress.print(
            f"saved in {place}: recommend and search in this folder now use these rules (from "
            f"{n_studies(rule_set.provenance.n_studies)}) instead of the shipped ones; delete the file to undo this",
            style="dim",
        )
    if output_format != "text":
        _write_page(learned, output_format, out)
        return
    parts = [*report.rendered(rule_set, detect()), *(["", *report.page(rule_set)] if details else [])]
    if out is not None:
        _write_text(parts, out)
        return
    show(*parts)
    steps = [] if details else ["the evidence: --details"]
    is_any = any(group.rules for group in rule_set.groups.values())
    if is_any and not save and not selection.filters and rules_file is None:
        steps += ["use them in recommend and search: --save", "a page for a wiki: --format md --out rules.md"]
    show("", *([f"next: {'; '.join(steps)}"] if steps else []))


def _show_simulated(profiles: list[Path], out: Path | None, *, as_json: bool) -> None:
    """Show the hypotheses, which are never saved as rules."""
    from tuner.job.rulebook import simulated_rules
    from tuner.report import hypotheses

    check_out(out)
    progress = console(stderr=True)
    result = simulated_rules(profiles, notify=lambda line: progress.print(line, style="dim", soft_wrap=True))
    if as_json:
        _write(json_text(result), out)
    elif out is not None:
        _write_text([*hypotheses.rendered(result)], out)
    else:
        show(*hypotheses.rendered(result))


def _write_text(parts: list[RenderableType], out: Path) -> None:
    from rich.console import Console

    with out.open("w", encoding="utf-8") as file:
        Console(file=file, width=140, highlight=False).print(*parts, sep="\n")


def _write_page(rules: Rules, format_: str, out: Path | None) -> None:
    """Write rules as Markdown, HTML or JSON; pictures of Markdown lie beside its file."""
    if format_ == "json":
        text = json_text(rules.rule_set)
    elif format_ == "html":
        text = rules.html()
    elif out is None:
        text = rules.markdown()
    else:
        pictures = rules.pictures()
        files = {name: f"{out.stem}-{name}.svg" for name in pictures}
        text = rules.markdown(files)
        for name, file_name in files.items():
            out.with_name(file_name).write_text(pictures[name] + "\n", encoding="utf-8")
    _write(text, out)


def _write(text: str, out: Path | None) -> None:
    """Write a text to a file, or to stdout where there is none."""
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text, encoding="utf-8")


@takes(
    RecommendRequest,
    "python time_budget wait",
    batch_size=setting("--batch-size N", "Batch size that you run with.", min=1),
    rules=setting(
        "--rules FILE|shipped",
        "Rules file to use (default: results/tftune-rules.json if it exists, else the shipped rules).",
    ),
    batch=setting("--any-batch-size", "Also apply the rules on batch sizes, not only those on threads."),
    instances=setting("--instances", "Apply the rules on the number of processes instead of those on threads."),
    same_latency=setting(
        "--same-latency", "Apply the rules on processes with smaller batches, whose calls take about as long."
    ),
    verify=measuring("--verify", "Also measure the setting against the default, like `tftune compare`."),
)
def recommend(
    request: RecommendRequest,
    format_: Annotated[
        str | None,
        output(
            "--format sh|dotenv|docker|compose|k8s|systemd|tfserving|tfserving-k8s|python",
            "Print only what applies the setting, in this format.",
        ),
    ] = None,
    details: options.Details = False,
    json_: options.Json = False,
) -> None:
    """Recommend a setting for one model in seconds, from rules, without trials."""
    from tuner.api.rules import run_recommendation
    from tuner.report import advice
    from tuner.report.card import rendered
    from tuner.report.emit import Format
    from tuner.report.progress import VerificationShown

    if format_ is not None and format_ not in list(Format):
        raise unknown_name("format", format_, list(Format))
    recommendation = run_recommendation(request, VerificationShown(console(stderr=True)))
    result = recommendation.result
    if json_:
        show_json(result)
        if recommendation.is_slower:
            raise typer.Exit(FindingError.exit_code)
        return
    card = rendered(recommendation.card)
    if format_ is None:
        show(*([*advice.details(result), ""] if details else []), *card)
    elif result.verified is not None:
        for line in card:
            console(stderr=True).print(line, soft_wrap=True)
    if recommendation.is_slower:
        raise FindingError("the recommended setting is slower than the default here", "keep the default")
    if format_ is not None:
        sys.stdout.write(recommendation.emit(format_))
