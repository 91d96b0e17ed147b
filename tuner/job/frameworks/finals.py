"""The finals of a contest: rounds of new processes, one of each setting, at the batch size of the contest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tuner.job.frameworks.contest import Contest, lineup_of
from tuner.job.servers import free_memory_bytes, parallel_starts
from tuner.measure.finals import Contender, Round, failures, log_rates, run_round
from tuner.measure.objective import Objective
from tuner.measure.planning import FinalsPlan
from tuner.stats.estimate import paired

_SHARE = 0.5  # of the time that is left
_MIN_ROUNDS, _MAX_ROUNDS = 4, 16
_HALF_WIDTH = 0.02  # of the interval of each ratio (log), at which they end: narrower than the 3 % that are promised


def hold_finals(contest: Contest) -> None:
    """Hold rounds until each ratio to the reference is known well, or their share of the time is up."""
    entries = contest.entries()
    contenders = [entry.contender(contest.batch_size) for entry in entries]
    rounds = contest.store.rounds(entries)
    ends_s = time.monotonic() + _SHARE * contest.left_s()
    plan = FinalsPlan(n_parallel_starts=parallel_starts(contest.reference.job.machine))
    plan = replace(plan, max_resident=_max_resident(contest, plan.max_resident))
    rng = np.random.default_rng()
    assert contest.reference.launcher is not None  # the models are ready
    longest_s = 0.0
    while not _is_decided(rounds, contenders):
        began_s = time.monotonic()
        if len(rounds) >= _MIN_ROUNDS and began_s + longest_s > ends_s:
            break
        contest.say(f"finals, round {len(rounds) + 1}: {len(contenders)} processes")
        rounds.append(run_round(contenders, contest.reference.launcher, plan, rng))
        contest.store.put_rounds(entries, rounds)
        longest_s = max(longest_s, time.monotonic() - began_s)
        contest.events.looked(lineup_of(contest, ""))
    for name, reason in failures(rounds).items():
        contest.events.ended(name, reason)


def _is_decided(rounds: Sequence[Round], contenders: Sequence[Contender]) -> bool:
    """Return whether there are enough rounds: there is nobody to compare with, or all intervals are narrow."""
    if len(contenders) < 2 or len(rounds) >= _MAX_ROUNDS:
        return True
    names, y = log_rates(rounds, contenders, Objective.THROUGHPUT)
    reference = contenders[0].names[0]
    if len(y) < _MIN_ROUNDS or reference not in names:
        return False
    at = names.index(reference)
    intervals = [np.log(paired(y, at, j).interval()) for j in range(len(names)) if j != at]
    return all(high - low <= 2 * _HALF_WIDTH for low, high in intervals)


def _max_resident(contest: Contest, most: int) -> int:
    """Return how many processes memory holds at once, at least two."""
    free_bytes = free_memory_bytes(contest.reference.job)
    starts = [contest.store.checked(each) for each in contest.running()]
    largest_bytes = max((start.cell.peak_memory_bytes or 0 for start in starts if start is not None), default=0)
    if free_bytes is None or not largest_bytes:
        return most
    return max(2, min(most, int(free_bytes // largest_bytes)))
