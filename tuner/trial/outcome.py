"""What a trial's process reports, and the kinds of its end. What the child reports is what the store keeps."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from statistics import fmean
from typing import Any

from msgspec import convert

from tuner import inherited
from tuner.machine.cgroup import more_memory
from tuner.machine.exits import reason_at, remedy_in
from tuner.plain import SPARSE, UNSTORED, digits

LATE = 1.5  # times the window of a slice: whoever answers longer than that falls behind
_OVERLAPPING = 1.001  # times the duration of a slice: steps of several callers take longer in sum


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


_WAYS_OUT = {
    Status.TIMEOUT: "give a longer --trial-timeout",
    Status.UNAPPLIED: "remove what sets it in the workload, or the variable that does in your environment",
    Status.INVALID: "check whether its outputs are meant to be so; --input-range sets the inputs of a model file",
}
NO_SPACE = "free some space there, or set TMPDIR to a folder on another disk"
"""What to do about a full or missing folder for temporary files."""
_OUT_OF_SPACE = ("No space left on device", "No usable temporary directory", "Disk quota exceeded")


KERNELS_MEMORY = "the kernel killed the process because memory ran out"
"""The message of a process that was killed for memory: the host's, or what a container may have of it."""


RUN_IT = "run the workload without tftune to see why"
"""The way out where nothing tells of a better one."""


def way_out(status: Status, message: str, *, otherwise: str, less: str = "give a smaller --batch-size") -> str:
    """Return what to do about a process that failed with a message; `otherwise` where that does not tell.

    `less` is how it would take less memory.
    """
    if is_out_of_space(message):
        return NO_SPACE
    if "found through PYTHONPATH" in message:
        return inherited.RENAME
    if status is Status.OOM:
        return f"{more_memory() if KERNELS_MEMORY in message else 'free some memory'}, or {less}"
    return _WAYS_OUT.get(status) or remedy_in(message) or otherwise


def is_out_of_space(message: str) -> bool:
    """Return whether a message is about a full disk, or no folder for temporary files."""
    return any(text in message for text in _OUT_OF_SPACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Steps that ran without a pause; of a command, whole runs.

    `start_s` is CLOCK_MONOTONIC, one clock for all processes of a host. `step_s` are the durations of the steps,
    or of every k-th step of a slice of many. `metrics` are the numbers that a command printed, in its `unit`, and
    `resolution` is the smallest difference that they can show. `resumed` is how many processes of it were stopped
    before, whose first steps `step_s` begins with. `window_s` is for how long (s) requests came at random times, None
    for steps one after another: the steps are the responses to them then, which overlap.
    """

    start_s: float = field(metadata=digits(6))
    elapsed_s: float = field(metadata=digits(7))
    n_steps: int
    step_s: tuple[float, ...]
    metrics: tuple[float, ...] = field(default=(), metadata=SPARSE)
    resolution: float = field(default=0.0, metadata=SPARSE)
    unit: str = field(default="", metadata=SPARSE)
    n_left_out: int = field(default=0, metadata=SPARSE)
    """How many numbers that a command printed were 0 or not finite."""
    around: str = field(default="", metadata=SPARSE)
    """The words beside the numbers of a command, if no unit of these is known."""
    unit_of_all: str = field(default="", metadata=SPARSE)
    """The unit that a heading gives the numbers of a command, if they have none of their own."""
    figures: tuple[str, ...] = field(default=(), metadata=SPARSE)
    """The words before the numbers of a command, if these are of several figures that are far apart in each run."""
    failed: tuple[str, ...] = field(default=(), metadata=SPARSE)
    """Why runs of a command failed, which were repeated."""
    window_s: float | None = field(default=None, metadata=SPARSE)
    energy_j: float | None = field(default=None, metadata=SPARSE | digits(3))
    """What the device has taken meanwhile (J); None where it does not tell."""
    resumed: int = field(default=0, metadata=SPARSE)

    @property
    def keeps_up(self) -> bool:
        """Return whether requests were answered about as fast as they came."""
        return self.window_s is None or self.elapsed_s <= LATE * self.window_s

    @property
    def counted_steps(self) -> tuple[int, float]:
        """Return the number of steps and their duration (s), without the first one of each process after a pause.

        Waking up makes it slower: ResNet-50's by 5 to 12 of 170 ms, and more under a quota. That would favour slices of
        long steps, which are larger batches. A slice of one step has nothing else.
        """
        if not self.tells_first_steps:
            return self.n_steps, self.elapsed_s
        return self.n_steps - self.resumed, self.elapsed_s - self.first_step_s

    @property
    def tells_first_steps(self) -> bool:
        """Return whether the first steps after a pause are known beside others."""
        is_whole = self.window_s is None and len(self.step_s) >= self.n_steps
        return is_whole and 0 < 2 * self.resumed <= self.n_steps

    @property
    def first_step_s(self) -> float:
        """Return how long the first step after a pause took (s), the mean of all processes."""
        return fmean(self.step_s[: self.resumed])

    @property
    def latency_samples_s(self) -> tuple[float, ...]:
        """Return the step times without the first step after a pause, if there are enough steps.

        The process was stopped before its turn, and what waking up costs is no latency of the model.
        """
        n = max(1, self.resumed)
        return self.step_s[n:] if len(self.step_s) >= 10 * n else self.step_s

    def steps_between(self, start_s: float, end_s: float) -> float:
        """Return how many steps it did between two moments, parts of a step included.

        Steps are taken for equally long where not all of their durations are known, or where they overlap.
        """
        ends = list(itertools.accumulate(self.step_s, initial=self.start_s))
        if len(self.step_s) < self.n_steps or sum(self.step_s) > _OVERLAPPING * self.elapsed_s:
            ends = [self.start_s + self.elapsed_s * i / self.n_steps for i in range(self.n_steps + 1)]

        def done(moment_s: float) -> float:
            whole = bisect.bisect_right(ends, moment_s) - 1
            if whole < 0:
                return 0.0
            if whole >= self.n_steps:
                return float(self.n_steps)
            return whole + (moment_s - ends[whole]) / (ends[whole + 1] - ends[whole])

        return done(end_s) - done(start_s)

    @classmethod
    def from_report(cls, report: dict[str, Any], *, resumed: bool = False) -> Slice:
        """Return what a child reports of a slice: its own, or one of each of its callers, which are taken together.

        Of several callers no first step is counted anyway.
        """
        if "callers" in report:
            return combined([convert(each, cls) for each in report["callers"]])
        return replace(convert(report, cls), resumed=int(resumed))


def joined(before: Slice, after: Slice) -> Slice:
    """Return two slices of a process, between which it was stopped, as one that begins with the first."""
    n_steps, elapsed_s = after.counted_steps
    joules = None if None in (before.energy_j, after.energy_j) else (before.energy_j or 0.0) + (after.energy_j or 0.0)
    return replace(
        before,
        elapsed_s=before.elapsed_s + elapsed_s,
        n_steps=before.n_steps + n_steps,
        step_s=before.step_s + after.step_s[after.n_steps - n_steps :],
        metrics=before.metrics + after.metrics,
        resolution=max(before.resolution, after.resolution),
        n_left_out=before.n_left_out + after.n_left_out,
        failed=before.failed + after.failed,
        energy_j=joules,
    )


def combined(slices: Sequence[Slice]) -> Slice:
    """Return what callers or processes did at the same time as one slice: the steps of all, at the rate of all.

    rate = Σᵢ nᵢ(a, b) / (b − a)        nᵢ steps of i, parts included, between a and b

    They run whole steps and so end at slightly different times. The rate is taken over the time in which all of them
    ran, from the latest beginning a to the earliest end b: whoever still runs when another has ended runs faster. The
    duration is what all the steps take at that rate. The first steps of processes that were stopped come first.
    """
    if any(each.window_s is not None for each in slices):
        return _responses(slices)
    start_s = max(each.start_s for each in slices)
    end_s = min(each.start_s + each.elapsed_s for each in slices)
    n_steps = sum(each.n_steps for each in slices)
    if end_s > start_s:
        rate = sum(each.steps_between(start_s, end_s) for each in slices) / (end_s - start_s)
    else:  # one had ended before another began
        rate = sum(each.n_steps / each.elapsed_s for each in slices)
    first_steps_s = [step_s for each in slices for step_s in each.step_s[: each.resumed]]
    others_s = (each.step_s[each.resumed :] if each.resumed else each.latency_samples_s for each in slices)
    return Slice(
        start_s=min(each.start_s for each in slices),
        elapsed_s=n_steps / rate,
        n_steps=n_steps,
        step_s=(*first_steps_s, *itertools.chain(*others_s)),
        resumed=sum(each.resumed for each in slices),
    )


def lockstep(slices: Sequence[Slice]) -> Slice:
    """Return the one step that the members of an ensemble took together, from the slice of each.

    It lasts from the first beginning to the last end: an ensemble has answered when the slowest has.
    """
    start_s = min(each.start_s for each in slices)
    elapsed_s = max(each.start_s + each.elapsed_s for each in slices) - start_s
    return Slice(
        start_s=start_s,
        elapsed_s=elapsed_s,
        n_steps=1,
        step_s=(elapsed_s,),
        resumed=int(any(each.resumed for each in slices)),
    )


def _responses(slices: Sequence[Slice]) -> Slice:
    """Return the responses of processes that requests were dealt out to."""
    start_s = min(each.start_s for each in slices)
    return Slice(
        start_s=start_s,
        elapsed_s=max(each.start_s + each.elapsed_s for each in slices) - start_s,
        n_steps=sum(each.n_steps for each in slices),
        step_s=tuple(second for each in slices for second in each.latency_samples_s),
        window_s=max(each.window_s or 0.0 for each in slices),
    )


EnergyMeter = Callable[[], float | None]
"""Tells how much energy (J) a device has taken since some beginning; None where that cannot be read."""


def no_meter() -> None:
    """Return nothing: there is no meter."""
    return


def metered(slice_: Slice, before_j: float | None, after_j: float | None) -> Slice:
    """Return a slice with what the device took between two readings, with what runs beside and what it takes when idle.

    Nothing is said where one of them is missing, or where the counter began again meanwhile.
    """
    if before_j is None or after_j is None or after_j < before_j:
        return slice_
    return replace(slice_, energy_j=after_j - before_j)


def energy_of(slices: Sequence[Slice]) -> tuple[float | None, float]:
    """Return the energy (J) and the duration (s) of slices; None where there is none, or one was not metered."""
    joules = [each.energy_j for each in slices if each.energy_j is not None]
    seconds = sum(each.elapsed_s for each in slices)
    return (sum(joules) if joules and len(joules) == len(slices) else None), seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyReport:
    """The `ready` report of a process: the duration of each phase (s), its warm-up, and its effective state."""

    import_s: float = field(metadata=digits(4))
    context_s: float = field(metadata=digits(4))
    """From the request to a TensorFlow context that is ready; the import is part of it."""
    load_s: float = field(metadata=digits(4))
    first_step_s: float = field(metadata=digits(4))
    warm_up: Slice
    effective: dict[str, Any]
    memory_bytes: int | None = None
    """The most that the process has held so far."""
    shared_bytes: int | None = field(default=None, metadata=UNSTORED)
    """How much of that other processes hold too, such as the code of libraries."""
    settled: bool | None = None
    """Whether the warm-up came to its end; None where steps are too long to tell."""
    sample: dict[str, Any] | None = None
    """Some values of the outputs, see `tuner.measure.agreement`; None where the model computes at random."""
    outputs: dict[str, list[int]] | None = None
    """The shapes of the outputs at its batch size."""
    not_finite: dict[str, dict[str, int]] = field(default_factory=dict, metadata=SPARSE)
    """Of outputs with values that are NaN or infinite: their `size`, and how many are of which kind."""

    @property
    def step_s(self) -> float:
        """Return about how long a step takes."""
        return self.warm_up.elapsed_s / self.warm_up.n_steps

    @classmethod
    def from_report(cls, report: dict[str, Any]) -> ReadyReport:
        """Return the facts of a `ready` report."""
        return cls(**_told(report))

    def with_batch(self, report: dict[str, Any]) -> ReadyReport:
        """Return the facts of a `batch` report: of the same process with another batch size, which loaded nothing."""
        return replace(self, import_s=0.0, context_s=0.0, load_s=0.0, **_told(report))


def _told(report: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a `ready` or `batch` report by the names that `ReadyReport` has for them."""
    told = {each.name: report[each.name] for each in fields(ReadyReport) if each.name in report}
    return told | {"warm_up": Slice.from_report(report["warm_up"]), "not_finite": report.get("not_finite") or {}}


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

    def evidence(self, most: int) -> str:
        """Return what the process printed of its failure, at most so many characters: from the reason on, or the end.

        An abort prints its reason first, and then a stack that may be longer than all that is shown.
        """
        begin = reason_at(self.log)
        return self.log[-most:] if begin is None else self.log[begin:][:most]
