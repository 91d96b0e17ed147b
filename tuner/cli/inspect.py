"""The command `inspect`: what can be said without a search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import (
    BatchOption,
    JsonOption,
    NumericsOption,
    ObjectiveOption,
    PythonOption,
    SetOption,
    SpaceOption,
    examples,
)
from tuner.cli.output import console, show, show_json
from tuner.cli.workload_options import spec_or_default, takes_workload
from tuner.errors import BadInputError
from tuner.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from tuner.job.job import Job
    from tuner.job.request import ParsedRequest
    from tuner.study.subject import Subject

EPILOG = examples(
    "tftune inspect",
    "tftune inspect resnet50 --space quick",
    "tftune inspect --device gpu",
    "tftune inspect --audit",
    "tftune inspect --audit --python .openmp/bin/python",
    "tftune inspect --affinity granularity=fine,compact,1,0",
)


@takes_workload
def inspect(
    workload: WorkloadSpec,
    space: SpaceOption = None,
    batch_size: BatchOption = None,
    pins: SetOption = None,
    objective: ObjectiveOption = "throughput",
    numerics: NumericsOption = "keep",
    python: PythonOption = None,
    audit: Annotated[
        bool,
        typer.Option(
            "--audit",
            help="Show which knobs take effect in this build: look inside test processes, then measure each knob.",
        ),
    ] = False,
    affinity: Annotated[
        str | None,
        typer.Option("--affinity", metavar="VALUE", help="Show where Intel's OpenMP library would bind each thread."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Show the machine, the framework build, the knobs (active, or why not) and the baselines.

    Measures nothing without --audit.
    """
    from tuner.job.job import prepare
    from tuner.job.request import SearchRequest, parse_request

    request = SearchRequest(
        workload=spec_or_default(workload),
        space=space,
        batch_size=batch_size,
        pins=pins or [],
        objective=objective,
        numerics=numerics,
        python=python,
    )
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
    subject = job.subject
    if audit:
        _audit(job, subject, json_=json_)
    else:
        _look(subject, json_=json_)


def _look(subject: Subject, *, json_: bool) -> None:
    from msgspec import structs

    from tuner.report import inspection, terminal
    from tuner.result.inspection import InspectionResult

    gpus, why_no_gpu = inspection.describe_gpus()
    if json_:
        show_json(InspectionResult(**structs.asdict(subject), gpus=gpus, why_no_gpu=why_no_gpu))
    else:
        host = [terminal.host(subject), "", inspection.gpus(gpus, why_no_gpu)]
        show(*host, "", terminal.knobs(subject), "", terminal.baselines(subject))


def _affinity(value: str, checked: ParsedRequest, *, json_: bool) -> None:
    from tuner.frameworks.tensorflow.affinity import thread_binding
    from tuner.report import inspection

    n_threads = int(checked.pins.get("omp_num_threads", checked.machine.physical_cores))
    library, binding = thread_binding(value, checked.machine, n_threads=n_threads)
    described = inspection.describe_binding(value, library, binding, checked.machine)
    if json_:
        show_json(described)
    else:
        show(inspection.binding(described))


def _audit(job: Job, subject: Subject, *, json_: bool) -> None:
    from msgspec import structs

    from tuner.job.proof import prove
    from tuner.report import inspection, terminal
    from tuner.result.inspection import AuditResult

    progress = console(stderr=True)
    if not json_:
        show(terminal.host(subject), "")
    proofs = tuple(proof.result() for proof in prove(job, notify=lambda line: progress.print(line, style="dim")))
    if json_:
        show_json(AuditResult(**structs.asdict(subject), audit=proofs, pinned=job.seen.pinned))
    else:
        show(inspection.reach(proofs, job.seen.pinned), "", inspection.controls(proofs))
