"""What people see of a task while it runs: a line for each thing that it tells, and none while something is timed."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from tuner.errors import TunerError
from tuner.job.job import Job
from tuner.measure.objective import Objective
from tuner.measure.rounds import Round
from tuner.model.graph import Features
from tuner.model.profile import Traced
from tuner.quantity import clock_text, duration_text, left_text, ms_text, plural
from tuner.report import terminal, verdicts
from tuner.report import workload as workloads
from tuner.report.layout import Shell
from tuner.report.terminal import noise_text, setting_text, trial_row
from tuner.result.comparison import ComparisonResult
from tuner.result.document import trial_result
from tuner.result.evidence import noise_result
from tuner.space.setting import Setting
from tuner.stats.equivalence import Verdict
from tuner.stats.noise import PRIOR_NOISE, Noise
from tuner.study.record import Record
from tuner.study.trials import Trial

_CLEAR_LINE = "\r\x1b[2K"


class Progress:
    """Writes the events of a study to a console; on a terminal, one line says what is being done."""

    def __init__(self, console: Console, settings: Sequence[Setting], fixed_knobs: Collection[str]) -> None:
        """`settings` may come; `fixed_knobs` are not shown."""
        self._console = console
        self._fixed_knobs = fixed_knobs
        self._process_sd = PRIOR_NOISE.process_sd
        self._widest = max((len(setting_text(setting.to_dict(), fixed_knobs)) for setting in settings), default=0)
        self._widths = (3, self._widest, 20, 5, 5, 0)
        self._has_heading = False

    @property
    def _is_narrow(self) -> bool:
        """Return whether the screen has no room for columns, so that cells follow one another."""
        return self._console.width < sum(self._widths) + 2 * len(self._widths)

    def stage(self, text: str) -> None:
        """Say that a phase begins."""
        self._clear()
        self._print(Text(text, style="bold"))

    def _heading(self) -> None:
        """Print the heading of the rows, once."""
        if self._is_narrow or self._has_heading:
            return
        self._has_heading = True
        row = f"{'#':<3}  {'setting':<{self._widest}}  {'ratio [95 %]':<20}  {'timed':<5}  left"
        self._print(Text(row, style="bold"))

    def calibrated(self, noise: Noise, floor: float) -> None:
        """Say what the noise is."""
        self._process_sd = noise.process_sd
        self._clear()
        self._print(Text(noise_text(noise_result(noise, floor)), style="dim"))

    def trials_started(self, trials: Sequence[Trial], left_s: float) -> None:
        """Say which trials are under way, before anything of them is timed."""
        settings = " | ".join(setting_text(trial.setting.to_dict(), self._fixed_knobs) for trial in trials)
        self._doing(f"measuring{left_text(left_s)}: {settings} …")

    def trial_ended(self, trial: Trial, best: Trial | None, left_s: float) -> None:
        """Print the trial's row: number, setting, ratio with its interval, time in slices, time left, notes."""
        self._clear()
        self._heading()
        is_best = best is not None and best.number == trial.number
        cells = trial_row(trial_result(trial, self._process_sd), incumbent=is_best, fixed_knobs=self._fixed_knobs)
        cells = (*cells[:4], clock_text(left_s) if left_s < math.inf else "", *cells[4:])
        row = Text()
        for cell, width in zip(cells, self._widths, strict=True):
            text = cell if isinstance(cell, Text) else Text(cell)
            text.pad_right(0 if self._is_narrow else max(0, width - len(text)))
            row.append_text(text).append("  ")
        row.rstrip()
        self._print(row)

    def round_ended(self, number: int, round_: Round, left_s: float) -> None:
        """Say that a round of the finals is done."""
        failed = f", failed: {', '.join(round_.failures)}" if round_.failures else ""
        done = f"round {number}: measured for {duration_text(round_.timed_s)}{failed}{left_text(left_s)}"
        self._clear()
        self._print(Text(done, style="dim"))
        self._doing("next round, or computing the verdicts …")

    def end(self) -> None:
        """Leave a clean line behind."""
        self._clear()

    def _doing(self, text: str) -> None:
        if self._console.is_terminal:
            self._console.file.write(f"{_CLEAR_LINE}{text[: self._console.width - 1]}")
            self._console.file.flush()

    def _clear(self) -> None:
        if self._console.is_terminal:
            self._console.file.write(_CLEAR_LINE)

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True, highlight=False)


def stderr_console(*, quiet: bool = False) -> Console:
    """Return a console on stderr; what is printed on it is not coloured by guess, and nothing is of a `quiet` one."""
    return Shell(stderr=True, highlight=False, markup=False, quiet=quiet)


class TaskShown:
    """Shows what every task tells."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def waiting(self, line: str) -> None:
        self.notice(f"waiting: {line}")

    def notice(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, markup=False)

    def progress(self, line: str) -> None:
        self._console.print(line, style="dim", markup=False)


class ComparisonShown(TaskShown):
    """Shows the rounds of a comparison with what they say."""

    def looked(self, n_rounds: int, verdict: Verdict, left_s: float) -> None:
        figure = "" if verdict.speedup is None else f": {verdicts.speedup_text(verdict)}, {verdict.code}"
        self.progress(f"round {n_rounds}{figure}{left_text(left_s)}")


class VerificationShown(TaskShown):
    """Shows the rounds of a comparison that is part of something else in a word each."""

    def looked(self, n_rounds: int, verdict: Verdict, left_s: float) -> None:
        del left_s
        self.progress(f"round {n_rounds}: {verdict.code}")


class NoiseShown(TaskShown):
    """Shows the machine, too."""

    def prepared(self, job: Job) -> None:
        self._console.print(terminal.host(job.subject))


class SearchShown(VerificationShown):
    """Shows what is searched and where, the trials and rounds, and the further sessions."""

    def __init__(self, console: Console, *, details: bool = False) -> None:
        """With `details` the machine, the knobs and the baselines are shown in full."""
        super().__init__(console)
        self._details = details
        self._study: Progress | None = None

    def prepared(self, job: Job) -> None:
        subject = job.subject
        if self._details:
            for part in (terminal.host(subject), "", terminal.knobs(subject), "", terminal.baselines(subject), ""):
                self._console.print(part)
        else:
            for line in terminal.searched_lines(subject):
                self._console.print(line, soft_wrap=True)

    def workload_described(self, job: Job, features: Features | None, run_s: float | None) -> None:
        # As one line: a table's rows begin with a number, and no part of this is to look like one.
        self._console.print(workloads.line(job.subject.workload, features), soft_wrap=True)
        if run_s is not None:
            self._console.print(workloads.precision(run_s), soft_wrap=True)
        self._console.print()

    def began(self, threads: int) -> None:
        self.progress(f"profiling the operators with {plural(threads, 'thread')}")

    def ended(self, traced: Traced) -> None: ...

    def repeats(self) -> None: ...

    def study_started(self, record: Record, job: Job, hinted: Mapping[str, Setting]) -> Progress:
        subject, space = job.subject, job.space
        done = len(record.trials()) + len(record.groups())
        verb = f"continuing with {plural(done, 'trial')}" if done else "new"
        settings = [*space.points, *space.baselines.values(), *space.groups]
        progress = Progress(self._console, settings, terminal.fixed_knobs(subject))
        progress.stage(
            f"study {record.name}: {verb}; ratios are relative to {space.default} at batch size "
            f"{space.reference.batch_size}"
        )
        if job.objective is Objective.CAPACITY and job.limits.p99_s is not None:
            limit = f"{1000 * job.limits.p99_s:g} ms"
            progress.stage(
                f"ratios are of throughput; settings are chosen by the rate they carry within {limit}, simulated"
            )
        for name, setting in hinted.items():
            self._console.print(terminal.hint_line(name, setting.to_dict(), subject), soft_wrap=True)
        self._study = progress
        return progress

    def study_ended(self) -> None:
        if self._study is not None:
            self._study.end()

    def session_ended(self, result: ComparisonResult) -> None:
        self.notice(f"this session: {verdicts.speedup_text(result)}")

    def session_failed(self, number: int, error: TunerError) -> None:
        self._console.print(f"session {number} failed: {error.message}", style="red", soft_wrap=True, markup=False)


class ProfileShown(TaskShown):
    """Shows each number of threads with what a step takes."""

    def began(self, threads: int) -> None:
        self.progress(f"profiling with {plural(threads, 'thread')}")

    def ended(self, traced: Traced) -> None:
        self.notice(f"  a step takes {ms_text(1000 * traced.step_s)} ms")

    def repeats(self) -> None:
        self.progress("timing steps once more, in other processes")
