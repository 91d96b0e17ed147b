"""The plan: how a search is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tuner.measure.constraint import Limits
from tuner.measure.objective import Objective
from tuner.measure.planning import SLICE_S, FinalsPlan
from tuner.space.setting import Setting
from tuner.stats.equivalence import MARGIN
from tuner.study.race import RacePlan
from tuner.study.trials import Score

# What the passes of a trial may leave open (log) where nothing is searched for, if there is time: with what processes
# differ by, the standard error of a ratio is about 1.5 %, and its interval ±3 %.
_PLANNED_SE = 0.011
_PLANNED_TOGETHER, _PLANNED_LIVE = 16, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorPlan:
    """How a trial is measured.

    A trial stays in the passes, of slices of about `slice_s` (s), until the race says otherwise, for at most
    `max_passes`, or until one more would make its slices longer than `max_slices_s`. At most `n_together` trials are
    timed together, fewer if a pass of them would take longer than `max_pass_s`. At most `n_parallel_starts` processes
    start at once. A new reference process starts after `max_trials_per_reference` trials, because all trials beside one
    reference share its luck. The noise is taken from `calibration_passes` of the reference and its twin, from fewer if
    these take longer than `calibration_s` seconds.
    The processes of `n_live` thread settings are kept for other batch sizes of these; none if each batch size is to
    have a process of its own. A process is warm after about `warm_up_steps`. A setting that breaks one of the `limits`
    is measured like any other, and never the incumbent. `free_memory_bytes` tells how much memory is left for
    processes, None if that is not known.
    """

    objective: Objective = Objective.THROUGHPUT
    limits: Limits = field(default_factory=Limits)
    race: RacePlan = field(default_factory=RacePlan)
    slice_s: float = SLICE_S
    max_passes: int = 8
    max_slices_s: float = 5.0
    n_together: int = 4
    max_pass_s: float = 20.0
    n_parallel_starts: int = 2
    max_trials_per_reference: int = 24
    calibration_passes: int = 4
    calibration_s: float = 12.0
    n_live: int = 3
    warm_up_steps: int = 3
    free_memory_bytes: Callable[[], int | None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a study is measured.

    `margin` is the smallest difference that matters in practice (0.02 is 2 %). A search ends when the next trial is
    expected to gain less than `min_gain` (log-ratio). If its space is of one process, `n_groups` settings of several
    are tried after that. With `same_latency` the fastest setting whose call takes no longer than the default's has
    finals of its own, where a call of the fastest of all takes much longer. With a `score`, that is what settings are
    chosen by, and no finals follow: what is chosen is measured in another way, which has the time of the finals.
    With a `design`, its settings are measured instead of a search, in that order, and no finals follow.
    """

    evaluation: EvaluatorPlan = field(default_factory=EvaluatorPlan)
    finals: FinalsPlan = field(default_factory=FinalsPlan)
    margin: float = MARGIN
    min_gain: float = 0.001
    n_groups: int = 0
    same_latency: bool = False
    score: Score | None = None
    design: Sequence[Setting] = ()

    def planned(self, design: Sequence[Setting]) -> Plan:
        """Return the plan that measures these settings, each until it is known as well as the others."""
        usual = self.evaluation
        evaluation = replace(
            usual,
            race=RacePlan(precise_se=_PLANNED_SE, ranks=False),
            n_together=max(usual.n_together, _PLANNED_TOGETHER),
            n_live=max(usual.n_live, _PLANNED_LIVE) if usual.n_live else 0,
        )
        return replace(self, evaluation=evaluation, design=design)
