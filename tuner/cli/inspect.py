"""The commands `inspect`, `workloads` and `env`: what is here, without a search, and environments for trials."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import options
from tuner.cli.help import SHOWN, Command, Group
from tuner.cli.options import WORKLOAD_WORDS, examples, other, takes
from tuner.cli.output import console, show, show_json
from tuner.errors import BadInputError, MachineBusyError
from tuner.job.request import SearchRequest

if TYPE_CHECKING:
    from tuner.job.job import Job
    from tuner.job.parsed import ParsedRequest
    from tuner.study.subject import Subject

EPILOG = examples(
    "tftune inspect",
    "tftune inspect resnet50 --space quick",
    "tftune inspect --device gpu",
    "tftune inspect --audit",
    "tftune inspect --audit --python .openmp/bin/python",
    "tftune inspect --affinity granularity=fine,compact,1,0",
)
WORKLOADS_EPILOG = examples(
    "tftune workloads",
    "tftune workloads --json",
    "tftune workloads show bert-base --param seq_len=384",
)
ENV_EPILOG = examples(
    "tftune env create openmp --dir .openmp",
    "tftune search resnet50 --python .openmp/bin/python",
)


@takes(
    SearchRequest,
    "space batch_size pins objective numerics python",
    words=WORKLOAD_WORDS,
    usual="resnet50",
)
def inspect(
    request: SearchRequest,
    audit: Annotated[
        bool,
        other(
            "--audit", "Show which knobs take effect in this build: look inside test processes, then measure each knob."
        ),
    ] = False,
    affinity: Annotated[
        str | None, other("--affinity VALUE", "Show where Intel's OpenMP library would bind each thread.")
    ] = None,
    json_: options.Json = False,
) -> None:
    """Show the machine, the build, and which knobs reach it.

    The page shows why a knob is not active. It also shows the baselines. Without --audit it measures two things in a
    second: waking a thread, and how much slower busy cores are.
    """
    from tuner.job.job import prepare
    from tuner.job.parsed import parse_request

    request.workload.reject_options("--rate", kind="inspect, which measures steps")
    checked = parse_request(request, stores=False)
    if affinity is not None:
        _affinity(affinity, checked, json_=json_)
        return
    if audit and checked.workload.command is not None:
        raise BadInputError(
            "--audit does not work for a command: tftune cannot look inside its processes", "use a model"
        )
    if audit and checked.workload.members:
        raise BadInputError("--audit does not work for an ensemble", "audit its models one at a time")
    job = prepare(checked)
    job.tell_notes(lambda line: console(stderr=True).print(line, style="dim", markup=False, soft_wrap=True))
    if audit:
        _audit(job, json_=json_)
    else:
        _look(job.subject, json_=json_)


def _look(subject: Subject, *, json_: bool) -> None:
    from msgspec import structs

    from tuner.machine.corecosts import busy_loss, wake_s
    from tuner.machine.locks import machine_lock
    from tuner.report import inspection, terminal
    from tuner.result.inspection import InspectionResult

    found, why_no_gpu = inspection.found_gpus()
    woken_s = loss = None  # where something is measured, nothing is to disturb it
    with suppress(MachineBusyError), machine_lock():
        woken_s, loss = wake_s(subject.machine), busy_loss(subject.machine)
    if json_:
        result = InspectionResult(
            **structs.asdict(subject),
            wake_s=woken_s,
            busy_loss=loss,
            gpus=inspection.gpu_results(found),
            why_no_gpu=why_no_gpu,
        )
        show_json(result)
    else:
        host = [terminal.host(subject), *inspection.shared(woken_s, loss), "", inspection.gpus(found, why_no_gpu)]
        show(*host, "", terminal.knobs(subject), "", terminal.baselines(subject))


def _affinity(value: str, checked: ParsedRequest, *, json_: bool) -> None:
    from tuner.report import inspection

    n_threads = int(checked.pins.get("omp_num_threads", checked.machine.physical_cores))
    library, binding = checked.framework.thread_binding(value, checked.machine, n_threads=n_threads)
    described = inspection.describe_binding(value, library, binding, checked.machine)
    if json_:
        show_json(described)
    else:
        show(inspection.binding(described))


def _audit(job: Job, *, json_: bool) -> None:
    from msgspec import structs

    from tuner.job.proof import prove
    from tuner.report import inspection, terminal
    from tuner.result.inspection import AuditResult

    progress, subject = console(stderr=True), job.subject
    if not json_:
        show(terminal.host(subject), "")
    proofs = tuple(prove(job, notify=lambda line: progress.print(line, style="dim")))
    if json_:
        show_json(AuditResult(**structs.asdict(subject), audit=proofs, pinned=job.seen.pinned))
    else:
        show(inspection.reach(proofs, job.seen.pinned), "", inspection.controls(proofs))


workloads = typer.Typer(
    help="List the shipped workloads, or show what one computes.",
    epilog=WORKLOADS_EPILOG,
    invoke_without_command=True,
    cls=Group,
    rich_markup_mode=None,
    context_settings=SHOWN,
)


@workloads.callback()
def list_workloads(context: typer.Context, json_: options.Json = False) -> None:
    """List the shipped workloads. No workload is run."""
    if context.invoked_subcommand is not None:
        return
    from tuner.report.workload import catalogue as table
    from tuner.report.workload import describe
    from tuner.workload.workload import catalogue

    files = catalogue()
    if json_:
        show_json([describe(name, file) for name, file in files.items()])
    else:
        show(table(files))


@workloads.command("show", cls=Command, epilog=WORKLOADS_EPILOG)
@takes(SearchRequest, "python")
def show_workload(request: SearchRequest, json_: options.Json = False) -> None:
    """Show what a workload computes: variables, operations, heavy operators and their average width.

    The graph is traced once, by the interpreter given with --python, and cached.
    """
    from tuner.job.job import describe_workload
    from tuner.report.workload import page

    document = describe_workload(request)
    if json_:
        show_json(document)
    else:
        show(page(document))


env = typer.Typer(
    no_args_is_help=True,
    help="Create Python environments for trials.",
    cls=Group,
    rich_markup_mode=None,
    context_settings=SHOWN,
)


@env.command(cls=Command, epilog=ENV_EPILOG)
def create(
    build: Annotated[str, typer.Argument(metavar="openmp", help="Build of TensorFlow to install. Only openmp so far.")],
    folder: Annotated[Path, typer.Option("--dir", metavar="PATH", help="New or empty folder for the environment.")],
    python: Annotated[
        str | None, other("--python PATH", "Python to build on (default: the first suitable one found).")
    ] = None,
    json_: options.Json = False,
) -> None:
    """Create a virtual environment with an OpenMP build of TensorFlow (intel-tensorflow 2.14, the last one).

    Needs 1.3 GB of disk space and one to two minutes.
    """
    from tuner.job.environment import create as make

    progress = console(stderr=True)
    environment = make(build, folder, python=python, notify=lambda line: progress.print(line, style="dim"))
    tensorflow, onednn = environment.build.version, environment.build.to_dict()["onednn_runtime"]
    if json_:
        from tuner.result.inspection import EnvironmentResult

        show_json(EnvironmentResult(python=str(environment.python), tensorflow=tensorflow, onednn=onednn))
    else:
        show(f"TensorFlow {tensorflow} on {onednn} in {folder}")
        show(f"use it with: tftune search resnet50 --python {shlex.quote(str(environment.python))}")
