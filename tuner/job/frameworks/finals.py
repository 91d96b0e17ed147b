"""The finals of a comparison: rounds of new processes, one of each setting, at the batch size of the comparison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.job.frameworks.comparison import Comparison
from tuner.job.frameworks.preparation import loading_s
from tuner.job.frameworks.result import bests
from tuner.job.frameworks.scan import Schedule, answering
from tuner.job.servers import parallel_starts
from tuner.measure.budget import LEAST_FINALS, MOST_FINALS
from tuner.measure.objective import Objective
from tuner.measure.planning import FinalsPlan
from tuner.measure.rates import failures, log_rates
from tuner.measure.rounds import Contender, Round, Rounds, merged, replicates
from tuner.quantity import ratio_text
from tuner.stats.moderation import half_widths

_MIN_ROUNDS, _MAX_ROUNDS = 6, 60
_SOME_ROUNDS = 4  # where their share of the time is up: the rest is for loading and other batch sizes
_LEAST_ROUNDS = 2  # whatever the time
_PASSES = 3  # of a round: as many as are worth their time where a start takes some seconds
_MAX_FAILURES = 2  # of a setting that never ran
_HALF_WIDTH = 0.029  # of the interval of a ratio (log) that is known: 3 %


def hold_finals(comparison: Comparison) -> None:
    """Hold rounds until each ratio to the reference is known, or their share of the time is up.

    A setting whose ratio is known leaves, so that the time goes to the others.
    """
    candidates = comparison.candidates()
    contenders = [candidate.contender(comparison.batch_size) for candidate in candidates]
    rounds = comparison.store.rounds(candidates)
    start_s, time_s = comparison.time.elapsed_s(), comparison.time.left_s()
    assert comparison.reference.launcher is not None  # the models are ready
    common = Rounds(
        launcher=comparison.reference.launcher,
        plan=FinalsPlan(
            passes=_PASSES,
            n_parallel_starts=parallel_starts(comparison.reference.job.machine),
            max_resident=_max_resident(comparison, FinalsPlan().max_resident),
        ),
        rng=np.random.default_rng(),
        time=comparison.time,
    )
    data = comparison.data()
    while True:
        ends_s = comparison.time.elapsed_s() + common.expected_s(common.n_together)
        has_time = ends_s <= start_s + finals_share(comparison, rounds, time_s) * time_s
        least = _MIN_ROUNDS if has_time else _LEAST_ROUNDS if comparison.time.is_over else _SOME_ROUNDS
        best_names = [each.name for each in bests(data)]
        unknown = not_known(rounds, contenders, best_names, at_least=least, half_width=_HALF_WIDTH)
        n_rounds = min((_n_rounds(rounds, each) for each in unknown), default=_MAX_ROUNDS)
        if n_rounds >= (_MAX_ROUNDS if has_time else least):
            break
        comparison.say(f"finals, round {len(rounds) + 1}: {1 + len(unknown)} settings")
        running = [contenders[0], *unknown]
        more = replicates(contenders[0], len(unknown))
        held = common.hold([*running, *more], fresh=True)
        common.n_together = len(running) + len(more)
        rounds.append(merged(held, contenders[0], more))
        comparison.store.add_round(candidates, rounds[-1])
        data = comparison.data()
        for candidate in data.candidates[1:]:
            own = data.log_ratio(candidate.name, data.reference)
            if own is not None and own.df > 0:
                text = ratio_text(own.ratio, *own.interval())
                comparison.events.notice(f"  {candidate.framework} {candidate.kind}: {text}")
    for name, reason in failures(rounds).items():
        comparison.events.notice(f"{name}: {reason}")


def finals_share(comparison: Comparison, rounds: Sequence[Round], time_s: float) -> float:
    """Return which share of the time (s) loading and the scan of what comes first do not need, within its limits."""
    loads_s = loading_s(comparison)
    schedule = Schedule(comparison, rounds, answering(comparison, rounds))
    needed_s = loads_s + schedule.scan_s((1 - LEAST_FINALS) * time_s - loads_s)
    return min(max(1 - needed_s / max(time_s, 1.0), LEAST_FINALS), MOST_FINALS)


def _n_rounds(rounds: Sequence[Round], contender: Contender) -> int:
    """Return how many rounds a contender was part of, whether it ran in them or failed."""
    name = contender.names[0]
    return sum(name in each.slices or name in each.failures for each in rounds)


def not_known(
    rounds: Sequence[Round],
    contenders: Sequence[Contender],
    best_names: Sequence[str],
    *,
    at_least: int,
    half_width: float,
) -> list[Contender]:
    """Return those whose ratio to the first is not known so well yet; one that does not run will not be known.

    Of the best of each framework, the fastest first, the ratio to the fastest has to be known, too: that is the answer.
    While anyone took part in fewer than `at_least` rounds, all run: so each has rounds in common with each other one,
    those that come later too.
    """
    reference, *others = contenders
    failed = {name: sum(name in each.failures for each in rounds) for name in failures(rounds)}
    names, y = log_rates(rounds, contenders, Objective.THROUGHPUT)
    others = [each for each in others if each.names[0] in names or failed.get(each.names[0], 0) < _MAX_FAILURES]
    if any(_n_rounds(rounds, each) < at_least for each in others):
        return others
    if reference.names[0] not in names:
        return []
    x = y - y[:, [names.index(reference.names[0])]]  # (r, c), the log-ratios to the reference
    unknown = {name for name, width in zip(names, half_widths(x), strict=True) if width > half_width}
    best = [names.index(name) for name in best_names if name in names]
    between = x[:, best[1:]] - x[:, best[:1]]
    has_met = np.isfinite(between).any(axis=0)  # who came later may have run in other rounds
    widths = np.full(len(best[1:]), np.inf)
    widths[has_met] = half_widths(between[:, has_met])
    for j, width in zip(best[1:], widths, strict=True):
        unknown |= {names[j], names[best[0]]} if width > half_width else set()
    return [each for each in others if each.names[0] in unknown or each.names[0] not in names]


def _max_resident(comparison: Comparison, most: int) -> int:
    """Return how many processes memory holds at once."""
    free_bytes = comparison.free_memory_bytes()
    starts = [start for each in comparison.running() for start in each.starts.values()]
    largest_bytes = max((start.peak_memory_bytes or 0 for start in starts), default=0)
    if free_bytes is None or not largest_bytes:
        return most
    return max(1, min(most, int(free_bytes // largest_bytes)))
