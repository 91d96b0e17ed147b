"""Describing a workload without a search: what it is, and what one item of it computes."""

from __future__ import annotations

from tuner.job.job import prepare
from tuner.job.request import Request, check
from tuner.report.result.inspection import WorkloadResult
from tuner.search.subject import workload_facts
from tuner.workload.asked import Asked
from tuner.workload.pyfile import read
from tuner.workload.workload import Kind


def describe(asked: Asked, python: str | None) -> WorkloadResult:
    """Return the workload and its features; raises BadInputError. Nothing is measured or stored."""
    job = prepare(check(Request(workload=asked, python=python), stores=False))
    job.export()
    file = read(job.workload.path) if job.workload.kind is Kind.PYTHON else None
    return WorkloadResult(
        workload=workload_facts(job.workload),
        modes=file.modes if file else (job.workload.mode,),
        source=file.source if file else "",
        features=job.features(),
    )
