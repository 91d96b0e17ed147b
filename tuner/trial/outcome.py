"""What a trial's process reports, and the kinds of its end. What the child reports is what the store keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How a trial ended."""

    OK = "ok"
    FAILED = "failed"
    """An exception in the workload."""
    CRASHED = "crashed"
    """The process ended or was killed."""
    TIMEOUT = "timeout"
    OOM = "oom"
    UNAPPLIED = "unapplied"
    """A knob of the setting did not take effect in the process."""
    INVALID = "invalid"
    """The output was not finite, or not what the reference computes, or the training moved no loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Steps that ran without a pause; of a command, whole runs.

    `start_s` is CLOCK_MONOTONIC, one clock for all processes of a host. `step_s` are the durations of the steps,
    or of every k-th step of a slice of many. `metrics` are the numbers that a command printed. `resumed` tells whether
    the process was stopped before it.
    """

    start_s: float
    elapsed_s: float
    n_steps: int
    step_s: tuple[float, ...]
    metrics: tuple[float, ...] = ()
    resumed: bool = False

    @property
    def counted_steps(self) -> tuple[int, float]:
        """Return the number of steps and their duration (s), without the first one after a pause.

        Waking up makes it slower: ResNet-50's by 5 to 12 of 170 ms, and more under a quota. That would favour slices of
        long steps, which are larger batches. A slice of one step has nothing else.
        """
        if not self.resumed or self.n_steps < 2 or len(self.step_s) < self.n_steps:
            return self.n_steps, self.elapsed_s
        return self.n_steps - 1, self.elapsed_s - self.step_s[0]

    @property
    def latency_samples_s(self) -> tuple[float, ...]:
        """Return the step times without the first step after a pause, if there are enough steps.

        The process was stopped before its turn, and what waking up costs is no latency of the model.
        """
        return self.step_s[1:] if len(self.step_s) >= 10 else self.step_s

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Slice:
        """Return the slice of a child's report or of a stored trial."""
        return cls(
            start_s=data["start_s"],
            elapsed_s=data["elapsed_s"],
            n_steps=data["n_steps"],
            step_s=tuple(data["step_s"]),
            metrics=tuple(data.get("metrics", ())),
            resumed=bool(data.get("resumed", False)),
        )

    def to_dict(self) -> dict[str, object]:
        """Return the slice as plain data."""
        data: dict[str, object] = {
            "start_s": round(self.start_s, 6),
            "elapsed_s": round(self.elapsed_s, 7),
            "n_steps": self.n_steps,
            "step_s": list(self.step_s),
        }
        data |= {"metrics": list(self.metrics)} if self.metrics else {}
        return data | ({"resumed": True} if self.resumed else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyReport:
    """The `ready` report of a process: the duration of each phase (s), its warm-up, and its effective state."""

    import_s: float
    context_s: float
    """From the request to a TensorFlow context that is ready; the import is part of it."""
    load_s: float
    first_step_s: float
    warm_up: Slice
    effective: dict[str, Any]
    memory_bytes: int | None = None
    """The most that the process has held so far."""
    settled: bool | None = None
    """Whether the warm-up came to its end; None where steps are too long to tell."""
    sample: dict[str, Any] | None = None
    """Some values of the outputs, see `tuner.measure.agreement`; None where the model computes at random."""

    @property
    def step_s(self) -> float:
        """Return about how long a step takes."""
        return self.warm_up.elapsed_s / self.warm_up.n_steps

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ReadyReport:
        """Return the facts of a `ready` report."""
        return cls(
            import_s=data["import_s"],
            context_s=data["context_s"],
            load_s=data["load_s"],
            first_step_s=data["first_step_s"],
            warm_up=Slice.from_dict(data["warm_up"]),
            effective=data["effective"],
            memory_bytes=data.get("memory_bytes"),
            settled=data.get("settled"),
            sample=data.get("sample"),
        )

    def with_batch(self, report: dict[str, Any]) -> ReadyReport:
        """Return the facts of a `batch` report: of the same process with another batch size, which loaded nothing."""
        return replace(
            self,
            import_s=0.0,
            context_s=0.0,
            load_s=0.0,
            first_step_s=report["first_step_s"],
            warm_up=Slice.from_dict(report["warm_up"]),
            memory_bytes=report["memory_bytes"],
            settled=report["settled"],
            sample=report["sample"],
        )

    def to_dict(self) -> dict[str, object]:
        """Return the facts as plain data."""
        return {
            "import_s": round(self.import_s, 4),
            "context_s": round(self.context_s, 4),
            "load_s": round(self.load_s, 4),
            "first_step_s": round(self.first_step_s, 4),
            "warm_up": self.warm_up.to_dict(),
            "effective": self.effective,
            "memory_bytes": self.memory_bytes,
            "settled": self.settled,
            "sample": self.sample,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitStatus:
    """How a process ended: exit code (negative: signal), and the peak memory of this one process."""

    returncode: int | None
    peak_memory_bytes: int | None


class TrialFailure(Exception):  # noqa: N818  # a failure of the trial, not an error of the tool
    """A trial's process did not do what was asked; the study turns it into a failed trial.

    `log` is the end of what it printed, `frames` where in the user's own code an exception came from, `hint` what to
    do about it.
    """

    def __init__(self, status: Status, message: str, log: str = "", *, frames: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.log = log
        self.frames = frames
        self.hint = hint
