"""Which settings of several processes a search tries, by what it has learned of one process."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from tuner.space.groups import INSTANCES, one_of
from tuner.space.setting import Setting, distinct
from tuner.study.surrogate import PriorMean

Predict = Callable[[Sequence[Setting]], Mapping[Setting, float]]
"""Returns the log-ratio to the default that is expected of settings of one process."""


def choose_groups(
    groups: Collection[Setting],
    predict: Predict,
    *,
    n: int,
    usual_batch: int,
    expected: PriorMean | None = None,
) -> list[Setting]:
    """Return at most `n` of the `groups` to try, the most promising first.

    n processes that did not slow each other down would do n times what one of them does alone, on as many threads. That
    bound ranks them: first each number of processes at the batch size nearest to `usual_batch`, as what the processes
    gain is then seen by itself, and last the most promising of the others. Where a model of the machine says what is
    `expected` of them, that ranks them instead.
    """
    one_process = predict(distinct(one_of(each) for each in groups))
    promise = {each: math.log(int(each[INSTANCES])) + one_process.get(one_of(each), 0.0) for each in groups}
    if expected is not None:
        promise = dict(zip(groups, expected(list(groups)).tolist(), strict=True))
    ranked = sorted(groups, key=lambda each: -promise[each])
    first = {
        count: min(
            (each for each in ranked if each[INSTANCES] == count),
            key=lambda each: abs(math.log(each.batch_size / usual_batch)),
        )
        for count in dict.fromkeys(each[INSTANCES] for each in ranked)
    }
    alike = [each for each in ranked if each == first[each[INSTANCES]]]
    return [*alike, *[each for each in ranked if each not in alike]][:n]
