"""Participants: entrants whose job is prepared, with what is known of each so far, and their settings as contenders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tuner.identity import digest
from tuner.job.frameworks.entrant import Entrant
from tuner.job.job import Job
from tuner.measure.finals import Contender
from tuner.report.lineup import Tuned
from tuner.space.setting import Setting
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import Status


class Kind(StrEnum):
    """Which setting of a framework."""

    DEFAULT = "default"
    TUNED = "tuned"


@dataclass(slots=True, kw_only=True)
class Participant:
    """An entrant with its job; one whose status is not ok has dropped out, and `message` says why."""

    entrant: Entrant
    job: Job
    launcher: FreshLauncher | None = None
    precision: str | None = None
    deviation: float | None = None
    start_s: float = 5.0
    """How long a start takes until it is warm; a guess until it is known."""
    status: Status = Status.OK
    message: str = ""
    tuned: Tuned | None = None

    @property
    def name(self) -> str:
        """Return its name."""
        return self.entrant.name

    @property
    def key(self) -> str:
        """Return a name that changes with whatever of it may change timings."""
        return f"{self.name}/{digest([self.job.build.id, self.job.space.fingerprint, self.entrant.pins])}"

    def drop_out(self, status: Status, message: str) -> None:
        """Take no part any more."""
        self.status, self.message = status, message

    def settings(self) -> dict[Kind, Setting]:
        """Return its settings; the tuned one only where it is another than the default."""
        reference = self.job.space.reference
        if self.tuned is None or self.tuned.setting is None or Setting.of(self.tuned.setting) == reference:
            return {Kind.DEFAULT: reference}
        return {Kind.DEFAULT: reference, Kind.TUNED: Setting.of(self.tuned.setting)}

    def contender(self, kind: Kind, batch_size: int) -> Contender:
        """Return one of its settings as a contender, at a batch size."""
        setting = self.settings()[kind].with_values(batch_size=batch_size)
        return Contender(
            names=(f"{self.name}/{kind}",),
            setting=setting,
            deployment=self.job.space.deployment(setting),
            launcher=self.launcher,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A setting of a participant: what a cell is measured of."""

    participant: Participant
    kind: Kind

    @property
    def name(self) -> str:
        """Return its name among the contenders."""
        return f"{self.participant.name}/{self.kind}"

    @property
    def text(self) -> str:
        """Return its name for people."""
        return f"{self.participant.name}, {self.kind}"

    def contender(self, batch_size: int) -> Contender:
        """Return it as a contender at a batch size."""
        return self.participant.contender(self.kind, batch_size)


def entries(participants: Iterable[Participant]) -> list[Entry]:
    """Return all settings of participants, in their order, the default of each first."""
    return [
        Entry(participant=participant, kind=kind) for participant in participants for kind in participant.settings()
    ]
