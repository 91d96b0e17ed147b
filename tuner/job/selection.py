"""Which studies of a storage are asked for: those since a date, of a machine, of some workloads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tuner.errors import BadInputError, unknown_name
from tuner.job.parsed import words
from tuner.machine.host import Machine, detect, host_of
from tuner.study.attributes import Attributes
from tuner.study.subject import Subject

THIS_MACHINE = "here"
_AGO = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The filters of `list`, `rules` and `export` as they were typed; None of what was not."""

    since: str | None = None
    machines: str | None = None
    workloads: str | None = None

    @property
    def filters(self) -> dict[str, str]:
        """Return the filters that were asked for."""
        options = {"since": self.since, "machines": self.machines, "workloads": self.workloads}
        return {name: text for name, text in options.items() if text is not None}

    def check(self) -> None:
        """Raise BadInputError for a filter that is none, whatever the studies are."""
        for name, text in self.filters.items():
            if not words(text):
                raise BadInputError(f"--{name} is empty", "omit it, or give a value")
        if self.since is not None:
            _since(self.since)

    def exclusion_reason(self, subjects: Iterable[Subject]) -> Callable[[Attributes], str | None]:
        """Return what says why a study is not asked for, None if it is; `subjects` are those of all studies.

        Raises BadInputError for a filter that is none, and for names that no study has.
        """
        self.check()
        since = None if self.since is None else _since(self.since)
        machine = host_of(detect()) if self.machines == THIS_MACHINE else self.machines
        names = words(self.workloads or "")
        stored_subjects = list(subjects) if self.filters else []
        machines = [each.machine for each in stored_subjects]
        if machine is not None and not any(_is_machine(each, machine) for each in machines):
            known_ids = {each.id for each in machines} | {host_of(each) for each in machines}
            raise unknown_name("machine", machine, known_ids)
        workloads = {each.workload.name for each in stored_subjects}
        for name in names:
            if name not in workloads:
                raise unknown_name("workload", name, workloads)

        def reason(stored: Attributes) -> str | None:
            subject = stored.subject
            if machine is not None and not _is_machine(subject.machine, machine):
                return "measured on another machine"
            if names and subject.workload.name not in names:
                return "another workload"
            if since is None:
                return None
            began = time_of(stored.created)
            if began is None:
                return "its start time is unknown"
            return f"started before {since:%Y-%m-%d}" if began < since else None

        return reason


def time_of(stored: str | None) -> datetime | None:
    """Return a time of day as a study has it, None where it does not say."""
    try:
        began = datetime.fromisoformat(stored or "")
    except ValueError:
        return None
    return began if began.tzinfo else began.replace(tzinfo=UTC)


def _is_machine(machine: Machine, machine_id: str) -> bool:
    """Return whether a study's machine is meant: by the beginning of its shape's id, or as a host."""
    return machine.id.startswith(machine_id) or host_of(machine) == machine_id


def _since(text: str) -> datetime:
    """Return the time that a date (its midnight, UTC), a date with a time, or `30d` means; raises BadInputError."""
    now, expected = datetime.now(UTC), "expected a date such as 2026-11-01, or days such as 30d"
    ago = re.fullmatch(r"([\d.]+) *(h|hours?|d|days?|w|weeks?)", text.strip())
    try:
        since = time_of(text) if ago is None else now - float(ago[1]) * _AGO[ago[2][0]]
    except (ValueError, OverflowError):
        since = None
    if since is None:
        raise BadInputError(f"--since is '{text}'", expected)
    if since >= now:
        raise BadInputError(f"--since is '{text}', which is not in the past", expected)
    return since
