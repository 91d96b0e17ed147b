"""Which settings of several processes a search tries, by what it has learned of one process."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from tuner.space.groups import INSTANCES, one_of
from tuner.space.setting import Setting, distinct

_TIED = 0.05  # log-ratio

Predict = Callable[[Sequence[Setting]], Mapping[Setting, float]]
"""Returns the log-ratio to the default that is expected of settings of one process."""


def choose_groups(
    groups: Mapping[Setting, Collection[str]], predict: Predict, *, n: int, batch_sizes: Collection[int]
) -> list[Setting]:
    """Return at most `n` of the `groups` to try, the most promising first; each comes with who recommends it.

    n processes that did not slow each other down would do n times what one of them does alone, on as many threads. That
    bound ranks them: first the best batch size for each number of processes, then what is recommended, then the other
    batch sizes, all of them of the `batch_sizes` that were measured of one process. The best is the smallest of those
    whose bounds a model of so few trials cannot tell apart, for smaller batches wait less.
    """
    groups = {each: names for each, names in groups.items() if each.batch_size in batch_sizes}
    one_process = predict(distinct(one_of(each) for each in groups))
    if not one_process:
        return list(groups)[:n]
    bound = {each: math.log(int(each[INSTANCES])) + one_process[one_of(each)] for each in groups}
    first: list[Setting] = []
    for count in dict.fromkeys(each[INSTANCES] for each in groups):
        alike = [each for each in groups if each[INSTANCES] == count]
        largest = max(bound[each] for each in alike)
        near = [each for each in alike if bound[each] >= largest - _TIED]
        first.append(min(near, key=lambda each: each.batch_size))
    ranked = sorted(groups, key=lambda each: -bound[each])
    return distinct([*(s for s in ranked if s in first), *(s for s in ranked if groups[s]), *ranked])[:n]
