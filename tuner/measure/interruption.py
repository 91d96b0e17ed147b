"""Interruptions, such as a suspended machine or a stalled slice: the affected slices are measured again.

Only clocks that never go back are read.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tuner.trial.outcome import Slice

_ASLEEP_S = 1.0
_IDLE_S = 5.0  # between two slices: a stopped tuner, or a machine that has come to a standstill
# A slice this many times slower than usual, and at least this long (s), is a stall and not drift.
_STALLED, _STALL_S = 5.0, 2.0


class Kind(StrEnum):
    """What happened."""

    SUSPENDED = "asleep"
    STALLED = "stalled"
    FORKS_DIFFER = "forks differ"


@dataclass(frozen=True, slots=True)
class Interruption:
    """Why something was measured again, or does not count: a code, and what a person is told."""

    kind: Kind
    text: str


FORKS_DIFFER = Interruption(Kind.FORKS_DIFFER, "forked processes differ from fresh interpreters")
"""Why a round of forked processes does not count."""


def suspended(seconds: float) -> Interruption | None:
    """Return that the machine slept for so long meanwhile, None if it did not."""
    text = f"the machine was suspended for {seconds:.0f} s"
    return Interruption(Kind.SUSPENDED, text) if seconds > _ASLEEP_S else None


def idle(slices: Sequence[Slice], where: str) -> Interruption | None:
    """Return that nothing ran for long between two of the slices, None if something did."""
    in_time = sorted(slices, key=lambda s: s.start_s)
    gaps_s = [after.start_s - before.start_s - before.elapsed_s for before, after in itertools.pairwise(in_time)]
    longest_s = max(gaps_s, default=0.0)
    text = f"nothing ran for {longest_s:.0f} s during {where}"
    return Interruption(Kind.SUSPENDED, text) if longest_s > _IDLE_S else None


def stalled(usual_s: Sequence[float], new: Sequence[Slice]) -> Interruption | None:
    """Return that one of a process's new slices is much slower than usual, None if none is.

    `usual_s` are steps (s) that are known of the process. Of requests at random times nothing is said: how many come
    decides how long a slice lasts for each.
    """
    if any(each.window_s is not None for each in new):
        return None
    usual_step_s = statistics.median_low([*usual_s, *(step_s(s) for s in new)])
    slow = max(new, key=step_s)
    if step_s(slow) > _STALLED * usual_step_s and slow.elapsed_s > _STALL_S:
        text = f"a slice stalled: it took {slow.elapsed_s:.1f} s instead of about {slow.n_steps * usual_step_s:.1f} s"
        return Interruption(Kind.STALLED, text)
    return None


def step_s(slice_: Slice) -> float:
    """Return how long a slice's steps take on average."""
    return slice_.elapsed_s / slice_.n_steps
