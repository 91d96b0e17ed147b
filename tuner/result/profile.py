"""A profile, as it is published."""

from __future__ import annotations

from msgspec import Struct

from tuner.machine.host import Machine
from tuner.measure.warning import seen_warnings
from tuner.model.profile import Bound, Profile
from tuner.result import fields_of
from tuner.result.study import WarningResult
from tuner.study.subject import BuildFacts, Document, Subject, WorkloadFacts


class ThreadsResult(Struct, frozen=True, kw_only=True):
    """What a process with so many threads did: a step (s) as a trial times it, and in a session one without statistics
    (`plain_s`), one with them, and how long operators ran in that.

    `profiler_cost` is the ratio of the last two steps; `flops` (FLOP/s) and `bytes_s` are the roof: what a large
    product and a large sum reach.
    """

    threads: int
    step_s: float
    plain_s: float
    traced_s: float
    busy_s: float
    profiler_cost: float
    flops: float
    bytes_s: float


class OperatorResult(Struct, frozen=True, kw_only=True, rename={"bound": "class", "op": "type", "n_bytes": "bytes"}):
    """An operator of a step; times (s) by the number of threads, and the law that fits them.

    `contention` and `coherency` are σ and κ of the Universal Scalability Law, `error` is the root mean square of the
    relative errors of the fit, null where it fits anything, and `best_threads` the fewest threads of those that were
    tried that it would take hardly more than its least time with.
    """

    name: str
    op: str
    bound: Bound
    runs: int
    time_s: dict[int, float]
    share: float
    """Of the time of all operators with one thread."""
    flops: int
    n_bytes: int
    contention: float
    coherency: float
    error: float | None
    best_threads: int


class ProfileResult(Document, frozen=True, kw_only=True):
    """What the operators of a workload take; those that took no time are left out."""

    machine: Machine
    runtime: BuildFacts
    workload: WorkloadFacts
    batch_size: int
    threads: tuple[ThreadsResult, ...]
    between_share: tuple[float, float]
    """Between what shares of a step with one thread no operator runs: too little, and too much."""
    exposed_overhead: float | None
    """That share as TensorFlow's profiler tells it, as `tftune overhead` does; null where it keeps no whole step."""
    operators: tuple[OperatorResult, ...]
    warnings: tuple[WarningResult, ...] = ()


def describe_profile(profile: Profile, subject: Subject, *, batch_size: int, pinned: str = "") -> ProfileResult:
    """Return what is published of a profile.

    `pinned` is how the workload has changed the CPUs of its processes, empty where it has not.
    """
    total_s = sum(operator.times_s[1] for operator in profile.operators) or 1.0
    most = profile.traced[-1].threads
    return ProfileResult(
        machine=subject.machine,
        runtime=subject.runtime,
        workload=subject.workload,
        batch_size=batch_size,
        threads=tuple(
            ThreadsResult(
                **fields_of(ThreadsResult, each, each.roof), profiler_cost=each.traced_s / each.plain_s
            )
            for each in profile.traced
        ),
        between_share=profile.between_shares,
        exposed_overhead=profile.traced[0].exposed,
        operators=tuple(
            OperatorResult(
                **fields_of(OperatorResult, each.scaling, each)
                | {"time_s": dict(each.times_s), "best_threads": each.scaling.best_threads(most)},
                share=each.times_s[1] / total_s,
            )
            for each in sorted(profile.operators, key=lambda each: -each.times_s[1])
            if each.times_s[1] > 0
        ),
        warnings=tuple(map(WarningResult.of, seen_warnings(pinned))),
    )
