"""A baseline: a named recommendation that a winner has to beat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tuner.machine.host import Machine
from tuner.space.values import Value


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
