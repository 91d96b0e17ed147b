"""NumPy as a framework: what it can run, its knob, and how its builds are looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tuner.frameworks import framework, probing
from tuner.identity import digest
from tuner.space.auditing import AuditAnswer, AuditCase
from tuner.space.baseline import Baseline
from tuner.space.carrier import Variable
from tuner.space.common import BATCH_SIZE
from tuner.space.knob import Knob
from tuner.space.values import Numbers

HERE = Path(__file__).parent
SUBJECT = probing.ProbedPackage(title="NumPy", package="numpy", install="numpy", folder=HERE / "child")


@dataclass(frozen=True, slots=True, kw_only=True)
class NumPyBuild(probing.ProbedBuild):
    """A NumPy build."""

    subject = SUBJECT
    numpy: str

    @property
    def fork_refusal(self) -> str:
        return "OpenBLAS starts its threads while NumPy is imported"


def audit_threads(case: AuditCase) -> AuditAnswer:
    """Audit the threads of OpenBLAS by what the process reports (`Model.state`)."""
    threads = case.effective["blas_threads"]
    return threads == case.values["blas_threads"], f"{threads} threads after the import"


class NumPy(framework.Framework):
    """NumPy with OpenBLAS, as its wheels are."""

    name = "numpy"
    title = "NumPy"
    child = HERE / "child"
    spaces = HERE / "spaces"
    knobs: ClassVar = {
        "blas_threads": Knob(
            name="blas_threads",
            meaning="threads of a matrix product",
            values=Numbers(counts_threads=True),
            carrier=Variable("OPENBLAS_NUM_THREADS"),
            default=lambda machine, *_: machine.logical_cpus,
            audit=audit_threads,
            read_at_start=True,
            n_threads=lambda values: int(values["blas_threads"]),
        ),
        "batch_size": BATCH_SIZE,
    }
    baselines = (
        Baseline(name="numpy-default", source="OpenBLAS, README: one thread a CPU", rule=lambda _: {}),
        Baseline(
            name="numpy-one",
            source="a thread for each process",
            rule=lambda _: {"blas_threads": 1},
            devices=("cpu", "gpu"),
        ),
    )
    suffixes: ClassVar = {}
    kinds = ("python",)
    devices = ("cpu", "gpu")

    def probe(self, python: Path, env: Mapping[str, str]) -> NumPyBuild:
        facts = probing.remembered_facts(python, env, SUBJECT, switches=(), looks=())
        return NumPyBuild(id=digest(facts), python=facts["python"], numpy=facts["numpy"])

    def build_lines(self, build: Mapping[str, Any]) -> list[str]:
        return [f"NumPy {build['numpy']}, Python {build['python']}"]


FRAMEWORK = NumPy()
