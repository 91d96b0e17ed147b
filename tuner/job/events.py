"""What the tasks tell of themselves while they run; whoever listens decides what people see of it.

Events come between measurements, and never while something is timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from tuner.errors import TunerError
from tuner.job.job import Job
from tuner.measure.measurement import Measurement
from tuner.model.graph import Features
from tuner.model.overhead import Row
from tuner.model.profile import Traced
from tuner.result.comparison import ComparisonResult
from tuner.space.setting import Setting
from tuner.stats.equivalence import Verdict
from tuner.stats.estimate import Estimate
from tuner.study.events import Events
from tuner.study.record import Record
from tuner.workload.workload import Execution

if TYPE_CHECKING:
    from tuner.job.frameworks.result import ComparisonData


class TaskEvents(Protocol):
    """What every task that measures may tell."""

    def waiting(self, line: str) -> None:
        """Another measures on this machine, and is waited for; `line` says who."""

    def notice(self, line: str) -> None:
        """Something is not as it usually is, and the task goes on."""


class ComparisonEvents(TaskEvents, Protocol):
    """What a comparison of two settings tells."""

    def looked(self, n_rounds: int, verdict: Verdict, left_s: float) -> None:
        """A round has ended: what those that count say so far, and the time that is left (s)."""


class LoadEvents(TaskEvents, Protocol):
    """What is told while settings are measured under load."""

    def loaded(self, n_rounds: int, saturation: Mapping[str, float], left_s: float) -> None:
        """A round has ended: the rate (1/s) that each setting saturates at, and the time that is left (s)."""


class NoiseEvents(TaskEvents, Protocol):
    """What is told while the noise of a machine is measured."""

    def prepared(self, job: Job) -> None:
        """The machine and the build are known."""

    def pair_ended(self, number: int, ratio: Estimate) -> None:
        """A pair of new processes was measured."""


class PriorEvents(Protocol):
    """What is told while the model is made."""

    def notice(self, line: str) -> None:
        """Something is not as it usually is, and the task goes on."""

    def profiling(self, threads: int) -> None:
        """The operators are profiled in a process of so many threads."""


class SearchEvents(ComparisonEvents, LoadEvents, PriorEvents, Protocol):
    """What a search tells, and its further sessions, which are comparisons."""

    def prepared(self, job: Job) -> None:
        """The machine, the build, the knobs and the baselines are known."""

    def workload_described(self, job: Job, features: Features | None, run_s: float | None) -> None:
        """The workload is exported and its graph is known; `run_s` is how long one run of a command takes."""

    def study_started(self, record: Record, job: Job, hinted: Mapping[str, Setting]) -> Events:
        """The study is open, and these settings are tried early, by who hints at them. Return who listens to it."""

    def study_ended(self) -> None:
        """Nothing more comes from the study itself, however it ended."""

    def interrupted(self) -> None:
        """The user has ended the search."""

    def nothing_to_repeat(self) -> None:
        """The default is recommended, so that no further session has anything to measure."""

    def session_waits(self, number: int, n_sessions: int, study: str, left_s: float) -> None:
        """A further session of a study begins in so many seconds."""

    def session_ended(self, result: ComparisonResult) -> None:
        """A further session has ended: what it says by itself."""

    def session_failed(self, number: int, error: TunerError) -> None:
        """A further session has failed."""


class FrameworksEvents(TaskEvents, Protocol):
    """What a comparison of frameworks tells."""

    def began(self, what: str, left_s: float) -> None:
        """Something begins that takes a while; the time that is left (s)."""

    def ended(self, framework: str, outcome: str) -> None:
        """Something about a framework is known: its setting, or why it takes no part."""

    def looked(self, data: ComparisonData) -> None:
        """A round of the finals has ended."""

    def measured(self, measurement: Measurement) -> None:
        """A framework was measured at a batch size."""


class OverheadEvents(TaskEvents, Protocol):
    """What is told while overheads are measured."""

    def began(self, execution: Execution, batch_size: int, left_s: float) -> None:
        """An execution is measured at a batch size; so much time (s) is left for all."""

    def ended(self, row: Row) -> None:
        """It is known, or failed."""


class ProfileEvents(TaskEvents, Protocol):
    """What a profile tells."""

    def began(self, threads: int) -> None:
        """A process of so many threads begins."""

    def ended(self, traced: Traced) -> None:
        """It has told what its operators take."""

    def repeats(self) -> None:
        """Steps are timed once more, in other processes."""
