"""Batch sizes: that of the baselines, and the parts of a batch that several processes share among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.errors import BadInputError
from tuner.space.groups import INSTANCES
from tuner.space.setting import Setting
from tuner.space.values import Value
from tuner.workload.workload import Workload

LARGEST = 65536


def parse_sizes(text: str, option: str = "--batch") -> list[int]:
    """Return the batch sizes of `1..64` (doubling) or `1,8,32`, ascending; raises BadInputError."""
    first, dots, last = text.partition("..")
    try:
        sizes = [int(first), int(last)] if dots else [int(part) for part in text.split(",")]
    except ValueError:
        raise BadInputError(f"{option} is '{text}'", "expected e.g. 1..64 (doubling), or 1,8,32") from None
    if min(sizes) < 1 or max(sizes) > LARGEST or (dots and sizes[0] > sizes[1]):
        raise BadInputError(f"{option} is '{text}'", f"expected numbers from 1 to {LARGEST}, the smaller first")
    if not dots:
        return sorted(set(sizes))
    doubled = [sizes[0]]
    while 2 * doubled[-1] <= sizes[1]:
        doubled.append(2 * doubled[-1])
    return sorted({*doubled, sizes[1]})


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
