"""The energy that a device takes while something runs on it: the difference of two readings of its counter.

What runs beside is in it, and what the device takes when it idles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tuner.trial.outcome import Slice

EnergyMeter = Callable[[], float | None]
"""Tells how much energy (J) a device has taken since some beginning; None where that cannot be read."""


def no_meter() -> None:
    """Return nothing: there is no meter."""
    return


def metered(slice_: Slice, before_j: float | None, after_j: float | None) -> Slice:
    """Return a slice with what was taken between two readings.

    Nothing is said where one of them is missing, or where the counter began again meanwhile.
    """
    if before_j is None or after_j is None or after_j < before_j:
        return slice_
    return replace(slice_, energy_j=after_j - before_j)


def energy_of(slices: Sequence[Slice]) -> tuple[float | None, float]:
    """Return the energy (J) and the duration (s) of slices; None where there is none, or one was not metered."""
    joules = [each.energy_j for each in slices if each.energy_j is not None]
    seconds = sum(each.elapsed_s for each in slices)
    return (sum(joules) if joules and len(joules) == len(slices) else None), seconds
