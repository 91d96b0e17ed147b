"""Experiments: does a knob reach a build? The probe moves it far away, and what it sees of it says so.

An experiment moves one knob from a low value to one that is far away, in a process of its own, while those of all other
experiments are low. Its observation is what the framework's child code saw there, and holds `changes`, what was set
beside the low values: {} in one process more, and None in another, where nothing is set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Observation = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Whether a knob reaches a build (None: unknown), and the evidence in one line."""

    answer: bool | None
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What carries a knob, by `name`: `low` is moved to `contrast`, which may depend on the CPUs of the mask.

    `interpret` is handed `contrast` as it was, and the observations with the low value and with that one.
    """

    name: str
    low: str
    contrast: Callable[[Sequence[int]], str]
    interpret: Callable[[str, Observation, Observation], Reach]


def plan(experiments: Sequence[Experiment], cpus: Sequence[int]) -> dict[str, Any]:
    """Return what a probe is told to do: the low values, and what is changed of them in each process."""
    changes = [None, {}, *({each.name: each.contrast(cpus)} for each in experiments)]
    return {"low": {each.name: each.low for each in experiments}, "changes": changes}


def reach(experiments: Sequence[Experiment], observations: Sequence[Observation]) -> dict[str, Reach]:
    """Return, for each experiment that was made, whether its knob reaches the build."""
    low = observed(observations, {})
    if low is None:
        return {}
    return {
        each.name: each.interpret(high["changes"][each.name], low, high)
        for each in experiments
        if (high := moved(observations, each)) is not None
    }


def observed(observations: Sequence[Observation], changes: dict[str, str] | None) -> Observation | None:
    """Return what was seen with these changes of the low values, None if that was not tried."""
    return next((o for o in observations if o["changes"] == changes), None)


def moved(observations: Sequence[Observation], experiment: Experiment) -> Observation | None:
    """Return what was seen when an experiment moved its knob, None if it was not made."""
    return next((o for o in observations if list(o["changes"] or ()) == [experiment.name]), None)
