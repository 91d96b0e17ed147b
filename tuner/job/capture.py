"""Captures: profiles of a workload at several batch sizes as a file, for predictions here and elsewhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tuner.errors import BadInputError
from tuner.identity import digest
from tuner.job.job import Job
from tuner.job.profile import ProfileEvents, trace
from tuner.machine.host import Machine
from tuner.machine.locks import machine_lock
from tuner.model.profile import Profile, Traced, profile
from tuner.paths import cache_dir
from tuner.study.subject import BuildFacts, Document, WorkloadFacts

_FOLDER = "profiles"
_FORMAT = 2  # of what is measured, and how


class Capture(Document, frozen=True, kw_only=True):
    """What processes told at each batch size, by how many threads they had, and of what."""

    machine: Machine
    runtime: BuildFacts
    workload: WorkloadFacts
    traced: dict[int, list[Traced]]

    def __post_init__(self) -> None:
        """Raise ValueError for what no prediction can be made from."""
        if not isinstance(self.runtime.get("id"), str):
            raise ValueError("its build has no id")
        if not self.traced or any(not each or each[0].threads != 1 for each in self.traced.values()):
            raise ValueError("it has no process with one thread")

    @property
    def profiles(self) -> dict[int, Profile]:
        """Return the profile at each batch size."""
        return {batch_size: profile(traced) for batch_size, traced in self.traced.items()}

    @property
    def bytes_s(self) -> dict[int, float]:
        """Return what threads move from and to memory (bytes/s), by how many there were."""
        return {each.threads: each.roof.bytes_s for each in self.traced[max(self.traced)]}

    @property
    def has_teams(self) -> bool:
        """Return whether oneDNN ran on OpenMP."""
        return self.runtime.get("onednn_runtime") == "openmp"

    def check(self, job: Job, *, is_elsewhere: bool) -> None:
        """Raise BadInputError where it is of another workload, build or machine than a job.

        It may be of another machine where predictions are for one that is described.
        """
        own = job.subject
        again = "profile it again: leave --profile out"
        if self.workload.fingerprint != own.workload.fingerprint:
            raise BadInputError(
                f"the profile is of another workload: {self.workload.name}, {self.workload.mode}", again
            )
        if self.runtime["id"] != own.runtime["id"]:
            raise BadInputError(f"the profile is of another build: {_difference(self.runtime, own.runtime)}", again)
        if self.machine.id != own.machine.id and not is_elsewhere:
            raise BadInputError(
                f"the profile is of another machine: {self.machine.cpu_model}, {self.machine.affinity}",
                f"{again}, or say which machine you ask about (--machine)",
            )


def _difference(captured: BuildFacts, here: BuildFacts) -> str:
    """Return the first fact in which two builds differ."""
    names = [name for name in captured if name != "id" and captured[name] != here.get(name)]
    return f"{names[0]} is {captured[names[0]]} there, and {here.get(names[0])} here" if names else "its facts differ"


def read_capture(path: Path) -> Capture:
    """Return the capture in a file; raises BadInputError for what is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Capture)
    except OSError as error:
        raise BadInputError(
            f"cannot read {path}: {error.strerror}", "give the file that tftune profile wrote"
        ) from error
    except (msgspec.ValidationError, msgspec.DecodeError, ValueError) as error:
        raise BadInputError(
            f"{path} is no capture of a profile: {error}", "expected capture.json, as tftune predict --out writes it"
        ) from error


def write_capture(capture: Capture, path: Path) -> None:
    """Write a capture, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(msgspec.json.encode(capture))
    part.replace(path)


def captured(
    job: Job, batch_sizes: Sequence[int], *, deadline_s: float, wait: bool, new: bool, events: ProfileEvents
) -> Capture:
    """Return the capture of a job: the one of the cache, or a new one, which takes about a minute on few CPUs.

    Where the smaller batch sizes do not run, it is of the largest alone. Raises BadInputError for a workload that has
    no operators to look at.
    """
    subject = job.subject
    key = [_FORMAT, subject.machine.id, subject.runtime["id"], subject.workload.fingerprint, job.environment]
    key += batch_sizes
    path = cache_dir() / _FOLDER / f"{job.workload.name}-{digest(key)}.json"
    if path.exists() and not new:
        try:
            return read_capture(path)
        except BadInputError:
            events.notice(f"{path.name} of the cache cannot be read: it is made anew")
    with machine_lock(wait=wait, on_wait=events.waiting):
        try:
            traced = trace(job, batch_sizes, deadline_s=deadline_s, events=events)
        except BadInputError as error:
            if len(batch_sizes) == 1:
                raise
            events.notice(f"{error.message}: profiling at batch size {max(batch_sizes)} alone")
            traced = trace(job, [max(batch_sizes)], deadline_s=deadline_s, events=events)
    capture = Capture(machine=subject.machine, runtime=subject.runtime, workload=subject.workload, traced=traced)
    write_capture(capture, path)
    return capture
