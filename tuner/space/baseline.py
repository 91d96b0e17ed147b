"""A baseline: a named recommendation that a winner has to beat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuner.machine.host import Machine
from tuner.space.values import Value

MAX_INSTANCES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A recommended setting with its source; `rule` returns the knobs that it sets, all others keep their defaults.

    Guides say nothing of batch sizes. One that stands `at_best_batch` is compared with again at the winner's batch
    size, so that what the batch gains and what the threads gain are separated.
    """

    name: str
    source: str
    rule: Callable[[Machine], dict[str, Value]]
    at_best_batch: bool = False
    needs: frozenset[str] = frozenset()
    """Knobs without which it says nothing: it is none of a space that lacks one of them."""
    must_run: bool = True
    """Whether a search cannot do without it; not where it needs what not every machine has, such as a compiler."""
    devices: tuple[str, ...] = ("cpu",)
    """The kinds of devices that it speaks of; a framework's default is one for all of them."""
    whose: str = ""
    """Whose it is, as a sentence says it; empty where it is known by its name only."""
    terms: Mapping[str, str] | None = None
    """What it sets in the terms of rules (`tuner.space.term`), where rules may say it as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthGuide:
    """A recommendation by a graph's average width. No baseline of a space: the width is known of exported models."""

    name: str
    source: str
    rule: Callable[[Machine, float], dict[str, Value]]
    whose: str


def of_instances(threads: Callable[[int], dict[str, Value]]) -> tuple[Baseline, ...]:
    """Return the recommendations on how many processes share the cores.

    `threads` gives a framework's knobs for a process on so many cores that runs one operator at a time.
    """

    def rule(count: Callable[[Machine], int], *, at_most: int | None = None) -> Callable[[Machine], dict[str, Value]]:
        def values(machine: Machine) -> dict[str, Value]:
            n = min(MAX_INSTANCES, machine.usable_cores, max(1, count(machine)))
            n_cores = max(1, machine.usable_cores // n)
            return {"instances": n, **threads(n_cores if at_most is None else min(n_cores, at_most))}

        return values

    needs = frozenset({"instances"})
    return (
        Baseline(
            name="launcher-latency",
            source="Intel Extension for PyTorch, launch script, latency mode: four cores for each instance",
            rule=rule(lambda machine: machine.usable_cores // 4, at_most=4),
            needs=needs,
        ),
        Baseline(
            name="launcher-throughput",
            source="Intel Extension for PyTorch, launch script, throughput mode: an instance for each NUMA node",
            rule=rule(lambda machine: len(machine.numa_nodes)),
            needs=needs,
        ),
        Baseline(
            name="core-each",
            source="Yin et al. (ParaX), VLDB 2021: an instance for each physical core",
            rule=rule(lambda machine: machine.usable_cores),
            needs=needs,
        ),
    )
