"""The reference: the live process that every trial is paired with.

It is the framework's default at the default batch size, one live process, renewed every few trials: processes of one
setting differ, and a single reference would bias all trials alike. Where memory does not hold two processes, the drift
probe stands in: a small process that multiplies matrices, on which drift can be seen. The default was compared with it
once, and a trial is compared with the default by way of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuner.errors import BaselineError, TunerError
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair, PairPlan, ReferenceLost, log_ratios, measure_pair
from tuner.stats.estimate import Estimate
from tuner.stats.moderation import moderated_estimate
from tuner.trial.launcher import Launcher, Process, StartResult
from tuner.trial.outcome import TrialFailure

Enough = Callable[[Pair], bool]
PRIOR_DF = 4.0


@dataclass(slots=True, kw_only=True)
class Reference:
    """A live reference. `step_s` is about how long a step of it takes, `sample` what it computes.

    `probe_offset` is the log-ratio of the default to it: None where it is that default itself, and not the drift probe.
    """

    process: Process
    number: int
    batch_size: int
    step_s: float
    sample: dict[str, Any] | None = None
    probe_offset: Estimate | None = None
    n_trials: int = 0

    def estimate(self, pair: Pair, objective: Objective, *, batch_size: int, sd: float) -> Estimate:
        """Return a candidate's log-ratio to the default, from its pair with this reference.

        Moderated by `sd`, the standard deviation of a block in this study.
        """
        x = log_ratios(pair, objective, batch_sizes=(batch_size, self.batch_size))
        estimated = moderated_estimate(x, prior_sd=sd, prior_df=PRIOR_DF)
        return estimated if self.probe_offset is None else estimated.minus(self.probe_offset)


def reference_from(start: StartResult, number: int) -> Reference:
    """Return a started process as the reference; raises BaselineError where it failed."""
    if start.facts is None:
        assert start.failure is not None  # Started has one of the two
        raise BaselineError(
            f"the default setting {start.failure.status}: {start.failure.message}",
            "first make the workload run with the framework's defaults",
            log=start.failure.log,
        ) from start.failure
    return Reference(
        process=start.process,
        number=number,
        batch_size=start.setting.batch_size,
        step_s=start.facts.step_s,
        sample=start.facts.sample,
    )


def drift_probe_reference(
    reference: Reference,
    launcher: Launcher,
    plan: PairPlan,
    objective: Objective,
    *,
    batch_size: int,
    enough: Enough,
    sd: float,
) -> Reference:
    """Return the drift probe in the place of a reference that was compared with it, and is ended.

    Raises TunerError where memory does not hold even one process beside the drift probe.
    """
    probe = launcher.drift_probe()
    try:
        facts = probe.ready()
        probe.pause()
        stand_in = Reference(
            process=probe, number=reference.number, batch_size=1, step_s=facts.step_s, sample=reference.sample
        )
        steps = stand_in.step_s, reference.step_s
        pair = measure_pair(probe, reference.process, plan, step_s=steps, enough=enough)
    except (TrialFailure, ReferenceLost) as failure:
        probe.close()
        raise TunerError(
            f"the default setting failed: {failure}", "there may be too little memory for one process: free some memory"
        ) from failure
    except BaseException:
        probe.close()
        raise
    reference.process.close()
    stand_in.probe_offset = stand_in.estimate(pair, objective, batch_size=batch_size, sd=sd)
    return stand_in
