"""Batch sizes: that of the baselines, and the parts of a batch that several processes share among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.errors import BadInputError
from tuner.space.groups import INSTANCES
from tuner.space.setting import Setting
from tuner.space.values import Value
from tuner.workload.workload import Workload


def default(domains: Mapping[str, tuple[Value, ...]], workload: Workload, *, is_user_choice: bool) -> int:
    """Return the batch size of the baselines: the workload's, or the nearest of those that the user chose."""
    if not is_user_choice:
        return workload.batch_size
    return min((int(b) for b in domains["batch_size"]), key=lambda b: (abs(b - workload.batch_size), b))


def total(setting: Setting) -> int:
    """Return the items of a step of all processes of a setting."""
    return int(setting[INSTANCES]) * setting.batch_size


def shares(items: int, counts: Sequence[Value]) -> tuple[Value, ...]:
    """Return the batch sizes of a process where so many share a batch evenly; raises BadInputError for none."""
    parts = sorted({items // int(n) for n in counts if items % int(n) == 0})
    if not parts:
        raise BadInputError(
            f"a batch of {items} cannot be shared evenly by {' or '.join(map(str, counts))} processes",
            f"give a --batch-size that is a multiple of {' or '.join(map(str, counts))}",
        )
    return tuple(parts)


def shared(baselines: Mapping[str, Setting], items: int | None) -> dict[str, Setting]:
    """Return the baselines with the part of a batch that each process has, without those that cannot share it.

    As they are where there is no such batch.
    """
    if items is None:
        return dict(baselines)
    return {
        name: setting.with_values(batch_size=items // int(setting[INSTANCES]))
        for name, setting in baselines.items()
        if items % int(setting[INSTANCES]) == 0
    }
