"""Participants: entrants whose job is prepared, with what is known of each so far, and their settings as contenders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tuner.identity import digest
from tuner.job.frameworks.entrant import Entrant
from tuner.job.job import Job
from tuner.measure.cell import Cell
from tuner.measure.finals import Contender
from tuner.report.lineup import Kind, Tuned
from tuner.space.setting import Setting
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a participant takes no part, and what to do about it."""

    status: Status
    message: str
    hint: str = ""


@dataclass(slots=True, kw_only=True)
class Participant:
    """An entrant with its job; one that has a failure has dropped out."""

    entrant: Entrant
    job: Job
    launcher: FreshLauncher | None = None
    starts: dict[Kind, Cell] = field(default_factory=dict)
    """What the first start of each of its settings told."""
    start_s: float = 5.0
    """How long a start takes until it is warm; a guess until it is known."""
    failure: Failure | None = None
    tuned: Tuned | None = None
    _key: str | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        """Return its name."""
        return self.entrant.name

    @property
    def key(self) -> str:
        """Return a name that changes with whatever of it may change timings."""
        if self._key is None:  # a space has many points, and the key is asked for often
            parts: list[object] = [self.job.build.id, self.job.space.fingerprint, self.entrant.pins]
            parts += [each for each in (self.job.environment, self.job.feed) if each]
            parts += [self.default.to_dict()] if self.entrant.pins else []
            self._key = f"{self.name}/{digest(parts)}"
        return self._key

    @property
    def precision(self) -> str | None:
        """Return what its default computes in; None where that is not known."""
        return self.starts[Kind.DEFAULT].precision if Kind.DEFAULT in self.starts else None

    def learn(self, kind: Kind, start: Cell) -> None:
        """Take what a start told: a default that computes something else drops out, a tuned setting is given up."""
        self.starts[kind] = start
        if start.status is Status.OK:
            return
        if kind is Kind.DEFAULT:
            self.failure = Failure(status=start.status, message=start.message)
        elif self.tuned is not None:
            self.tuned = replace(
                self.tuned, setting=None, failure=f"its best setting is {start.status}: {start.message}"
            )

    @property
    def default(self) -> Setting:
        """Return its default: the framework's own, in the precision that the entrant is for."""
        space = self.job.space
        pinned = {pin.partition("=")[0] for pin in self.entrant.pins}
        return space.reference.with_values(**{name: space.pins[name] for name in pinned})

    def settings(self) -> dict[Kind, Setting]:
        """Return its settings; the tuned one only where it is another than the default.

        A search that keeps the default names the framework's own, whatever the precision.
        """
        default, framework_default = self.default, self.job.space.reference
        if self.tuned is None or self.tuned.setting is None:
            return {Kind.DEFAULT: default}
        tuned = Setting.of(self.tuned.setting)
        return (
            {Kind.DEFAULT: default}
            if tuned in (default, framework_default)
            else {Kind.DEFAULT: default, Kind.TUNED: tuned}
        )

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
