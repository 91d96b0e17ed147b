"""Run a command as a trial: each slice is one run of it, or as many runs as fit, and the numbers that it prints.

Nothing of a command lives between two slices, so that a pair of commands is runs in turn. Drift is taken out as far as
it is slower than a run.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.child.guard import descendants, stat_fields
from tuner.child.inputs import shortened
from tuner.child.worker import OUT_OF_MEMORY_CODES
from tuner.errors import BadInputError, TunerError
from tuner.machine.cpulist import parse_list
from tuner.machine.exits import last_words, remedy_in
from tuner.machine.openmp import asks_to_bind
from tuner.machine.topology import read_mask
from tuner.space.auditing import moved_text
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.trial.outcome import (
    EnergyMeter,
    ExitStatus,
    ReadyReport,
    Slice,
    Status,
    TrialFailure,
    metered,
    no_meter,
    way_out,
)
from tuner.trial.process import ChildProcess, PipeFds, guarded
from tuner.workload.command import Command
from tuner.workload.digits import resolution_of
from tuner.workload.reading import Reading
from tuner.workload.units import NoNumberError

_LOG_BYTES = 16 << 20  # that the pattern is looked for in
_OUT_OF_MEMORY = (*OUT_OF_MEMORY_CODES, "torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError", "MemoryError")
"""What programs print where memory runs out: codes, and the exceptions of PyTorch, NumPy and Python."""
_REPEATS = 2  # of a run that fails, once another has succeeded: what fails more often does so under its setting
_SHORT_S = 10.0  # of the very first run: whoever waits for a long one wants to know at once that it fails
_KEPT_LOG, _KEPT_LINE = 16_384, 200  # characters of a failure
_BUSY = 0.1  # of the CPU time of the busiest process: a shell, or `tee`, only waits beside it


@dataclass(kw_only=True)
class CommandLauncher:
    """Runs a command in `folder`, each run within `deadline_s`."""

    command: Command
    base_env: dict[str, str]
    folder: Path
    deadline_s: float
    energy_j: EnergyMeter = no_meter
    out_of_memory: tuple[str, ...] = ()
    """What the libraries of the device say where its memory is full."""
    typical_run: Slice = field(default_factory=lambda: Slice(start_s=0.0, elapsed_s=1.0, n_steps=1, step_s=(1.0,)))
    """A run of it, as an idea of how long one takes."""
    see_pinned: Callable[[str, Deployment], None] = lambda *_: None
    """Takes note, in words, that a run used other CPUs than its deployment gives it."""
    first: Reading | None = None
    """What its first run printed, to whose unit the numbers of all runs are converted."""

    def run_once(self, setting: Setting, deployment: Deployment) -> Slice:
        """Run it once and return what came of it; raises BadInputError where it cannot be measured at all."""
        process = self.launch(setting, deployment)
        try:
            self.typical_run = process.slice(0.0)
        except TrialFailure as failure:
            has_batch = "batch_size" in self.command.placeholders
            less = "give a smaller --batch-size" if has_batch else "let the command take less"
            usual = way_out(failure.status, failure.message, otherwise="fix the command, or --metric-regex", less=less)
            raise BadInputError(
                f"cannot measure the command: {failure.message}",
                failure.hint or usual,
                log=failure.evidence(2000),
            ) from failure
        finally:
            process.close()
        return self.typical_run

    def launch(self, setting: Setting, deployment: Deployment) -> CommandProcess:
        """Return what runs the command with the setting's variables, and its values in the place of `{knob}`."""
        words = self.command.filled(setting.to_dict())
        if deployment.cpus is not None:
            words = ["taskset", "-c", deployment.cpus, *words]
        return CommandProcess(self, words, deployment)

    def now(self) -> float:
        """Return the monotonic clock."""
        return time.monotonic()


class CommandProcess:
    """A command with one setting, which runs when a slice is asked for."""

    def __init__(self, launcher: CommandLauncher, words: list[str], deployment: Deployment) -> None:
        self._launcher = launcher
        self._words = words
        self._deployment = deployment
        self._env = launcher.base_env | dict(deployment.env)
        # A setting that binds threads may bind all that there are to few CPUs.
        self._is_seen = asks_to_bind(self._env)
        self._run_s = launcher.typical_run.elapsed_s / launcher.typical_run.n_steps
        self._running: ChildProcess | None = None
        self._printed = ""
        self._exit = ExitStatus(returncode=None, peak_memory_bytes=None)

    @property
    def answers_on(self) -> Sequence[int]:
        """Return none: there is nothing to wait for."""
        return ()

    def ready(self) -> ReadyReport:
        """Return at once: there is nothing to load or to warm up that the next run would have of it."""
        return ReadyReport(
            import_s=0.0,
            context_s=0.0,
            load_s=0.0,
            first_step_s=0.0,
            warm_up=self._launcher.typical_run,
            effective={},
        )

    def set_batch_size(self, batch_size: int) -> ReadyReport:
        """Raise TunerError: a command gets its batch size among its words, when it starts."""
        raise TunerError(
            f"a command cannot go on with batch size {batch_size}", "this is a bug in tftune, please report it"
        )

    @property
    def peak_memory_bytes(self) -> int | None:
        """Return the most that a run of it has held."""
        return self._exit.peak_memory_bytes

    def slice(self, duration_s: float) -> Slice:
        """Run the command, and again until `duration_s` has passed; raises TrialFailure."""
        runs_s: list[float] = []
        readings: list[Reading] = []
        failed: list[str] = []
        before_j = self._launcher.energy_j()
        began_s = now_s = time.monotonic()
        while not runs_s or now_s - began_s < duration_s:
            reading, self._run_s = self._repeated_run(failed)
            readings.append(self._in_one_unit(reading))
            runs_s.append(round(self._run_s, 7))
            now_s = time.monotonic()
        runs = Slice(
            start_s=began_s,
            elapsed_s=now_s - began_s,
            n_steps=len(runs_s),
            step_s=tuple(runs_s),
            metrics=tuple(value for each in readings for value in each.values),
            resolution=resolution_of((statistics.median(each.values), each.resolution) for each in readings),
            unit=readings[0].unit,
            n_left_out=sum(each.n_left_out for each in readings),
            around=statistics.mode(each.around for each in readings),
            unit_of_all=readings[0].unit_of_all,
            figures=readings[0].figures if len({each.figures for each in readings}) == 1 else (),
            failed=tuple(failed),
        )
        return metered(runs, before_j, self._launcher.energy_j())

    def _repeated_run(self, failed: list[str]) -> tuple[Reading, float]:
        """Run the command until a run succeeds; return its numbers, and how long it took (s).

        Why others failed is added to `failed`. Raises TrialFailure if too many fail in a row, and at once for lack of
        time or memory. Before any run of the launcher has succeeded, only a short one is repeated, once.
        """
        for n_failed in itertools.count(1):
            began_s = time.monotonic()
            try:
                return self._run(), time.monotonic() - began_s
            except TrialFailure as failure:
                is_short = failure.status is Status.CRASHED and time.monotonic() - began_s < _SHORT_S
                n_repeats = int(is_short) if self._launcher.first is None else _REPEATS
                if not n_repeats or failure.status not in (Status.FAILED, Status.CRASHED):
                    raise
                if n_failed > n_repeats:
                    message = f"{failure.message}; {n_failed} runs in a row failed"
                    raise TrialFailure(failure.status, message, failure.log, hint=failure.hint) from failure
                failed.append(shortened(failure.message, _KEPT_LINE))
        raise AssertionError  # it counts for ever

    def _in_one_unit(self, reading: Reading) -> Reading:
        """Return the numbers of a run in the unit of the launcher's first one; raises TrialFailure."""
        self._launcher.first = self._launcher.first or reading
        try:
            return reading.like(self._launcher.first)
        except NoNumberError as error:
            raise TrialFailure(Status.FAILED, str(error), self._printed, hint=error.hint) from error

    def _run(self) -> Reading:
        """Run the command once and return the numbers that it printed."""
        process = self._running = ChildProcess(self._start, self._launcher.deadline_s, log_bytes=_LOG_BYTES)
        try:
            if self._is_seen:
                ended = process.finish()
            else:
                ended = process.finish(look_after_s=self._run_s / 2, look=lambda: self._see(process))
            self._exit = ExitStatus(
                returncode=ended.returncode,
                peak_memory_bytes=max(ended.peak_memory_bytes or 0, self._exit.peak_memory_bytes or 0) or None,
            )
            printed = process.log_tail()
            self._printed = printed[-_KEPT_LOG:]
            return self._launcher.command.read(printed)
        except NoNumberError as error:
            cut = f"; of its output only the last {_LOG_BYTES >> 20} MiB are looked at" if process.is_log_cut else ""
            raise TrialFailure(Status.FAILED, f"{error}{cut}", self._printed, hint=error.hint) from error
        except TrialFailure as failure:
            reason = shortened(last_words(failure.log), _KEPT_LINE)
            message = failure.message if reason in failure.message else f"{failure.message}: {reason}"
            codes = (*_OUT_OF_MEMORY, *self._launcher.out_of_memory)
            is_full = any(code in failure.log[-_KEPT_LOG:] for code in codes)
            status = Status.OOM if is_full else failure.status
            is_of_its_end = status is Status.CRASHED and remedy_in(failure.message) is None
            hint = self._hint_past(failure.log) if is_of_its_end else ""
            raise TrialFailure(status, message, failure.log[-_KEPT_LOG:], hint=hint) from failure
        finally:
            process.close()
            self._running = None

    def _hint_past(self, log: str) -> str:
        """Return how a run counts that printed its number before it failed: many programs crash as they end."""
        try:
            self._launcher.command.read(log)
        except NoNumberError:
            return ""
        whole = shlex.quote(f"{self._launcher.command}; true")
        return f"it had printed its number: if it does not matter how it ends, measure sh -c {whole}"

    def _see(self, process: ChildProcess) -> None:
        """Look once which CPUs a run uses; what is too short to have used CPU time is looked at in the next run."""
        cpus = cpus_in_use(process.guard_pid)
        given = read_mask() if self._deployment.cpus is None else parse_list(self._deployment.cpus)
        self._is_seen = bool(cpus)
        pinned = moved_text(cpus, given) if cpus else None
        if pinned is not None:
            self._launcher.see_pinned(pinned, self._deployment)

    def _start(self, ends: PipeFds) -> subprocess.Popen[bytes]:
        return guarded(ends, self._words, self._env, folder=self._launcher.folder)

    def pause(self) -> None:
        """Nothing runs between slices."""

    def resume(self) -> None:
        """Nothing was stopped."""

    def close(self) -> ExitStatus:
        """End a run that is under way, with everything that it started; may be called twice."""
        if self._running is not None:
            self._running.close()
        return self._exit


def cpus_in_use(root: int) -> frozenset[int]:
    """Return the CPUs that the busy processes below `root` may run on; none before one has used any CPU time.

    A program may pin itself, and does not tell whoever started it.
    """
    used = {pid: _clock_ticks(pid) for pid in descendants(root)}
    least = max(1.0, _BUSY * max(used.values(), default=0))
    cpus: set[int] = set()
    for pid in (pid for pid, ticks in used.items() if ticks >= least):
        with contextlib.suppress(OSError):  # it may end in between, and its threads too
            for task in Path(f"/proc/{pid}/task").iterdir():
                cpus |= os.sched_getaffinity(int(task.name))
    return frozenset(cpus)


def _clock_ticks(pid: int) -> int:
    """Return the CPU time of a process in the kernel's ticks; 0 if it has ended."""
    try:
        user, system = stat_fields(pid)[11:13]
    except OSError:
        return 0
    return int(user) + int(system)
