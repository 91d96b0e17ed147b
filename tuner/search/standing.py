"""The standing of a search: its best trial so far, and those that may be as good."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.search.record import Trial


def incumbent(trials: Sequence[Trial]) -> Trial | None:
    """Return the best trial: the largest mean log-ratio among those that were not given up as hopeless.

    A baseline that a `--set` rules out is compared with and not chosen, nor is what breaks a limit.
    """
    good = [t for t in trials if t.estimate is not None and not t.pruned and t.eligible and not t.over_limit]
    return max(good, key=lambda t: t.log_ratio or 0.0, default=None)


def alike(trials: Sequence[Trial], *, luck: float, level: float = 0.95) -> list[Trial]:
    """Return the trials that may be as good as the incumbent for all that the search can tell, it among them.

    `luck` is what two processes of one setting differ by.
    """
    best = incumbent(trials)
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
