"""Captures: profiles of a workload at several batch sizes as a file, for predictions here and elsewhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tuner.errors import BadInputError
from tuner.identity import digest
from tuner.job.job import Job
from tuner.job.profile import ProfileEvents, check_profiled, trace
from tuner.machine.host import Machine
from tuner.machine.locks import machine_lock
from tuner.model.profile import Profile, Traced, profile
from tuner.paths import cache_dir
from tuner.study.subject import BuildFacts, Document, WorkloadFacts

_FOLDER = "profiles"


class Capture(Document, frozen=True, kw_only=True):
    """What processes told at each batch size, by how many threads they had, and of what."""

    machine: Machine
    runtime: BuildFacts
    workload: WorkloadFacts
    traced: dict[int, list[Traced]]

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
        pairs = [("workload", self.workload.fingerprint, own.workload.fingerprint, self.workload.name)]
        pairs += [("build", str(self.runtime["id"]), str(own.runtime["id"]), str(self.runtime.get("tensorflow", "")))]
        if not is_elsewhere:
            pairs += [("machine", self.machine.id, own.machine.id, self.machine.cpu_model)]
        for what, captured, here, name in pairs:
            if captured != here:
                hint = "profile it again: leave --profile out"
                if what == "machine":
                    hint += ", or say of which machine you ask (--machine)"
                raise BadInputError(f"the profile is of another {what} ({name}, {captured})", hint)


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
    """Return the capture of a job: the one of the cache, or a new one, which takes about a minute.

    Raises BadInputError for a workload that has no operators to look at.
    """
    check_profiled(job)
    subject = job.subject
    key = [subject.machine.id, subject.runtime["id"], subject.workload.fingerprint, job.environment, *batch_sizes]
    path = cache_dir() / _FOLDER / f"{job.workload.name}-{digest(key)}.json"
    if path.exists() and not new:
        try:
            return read_capture(path)
        except BadInputError:
            events.notice(f"{path.name} of the cache cannot be read: it is made anew")
    with machine_lock(wait=wait, on_wait=events.waiting):
        traced = trace(job, batch_sizes, deadline_s=deadline_s, events=events)
    capture = Capture(machine=subject.machine, runtime=subject.runtime, workload=subject.workload, traced=traced)
    write_capture(capture, path)
    return capture
