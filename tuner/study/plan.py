"""The plan: how a search is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tuner.measure.constraint import Limits
from tuner.measure.objective import Objective
from tuner.measure.pair import PairPlan
from tuner.measure.planning import FinalsPlan
from tuner.stats.equivalence import MARGIN
from tuner.study.race import RacePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorPlan:
    """How a trial is measured.

    A pair goes on until the race says otherwise, or until one more block would make it longer than `max_pair_s`. At
    most `n_parallel_starts` processes start at once. A new reference process starts after `max_trials_per_reference`
    trials, because all trials paired with one reference share its process effect. The noise is taken from a pair of
    `calibration_blocks` blocks; from fewer where it would take longer than `calibration_s` seconds. The processes of
    `n_live` thread settings are kept for other batch sizes of these; none where each batch size is to have a process of
    its own. A process is warm after about `warm_up_steps`. A setting that breaks one of the `limits` is measured like
    any other, and never the incumbent. `free_memory_bytes` tells how much memory is left for processes, None if that is
    not known.
    """

    objective: Objective = Objective.THROUGHPUT
    limits: Limits = field(default_factory=Limits)
    pair: PairPlan = field(default_factory=PairPlan)
    race: RacePlan = field(default_factory=RacePlan)
    max_pair_s: float = 10.0
    n_parallel_starts: int = 2
    max_trials_per_reference: int = 24
    calibration_blocks: int = 4
    calibration_s: float = 12.0
    n_live: int = 3
    warm_up_steps: int = 3
    free_memory_bytes: Callable[[], int | None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a study is measured.

    `margin` is the smallest difference that matters in practice (0.02 is 2 %); `n_together` trials are started at once;
    a search ends when the next trial is expected to gain less than `min_gain` (log-ratio). Where its space is of one
    process, `n_groups` settings of several are tried after that.
    """

    evaluation: EvaluatorPlan = field(default_factory=EvaluatorPlan)
    finals: FinalsPlan = field(default_factory=FinalsPlan)
    margin: float = MARGIN
    n_together: int = 2
    min_gain: float = 0.001
    n_groups: int = 0
