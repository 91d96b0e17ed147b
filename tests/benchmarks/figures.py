"""What the benchmarks share: a figure of the table, and a job that is ready to launch."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from tuner.job.job import Job, prepare
from tuner.job.parsed import parse_request
from tuner.job.request import SearchRequest
from tuner.trial.launcher import Target
from tuner.workload.spec import WorkloadSpec

OPENMP_PYTHON = os.environ.get("TFTUNE_OPENMP_PYTHON", ".openmp/bin/python")
BUILDS = {"stock": sys.executable, "OpenMP": OPENMP_PYTHON}


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    description: str
    measured: str
    target: str = ""
    met: bool = True

    def row(self) -> str:
        """Return it as a row of Markdown."""
        return f"| {self.description} | {self.measured} | {self.target} | {'' if self.met else '**missed**'} |"


def job_on(python: str, workload: str = "resnet50") -> tuple[Job, Target]:
    """Return a job on an interpreter, its model exported, and the target of its processes."""
    job = prepare(parse_request(SearchRequest(workload=WorkloadSpec.of_name(workload), python=python), stores=False))
    job.export()
    return job, job.target()
