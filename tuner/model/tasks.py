"""The operators of a step as tasks: what one thread of the executor runs without handing on.

TensorFlow's executor goes on with an operator that it has made ready, and runs cheap ones where they are found. So a
chain is one task, and so are an operator and what is cheap and made for it alone; as many tasks as there are forks and
joins of some weight are left, which is what makes a simulation fast.

A step begins with cheap operators that need none but each other, such as reads of variables: the prologue. One thread
runs them breadth-first, and hands on what is worth another thread as soon as that is ready. So the prologue is a chain
of tasks, each of which ends when a costly operator has become ready.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_CHEAP_S = 20e-6  # what is run with its only user
_INLINE_S = 5e-6
"""What TensorFlow's executor takes to be cheap, and does not hand to another thread: 8,000 cycles
(`kOpIsExpensiveThresholdCycles` of its executor.cc), which are 3 us at 2.6 GHz. A profile shows somewhat more, as it is
made with statistics, and an operator that once was below stays cheap: in TensorFlow's trace of wide-deep, lookups of 4
to 5 us, as profiled, are cheap, and those of 15 us are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """Tasks in an order in which each comes after those that it needs.

    `part` has the task of each operator, shape (operators,); `n_needed` how many tasks each needs, `next` those that
    need it; `n_operators` how often each runs an operator, of all that are not known beforehand.
    """

    part: NDArray[np.intp]
    n_needed: tuple[int, ...]
    next: tuple[tuple[int, ...], ...]
    n_operators: tuple[int, ...]
    is_cheap: tuple[bool, ...]
    """Whether the executor runs a task where it finds it: none of its operators is worth another thread."""

    def __len__(self) -> int:
        return len(self.n_needed)


def tasks_of(inputs: Sequence[Sequence[int]], times_s: Sequence[float], *, runs: Sequence[int] | None = None) -> Tasks:
    """Return the tasks of operators: by the numbers of those that each takes outputs of, and the time (s) of each.

    An edge that closes a loop is left out: each operator is there once, with the time of all its `runs` (one each, if
    not given), and has to be handed on as often.
    """
    order, taken = _acyclic(inputs)
    users: list[list[int]] = [[] for _ in inputs]
    for i in order:
        for j in taken[i]:
            users[j].append(i)
    runs = runs or [1] * len(inputs)
    once_s = [s / max(1, n) for s, n in zip(times_s, runs, strict=True)]
    costly = [s > _INLINE_S for s in once_s]
    prologue = _prologue(taken, users, costly, loops=[n > 1 for n in runs])
    head = list(range(len(inputs)))  # the first operator of the task that an operator is in
    for first, *others in prologue:
        for i in others:
            head[i] = first
    in_prologue = {i for piece in prologue for i in piece}
    for i in order:
        if len(taken[i]) == 1 and len(users[taken[i][0]]) == 1 and taken[i][0] not in in_prologue:
            head[i] = head[taken[i][0]]
    members: dict[int, list[int]] = {}
    for i in order:
        members.setdefault(head[i], []).append(i)
    # A cheap task with one user is run with that.
    joined: dict[int, int] = {}
    for first, own in members.items():
        if first in in_prologue:
            continue
        used_by = {head[user] for user in users[own[-1]]}
        if len(used_by) == 1 and sum(times_s[i] for i in own) <= _CHEAP_S:
            joined[first] = used_by.pop()
    number = {piece[0]: k for k, piece in enumerate(prologue)}  # they need none but those before
    for i in order:
        if head[i] not in joined:
            number.setdefault(head[i], len(number))
    part = np.zeros(len(inputs), dtype=np.intp)
    n_operators = [0] * len(number)
    for i in order:
        first = head[i]
        while first in joined:
            first = joined[first]
        part[i] = number[first]
        n_operators[number[first]] += (times_s[i] > 0) * runs[i]
    is_cheap = [True] * len(number)
    for i in order:
        is_cheap[part[i]] &= not costly[i]
    needs: list[set[int]] = [set() for _ in number]
    for k in range(1, len(prologue)):
        needs[k].add(k - 1)
    for i in order:
        needs[part[i]].update(int(part[j]) for j in taken[i])
    following: list[list[int]] = [[] for _ in number]
    for task, needed in enumerate(needs):
        needed.discard(task)
        for other in needed:
            following[other].append(task)
    return Tasks(
        part=part,
        n_needed=tuple(len(needed) for needed in needs),
        next=tuple(map(tuple, following)),
        n_operators=tuple(n_operators),
        is_cheap=tuple(is_cheap),
    )


def _prologue(
    taken: Sequence[Sequence[int]], users: Sequence[Sequence[int]], costly: Sequence[bool], *, loops: Sequence[bool]
) -> list[list[int]]:
    """Return the operators that are not costly and need none but each other, in pieces, breadth-first.

    A piece ends when a costly operator becomes ready. What runs in a loop is none of them.
    """
    missing = [len(each) for each in taken]
    queue = deque(i for i, n in enumerate(missing) if not n and not costly[i] and not loops[i])
    pieces: list[list[int]] = [[]]
    while queue:
        i = queue.popleft()
        pieces[-1].append(i)
        ends = False
        for user in users[i]:
            missing[user] -= 1
            if missing[user]:
                continue
            if costly[user]:
                ends = True
            elif not loops[user]:
                queue.append(user)
        if ends:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _acyclic(inputs: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Return (order, inputs) without the edges that close loops, and without repeated ones."""
    taken = [sorted(set(each) - {i}) for i, each in enumerate(inputs)]
    users: list[list[int]] = [[] for _ in inputs]
    for i, each in enumerate(taken):
        for j in each:
            users[j].append(i)
    missing = [set(each) for each in taken]
    ready = deque(i for i, each in enumerate(missing) if not each)
    waiting = {i for i, each in enumerate(missing) if each}
    order: list[int] = []
    while ready or waiting:
        if not ready:
            # Only loops are left: enter the one that the least is missing of, where its first operator begins it.
            entered = min(waiting, key=lambda i: (len(missing[i]), i))
            taken[entered] = [j for j in taken[entered] if j not in missing[entered]]
            missing[entered].clear()
            waiting.discard(entered)
            ready.append(entered)
        i = ready.popleft()
        order.append(i)
        for user in users[i]:
            if user in waiting:
                missing[user].discard(i)
                if not missing[user]:
                    waiting.discard(user)
                    ready.append(user)
    return order, taken
