"""What carries questions to nodes and answers back: a scheduler of others, behind four methods."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a node has answered to the question of that name; why it has not, if `data` is None."""

    address: str
    name: str
    data: bytes | None = None
    failure: str = ""


class Engine(Protocol):
    """Nodes by their addresses. A node that is lost is gone for good: one that comes back has another address."""

    def addresses(self) -> Collection[str]:
        """Return the nodes that are there now; raises TunerError if the engine itself is lost."""

    def ask(self, address: str, name: str, question: bytes, *, measures: bool) -> None:
        """Send a question to a node; one that `measures` takes long, and a node answers one of these at a time."""

    def answers(self, timeout_s: float) -> Sequence[Answer]:
        """Return the answers that have come; waits so long (s) for the first."""

    def drop(self, address: str) -> None:
        """Expect no more answers of a node that is gone."""
