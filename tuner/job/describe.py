"""Describing a workload without a search: what it is, and what one item of it computes."""

from __future__ import annotations

from tuner.errors import BadInputError
from tuner.job.job import prepare
from tuner.job.request import SearchRequest, parse_request
from tuner.result.inspection import WorkloadResult
from tuner.study.subject import workload_facts
from tuner.workload.pyfile import read
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Kind


def describe(spec: WorkloadSpec, python: str | None) -> WorkloadResult:
    """Return the workload and its features; raises BadInputError. Nothing is measured or stored."""
    checked = parse_request(SearchRequest(workload=spec, python=python), stores=False)
    if checked.workload.members:
        raise BadInputError(f"{checked.workload.name} is an ensemble", "show its models one at a time")
    job = prepare(checked)
    job.export()
    file = read(job.workload.path) if job.workload.kind is Kind.PYTHON else None
    return WorkloadResult(
        workload=workload_facts(job.workload, job.inputs),
        modes=file.modes if file else (job.workload.mode,),
        source=file.source if file else "",
        features=job.features(),
    )
