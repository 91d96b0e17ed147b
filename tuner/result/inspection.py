"""What is known without a search, as it is published: `tftune inspect`, `workloads`, `suite`, `import` and `env`."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from tuner.model.graph import Features
from tuner.result.study import PlannedResult, VerdictResult
from tuner.space.values import Value
from tuner.study.subject import Document, Subject, WorkloadFacts


class GpuResult(Struct, frozen=True, kw_only=True):
    """A GPU of the host, or a slice of one, as it is now; what it does not tell is null.

    `device` is what `--device` calls it, null where a variable hides it, and `number` that of the GPU as its maker's
    tool counts; `throttle` is why it runs below its clock just now, and `processes` what computes on it.
    """

    device: str | None
    number: int
    model: str
    uuid: str
    memory_bytes: int
    free_bytes: int
    driver: str
    cuda: str | UnsetType = UNSET
    """The newest CUDA that the driver serves; GPUs of other makers do not have it."""
    capability: str
    power_limit_w: float | None
    power_w: float | None
    max_clock_mhz: int | None
    clock_mhz: int | None
    temperature_c: int | None
    is_split: bool
    """Whether only its slices compute."""
    throttle: tuple[str, ...]
    processes: tuple[str, ...]


class InspectionResult(Subject, frozen=True, kw_only=True):
    """Machine, build, knobs and baselines, and the GPUs of the host with the reason where there is none.

    `wake_s` is how long it takes (s) to wake a thread on another core. `busy_loss` is how much longer a core takes to
    compute while all cores are at work, as a share. Both are null if they could not be measured.
    """

    wake_s: float | None
    busy_loss: float | None
    gpus: tuple[GpuResult, ...]
    why_no_gpu: str


class ProcessFinding(Struct, frozen=True, kw_only=True):
    """What one process showed of a knob at a value."""

    value: Value
    applied: bool | None
    evidence: str


class ProofResult(Struct, frozen=True, kw_only=True):
    """Whether a knob reaches the build (null: unknown), and the pair of two `values` far apart, in `measured`."""

    knob: str
    set_by: str
    variable: str | None
    reaches: bool | None
    evidence: str
    processes: tuple[ProcessFinding, ...]
    values: tuple[Value, ...]
    measured: VerdictResult | None
    timed_s: float
    says: str


class AuditResult(Subject, frozen=True, kw_only=True):
    """Machine, build and knobs, with a proof of each knob.

    `pinned` is how the workload has changed the CPUs of its processes, empty where it has not.
    """

    audit: tuple[ProofResult, ...]
    pinned: str = ""


class ThreadBinding(Struct, frozen=True, kw_only=True):
    """The CPUs that a thread is bound to, and the NUMA nodes that these lie on."""

    thread: int
    cpus: str
    numa_nodes: tuple[str, ...]


class BindingResult(Document, frozen=True, kw_only=True):
    """Where an OpenMP library binds threads, and what it says of the value."""

    kmp_affinity: str
    library: str
    threads: tuple[ThreadBinding, ...]
    warnings: tuple[str, ...]


class WorkloadLine(Struct, frozen=True, kw_only=True):
    """What a workload file says of itself."""

    name: str
    modes: tuple[str, ...]
    params: dict[str, Any]
    description: str
    item: str
    batch_size: int
    source: str


class WorkloadResult(Document, frozen=True, kw_only=True):
    """A workload, and what one item of it computes, null where its graph is not understood."""

    workload: WorkloadFacts
    modes: tuple[str, ...]
    source: str
    features: Features | None


class CaseResult(Struct, frozen=True, kw_only=True):
    """One search of a suite; `state` is known, made, failed or missing, or begun: planned, and measured in part.

    `batch_sizes` are there where a plan has chosen them, and `planned` is what its measurements came to. On a cluster
    `machine` is what the case is for, and `node` the host that has run it now. `stale` is what has changed since the
    case was measured, if it is measured again for that.
    """

    number: int
    workload: str
    mode: str
    shape: str
    cpus: str
    cpu_quota: float | None
    python: str
    runtime: str
    state: str
    study: str | None
    outcome: str
    wall_s: float | None
    batch_sizes: tuple[int, ...] = ()
    planned: PlannedResult | None = None
    machine: str = ""
    node: str = ""
    stale: tuple[str, ...] = ()


class SuiteResult(Document, frozen=True, kw_only=True):
    """The searches of a suite, and what was asked for and is not there."""

    cases: tuple[CaseResult, ...]
    absent: tuple[str, ...]


class ImportLine(Struct, frozen=True, kw_only=True):
    """A study of the other storage, its name in this one, and what became of it: new, newer, known, or left out."""

    source: str
    study: str | None
    what: str


class EnvironmentResult(Struct, frozen=True, kw_only=True):
    """An environment that was made: its interpreter, its TensorFlow, and what oneDNN runs on there."""

    python: str
    tensorflow: str
    onednn: str | None
