"""Progress for people: a line when something has ended, and nothing while something is being timed."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from rich.console import Console
from rich.text import Text

from tuner.measure.finals import Round
from tuner.quantity import clock_text, duration_text
from tuner.report.terminal import noise_text, setting_text, trial_row
from tuner.result.document import trial_result
from tuner.result.evidence import noise_result
from tuner.space.setting import Setting
from tuner.stats.noise import PRIOR_NOISE, Noise
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

    @property
    def _is_narrow(self) -> bool:
        """Return whether the screen has no room for columns, so that cells follow one another."""
        return self._console.width < sum(self._widths) + 2 * len(self._widths)

    def stage(self, text: str) -> None:
        """Say that a phase begins."""
        self._clear()
        self._print(Text(text, style="bold"))

    def heading(self) -> None:
        """Print the heading of the rows to come."""
        if self._is_narrow:
            return
        row = f"{'#':<3}  {'setting':<{self._widest}}  {'ratio [95 %]':<20}  {'timed':<5}  left"
        self._print(Text(row, style="bold"))

    def calibrated(self, noise: Noise, floor: float) -> None:
        """Say what the noise is."""
        self._process_sd = noise.process_sd
        self._clear()
        self._print(Text(noise_text(noise_result(noise, floor)), style="dim"))
        self.heading()

    def trials_started(self, trials: Sequence[Trial], left_s: float) -> None:
        """Say which trials are under way, before anything of them is timed."""
        left = f", {duration_text(left_s)} left" if left_s < math.inf else ""
        settings = " | ".join(setting_text(trial.setting.to_dict(), self._fixed_knobs) for trial in trials)
        self._doing(f"measuring{left}: {settings} …")

    def trial_ended(self, trial: Trial, best: Trial | None, left_s: float) -> None:
        """Print the trial's row: number, setting, ratio with its interval, time in slices, time left, notes."""
        self._clear()
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
