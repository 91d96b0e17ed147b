"""The interface to a scheduler. Its four methods carry questions to nodes, and answers back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a node to the question `name`. If `data` is None, `failure` is the reason.

    Empty data is of a question that was interrupted, and is to be asked again.
    """

    address: str
    name: str
    data: bytes | None = None
    failure: str = ""


class Engine(Protocol):
    """Nodes by address. A lost node never returns under its old address."""

    n_started: int
    """How many nodes the engine has started itself. They join later."""

    def addresses(self) -> Collection[str]:
        """Return the nodes that are there now; raises TunerError if the engine itself is lost."""

    def ask(self, address: str, name: str, question: bytes, *, measures: bool) -> None:
        """Send a question to a node. One that `measures` takes long, and a node answers one of these at a time."""

    def answers(self, timeout_s: float) -> Sequence[Answer]:
        """Return the answers that have arrived. Wait at most `timeout_s` (s) for the first."""

    def drop(self, address: str) -> None:
        """Expect no more answers from a lost node."""
