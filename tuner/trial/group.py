"""Groups: the processes that run one setting together, behind the protocol of a single one.

Each member is an instance of the workload with a model of its own, and all compute at the same time. What a group does
in a slice is what its members do together; see `tuner.trial.outcome.combined`. Its memory is what its members hold,
with what they share counted once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from tuner.trial.launcher import Process
from tuner.trial.outcome import ExitStatus, ReadyReport, Slice, TrialFailure, combined

T = TypeVar("T")


class Member(Process, Protocol):
    """A process that can be asked for something without waiting for the answer."""

    def start_slice(self, duration_s: float) -> None:
        """Let it run whole steps for at least `duration_s`."""

    def end_slice(self) -> Slice:
        """Wait for the slice that was begun; raises TrialFailure."""

    def start_batch(self, batch_size: int) -> None:
        """Let it go on with another batch size."""

    def end_batch(self) -> ReadyReport:
        """Wait until it is warm with that batch size; raises TrialFailure."""


def launch(start: Callable[[int], Member], n: int) -> Process:
    """Start `n` processes, by their numbers from 0, and return them as one.

    Raises what `start` raises, with nothing left behind.
    """
    members: list[Member] = []
    try:
        for number in range(n):
            members.append(start(number))  # noqa: PERF401  # started processes must be known if the next start fails
    except BaseException:
        for member in members:
            member.close()
        raise
    return members[0] if n == 1 else Group(members)


class Group:
    """Several processes that run one setting together."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._shared_bytes: list[int] = []

    @property
    def peak_memory_bytes(self) -> int | None:
        """Return what all have held together; None where one does not tell."""
        return self._sum([member.peak_memory_bytes for member in self._members])

    def ready(self) -> ReadyReport:
        """Wait until all are loaded and warm."""
        return self._facts([self._of(number, member.ready) for number, member in enumerate(self._members, start=1)])

    def set_batch_size(self, batch_size: int) -> ReadyReport:
        """Let all go on with another batch size, and wait until all are warm."""
        for member in self._members:
            member.start_batch(batch_size)
        return self._facts([self._of(number, member.end_batch) for number, member in enumerate(self._members, start=1)])

    def slice(self, duration_s: float) -> Slice:
        """Let all run whole steps for at least `duration_s` at the same time."""
        for member in self._members:
            member.start_slice(duration_s)
        return combined([self._of(number, member.end_slice) for number, member in enumerate(self._members, start=1)])

    def pause(self) -> None:
        """Stop all."""
        for member in self._members:
            member.pause()

    def resume(self) -> None:
        """Let all go on."""
        for member in self._members:
            member.resume()

    def close(self) -> ExitStatus:
        """End all; the first exit code that tells of a failure is the group's."""
        exits = [member.close() for member in self._members]
        codes = [each.returncode for each in exits]
        return ExitStatus(
            returncode=next((code for code in codes if code != 0), 0),
            peak_memory_bytes=self._sum([each.peak_memory_bytes for each in exits]),
        )

    def _of(self, number: int, ask: Callable[[], T]) -> T:
        """Return what a member answers; a failure tells which one it was."""
        try:
            return ask()
        except TrialFailure as failure:
            message = f"process {number} of {len(self._members)}: {failure.message}"
            raise TrialFailure(
                failure.status, message, failure.log, frames=failure.frames, hint=failure.hint
            ) from failure

    def _facts(self, facts: Sequence[ReadyReport]) -> ReadyReport:
        """Return what the first member told, with the longest of all phases and the memory of all."""
        warmed_up = [each.settled for each in facts]
        self._shared_bytes = [each.shared_bytes or 0 for each in facts]
        return replace(
            facts[0],
            import_s=max(each.import_s for each in facts),
            context_s=max(each.context_s for each in facts),
            load_s=max(each.load_s for each in facts),
            first_step_s=max(each.first_step_s for each in facts),
            warm_up=combined([each.warm_up for each in facts]),
            memory_bytes=self._sum([each.memory_bytes for each in facts]),
            settled=None if None in warmed_up else all(warmed_up),
        )

    def _sum(self, amounts: Sequence[int | None]) -> int | None:
        """Return how much memory all hold, what they share counted once; None where one is not known."""
        known_amounts = [amount for amount in amounts if amount is not None]
        if len(known_amounts) < len(amounts):
            return None
        return sum(known_amounts) - sum(sorted(self._shared_bytes)[:-1])
