"""Captures: profiles of a workload at several batch sizes as a file, for predictions here and elsewhere."""

from __future__ import annotations

import contextlib
import lzma
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec

from tuner.errors import BadInputError
from tuner.frameworks import registry
from tuner.frameworks.framework import Build
from tuner.identity import digest
from tuner.job import comparable
from tuner.job.events import ProfileEvents
from tuner.job.feed import tell_outputs
from tuner.job.job import Job, elsewhere
from tuner.job.parsed import ParsedRequest
from tuner.job.profile import thread_counts, trace, trace_quickly
from tuner.machine.busy import MOST_LOSS, busy_loss
from tuner.machine.host import Machine, contradiction
from tuner.machine.locks import machine_lock
from tuner.machine.waking import LONGEST_WAKE_S, wake_s
from tuner.model.graph import Features
from tuner.model.profile import Profile, Traced, is_worth_more, profile
from tuner.paths import cache_dir, file_stem, shipped_profiles, write_whole
from tuner.space.term import OPENMP
from tuner.study.subject import LIBRARY_FOLDERS, BuildFacts, Document, WorkloadFacts, workload_facts
from tuner.trial.forking import ForkLauncher
from tuner.trial.fresh import FreshLauncher
from tuner.workload.feed import made_otherwise
from tuner.workload.pyfile import TRAINING

_FOLDER = "profiles"
_FORMAT = 7  # of what is measured, and how
_QUICK = "-quick"
_XZ = b"\xfd7zXZ\x00"  # how every file of that format begins
_IN_PROFILE = "in the profile"
_AGAIN = "profile it again: leave --from out"
_EXPECTED = "expected capture.json, as tftune predict WORKLOAD --out FOLDER writes it, or that file as .xz"


class Capture(Document, frozen=True, kw_only=True, dict=True):
    """What processes told at each batch size, by how many threads they had, and of what."""

    machine: Machine
    runtime: BuildFacts
    workload: WorkloadFacts
    traced: dict[int, list[Traced]]
    features: Features | None = None
    """What is known of the graph; None in captures that earlier versions made."""
    environment: dict[str, str] | None = None
    """The inherited variables that change timings; None in captures that earlier versions made."""
    wake_s: Annotated[float, msgspec.Meta(gt=0, lt=LONGEST_WAKE_S)] | None = None
    """How long it took (s) to wake a thread on another core; None where that is not known."""
    busy_loss: Annotated[float, msgspec.Meta(ge=0, le=MOST_LOSS)] | None = None
    """How much longer a core takes while all are at work, as a share; None where that is not known."""
    pinned: str = ""
    """How the workload has changed the CPUs of the processes that told, in words; empty where it has not."""
    is_quick: bool = False
    """Whether it is a search's own, of a few steps with one thread and with all."""
    created: str | None = None
    """The date on which it was made (UTC); None in captures that earlier versions made."""

    def __post_init__(self) -> None:
        """Raise ValueError for what no prediction can be made from."""
        if not isinstance(self.runtime.get("id"), str) or not isinstance(self.runtime.get("framework", ""), str):
            raise ValueError("its build has no id")
        if (impossible := contradiction(self.machine)) is not None:
            raise ValueError(f"its machine cannot be: {impossible}")
        if not self.traced or any(not each or each[0].threads != 1 for each in self.traced.values()):
            raise ValueError("it has no process with one thread")
        if min(self.traced) < 1:
            raise ValueError(f"it is of batches of {min(self.traced)} items")
        told = [each for rows in self.traced.values() for each in rows]
        times = [time for each in told for time in (each.step_s, each.plain_s, each.traced_s)]
        times += [rate for each in told for rate in (each.roof.flops, each.roof.bytes_s)]
        if not all(0 < time < math.inf for time in times):
            raise ValueError("a time or a rate in it is not above 0")
        if any(rows != sorted(rows, key=lambda each: each.threads) for rows in self.traced.values()):
            raise ValueError("its processes are not in the order of their threads")

    @cached_property
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

    @property
    def build(self) -> Build:
        """Return the build that it was made with; raises BadInputError where its facts are none."""
        try:
            return registry.for_build(self.runtime).stored_build(self.runtime)
        except (ValueError, TypeError) as error:
            raise BadInputError(
                f"the profile is of a build that cannot be read: {error}", "profile the workload again"
            ) from error

    def check(self, asked: ParsedRequest) -> None:
        """Raise BadInputError where it is of another workload than is asked for, or of another framework."""
        if self.workload.fingerprint != asked.workload.fingerprint:
            differs = comparable.workload_difference(self.workload, workload_facts(asked.workload))
            raise BadInputError(f"the profile is of another workload: {differs}", _AGAIN)
        if (own := registry.for_build(self.runtime)).name != asked.framework.name:
            raise BadInputError(f"the profile is of {own.title}, and this is for {asked.framework.title}", _AGAIN)

    def differences(
        self, runtime: BuildFacts | None, environment: Mapping[str, str] | None, place: str
    ) -> tuple[str, ...]:
        """Return in what its build and variables differ from those of a `place`, as far as these are known.

        What no operator takes longer by is no difference.
        """
        differ = [] if runtime is None else comparable.build_differences(self.runtime, runtime, _IN_PROFILE, place)
        if self.environment is not None and environment is not None:
            known, own = (
                {name: value for name, value in each.items() if name not in LIBRARY_FOLDERS}
                for each in (self.environment, environment)
            )
            differ += comparable.differences(known, own, _IN_PROFILE, place)
        return tuple(differ)


def read_capture(path: Path) -> Capture:
    """Return the capture in a file, which may be packed by xz; raises BadInputError for what is none."""
    try:
        data = path.read_bytes()
        text = lzma.decompress(data) if data.startswith(_XZ) else data
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror}", _EXPECTED) from error
    except lzma.LZMAError as error:
        raise BadInputError(f"{path} is damaged: {error}", "copy it again") from error
    try:
        capture = msgspec.json.decode(text, type=Capture)
        _ = capture.profiles  # whether its nodes can be read
        return capture
    # msgspec's are ValueErrors.
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError) as error:
        raise BadInputError(f"{path} is no capture of a profile: {_reason(text) or error}", _EXPECTED) from error


def _reason(text: bytes) -> str:
    """Return what a document is that is no capture, as far as it says so itself."""
    try:
        document = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(document, dict):
        return ""
    if "predicted" in document:
        return "it is the prediction; the profile lies next to it"
    schema = document.get("schema", 1)
    return "" if schema == 1 else f"it is of another version of tftune (schema {schema!r:.20})"


def cached_captures() -> list[Capture]:
    """Return all captures of the cache that can be read, but quick ones, the newest last."""
    captures = []
    for path in sorted((cache_dir() / _FOLDER).glob("*.json"), key=lambda path: path.stat().st_mtime):
        with contextlib.suppress(BadInputError):
            captures.append(read_capture(path))
    return [each for each in captures if not each.is_quick]


def shipped_capture(asked: ParsedRequest) -> Capture | None:
    """Return the profile that is shipped of a workload, None where there is none of it as it is asked for."""
    mode = f"-{TRAINING}" if asked.workload.mode == TRAINING else ""
    path = shipped_profiles() / f"{asked.workload.path.stem}{mode}.json.xz"
    if not path.is_file():
        return None
    capture = read_capture(path)
    return capture if capture.workload.fingerprint == asked.workload.fingerprint else None


def capture_made_here(asked: ParsedRequest, sizes_of: Callable[[Job], Sequence[int]]) -> Capture | None:
    """Return the newest thorough capture of the cache that a request would be answered from, None if there is none.

    It may be of any build: no interpreter is asked. `sizes_of` are the batch sizes that a job is profiled at.
    """
    places = (cache_dir() / _FOLDER).glob(f"{file_stem(asked.workload.name)}-*.json")
    for path in sorted(places, key=lambda path: path.stat().st_mtime, reverse=True):
        with contextlib.suppress(BadInputError):
            capture = read_capture(path)
            job = elsewhere(asked, capture.build)
            if path == cache_path(job, sizes_of(job)):
                return capture
    return None


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
    path = cache_path(job, batch_sizes, is_quick=is_quick)
    if not path.exists():
        return None
    try:
        return read_capture(path)
    except BadInputError:
        notify(f"{path.name} of the cache cannot be read, and is made again")
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
        write_capture(capture, cache_path(job, batch_sizes))
        cache_path(job, batch_sizes, is_quick=True).unlink(missing_ok=True)
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
    write_capture(capture, cache_path(job, batch_sizes, is_quick=True))
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
        created=datetime.now(UTC).date().isoformat(),
        wake_s=wake_s(subject.machine),
        busy_loss=busy_loss(subject.machine),
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


def cache_path(job: Job, batch_sizes: Sequence[int], *, is_quick: bool = False) -> Path:
    """Return the file of the cache that holds what is told of a job at these batch sizes."""
    subject = job.subject
    key = [_FORMAT, subject.machine.id, subject.runtime["id"], subject.workload.fingerprint, job.environment]
    key += made_otherwise(subject.workload.fed)
    name = f"{file_stem(job.workload.name)}-{digest([*key, *batch_sizes])}"
    return cache_dir() / _FOLDER / f"{name}{_QUICK if is_quick else ''}.json"
