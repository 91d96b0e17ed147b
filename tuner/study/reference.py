"""The reference: the live process that is in every pass.

It is the framework's default at the default batch size, one live process, renewed every few trials: processes of one
setting differ, and a single reference would bias all trials alike. Where memory does not hold two processes, it is
ended after each turn and started anew for the next; see `tuner.trial.restarting`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tuner.errors import BaselineError
from tuner.measure.passes import Live
from tuner.trial.launcher import Process, StartResult
from tuner.trial.outcome import way_out


@dataclass(slots=True, kw_only=True)
class Reference:
    """A live reference. `step_s` is about how long a step of it takes, `sample` what it computes.

    `number` counts references, `process_number` all processes of a study.
    """

    process: Process
    number: int
    process_number: int
    step_s: float
    sample: dict[str, Any] | None = None
    not_finite: dict[str, dict[str, int]] = field(default_factory=dict)
    n_trials: int = 0
    timed: Live | None = None


def reference_from(start: StartResult, number: int, process_number: int) -> Reference:
    """Return a started process as the reference; raises BaselineError where it failed."""
    if start.facts is None:
        assert start.failure is not None  # Started has one of the two
        raise BaselineError(
            f"the default setting {start.failure.status}: {start.failure.message}",
            start.failure.hint
            or way_out(
                start.failure.status, start.failure.message, otherwise="run the workload without tftune to see why"
            ),
            log="" if start.failure.hint else start.failure.log,  # the reason is known
        ) from start.failure
    return Reference(
        process=start.process,
        number=number,
        process_number=process_number,
        step_s=start.facts.step_s,
        sample=start.facts.sample,
        not_finite=start.facts.not_finite,
    )
