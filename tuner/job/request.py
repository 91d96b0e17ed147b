"""Requests: the options of each task as they were typed. Their defaults are those of the command line and of Python.

What they mean is in `tuner.job.parsed`. Loading this costs nothing, as the command line does it for each of its pages.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from tuner.frameworks.registry import DEFAULT
from tuner.paths import DEFAULT_STORAGE
from tuner.stats import MARGIN
from tuner.workload.spec import WorkloadSpec

LAUNCHERS = ("fork", "fresh")
KEEP, MAY_CHANGE = "keep", "may-change"
NUMERICS = (KEEP, MAY_CHANGE)
"""Whether a search may compute in another precision."""
TRIAL_TIMEOUT = "2m"
ALONE = "--one-process"
"""The option of a search of one process alone."""
COMPARED = "2m"
"""The time of two settings in turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """The options of a search; other tasks leave most of them as they are."""

    workload: WorkloadSpec
    trials: int | None = None
    time_budget: str | None = None
    seed: int = 0
    space: str | None = None
    """None for that of the device."""
    objective: str | None = None
    """None for throughput; a search then looks for the fastest setting at the default's latency, too."""
    batch_size: str | None = None
    pins: Sequence[str] = ()
    python: str | None = None
    storage: str = DEFAULT_STORAGE
    margin: float = MARGIN
    max_p99_ms: float | str | None = None
    max_memory: str | float | None = None
    max_power_w: float | str | None = None
    numerics: str = KEEP
    trial_timeout: str = TRIAL_TIMEOUT
    instances: bool = True
    predict: bool | None = None
    """Whether a model of the machine says where to begin; None: where that costs little."""
    planned: str = ""
    """The command of the suite whose designed settings are measured; empty for a search and its finals."""
    new: bool = False
    wait: bool = False
    launcher: str = "fork"

    @property
    def command(self) -> str:
        """Return the command of the search, without what is as usual, where it is kept, and whether it waits."""
        if self.planned:
            return self.planned
        usual = SearchRequest(workload=self.workload)
        memory = self.max_memory
        typed = {
            "--trials": self.trials,
            "--time-budget": self.time_budget,
            "--seed": self.seed or None,
            "--space": self.space,
            "--objective": self.objective,
            "--batch-size": self.batch_size,
            "--set": tuple(self.pins),
            "--python": self.python,
            "--margin": None if self.margin == usual.margin else f"{100 * self.margin:.12g}",
            "--max-p99": self.max_p99_ms,
            "--max-memory": f"{memory / 1024}K" if isinstance(memory, int | float) else memory,  # a number is of bytes
            "--max-power": self.max_power_w,
            "--numerics": None if self.numerics == usual.numerics else self.numerics,
            "--trial-timeout": None if self.trial_timeout == usual.trial_timeout else self.trial_timeout,
            ALONE: not self.instances,
            "--predict": self.predict is True,
            "--no-predict": self.predict is False,
            "--launcher": None if self.launcher == usual.launcher else self.launcher,
        }
        return f"tftune search {self.workload.with_options(typed)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest(SearchRequest):
    """The options of a comparison of two settings."""

    a: str
    b: str
    time_budget: str | None = COMPARED


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseRequest(SearchRequest):
    """The options of a measurement of the noise."""

    time_budget: str | None = "90s"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRequest:
    """The options of what measures the settings of a study again."""

    study: str = "last"
    time_budget: str = COMPARED
    python: str | None = None
    storage: str = DEFAULT_STORAGE
    trial_timeout: str | None = None
    """None for the study's own."""
    wait: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest(StudyRequest):
    """The options of a check of a study's answer: on one process, on several `instances`, or at the `same_latency`."""

    instances: bool | None = None
    """None for the first of the two that sets anything."""
    same_latency: bool = False
    spec: WorkloadSpec | None = None
    """How the workload is named on this node of a cluster; None for the study's own words."""
    margin: float | None = None
    """None for that of the study's own finals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest(StudyRequest):
    """The options of a measurement under load."""

    max_p99_ms: float | str | None = None
    """None for the study's own."""
    max_batch: int | None = None
    batch_wait_ms: float | str | None = None
    """If both are None, batches are those that carry most within the limit."""
    margin: float = MARGIN
    time_budget: str = "4m"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRequest:
    """The options of a question for how many copies of a setting carry a load."""

    study: str = "last"
    rate: float | str
    max_p99_ms: float | str
    headroom: float | str = "20%"
    costs: Sequence[str] = ()
    """Of a copy: MACHINE=AMOUNT or STUDY=AMOUNT."""
    storage: str = DEFAULT_STORAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendRequest:
    """The options of a recommendation from rules."""

    workload: WorkloadSpec
    batch_size: int | None = None
    python: str | None = None
    rules: str | None = None
    batch: bool = False
    instances: bool = False
    same_latency: bool = False
    verify: bool = False
    time_budget: str = COMPARED
    wait: bool = False

    @property
    def command(self) -> str:
        """Return the words and options that another command for the same workload has to be given, too."""
        options = {"--python": self.python, "--batch-size": self.batch_size}
        others = [f"{name} {shlex.quote(str(value))}" for name, value in options.items() if value is not None]
        return " ".join([self.workload.command_line, *others])

    @property
    def own_options(self) -> str:
        """Return the options that only another recommendation has to be given, each after a space."""
        rules = "" if self.rules is None else f" --rules {shlex.quote(self.rules)}"
        answers = {"--any-batch-size": self.batch, "--instances": self.instances, "--same-latency": self.same_latency}
        return rules + "".join(f" {option}" for option, is_asked in answers.items() if is_asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadRequest(SearchRequest):
    """The options of a look at the runtime's overhead; `executions` are all that the workload has if none are named."""

    batches: str = "1..256"
    executions: str | Sequence[str] = ()
    """With commas, or a list."""
    time_budget: str | None = "10m"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """The options of a profile of operators."""

    workload: WorkloadSpec
    batch_size: int | None = None
    python: str | None = None
    trial_timeout: str = TRIAL_TIMEOUT
    wait: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictRequest:
    """The options of a prediction."""

    workload: WorkloadSpec
    machine: str | None = None
    """A machine in words, or the file of one; None for this one."""
    settings: Sequence[str] = ()
    space: str | None = None
    pins: Sequence[str] = ()
    batch_size: str | None = None
    ideal: bool = False
    profile: str | None = None
    """The file of a capture to use; None to profile here."""
    python: str | None = None
    trial_timeout: str = TRIAL_TIMEOUT
    new: bool = False
    wait: bool = False

    @property
    def search(self) -> SearchRequest:
        """Return the search whose settings are predicted."""
        own = {each.name: getattr(self, each.name) for each in fields(SearchRequest) if hasattr(self, each.name)}
        return SearchRequest(**own)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworksRequest:
    """The options of a comparison of frameworks."""

    workload: WorkloadSpec
    frameworks: str | None = None
    """With commas; None for all that are installed."""
    batches: str = "1,4,16,64,256,1024"
    batch_size: int | None = None
    """That of the searches and verdicts; None for the workload's own."""
    space: str | None = None
    numerics: str = KEEP
    margin: float = MARGIN
    time_budget: str = "30m"
    pythons: Sequence[str] = ()
    storage: str = DEFAULT_STORAGE
    trial_timeout: str = "5m"
    seed: int = 0
    new: bool = False
    stored: bool = False
    """Whether what is stored is shown, and nothing is measured."""
    wait: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteWorkload:
    """A workload of a suite with options of its own; the suite chooses its framework and device."""

    spec: WorkloadSpec
    modes: str | None = None
    """None for inference."""
    batch_size: str | None = None
    """None for the batch sizes of the search space."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteFile:
    """A suite file as it was read: what it gives the options of a suite, and its workloads by name."""

    path: str
    options: Mapping[str, Any]
    """By the fields of `SuiteRequest`."""
    workloads: Mapping[str, SuiteWorkload]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRequest:
    """The options of a suite; lists are separated by commas."""

    file: str | None = None
    """The path of the suite file, None without one."""
    file_workloads: Mapping[str, SuiteWorkload] = field(default_factory=dict)
    """The workloads of the suite file by name, with paths as they are from the folder of the driver."""
    workloads: str | None = None
    """None for all, with a plan for those that it chooses, with `stale` for those that the storage has studies of.

    With a suite file these are names of its workloads, and None is for all of them.
    """
    plan: str | None = None
    """The time in which settings are measured as planned, instead of searched for; it chooses all but the workloads."""
    stale: bool = False
    """Whether only what was measured once, and has changed since, is measured again."""
    modes: str | None = None
    """None for the modes of each workload."""
    cpus: str | None = None
    cpu_quotas: str | None = None
    framework: str = DEFAULT
    device: str = "cpu"
    pythons: Sequence[str] = ()
    space: str | None = None
    """None for the device's own."""
    time_budget: str | None = None
    """None for the time of a search."""
    stop_after: str | None = None
    seed: int = 0
    storage: str = DEFAULT_STORAGE
    trial_timeout: str = TRIAL_TIMEOUT
    instances: bool = False
    """Whether several processes, and the answer at the default's latency, are searched for, too."""
    nodes_per_type: int = 1
    """On how many nodes of its type a result is measured: on the first it is searched for, on the others checked."""
    types: str | None = None
    """Words of the machines that may measure, of which one is enough; None for all machines of a cluster."""

    def planned_command(self, workload: str) -> str:
        """Return the command of a plan for one of its workloads, without what is as usual, and where it is kept."""
        options = {
            "--plan": self.plan,
            "--workloads": workload,
            "--framework": None if self.framework == DEFAULT else self.framework,
            "--python": tuple(self.pythons),
            "--seed": self.seed or None,
            "--trial-timeout": None if self.trial_timeout == TRIAL_TIMEOUT else self.trial_timeout,
        }
        words = () if self.file is None else (self.file,)
        return f"tftune suite {WorkloadSpec(words=words).with_options(options)}"
