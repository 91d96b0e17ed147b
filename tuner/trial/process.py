"""A trial's process: the pipes to a worker and to its guard, whoever started them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from tuner import inherited
from tuner.child.guard import EXPENDABLE
from tuner.errors import TunerError
from tuner.machine.cgroup import oom_kills
from tuner.machine.exits import ended_text
from tuner.paths import CHILD, boot_arguments
from tuner.trial.load import Load, Served
from tuner.trial.outcome import (
    KERNELS_MEMORY,
    EnergyMeter,
    ExitStatus,
    ReadyReport,
    Slice,
    Status,
    TrialFailure,
    metered,
    no_meter,
)

_LOG_BYTES = 16_384
_GUARD_TIMEOUT_S = 10.0
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)  # it itself, or what it ran as a shell reports that


class PipeFds(NamedTuple):
    """The descriptors that go to the guard and to the worker; closed here once they are theirs."""

    commands: int
    reports: int
    lifeline: int
    status: int
    log: int


class Guard(Protocol):
    """A started guard, as far as the end of its pipes does not tell."""

    def wait(self, timeout: float | None = None) -> object:
        """Wait until it has ended; raises subprocess.TimeoutExpired."""


StartProcess = Callable[[PipeFds], Guard]
"""Starts a guard and its worker; raises OSError or TunerError where it cannot."""


class GuardLost(TunerError):  # noqa: N818  # named as what it says
    """The guard ended before it told of a worker."""


def guarded(
    ends: PipeFds,
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    inherited_fds: Sequence[int] = (),
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a guard that starts `command` in `folder`; the command gets `inherited_fds`, besides its log."""
    guard = [sys.executable, "-I", "-S", *boot_arguments(CHILD, "guard"), str(ends.lifeline), str(ends.status)]
    guard.append(str(EXPENDABLE))
    return subprocess.Popen(
        [*guard, *command],
        cwd=folder,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=ends.log,
        stderr=ends.log,
        pass_fds=(*inherited_fds, ends.lifeline, ends.status),
        start_new_session=True,
    )


class ChildProcess:
    """A worker behind its guard, and the pipes to both."""

    def __init__(
        self,
        start: StartProcess,
        deadline_s: float,
        *,
        audit_failure: Callable[[ReadyReport], str | None] | None = None,
        log_bytes: int = _LOG_BYTES,
        energy_j: EnergyMeter = no_meter,
        has_device_memory: bool = False,
    ) -> None:
        """Start it; raises TunerError where no process can be started at all.

        `audit_failure` audits a process that says it is ready: None, or why its setting does not hold there. Of what
        it prints the last `log_bytes` are kept. `energy_j` is read around each slice. With `has_device_memory` its end
        tells the memory of its device, and not the host's.
        """
        self._has_device_memory = has_device_memory
        self._energy_j = energy_j
        self._energy_before_j: float | None = None
        self._log_bytes = log_bytes
        self._audit_failure = audit_failure
        self.deadline_s = deadline_s
        """How long (s) becoming ready, and each answer, may take."""
        self._log: IO[bytes] = tempfile.TemporaryFile(prefix="tftune-log-")  # noqa: SIM115  # lives as long as this object
        self._unread = b""
        self._launched_s = time.monotonic()
        self._exit: ExitStatus | None = None
        self._lifeline_cut = False
        self._last_words = ""
        self.is_log_cut = False
        """Whether more was printed than is kept."""
        self._paused = self._resumed = False
        self._facts: ReadyReport | None = None
        self.peak_memory_bytes: int | None = None
        """The most that it has held at the batch size that it has, as far as it has told."""
        self.guard_pid = 0
        self._oom_kills = oom_kills()
        command_read, self._commands = os.pipe()
        self._reports, report_write = os.pipe()
        lifeline_read, self._lifeline = os.pipe()
        self._status, status_write = os.pipe()
        ends = PipeFds(command_read, report_write, lifeline_read, status_write, self._log.fileno())
        try:
            try:
                self._guard = start(ends)
            finally:
                for descriptor in ends[:-1]:
                    os.close(descriptor)
            started = self._read_status()
        except OSError as error:
            self._close_ends(self._lifeline)
            raise TunerError(f"cannot start a process: {error}", "free memory or processes, then run again") from error
        except TrialFailure as failure:
            self._close_ends(self._lifeline)
            raise GuardLost(
                f"cannot start a process: {failure.message}", "a limit on processes or memory may have been reached"
            ) from failure
        except BaseException:
            self._close_ends(self._lifeline)
            raise
        self.pid, self.guard_pid = int(started["pid"]), int(started["guard"])

    @property
    def answers_on(self) -> Sequence[int]:
        """Return the pipe of its reports."""
        return (self._reports,)

    def ready(self) -> ReadyReport:
        """Wait for the `ready` report; the deadline counts from the launch."""
        report = self.report("ready", since_s=self._launched_s)
        facts = ReadyReport.from_report(report | {"context_s": report["context_at_s"] - self._launched_s})
        self._audit(facts)
        self._facts, self.peak_memory_bytes = facts, facts.memory_bytes
        return facts

    def _audit(self, facts: ReadyReport) -> None:
        """Raise TrialFailure if the setting does not hold in the process."""
        problem = self._audit_failure(facts) if self._audit_failure is not None else None
        if problem is not None:
            raise self._failure(Status.UNAPPLIED, problem)

    def set_batch_size(self, batch_size: int) -> ReadyReport:
        """Let the loaded model go on with another batch size, and wait until it is warm again."""
        self.start_batch(batch_size)
        return self.end_batch()

    def start_batch(self, batch_size: int) -> None:
        """Let the loaded model go on with another batch size."""
        self._command({"batch_size": batch_size})

    def end_batch(self) -> ReadyReport:
        """Wait until the model is warm with the batch size that it was given."""
        report = self.report("batch")
        assert self._facts is not None  # it was ready before
        facts = self._facts.with_batch(report)
        self.peak_memory_bytes = facts.memory_bytes
        return facts

    def slice(self, duration_s: float) -> Slice:
        """Ask for a slice and sleep until its report comes."""
        self.start_slice(duration_s)
        return self.end_slice()

    def start_slice(self, duration_s: float) -> None:
        """Ask for a slice."""
        self._energy_before_j = self._energy_j()
        self._command({"slice_s": duration_s})

    def end_slice(self) -> Slice:
        """Sleep until the report of a slice comes."""
        self.report("timed")
        energy_after_j = self._energy_j()
        report = self.report("slice")
        self.peak_memory_bytes = max(self.peak_memory_bytes or 0, report.get("memory_bytes") or 0) or None
        if self._facts is not None and "effective" in report:  # threads have moved to other CPUs
            self._facts = replace(self._facts, effective=report["effective"])
            self._audit(self._facts)
        resumed, self._resumed = self._resumed, False
        return metered(Slice.from_report(report, resumed=resumed), self._energy_before_j, energy_after_j)

    def load(self, load: Load) -> Served:
        """Let it answer requests, and return what came of them; of a load of no time it only gets ready for it."""
        self.start_load(load)
        return self.end_load(load)

    def start_load(self, load: Load) -> None:
        """Let it answer requests."""
        self._command({"load": load.request()})

    def end_load(self, load: Load) -> Served:
        """Sleep until the report of a load comes."""
        self.report("timed")
        return Served.from_report(load, self.report("load"))

    def operators(self, n_steps: int, batch_size: int) -> dict[str, Any]:
        """Return what each operator of so many steps took, and what the framework reaches on large ones.

        Any batch size will do; slices go on with their own. Only of a framework whose model tells
        (`tuner.child.adapter`).
        """
        self.start_operators(n_steps, batch_size)
        return self.end_operators()

    def start_operators(self, n_steps: int, batch_size: int) -> None:
        """Ask for what operators take; with 0 steps it is made ready for that."""
        self._command({"operators": [n_steps, batch_size]})

    def end_operators(self) -> dict[str, Any]:
        """Sleep until the report of operators comes."""
        return self.report("operators")

    def timeline(self, n_steps: int, n_rounds: int) -> dict[str, Any]:
        """Return when what ran in steps that the framework's profiler traced, and steps without it beside them.

        A round has two blocks of so many steps with it, and two without.

        Only of a framework whose model tells (`tuner.child.adapter`).
        """
        self._command({"timeline": [n_steps, n_rounds]})
        return self.report("timeline")

    def _command(self, command: Mapping[str, object]) -> None:
        with contextlib.suppress(BrokenPipeError):  # a dead worker is told by the report pipe, with its reason
            os.write(self._commands, json.dumps(command).encode() + b"\n")

    def report(self, kind: str, *, since_s: float | None = None) -> dict[str, Any]:
        """Return the next report, which has to be of that kind; raises TrialFailure for anything else.

        It has to come before the deadline, counted from `since_s` or from now.
        """
        line = self._read_line((time.monotonic() if since_s is None else since_s) + self.deadline_s)
        try:
            report: dict[str, Any] = json.loads(line)
            actual_kind = report["report"]
        except (ValueError, KeyError, TypeError):
            raise self._failure(Status.FAILED, f"the process sent an invalid report: {line[:80]!r}") from None
        if actual_kind == "failure":
            details = {"frames": report.get("frames", ""), "hint": report.get("advice", "")}
            raise self._failure(Status(report["kind"]), report["message"], **details)
        if actual_kind != kind:
            raise self._failure(Status.FAILED, f"the process reported '{actual_kind}' instead of '{kind}'")
        return report

    def finish(self, *, look_after_s: float = math.inf, look: Callable[[], object] = lambda: None) -> ExitStatus:
        """Wait until the process ends by itself, before its deadline; raises TrialFailure where it fails.

        `look` is called once after `look_after_s` (s), if the process still runs then.
        """
        if look_after_s < self.deadline_s and not self._has_ended(look_after_s):
            look()
        if not self._has_ended(self._launched_s + self.deadline_s - time.monotonic()):
            raise self._failure(Status.TIMEOUT, f"still running after {self.deadline_s:g} s")
        ended = self.close()
        if ended.returncode != 0:
            raise self._ended()
        return ended

    def pause(self) -> None:
        """Stop the worker's process group."""
        if not self._paused:
            self._signal(signal.SIGSTOP)
            self._paused = True

    def resume(self) -> None:
        """Continue the worker's process group."""
        if self._paused:
            self._signal(signal.SIGCONT)
            self._paused, self._resumed = False, True

    def close(self) -> ExitStatus:
        """Cut the lifeline: the guard kills the worker with all its descendants and tells how it ended."""
        if not self._lifeline_cut:  # an interruption below must not close the same descriptor twice
            self._lifeline_cut = True
            os.close(self._lifeline)
        if self._exit is None:
            try:
                ended = self._read_status()
                self._guard.wait(_GUARD_TIMEOUT_S)
            except (TrialFailure, subprocess.TimeoutExpired):
                self._guard.wait()
                ended = {}
            self._last_words = self._read_log()
            self._close_ends()
            of_host: int | None = ended.get("peak_memory_bytes")
            self._exit = ExitStatus(
                returncode=ended.get("returncode"),
                peak_memory_bytes=self.peak_memory_bytes if self._has_device_memory else of_host,
            )
        return self._exit

    def log_tail(self) -> str:
        """Return the end of what the process printed so far."""
        return self._read_log() if self._exit is None else self._last_words

    def _close_ends(self, *more: int) -> None:
        for descriptor in (self._commands, self._reports, self._status, *more):
            os.close(descriptor)
        self._log.close()

    def _read_log(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self.is_log_cut = size > self._log_bytes
        self._log.seek(max(0, size - self._log_bytes))
        return self._log.read().decode(errors="replace")

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _read_line(self, deadline: float) -> bytes:
        """Return one line of the report pipe, asleep in the kernel until it is there."""
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self._reports], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise self._failure(Status.TIMEOUT, f"no answer within {self.deadline_s:g} s")
            chunk = os.read(self._reports, 1 << 16)
            if not chunk:
                raise self._ended()
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _read_status(self) -> dict[str, Any]:
        """Return the guard's next line."""
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._status], [], [], _GUARD_TIMEOUT_S)
            if not ready and self.guard_pid:  # it is there and hangs; its worker dies with it
                os.kill(self.guard_pid, signal.SIGKILL)
            byte = os.read(self._status, 1) if ready else b""
            if not byte:
                raise TrialFailure(Status.CRASHED, "the guard process ended unexpectedly")
            line += byte
        status: dict[str, Any] = json.loads(line)
        return status

    def _has_ended(self, within_s: float) -> bool:
        """Return whether the process ends within a time (s)."""
        return bool(select.select([self._status], [], [], max(0.0, within_s))[0])

    def _ended(self) -> TrialFailure:
        """Return the failure of a worker that ended before it reported."""
        returncode = self.close().returncode
        if returncode in _KILLED and oom_kills() > self._oom_kills:
            return self._failure(Status.OOM, KERNELS_MEMORY)
        return self._failure(Status.CRASHED, f"the process {ended_text(returncode, self.log_tail())}")

    def _failure(self, status: Status, message: str, **told: str) -> TrialFailure:
        self.close()
        log = self.log_tail()
        shadow = inherited.shadow(inherited.environment(), f"{message}\n{log}")
        if shadow is not None:
            message, told["hint"] = f"{message}; {shadow}", inherited.RENAME
        return TrialFailure(status, message, log, **told)
