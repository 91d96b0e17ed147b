"""Interruptions: what keeps slices that belong together from seeing one weather, so that they are measured again.

Only clocks that never go back are read.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

from tuner.trial.outcome import Slice

STALL = "a slice stalled"
_ASLEEP_S = 1.0
_IDLE_S = 5.0  # between two slices: a stopped tuner, or a machine that has come to a standstill
_STALLED, _STALL_S = 5.0, 2.0  # a slice this many times slower than usual, and this long, is no weather


def slept(seconds: float) -> str:
    """Return what is to be said where the machine slept for so long meanwhile, nothing if it did not."""
    return f"the machine slept for {seconds:.0f} s" if seconds > _ASLEEP_S else ""


def idle(slices: Sequence[Slice], where: str) -> str:
    """Return what is to be said where nothing ran for long between two of the slices, nothing if something did."""
    in_time = sorted(slices, key=lambda s: s.start_s)
    gaps_s = [after.start_s - before.start_s - before.elapsed_s for before, after in itertools.pairwise(in_time)]
    longest_s = max(gaps_s, default=0.0)
    return f"nothing ran for {longest_s:.0f} s in the middle of {where}" if longest_s > _IDLE_S else ""


def stalled(usual_s: Sequence[float], new: Sequence[Slice]) -> str:
    """Return what is to be said where one of a process's new slices is much slower than usual, nothing if none is.

    `usual_s` are steps (s) that are known of the process.
    """
    usual = statistics.median_low([*usual_s, *(step_s(s) for s in new)])
    slow = max(new, key=step_s)
    if step_s(slow) > _STALLED * usual and slow.elapsed_s > _STALL_S:
        return f"{STALL}: {slow.elapsed_s:.1f} s where {slow.n_steps * usual:.1f} s are usual"
    return ""


def step_s(slice_: Slice) -> float:
    """Return how long a slice's steps take on average."""
    return slice_.elapsed_s / slice_.n_steps
