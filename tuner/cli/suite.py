"""The command `suite`, and `node` and `scheduler`, which make a cluster for it."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import options
from tuner.cli.options import complete_device, complete_framework, examples, measuring, other, output, takes
from tuner.cli.output import console, show, show_json
from tuner.cli.search import INTERRUPTED
from tuner.errors import BadInputError, FindingError
from tuner.job.request import SuiteFile, SuiteRequest

if TYPE_CHECKING:
    from tuner.job.suite import FinishedCase, Suite
    from tuner.result.inspection import CaseResult

EPILOG = examples(
    "tftune suite --time-budget 2m",
    "tftune suite --workloads resnet50,mlp --mode inference,training",
    "tftune suite team.toml",
    "tftune suite --cpus 1,2 --cpu-quota 1.5 --python .venv/bin/python --python .openmp/bin/python --stop-after 8h",
    "tftune suite --plan 15m",
    "tftune suite --workloads resnet50,bert-base --instances",
    "tftune suite --cluster tls://head:8786 --tls certificates",
    "tftune suite --cluster ssh:hosts.txt",
    "tftune suite --stale --stop-after 6h",
    "tftune suite --dry-run",
)
NODE_EPILOG = examples("tftune node tcp://127.0.0.1:8786", "tftune node tls://head:8786 --tls certificates")
SCHEDULER_EPILOG = examples(
    "tftune scheduler tcp://127.0.0.1:8786", "tftune scheduler tls://head:8786 --tls certificates"
)

Tls = Annotated[
    Path | None,
    other("--tls FOLDER", "Folder with ca.pem, cert.pem and key.pem, for a scheduler at tls://…"),
]
Insecure = Annotated[
    bool,
    other(
        "--insecure",
        "Connect to another machine without TLS: whoever reaches the scheduler can run programs on all nodes.",
    ),
]


def _read(text: str) -> SuiteFile:
    from tuner.job.suitefile import read

    return read(text)


def _defaults(context: typer.Context, file: SuiteFile | None) -> SuiteFile | None:
    """Let options that are not typed be as in the suite file."""
    if file is not None:
        context.default_map = dict(file.options)
    return file


@takes(
    SuiteRequest,
    "space storage trial_timeout",
    words={},
    workloads=other(
        "--workloads NAME[,NAME…]",
        "Shipped workloads, or paths of your own (default: all, with --plan twelve varied ones). With FILE: some "
        "of its workloads.",
    ),
    plan=measuring(
        "--plan TIME",
        "Measure planned settings in this time instead of searching: it chooses shapes, modes and settings. The last "
        "study may overrun it if its first two settings are slow.",
    ),
    stale=measuring(
        "--stale",
        "Measure stale studies again. A study is stale if TensorFlow, the model, the machine or the search space "
        "has changed.",
    ),
    modes=other("--mode MODE[,MODE]", "inference, training, or both (default: inference)."),
    cpus=other("--cpus N[,N…]", "Numbers of CPUs to search on, set by an affinity mask (default: all CPUs)."),
    cpu_quotas=other("--cpu-quota N[,N…]", "CPU quotas to search under, set by a cgroup, as in a container."),
    framework=other(
        "--framework NAME",
        "Framework to run: tensorflow, onnxruntime, openvino, tensorrt, or a plugin's.",
        complete_framework,
    ),
    device=other(
        "--device NAME",
        "cpu, gpu, gpu:1, gpu:0:2 (a slice), or a plugin's.",
        complete_device,
    ),
    pythons=measuring("--python PATH", "Python interpreter with the framework. Can be repeated."),
    time_budget=measuring("--time-budget TIME", "Time budget of each search (default: 5m)."),
    stop_after=measuring("--stop-after TIME", "Start no further search after this time."),
    seed=measuring("--seed N", "Random seed of each search.", min=0),
    instances=measuring(
        "--instances",
        "Also search several processes on one machine, and settings at the same latency, as tftune search does.",
    ),
    nodes_per_type=measuring(
        "--nodes-per-type N",
        "With --cluster: measure each result again on other nodes of its type, on N in total (default: 1).",
        min=1,
    ),
    types=measuring(
        "--types NAME[,NAME…]",
        "With --cluster: measure only on machines whose description has one of these words, such as EPYC or '16 CPUs' "
        "(default: all).",
    ),
)
def suite(
    request: SuiteRequest,
    file: Annotated[
        SuiteFile | None,
        typer.Argument(
            metavar="FILE",
            help="A suite file: TOML with options of the suite, and with workloads that have options of their own.",
            parser=_read,
            callback=_defaults,
            is_eager=True,
            show_default=False,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        other(
            "--cluster URL",
            "Run on all nodes of the Dask scheduler at URL, such as tls://head:8786. ssh:FILE starts a node on "
            "each host in a file. local starts one here.",
        ),
    ] = None,
    tls: Tls = None,
    insecure: Insecure = False,
    dry_run: Annotated[bool, output("--dry-run", "Show what would run, without running it.")] = False,
    json_: options.Json = False,
) -> None:
    """Search for many models, machine shapes and builds, here or on a cluster.

    Each combination of workload, mode, machine shape and framework build is one search. Searches that the storage
    already has are skipped, so the same command continues an interrupted suite. The keys of FILE (docs/cluster.md) are
    options without the leading hyphens, and typed options override them. `tftune rules` learns from the results. With
    --plan nothing is searched for: designed settings of many workloads are measured alike, as open surfaces (`tftune
    export --what slices`).
    """
    from tuner.job import suite as suites
    from tuner.report import studylist

    if file is not None:
        request = replace(request, file=file.path, file_workloads=file.workloads)
    if cluster is not None:
        if dry_run:
            raise BadInputError("--dry-run with --cluster", "leave one of them out: only nodes know their cases")
        _run_on(cluster, request, tls=tls, insecure=insecure, json_=json_)
        return
    if request.nodes_per_type > 1:
        raise BadInputError(f"--nodes-per-type {request.nodes_per_type} without --cluster", "add --cluster URL")
    if request.types is not None:
        raise BadInputError(f"--types {request.types} without --cluster", "add --cluster URL")
    if tls is not None or insecure:
        raise BadInputError(f"{'--insecure' if tls is None else '--tls'} without --cluster", "add --cluster URL")
    planned = suites.plan(request)
    done: list[FinishedCase] = []
    if not dry_run:
        on_start, on_end, notify = _progress(planned)
        done = suites.run(planned, on_start=on_start, on_end=on_end, notify=notify)
    if planned.is_planned and any(each.study is None for each in done):
        planned = replace(planned, begun=suites.plan(request).stored)  # what they had measured until then
    cases = cases_of(planned, done, outcomes=dry_run or json_ or planned.is_planned)
    if dry_run and not json_:
        show(*planned.unavailable, studylist.suite_table(cases))
    _show_end(
        cases,
        planned.unavailable,
        wall_s=sum(each.wall_s for each in done),
        is_planned=planned.is_planned and not dry_run,
        interrupted=any(each.interrupted for each in done),
        json_=json_,
    )


def _run_on(cluster: str, request: SuiteRequest, *, tls: Path | None, insecure: bool, json_: bool) -> None:
    """Run a suite on the nodes of a cluster, and show what came of it."""
    from tuner.cluster.daskengine import engine
    from tuner.cluster.fleet import Fleet
    from tuner.measure.budget import DEFAULT_TIME_S, parse_duration
    from tuner.report.fleet import FleetLines, FleetShown
    from tuner.report.studylist import outcome

    budget_s = DEFAULT_TIME_S if request.time_budget is None else parse_duration(request.time_budget)
    if request.plan is not None:
        budget_s = 0.0  # each study has another
    interrupted = False
    with (
        FleetLines(sys.stderr) if json_ else FleetShown(console(stderr=True), budget_s) as shown,
        engine(cluster, tls=tls, insecure=insecure, tell=shown.notice) as nodes,
    ):
        fleet = Fleet(request=request, engine=nodes, events=shown, outcome=lambda study: outcome(study, ""))
        try:
            fleet.run()
        except KeyboardInterrupt:
            interrupted = True
            shown.notice("interrupted; the same command collects what nodes have, and continues")
    cases = fleet.cases()
    _show_end(
        cases,
        fleet.absent,
        wall_s=sum(case.wall_s or 0.0 for case in cases),
        is_planned=request.plan is not None,
        interrupted=interrupted,
        is_short=fleet.is_short,
        json_=json_,
    )


def _show_end(
    cases: Sequence[CaseResult],
    absent: Iterable[str],
    *,
    wall_s: float,
    is_planned: bool,
    interrupted: bool,
    is_short: bool = False,
    json_: bool,
) -> None:
    """Show what came of a suite, and end with 130 if it was interrupted, or with 1 if a case failed or had no node."""
    from tuner.report import studylist
    from tuner.result.inspection import SuiteResult

    if json_:
        show_json(SuiteResult(cases=tuple(cases), absent=tuple(absent)))
    else:
        if is_planned:
            show(studylist.planned_table(cases))
        show(studylist.suite_summary(cases, wall_s))
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if is_short or any(case.state == "failed" for case in cases):
        raise typer.Exit(FindingError.exit_code)


def _progress(
    planned: Suite,
) -> tuple[Callable[[int, float], None], Callable[[FinishedCase, float], None], Callable[[str], None]]:
    """Return callbacks that print on stderr: the running search, a line for each finished one, and any line."""
    from tuner.quantity import duration_text, plural
    from tuner.report.studylist import outcome, shape_text

    out = console(stderr=True)
    n = len(planned.cases)
    for text in planned.unavailable:
        out.print(text, style="dim", markup=False)
    what = plural(n, "planned study", "planned studies") if planned.is_planned else plural(n, "search", "searches")
    out.print(f"{what}, {len(planned.existing)} already done", style="bold")

    def title(number: int) -> str:
        case = planned.cases[number]
        shape = shape_text(str(case.shape), case.batch_sizes)
        return f"{number + 1}/{n}  {case.title}  {shape}  {case.build.title}"

    def on_start(number: int, left_s: float) -> None:
        if out.is_terminal:
            out.file.write(f"\r\x1b[2K{title(number)} … about {duration_text(left_s)} left"[: out.width - 1])
            out.file.flush()

    def on_end(done: FinishedCase, left_s: float) -> None:
        if out.is_terminal:
            out.file.write("\r\x1b[2K")
        outcome_text = done.failure or outcome(done.study, "")
        times = f"{duration_text(done.wall_s)}, about {duration_text(left_s)} left"
        out.print(f"{title(done.number)}  {outcome_text}  ({times})", soft_wrap=True, markup=False)

    def notify(line: str) -> None:
        out.print(line, style="dim", soft_wrap=True, markup=False)

    return on_start, on_end, notify


def cases_of(planned: Suite, done: list[FinishedCase], *, outcomes: bool) -> list[CaseResult]:
    """Return each search; what came out of the known ones, which takes time to read, where it is shown."""
    from tuner.report.studylist import outcome
    from tuner.result.document import describe_study
    from tuner.result.inspection import CaseResult

    by_number = {each.number: each for each in done}
    cases = []
    for number, case in enumerate(planned.cases):
        ended = by_number.get(number)
        study, failure, state = None, "", "missing"
        if number in planned.existing:
            study, state = describe_study(planned.existing[number]) if outcomes else None, "known"
        elif ended is not None:
            study, failure = ended.study, ended.failure
            state = "missing" if ended.interrupted else "made" if study else "failed"
            if study is None and number in planned.begun:
                study = describe_study(planned.begun[number])
            if study is not None and study.planned and not study.planned.complete and state != "failed":
                state, failure = "begun", ""
        elif number in planned.begun:
            study, state = describe_study(planned.begun[number]), "begun"
        known_s = study.planned.wall_s if study is not None and study.planned else None
        cases.append(
            CaseResult(
                number=number + 1,
                workload=case.workload.name,
                mode=case.workload.mode,
                shape=str(case.shape),
                cpus=case.shape.affinity,
                cpu_quota=case.shape.quota,
                python=str(case.python),
                runtime=case.build.title,
                state=state,
                study=None if study is None else study.study,
                outcome="" if state == "missing" or not outcomes else failure or outcome(study, ""),
                wall_s=known_s if ended is None else round(ended.wall_s, 1),
                batch_sizes=case.batch_sizes,
                planned=None if study is None else study.planned,
                stale=planned.reasons.get(number, ()),
            )
        )
    return cases


# ---- nodes of a cluster ---------------------------------------------------------------------------------------------


def node(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of the scheduler, such as tls://head:8786.")],
    tls: Tls = None,
    insecure: Insecure = False,
) -> None:
    """Let this machine measure for the suites of others.

    It runs until interrupted. The node measures one case of a suite at a time, as `tftune suite` does here. If no suite
    collects a result, it stays in the cache folder for 30 days.
    """
    from tuner.cluster import ssh
    from tuner.cluster.daskengine import serve
    from tuner.job.nested import end_with_stdin

    out = console(stderr=True)
    with contextlib.ExitStack() as cleanup:
        if tls == Path("-"):  # from a driver, by ssh
            tls = cleanup.enter_context(ssh.certificates(ssh.received_certificate()))
            threading.Thread(target=end_with_stdin, daemon=True).start()
        serve(url, tls=tls, insecure=insecure, tell=lambda line: out.print(line, soft_wrap=True, markup=False))


def scheduler(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address to listen at, such as tls://head:8786.")],
    tls: Tls = None,
    insecure: Insecure = False,
) -> None:
    """Connect the nodes and the driver of suites on several machines.

    It runs until interrupted. It is Dask's scheduler without the parts that disturb measurements on the same machine.
    `dask scheduler` works, too.
    """
    from tuner.cluster.daskengine import schedule

    out = console(stderr=True)
    schedule(url, tls=tls, insecure=insecure, tell=lambda line: out.print(line, soft_wrap=True, markup=False))
