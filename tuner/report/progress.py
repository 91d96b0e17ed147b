"""What people see of a task while it runs: a line for each thing that it tells, and none while something is timed."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from tuner.errors import TunerError
from tuner.job.frameworks.result import ComparisonData
from tuner.job.job import Job
from tuner.measure.measurement import Measurement
from tuner.measure.objective import Objective
from tuner.measure.rounds import Round
from tuner.model.graph import Features
from tuner.model.overhead import Row
from tuner.model.profile import Traced
from tuner.quantity import clock_text, duration_text, ms_text, percent, plural, rate_text, ratio_text
from tuner.report import terminal, verdicts
from tuner.report import workload as workloads
from tuner.report.terminal import noise_text, setting_text, trial_row
from tuner.result.comparison import ComparisonResult
from tuner.result.document import trial_result
from tuner.result.evidence import noise_result
from tuner.space.setting import Setting
from tuner.stats.equivalence import Verdict
from tuner.stats.estimate import Estimate
from tuner.stats.noise import PRIOR_NOISE, Noise
from tuner.study.record import Record
from tuner.study.trials import Trial
from tuner.workload.workload import Execution

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
        left = f", {duration_text(left_s)} left" if left_s < math.inf else ""
        settings = " | ".join(setting_text(trial.setting.to_dict(), self._fixed_knobs) for trial in trials)
        self._doing(f"measuring{left}: {settings} …")

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
        left = f", {duration_text(left_s)} left" if left_s < math.inf else ""
        self._clear()
        self._print(Text(f"round {number}: measured for {duration_text(round_.timed_s)}{failed}{left}", style="dim"))
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
    return Console(stderr=True, highlight=False, markup=False, quiet=quiet)


class _Shown:
    def __init__(self, console: Console) -> None:
        self._console = console

    def waiting(self, line: str) -> None:
        self.notice(f"waiting: {line}")

    def notice(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, markup=False)


class ComparisonShown(_Shown):
    """Shows the rounds of a comparison with what they say."""

    def looked(self, n_rounds: int, verdict: Verdict, left_s: float) -> None:
        left = f", {duration_text(left_s)} left" if left_s < math.inf else ""
        figure = "" if verdict.speedup is None else f": {verdicts.speedup_text(verdict)}, {verdict.code}"
        self._console.print(f"round {n_rounds}{figure}{left}", style="dim")


class LoadShown(_Shown):
    """Shows the rounds under load, and after the first at which rate each setting saturates."""

    def loaded(self, n_rounds: int, saturation: Mapping[str, float], left_s: float) -> None:
        left = f", {duration_text(left_s)} left" if left_s < math.inf else ""
        rates = ", ".join(f"{name} {rate_text(rate)}/s" for name, rate in saturation.items())
        at_most = f"; at most: {rates}" if n_rounds == 1 else ""
        self._console.print(f"round {n_rounds}{left}{at_most}", style="dim")


class VerificationShown(_Shown):
    """Shows the rounds of a comparison that is part of something else in a word each."""

    def looked(self, n_rounds: int, verdict: Verdict, left_s: float) -> None:
        del left_s
        self._console.print(f"round {n_rounds}: {verdict.code}", style="dim")


class NoiseShown(_Shown):
    """Shows the machine and the ratio of each pair."""

    def prepared(self, job: Job) -> None:
        self._console.print(terminal.host(job.subject))

    def pair_ended(self, number: int, ratio: Estimate) -> None:
        self._console.print(f"pair {number}: {ratio_text(ratio.ratio, *ratio.interval())}", style="dim")


class SearchShown(VerificationShown, LoadShown):
    """Shows what is searched and where, the trials and rounds, and the further sessions."""

    def __init__(self, console: Console, *, details: bool = False) -> None:
        """With `details` the machine, the knobs and the baselines are shown in full."""
        super().__init__(console)
        self._details = details
        self._progress: Progress | None = None

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

    def profiling(self, threads: int) -> None:
        self._console.print(f"profiling the operators with {plural(threads, 'thread')}", style="dim", markup=False)

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
        self._progress = progress
        return progress

    def study_ended(self) -> None:
        if self._progress is not None:
            self._progress.end()

    def interrupted(self) -> None:
        self._console.print("interrupted; all finished trials are saved, run the same command to continue")

    def nothing_to_repeat(self) -> None:
        self._console.print("the study recommends the default: there is nothing to measure again")

    def session_waits(self, number: int, n_sessions: int, study: str, left_s: float) -> None:
        self._console.print(
            f"session {number} of {n_sessions} starts in {duration_text(left_s)}; press Ctrl-C to stop here (`tftune "
            f"check {shlex.quote(study)}` adds a session later)",
            soft_wrap=True,
        )

    def session_ended(self, result: ComparisonResult) -> None:
        self._console.print(f"this session: {verdicts.speedup_text(result)}", soft_wrap=True)

    def session_failed(self, number: int, error: TunerError) -> None:
        self._console.print(f"session {number} failed: {error.message}", style="red", soft_wrap=True, markup=False)


class ProfileShown(_Shown):
    """Shows each number of threads with what a step takes."""

    def began(self, threads: int) -> None:
        self._console.print(f"profiling with {plural(threads, 'thread')}", style="dim", markup=False)

    def ended(self, traced: Traced) -> None:
        self._console.print(f"  a step takes {ms_text(1000 * traced.step_s)} ms", markup=False)

    def repeats(self) -> None:
        self._console.print("timing steps once more, in other processes", style="dim", markup=False)


class OverheadShown(_Shown):
    """Shows each execution at each batch size, with its exposed overhead."""

    def began(self, execution: Execution, batch_size: int, left_s: float) -> None:
        self._console.print(
            f"{execution}, batch size {batch_size}; {duration_text(max(0.0, left_s))} left", style="dim", markup=False
        )

    def ended(self, row: Row) -> None:
        if row.overhead is None:
            self._console.print(f"  {row.status}: {row.message}", soft_wrap=True, markup=False)
            return
        exposed, step = percent(row.overhead.exposed.estimate, 0), ms_text(1000 * (row.step_s or 0.0))
        self._console.print(f"  exposed overhead {exposed}, of a step of {step} ms", markup=False)


class FrameworksShown(_Shown):
    """Shows what begins, with the time that is left, and what came of each part."""

    def began(self, what: str, left_s: float) -> None:
        self._console.print(f"{what}; {duration_text(left_s)} left", style="dim", markup=False)

    def ended(self, framework: str, outcome: str) -> None:
        self._console.print(f"{framework}: {outcome}", soft_wrap=True, markup=False)

    def looked(self, data: ComparisonData) -> None:
        for candidate in data.candidates[1:]:
            own = data.log_ratio(candidate.name, data.reference)
            if own is not None and own.df > 0:
                self._console.print(
                    f"  {candidate.framework} {candidate.kind}: {ratio_text(own.ratio, *own.interval())}"
                )

    def measured(self, measurement: Measurement) -> None:
        text, anchor, own = f"  {measurement.contender}", measurement.paired_batch_size, measurement.estimate()
        if measurement.status != "ok":
            self._console.print(f"{text}: {measurement.status}: {measurement.message}", soft_wrap=True, markup=False)
        elif own is not None:
            of = "" if anchor is None else f" of its rate at batch size {anchor}"
            self._console.print(f"{text}: {ratio_text(own.ratio, *own.interval())}{of}")
