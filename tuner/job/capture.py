"""Captures: profiles of a workload at several batch sizes as a file, for predictions here and elsewhere."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tuner.errors import BadInputError
from tuner.frameworks import registry
from tuner.identity import digest
from tuner.job import comparable
from tuner.job.events import ProfileEvents
from tuner.job.feed import tell_outputs
from tuner.job.job import Job
from tuner.job.profile import thread_counts, trace, trace_quickly
from tuner.machine.host import Machine
from tuner.machine.locks import machine_lock
from tuner.model.graph import Features
from tuner.model.profile import Profile, Traced, is_worth_more, profile
from tuner.paths import cache_dir, file_stem, write_whole
from tuner.space.term import OPENMP
from tuner.study.subject import BuildFacts, Document, WorkloadFacts
from tuner.trial.forking import ForkLauncher
from tuner.trial.fresh import FreshLauncher
from tuner.workload.feed import made_otherwise

_FOLDER = "profiles"
_FORMAT = 6  # of what is measured, and how


class Capture(Document, frozen=True, kw_only=True):
    """What processes told at each batch size, by how many threads they had, and of what."""

    machine: Machine
    runtime: BuildFacts
    workload: WorkloadFacts
    traced: dict[int, list[Traced]]
    features: Features | None = None
    """What is known of the graph; None in captures that earlier versions made."""
    environment: dict[str, str] | None = None
    """The inherited variables that change timings; None in captures that earlier versions made."""
    pinned: str = ""
    """How the workload has changed the CPUs of the processes that told, in words; empty where it has not."""
    is_quick: bool = False
    """Whether it is a search's own, of a few steps with one thread and with all."""

    def __post_init__(self) -> None:
        """Raise ValueError for what no prediction can be made from."""
        if not isinstance(self.runtime.get("id"), str):
            raise ValueError("its build has no id")
        if not self.traced or any(not each or each[0].threads != 1 for each in self.traced.values()):
            raise ValueError("it has no process with one thread")
        told = [each for rows in self.traced.values() for each in rows]
        times = [time for each in told for time in (each.step_s, each.plain_s, each.traced_s)]
        times += [rate for each in told for rate in (each.roof.flops, each.roof.bytes_s)]
        if not all(0 < time < math.inf for time in times):
            raise ValueError("a time or a rate in it is not above 0")
        if any(rows != sorted(rows, key=lambda each: each.threads) for rows in self.traced.values()):
            raise ValueError("its processes are not in the order of their threads")

    @property
    def profiles(self) -> dict[int, Profile]:
        """Return the profile at each batch size."""
        has_quota = self.machine.cpu_quota is not None
        return {batch_size: profile(traced, has_quota=has_quota) for batch_size, traced in self.traced.items()}

    @property
    def bytes_s(self) -> dict[int, float]:
        """Return what threads move from and to memory (bytes/s), by how many there were."""
        return {each.threads: each.roof.bytes_s for each in self.traced[max(self.traced)]}

    @property
    def has_teams(self) -> bool:
        """Return whether oneDNN ran on OpenMP."""
        return registry.for_build(self.runtime).pool(self.runtime) == OPENMP

    def check(self, job: Job, *, is_elsewhere: bool) -> None:
        """Raise BadInputError where it is of another workload, build or machine than a job.

        It may be of another machine where predictions are for one that is described.
        """
        own = job.subject
        again = "profile it again: leave --profile out"
        if self.workload.fingerprint != own.workload.fingerprint:
            differs = comparable.workload_difference(self.workload, own.workload)
            raise BadInputError(f"the profile is of another workload: {differs}", again)
        if self.runtime["id"] != own.runtime["id"]:
            differs = comparable.build_difference(self.runtime, own.runtime)
            raise BadInputError(f"the profile is of another build: {differs}", again)
        if self.environment is not None and self.environment != job.environment:
            differs = comparable.difference(self.environment, job.environment)
            raise BadInputError(f"the profile was made with other variables: {differs}", again)
        if self.machine.id != own.machine.id and not is_elsewhere:
            differs = comparable.machine_difference(self.machine, own.machine)
            raise BadInputError(
                f"the profile is of another machine: {differs}",
                f"{again}, or say which machine you ask about (--machine)",
            )


def read_capture(path: Path) -> Capture:
    """Return the capture in a file; raises BadInputError for what is none."""
    try:
        capture = msgspec.json.decode(path.read_bytes(), type=Capture)
        _ = capture.profiles  # whether its nodes can be read
        return capture
    except OSError as error:
        raise BadInputError(
            f"cannot read {path}: {error.strerror}",
            "give a capture.json, as tftune predict WORKLOAD --out FOLDER writes it",
        ) from error
    except (ValueError, LookupError, TypeError, ArithmeticError) as error:  # msgspec's are ValueErrors
        raise BadInputError(
            f"{path} is no capture of a profile: {error}", "expected capture.json, as tftune predict --out writes it"
        ) from error


def cached_captures() -> list[Capture]:
    """Return all captures of the cache that can be read, but quick ones, the newest last."""
    captures = []
    for path in sorted((cache_dir() / _FOLDER).glob("*.json"), key=lambda path: path.stat().st_mtime):
        with contextlib.suppress(BadInputError):
            captures.append(read_capture(path))
    return [each for each in captures if not each.is_quick]


def write_capture(capture: Capture, path: Path) -> None:
    """Write a capture, whole or not at all."""
    write_whole(path, capture_text(capture).encode())


def capture_text(capture: Capture) -> str:
    """Return a capture as its file has it."""
    return msgspec.json.encode(capture).decode()


def captured(job: Job, batch_sizes: Sequence[int], *, wait: bool, new: bool, events: ProfileEvents) -> Capture:
    """Return the capture of a job: the one of the cache, or a new one.

    Raises BadInputError for a workload that has no operators to look at.
    """
    if not new and (capture := cached_capture(job, batch_sizes, notify=events.notice)) is not None:
        return capture
    with machine_lock(wait=wait, on_wait=events.waiting):
        return new_capture(job, batch_sizes, events=events)


def cached_capture(
    job: Job, batch_sizes: Sequence[int], *, is_quick: bool = False, notify: Callable[[str], None]
) -> Capture | None:
    """Return the capture of a job that the cache has, None where it has none that can be read."""
    path = _path(job, batch_sizes, is_quick=is_quick)
    if not path.exists():
        return None
    try:
        return read_capture(path)
    except BadInputError:
        notify(f"{path.name} of the cache cannot be read: it is made anew")
        return None


def new_capture(
    job: Job,
    batch_sizes: Sequence[int],
    *,
    limit_s: float | None = None,
    events: ProfileEvents,
) -> Capture:
    """Profile a job, which takes about a minute on few CPUs, and keep what it tells in the cache.

    No more threads are tried after `limit_s`, if that is given; a profile that it ends before all threads were tried is
    not kept. Where not all batch sizes run, those above the job's own are left out, and then all but that. The lock of
    the machine has to be held. Raises BadInputError for a workload that has no operators to look at.
    """
    traced = _trace(job, batch_sizes, limit_s=limit_s, events=events)
    capture = _capture_of(job, traced, events)
    largest = traced[max(traced)]
    is_cut = is_worth_more(largest) and largest[-1].threads < max(thread_counts(job.machine.usable_cpus))
    if limit_s is None or not is_cut:
        write_capture(capture, _path(job, batch_sizes))
        _path(job, batch_sizes, is_quick=True).unlink(missing_ok=True)
    return capture


def quick_capture(
    job: Job,
    batch_sizes: Sequence[int],
    *,
    launcher: FreshLauncher | ForkLauncher,
    limit_s: float | None,
    events: ProfileEvents,
) -> Capture:
    """Profile a job quickly, at those of the batch sizes that are not above its own; see `trace_quickly`.

    The cache keeps it until a thorough one takes its place.
    """
    fewer = [size for size in batch_sizes if size <= job.space.reference.batch_size]
    traced = trace_quickly(job, fewer, launcher=launcher, limit_s=limit_s, events=events)
    capture = msgspec.structs.replace(_capture_of(job, traced, events), is_quick=True)
    write_capture(capture, _path(job, batch_sizes, is_quick=True))
    return capture


def _capture_of(job: Job, traced: dict[int, list[Traced]], events: ProfileEvents) -> Capture:
    tell_outputs(job.seen_outputs, job.seen.not_finite, events.notice)
    subject = job.subject
    return Capture(
        machine=subject.machine,
        runtime=subject.runtime,
        workload=subject.workload,
        traced=traced,
        features=job.features(),
        environment=job.environment,
        pinned=job.seen.pinned,
    )


def _trace(
    job: Job, batch_sizes: Sequence[int], *, limit_s: float | None, events: ProfileEvents
) -> dict[int, list[Traced]]:
    """Return what processes tell at as many of the batch sizes as run; raises BadInputError where none does."""
    own = job.space.reference.batch_size
    fewer = [size for size in batch_sizes if size <= own] if max(batch_sizes) > own else [own]
    try:
        return trace(job, batch_sizes, limit_s=limit_s, events=events)
    except BadInputError as error:
        if len(batch_sizes) == 1:
            raise
        events.notice(f"{error.message}: profiling at batch size {', '.join(map(str, fewer))} alone")
    return _trace(job, fewer, limit_s=limit_s, events=events)


def _path(job: Job, batch_sizes: Sequence[int], *, is_quick: bool = False) -> Path:
    subject = job.subject
    key = [_FORMAT, subject.machine.id, subject.runtime["id"], subject.workload.fingerprint, job.environment]
    key += made_otherwise(subject.workload.fed)
    name = f"{file_stem(job.workload.name)}-{digest([*key, *batch_sizes])}"
    return cache_dir() / _FOLDER / f"{name}{'-quick' if is_quick else ''}.json"
