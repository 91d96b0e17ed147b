"""What people see of a task while it runs: a line on a console for each thing that it tells."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console

from tuner.errors import TunerError
from tuner.job.job import Job
from tuner.measure.measurement import Measurement
from tuner.model.graph import Features
from tuner.model.overhead import Row
from tuner.model.profile import Traced
from tuner.quantity import duration_text, ms_text, percent, plural, ratio_text
from tuner.report import terminal, verdicts
from tuner.report import workload as workloads
from tuner.report.progress import Progress
from tuner.space.setting import Setting
from tuner.stats.equivalence import Verdict
from tuner.stats.estimate import Estimate
from tuner.study.record import Record
from tuner.workload.workload import Execution

if TYPE_CHECKING:
    from tuner.job.frameworks.result import ComparisonData


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


class SearchShown(VerificationShown):
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

    def session_ended(self, verdict: Verdict) -> None:
        self._console.print(f"this session: {verdicts.speedup_text(verdict)}", soft_wrap=True)

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
