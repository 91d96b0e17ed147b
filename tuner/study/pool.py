"""The process pool: live processes, kept to measure other batch sizes with the same threads.

A change of the batch size needs no new process: a loaded model is given other inputs, warms up, and is timed. What
starting and loading cost is paid once for all batch sizes of a thread setting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.space.setting import Setting
from tuner.trial.launcher import Process
from tuner.trial.outcome import ReadyReport


def without_batch_size(setting: Setting) -> Setting:
    """Return a setting without its batch size: what a process keeps."""
    return setting.without("batch_size")


@dataclass(slots=True, kw_only=True)
class LiveProcess:
    """A warm and paused process: its number in the study, the setting that it has now, and what it told."""

    number: int
    setting: Setting
    process: Process
    facts: ReadyReport

    def set_batch_size(self, batch_size: int) -> None:
        """Let it go on with another batch size; raises TrialFailure."""
        self.process.resume()
        self.facts = self.process.set_batch_size(batch_size)
        self.process.pause()
        self.setting = self.setting.with_values(batch_size=batch_size)


class ProcessPool:
    """The processes of at most `capacity` thread settings; the one that was used longest ago makes room.

    With a capacity of 0 each setting has a process of its own, which stays until it was measured.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._live: dict[Setting, LiveProcess] = {}

    def __iter__(self) -> Iterator[LiveProcess]:
        return iter(self._live.values())

    def __contains__(self, setting: Setting) -> bool:
        """Return whether a process is there that can run this setting."""
        return self.key(setting) in self._live

    def key(self, setting: Setting) -> Setting:
        """Return what settings that can run in one process have in common."""
        return without_batch_size(setting) if self._capacity else setting

    def take(self, setting: Setting) -> LiveProcess | None:
        """Return the process of a setting, which is the caller's then; None where there is none."""
        return self._live.pop(self.key(setting), None)

    def put(self, *lives: LiveProcess, keep_for: Sequence[Setting] = ()) -> None:
        """Keep processes, and end those that were used longest ago; those of the settings `keep_for` stay."""
        for live in lives:
            earlier = self._live.pop(self.key(live.setting), None)
            if earlier is not None and earlier is not live:
                earlier.process.close()
            self._live[self.key(live.setting)] = live
        staying = {self.key(setting) for setting in keep_for}
        for threads in [each for each in self._live if each not in staying]:
            if len(self._live) <= self._capacity:
                break
            self._live.pop(threads).process.close()

    def close(self) -> None:
        """End all of them."""
        while self._live:
            self._live.popitem()[1].process.close()
