"""The standing of a search: its best trial so far, and those that may be as good."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tuner.search.record import Trial
from tuner.space.setting import Setting


def incumbent(trials: Sequence[Trial], belief: Mapping[Setting, float] | None = None) -> Trial | None:
    """Return the best trial among those that were not given up as hopeless: the largest posterior mean.

    `belief` is the posterior mean (log-ratio) of each setting, as `tuner.search.sampler.believed` has it. The largest
    of many noisy means is too high on average; without a belief it is taken all the same. A baseline that a `--set`
    rules out is compared with and not chosen, nor is what breaks a limit.
    """
    good = [t for t in trials if t.estimate is not None and not t.pruned and t.eligible and not t.over_limit]
    known = belief or {}
    return max(good, key=lambda t: known.get(t.setting, t.log_ratio or 0.0), default=None)


def alike(
    trials: Sequence[Trial], *, luck: float, level: float = 0.95, belief: Mapping[Setting, float] | None = None
) -> list[Trial]:
    """Return the trials that may be as good as the incumbent for all that the search can tell, it among them.

    `luck` is what two processes of one setting differ by; `belief` as for `incumbent`.
    """
    best = incumbent(trials, belief)
    if best is None or best.estimate is None:
        return []
    found = []
    for trial in trials:
        if trial.estimate is None or not trial.eligible or trial.over_limit:
            continue
        apart = trial.estimate.minus(best.estimate)
        lucky = math.sqrt(2 if trial.reference == best.reference else 4) * luck
        if trial is best or apart.widened(lucky).interval(level)[1] >= 1.0:
            found.append(trial)
    return found
