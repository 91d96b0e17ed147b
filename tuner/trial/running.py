"""Run a command as a trial: each slice is one run of it, or as many runs as fit, and the numbers that it prints.

Nothing of a command lives between two slices, so that a pair of commands is runs in turn. Drift is taken out as far as
it is slower than a run.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.child.inputs import shortened
from tuner.child.worker import OUT_OF_MEMORY_CODES
from tuner.errors import BadInputError, TunerError
from tuner.machine.exits import last_words
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.trial.meter import EnergyMeter, metered, no_meter
from tuner.trial.outcome import ExitStatus, ReadyReport, Slice, Status, TrialFailure, way_out
from tuner.trial.process import ChildProcess, PipeFds, guarded
from tuner.workload.command import Command
from tuner.workload.digits import may_be_thousands, resolution_of
from tuner.workload.reading import Reading
from tuner.workload.units import NoNumberError

_LOG_BYTES = 16 << 20  # that the pattern is looked for in
_OUT_OF_MEMORY = (*OUT_OF_MEMORY_CODES, "torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError", "MemoryError")
"""What programs print where memory runs out: codes of CUDA, and the exceptions of PyTorch, NumPy and Python."""
_KEPT_LOG, _KEPT_LINE = 16_384, 200  # characters of a failure


@dataclass(kw_only=True)
class CommandLauncher:
    """Runs a command in `folder`, each run within `deadline_s`."""

    command: Command
    base_env: dict[str, str]
    folder: Path
    deadline_s: float
    energy_j: EnergyMeter = no_meter
    typical_run: Slice = field(default_factory=lambda: Slice(start_s=0.0, elapsed_s=1.0, n_steps=1, step_s=(1.0,)))
    """A run of it, as an idea of how long one takes."""
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
        return CommandProcess(self, words, self.base_env | dict(deployment.env))

    def now(self) -> float:
        """Return the monotonic clock."""
        return time.monotonic()


class CommandProcess:
    """A command with one setting, which runs when a slice is asked for."""

    def __init__(self, launcher: CommandLauncher, words: list[str], env: dict[str, str]) -> None:
        self._launcher = launcher
        self._words = words
        self._env = env
        self._running: ChildProcess | None = None
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
        before_j = self._launcher.energy_j()
        began_s = now_s = time.monotonic()
        while not runs_s or now_s - began_s < duration_s:
            readings.append(self._run())
            after_s = time.monotonic()
            runs_s.append(round(after_s - now_s, 7))
            now_s = after_s
        runs = Slice(
            start_s=began_s,
            elapsed_s=now_s - began_s,
            n_steps=len(runs_s),
            step_s=tuple(runs_s),
            metrics=tuple(value for each in readings for value in each.values),
            resolution=resolution_of((statistics.median(each.values), each.resolution) for each in readings),
            unit=readings[0].unit,
            n_left_out=sum(each.n_left_out for each in readings),
        )
        return metered(runs, before_j, self._launcher.energy_j())

    def _run(self) -> Reading:
        """Run the command once and return the numbers that it printed, in the unit of the first run."""
        process = self._running = ChildProcess(self._start, self._launcher.deadline_s, log_bytes=_LOG_BYTES)
        try:
            ended = process.finish()
            self._exit = ExitStatus(
                returncode=ended.returncode,
                peak_memory_bytes=max(ended.peak_memory_bytes or 0, self._exit.peak_memory_bytes or 0) or None,
            )
            reading = self._launcher.command.read(process.log_tail())
            first = self._launcher.first = self._launcher.first or reading
            reading = reading.in_unit(first.unit)
            if may_be_thousands(reading.values, reading.resolution, first.values, first.resolution):
                raise NoNumberError(
                    f"numbers such as {reading.values[0]:g}, and {first.values[0]:g} in the first run: a dot may part "
                    "thousands in one of them",
                    "print plain numbers such as 1830.4, e.g. with LC_ALL=C",
                )
            return reading
        except NoNumberError as error:
            log = process.log_tail()[-_KEPT_LOG:]
            raise TrialFailure(Status.FAILED, str(error), log, hint=error.hint) from error
        except TrialFailure as failure:
            reason = shortened(last_words(failure.log), _KEPT_LINE)
            message = failure.message if reason in failure.message else f"{failure.message}: {reason}"
            is_full = any(code in failure.log[-_KEPT_LOG:] for code in _OUT_OF_MEMORY)
            status = Status.OOM if is_full else failure.status
            raise TrialFailure(status, message, failure.log[-_KEPT_LOG:]) from failure
        finally:
            process.close()
            self._running = None

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
