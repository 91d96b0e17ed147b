"""What goes on inside of a step: what can be looked into, and what to do where that fails."""

from __future__ import annotations

from tuner.errors import BadInputError
from tuner.frameworks.framework import Framework
from tuner.frameworks.registry import DEFAULT
from tuner.trial.outcome import Status
from tuner.workload.workload import Workload


def check_inside(workload: Workload, framework: Framework) -> None:
    """Raise BadInputError for a workload whose steps cannot be looked into: TensorFlow alone tells of its own."""
    if workload.command is not None:
        raise BadInputError("a command has no inside that could be looked at", "give a model")
    if framework.name != DEFAULT:
        raise BadInputError(f"{framework.title} tells nothing of its operators", "use --framework tensorflow")
    if workload.members:
        raise BadInputError("an ensemble has several models", "give them one by one")
    if workload.rate is not None:
        raise BadInputError("steps are looked into without requests", "leave the rate out")


def advice(status: Status, hint: str | None, *, smaller: str) -> str:
    """Return what to do where a step could not be looked into; `smaller` says how a smaller batch is asked for."""
    slow = f"give it more time (--trial-timeout 10m), or {smaller}"
    return hint or (slow if status is Status.TIMEOUT else "see whether it runs at all: tftune search")
