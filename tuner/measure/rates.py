"""Rates: what rounds say of each contender, how fast it is, what it takes and why it failed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from tuner.measure.objective import Objective
from tuner.measure.passes import waking
from tuner.measure.rounds import Contender, Round
from tuner.stats.estimate import Array


def memory_of(rounds: Sequence[Round], name: str) -> int | None:
    """Return the most memory that a contender's process took."""
    return max((r.memory[name] for r in rounds if name in r.memory), default=None)


def failures(rounds: Sequence[Round]) -> dict[str, str]:
    """Return why contenders failed, the last reason of each, by first name."""
    return {name: text for round_ in rounds for name, text in round_.failures.items()}


def last_hint(rounds: Sequence[Round], names: Iterable[str]) -> str:
    """Return what to do about the last failure of contenders, "" where that is not known."""
    known = [text for round_ in rounds for name in names if (text := round_.hints.get(name))]
    return known[-1] if known else ""


def log_rates(
    rounds: Sequence[Round], contenders: Sequence[Contender], objective: Objective
) -> tuple[list[str], Array]:
    """Return (names, y): the contenders that ran, and their mean log rates in the rounds that count, shape (r, c).

    NaN where a contender did not run in a round. One that failed in more than half of its rounds is left out, with no
    figure: so a bad start costs a round, and a setting that does not run costs only itself.
    """
    return mean_log_rates(rounds, contenders, slice_log_rates(rounds, contenders, objective))


def mean_log_rates(
    rounds: Sequence[Round], contenders: Sequence[Contender], of_slices: Sequence[dict[str, Array]]
) -> tuple[list[str], Array]:
    """Return what `log_rates` does, from what `slice_log_rates` returns of the same rounds."""
    counted = [r for r in rounds if not r.interruptions]
    all_names = [contender.names[0] for contender in contenders]
    ran = {name: sum(name in r.slices for r in counted) for name in all_names}
    failed = {name: sum(name in r.failures for r in counted) for name in all_names}
    names = [name for name, n in ran.items() if n and n >= failed[name]]
    y = [[of_round[name].mean() if name in of_round else math.nan for name in names] for of_round in of_slices]
    return names, np.array(y, dtype=float).reshape(len(counted), len(names))


def slice_log_rates(
    rounds: Sequence[Round], contenders: Sequence[Contender], objective: Objective
) -> list[dict[str, Array]]:
    """Return the log rates of each contender's slices in each round that counts and in which it ran."""
    counted = [r for r in rounds if not r.interruptions]
    costs = waking(each for r in counted for slices in r.slices.values() for each in slices)
    batch_sizes = {contender.names[0]: contender.setting.batch_size for contender in contenders}
    return [
        {
            name: np.array([objective.log_rate(each, batch_size, costs) for each in r.slices[name]])
            for name, batch_size in batch_sizes.items()
            if name in r.slices
        }
        for r in counted
    ]


def pass_log_ratios(rounds: Sequence[Round], of_slices: Sequence[dict[str, Array]], a: str, b: str) -> list[Array]:
    """Return the log-ratios of contender `b` to `a` in each round that counts and in which both ran, shapes (passes,).

    `of_slices` is what `slice_log_rates` returns of the rounds. Where the two did not live together, all their slices
    of a round are one pass: a drift between them is in all.
    """
    log_ratios = []
    for round_, rates in zip((r for r in rounds if not r.interruptions), of_slices, strict=True):
        if a in rates and b in rates:
            first, second = round_.slices[a], round_.slices[b]
            n_passes = round_.n_passes or len(first) // 2
            difference = np.subtract(*(rates[name].reshape(n_passes, -1).mean(axis=1) for name in (b, a)))
            lived_together = first[0].start_s < second[-1].start_s and second[0].start_s < first[-1].start_s
            log_ratios.append(difference if lived_together else difference.mean(keepdims=True))
    return log_ratios


def adjusted_rates(names: Sequence[str], y: Array, incumbent: str) -> dict[str, float]:
    """Return the mean log rate of each contender, adjusted to the rounds of the incumbent.

    Rounds differ by the drift of the machine, so that the rate of another is the incumbent's and their mean difference.
    """
    if incumbent not in names:
        return {name: float(np.nanmean(y[:, j])) for j, name in enumerate(names)}
    incumbent_rates = y[:, names.index(incumbent)]
    differences = {name: y[:, j] - incumbent_rates for j, name in enumerate(names)}
    return {
        name: float(np.nanmean(incumbent_rates) + np.nanmean(each))
        for name, each in differences.items()
        if not np.isnan(each).all()
    }
