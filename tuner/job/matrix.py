"""The matrix of a storage: its newest study of each model on each machine type, and what has changed since.

No study is described here, as that takes time: it is worth it only for those in a cell.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from tuner.errors import BadInputError, DamagedStudyError
from tuner.job.parsed import find_workload
from tuner.job.suite import CaseKey, build_line, changes, is_usual, key_of
from tuner.machine.host import Machine
from tuner.quantity import plural
from tuner.study.attributes import MEASURED, Attributes
from tuner.study.record import Record
from tuner.study.storage import attributes_in, first_search, hosts_in, load_record, open_storage, storage_errors
from tuner.workload.spec import WorkloadSpec


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Row:
    """A model as it was measured: a workload in a mode, with its other options as they were typed."""

    workload: str
    mode: str
    framework: str
    """Its title."""
    options: str
    batch_sizes: tuple[int, ...]
    """Those that were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineType:
    """What a setting holds for: a kind of host, its usable CPUs, its CPU limit and a device."""

    host: str
    affinity: str
    quota_us: int | None
    device: str
    machine: Machine = field(compare=False)
    """One of these."""
    facts: Mapping[str, Any] = field(compare=False)
    """The facts that the device of one reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The newest study of a model on a machine type."""

    record: Record
    stored: Attributes
    build: str
    """In a line."""
    nodes: frozenset[str]
    """The names of the hosts that have run its trials, as far as they are known: checks do not name theirs."""
    stale: tuple[str, ...]
    """What has changed since, in words; a study of which nothing has is current."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The newest studies of a storage, and in lines what they leave open."""

    rows: list[Row]
    columns: list[MachineType]
    cells: dict[tuple[Row, MachineType], Cell]
    notes: list[str]
    unreadable: dict[str, list[str]]
    """The names of studies that cannot be read, by reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A study of a storage, with its key."""

    stored: Attributes
    key: CaseKey
    nodes: frozenset[str]

    @property
    def device(self) -> str:
        return str(self.stored.subject.device["name"])

    @property
    def build_place(self) -> tuple[str, ...]:
        """Return where a newer build takes the place of this one's: builds of another thread pool stand beside it."""
        subject = self.stored.subject
        pool = ""
        with contextlib.suppress(NotImplementedError):
            pool = subject.framework.pool(subject.runtime)
        return self.key.host, self.device, subject.framework.name, pool


@storage_errors()
def read_matrix(url: str) -> Matrix:
    """Return the matrix of a storage; raises BadInputError if it has no study that can be shown."""
    storage = open_storage(url, create=False)
    if storage is None:
        raise BadInputError(f"no studies in {url}", f"start with: {first_search(url)}")
    attributes, unreadable = attributes_in(storage)
    nodes = hosts_in(storage)
    known, newest = list[_Known](), dict[tuple[Row, MachineType], _Known]()
    left_out: Counter[str] = Counter()
    for name, stored in sorted(attributes.items(), key=lambda item: item[1].touched):
        try:
            study = _Known(stored=stored, key=key_of(stored), nodes=nodes.get(name, frozenset()))
            reason = _why_left_out(stored)
            place = _row_of(stored), _type_of(study)
            _question(stored)
        except (DamagedStudyError, KeyError) as error:  # a device may lack any fact
            part = error.part if isinstance(error, DamagedStudyError) else str(error)
            unreadable.setdefault(f"damaged: its {part} cannot be read", []).append(name)
            continue
        if stored.origin == MEASURED:
            known.append(study)
        if reason is None:
            newest[place] = study
        else:
            left_out[reason] += 1
    omitted = ", ".join(f"{n} {reason}" for reason, n in sorted(left_out.items()))
    if not newest:
        raise BadInputError(
            f"no study in {url} can be shown" + (f": {omitted}" if omitted else ""), f"start with: {first_search(url)}"
        )
    fingerprints = _fingerprints_here([each.stored for each in newest.values()])
    now = _Now.of(known, fingerprints)
    cells = {
        place: Cell(
            record=load_record(storage, study.stored.study),
            stored=study.stored,
            build=build_line(study.stored),
            nodes=study.nodes,
            stale=now.changes(study),
        )
        for place, study in newest.items()
    }
    rows, columns = {row for row, _ in cells}, {column for _, column in cells}
    unresolved = sorted({row.workload for (row, _), each in newest.items() if now.fingerprint(each.stored) is None})
    n_placeless = sum(not each.nodes for each in newest.values())
    notes = [f"left out: {omitted}"] if omitted else []
    if unresolved:
        notes.append(
            f"a change of these models would go unnoticed, as this machine does not have them: {', '.join(unresolved)}"
        )
    if n_placeless:
        n = plural(n_placeless, "study does", "studies do")
        notes.append(f"{n} not name a host, so a changed machine would go unnoticed")
    return Matrix(
        rows=sorted(rows),
        columns=sorted(columns, key=lambda each: (each.host, each.device, each.affinity, each.quota_us or 0)),
        cells=cells,
        notes=notes,
        unreadable=unreadable,
    )


def _why_left_out(stored: Attributes) -> str | None:
    """Return why a study is not shown, None if it is."""
    if stored.origin != MEASURED:
        return "not measured"
    if stored.planned:
        return "planned"
    if not is_usual(stored):
        return "with another --objective, a limit, --set or --numerics"
    return "without finals" if stored.raw.get("finals") is None else None


def _row_of(stored: Attributes) -> Row:
    subject, spec, usual = stored.subject, stored.spec, WorkloadSpec()
    workload = subject.workload
    others = replace(
        spec, words=(), name=None, framework=None, device=usual.device, mode=usual.mode, execution=workload.execution
    )
    is_command = spec.metric_regex is not None or len(spec.words) > 1
    return Row(
        workload=workload.name,
        mode=workload.mode,
        framework=subject.framework.title,
        options="" if is_command else others.command_line,
        batch_sizes=tuple(stored.batch_sizes),
    )


def _type_of(study: _Known) -> MachineType:
    key, subject = study.key, study.stored.subject
    return MachineType(
        host=key.host,
        affinity=key.affinity,
        quota_us=key.quota_us,
        device=key.device,
        machine=subject.machine,
        facts=subject.device,
    )


# ---- what holds now -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Now:
    """The present state, from a storage and this machine."""

    builds: dict[tuple[str, ...], _Known]
    """The study that was measured last, by where a build takes the place of another."""
    machines: dict[tuple[str, str], CaseKey]
    """The key of the study that a host has measured last on a device."""
    fingerprints: dict[tuple[str, ...], str | None]

    @classmethod
    def of(cls, known: list[_Known], fingerprints: dict[tuple[str, ...], str | None]) -> _Now:
        """Return what the studies report; the oldest comes first."""
        return cls(
            builds={each.build_place: each for each in known},
            machines={(node, each.device): each.key for each in known for node in each.nodes},
            fingerprints=fingerprints,
        )

    def fingerprint(self, stored: Attributes) -> str | None:
        """Return the fingerprint of a study's workload here, None if that is not found."""
        return self.fingerprints[_question(stored)]

    def changes(self, study: _Known) -> tuple[str, ...]:
        """Return what has changed since a study, in words.

        The machine has if all its hosts have since measured as other machines, and the build if a study with another
        one was the last on the machine type.
        """
        key, latest = study.key, self.builds[study.build_place]
        machines = [self.machines[node, study.device] for node in sorted(study.nodes)]
        is_there = not machines or any((each.host, each.device) == (key.host, key.device) for each in machines)
        now = structs.replace(
            key,
            host=key.host if is_there else machines[0].host,
            device=key.device if is_there else machines[0].device,
            build=latest.key.build,
            fingerprint=self.fingerprint(study.stored) or key.fingerprint,
        )
        return changes(key, now, build_then=build_line(study.stored), build_now=build_line(latest.stored))


def _question(stored: Attributes) -> tuple[str, ...]:
    """Return what a fingerprint is looked up by."""
    subject, spec = stored.subject, stored.spec
    return subject.framework.name, subject.workload.name, subject.workload.mode, str(stored.folder), spec.command_line


def _fingerprints_here(studies: list[Attributes]) -> dict[tuple[str, ...], str | None]:
    """Return the fingerprint of each study's workload as it is on this machine, None of those that are not found."""
    by_question = {_question(stored): stored for stored in studies}
    return {question: _fingerprint_here(stored) for question, stored in by_question.items()}


def _fingerprint_here(stored: Attributes) -> str | None:
    subject, spec = stored.subject, stored.spec
    if not spec.words:  # an earlier study
        spec = WorkloadSpec(words=(subject.workload.name,), mode=subject.workload.mode)
    folder = stored.folder if os.path.isdir(stored.folder) else "."  # noqa: PTH112  # pathlib's may raise
    try:
        with contextlib.chdir(folder):
            return find_workload(replace(spec, framework=subject.framework.name))[1].fingerprint
    except (BadInputError, OSError, ValueError):  # a path of another machine
        return None
