"""What the tasks tell of themselves while they run; whoever listens decides what people see of it.

Events come between measurements, and never while something is timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tuner.errors import TunerError
from tuner.job.job import Job
from tuner.model.graph import Features
from tuner.model.profile import Traced
from tuner.result.comparison import ComparisonResult
from tuner.space.setting import Setting
from tuner.stats.equivalence import Verdict
from tuner.study.events import Events
from tuner.study.record import Record


class TaskEvents(Protocol):
    """What every task that measures may tell."""

    def waiting(self, line: str) -> None:
        """Another measures on this machine, and is waited for; `line` says who."""

    def notice(self, line: str) -> None:
        """Something is known that people should read, such as what is not as it usually is; the task goes on."""

    def progress(self, line: str) -> None:
        """Something begins or is done, as it usually is."""


class ComparisonEvents(TaskEvents, Protocol):
    """What a comparison of two settings tells."""

    def looked(self, n_rounds: int, verdict: Verdict, left_s: float) -> None:
        """A round has ended: what those that count say so far, and the time that is left (s)."""


class NoiseEvents(TaskEvents, Protocol):
    """What is told while the noise of a machine is measured."""

    def prepared(self, job: Job) -> None:
        """The machine and the build are known."""


class ProfileEvents(TaskEvents, Protocol):
    """What a profile tells."""

    def began(self, threads: int) -> None:
        """A process of so many threads begins."""

    def ended(self, traced: Traced) -> None:
        """It has told what its operators take."""

    def repeats(self) -> None:
        """Steps are timed once more, in other processes."""


class SearchEvents(ComparisonEvents, ProfileEvents, Protocol):
    """What a search tells, the profile that it may begin with, and its further sessions, which are comparisons."""

    def prepared(self, job: Job) -> None:
        """The machine, the build, the knobs and the baselines are known."""

    def workload_described(self, job: Job, features: Features | None, run_s: float | None) -> None:
        """The workload is exported and its graph is known; `run_s` is how long one run of a command takes."""

    def study_started(self, record: Record, job: Job, hinted: Mapping[str, Setting]) -> Events:
        """The study is open, and these settings are tried early, by who hints at them. Return who listens to it."""

    def study_ended(self) -> None:
        """Nothing more comes from the study itself, however it ended."""

    def session_ended(self, result: ComparisonResult) -> None:
        """A further session has ended: what it says by itself."""

    def session_failed(self, number: int, error: TunerError) -> None:
        """A further session has failed."""
