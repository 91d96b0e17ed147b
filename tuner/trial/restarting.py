"""Processes that live one at a time: where memory holds no second one, a pause ends a process, and another goes on.

Two of them can take turns as two live processes do, and each turn is that of a new process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.trial.launcher import Process
from tuner.trial.outcome import ExitStatus, ReadyReport, Slice


class Restarting:
    """The processes that `launch` starts, one after another, behind the protocol of a single one."""

    def __init__(self, launch: Callable[[], Process], live: Process | None = None) -> None:
        """`live` is the first of them, warm and paused; without it the first starts when it is resumed."""
        self._launch = launch
        self._live = live
        self._ended = ExitStatus(returncode=0, peak_memory_bytes=None)
        self._peak_bytes: int | None = None
        self.facts: ReadyReport | None = None
        """What the last one told that was started here; None before there was one."""

    @property
    def peak_memory_bytes(self) -> int | None:
        """Return the most that one of them has held; None where that is not known."""
        return _most(self._peak_bytes, None if self._live is None else self._live.peak_memory_bytes)

    @property
    def answers_on(self) -> Sequence[int]:
        """Return none: there is nothing to wait for."""
        return ()

    def ready(self) -> ReadyReport:
        """Start one, and wait until it is warm; raises TrialFailure, with nothing left behind."""
        self.close()
        self._live = self._launch()
        try:
            self.facts = self._live.ready()
        except BaseException:
            self.close()
            raise
        return self.facts

    def set_batch_size(self, batch_size: int) -> ReadyReport:
        """Let the live one go on with another batch size: not the next ones, which are started as the first was."""
        return self._current.set_batch_size(batch_size)

    def slice(self, duration_s: float) -> Slice:
        """Run whole steps of the live one for at least `duration_s`; raises TrialFailure."""
        return self._current.slice(duration_s)

    def pause(self) -> None:
        """End it, so that another has its memory."""
        self.close()

    def resume(self) -> None:
        """Let the first go on, or start the next; raises TrialFailure."""
        if self._live is None:
            self.ready()
        else:
            self._live.resume()

    def close(self) -> ExitStatus:
        """End the live one, if there is one."""
        if self._live is not None:
            self._peak_bytes = self.peak_memory_bytes
            self._ended, self._live = self._live.close(), None
            self._peak_bytes = _most(self._peak_bytes, self._ended.peak_memory_bytes)
        return self._ended

    @property
    def _current(self) -> Process:
        assert self._live is not None  # it was resumed
        return self._live


def _most(*values: int | None) -> int | None:
    """Return the largest of those that are known."""
    return max((each for each in values if each is not None), default=None)
