"""The reference: the live process that every trial is paired with.

It is the framework's default at the default batch size, one live process, renewed every few trials: processes of one
setting differ, and a single reference would bias all trials alike. Where memory does not hold two processes, it is
ended after each turn and started anew for the next; see `tuner.trial.restarting`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tuner.errors import BaselineError
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair, log_ratios
from tuner.stats.estimate import Estimate
from tuner.stats.moderation import moderated_estimate
from tuner.trial.launcher import Process, StartResult
from tuner.trial.outcome import way_out

PRIOR_DF = 4.0


@dataclass(slots=True, kw_only=True)
class Reference:
    """A live reference. `step_s` is about how long a step of it takes, `sample` what it computes.

    Where it is `alone`, it and a trial's process live one at a time.
    """

    process: Process
    number: int
    batch_size: int
    step_s: float
    sample: dict[str, Any] | None = None
    not_finite: dict[str, dict[str, int]] = field(default_factory=dict)
    alone: bool = False
    n_trials: int = 0

    def estimate(self, pair: Pair, objective: Objective, *, batch_size: int, sd: float) -> Estimate:
        """Return a candidate's log-ratio to the default, from its pair with this reference.

        Moderated by `sd`, the standard deviation of a block in this study.
        """
        x = log_ratios(pair, objective, batch_sizes=(batch_size, self.batch_size))
        return moderated_estimate(x, prior_sd=sd, prior_df=PRIOR_DF)


def reference_from(start: StartResult, number: int) -> Reference:
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
        batch_size=start.setting.batch_size,
        step_s=start.facts.step_s,
        sample=start.facts.sample,
        not_finite=start.facts.not_finite,
    )
