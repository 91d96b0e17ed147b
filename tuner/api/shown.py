"""What all results of the API have in common: a card that is printed, and that a notebook shows."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, json

from tuner.report import card, cardpage
from tuner.report.card import Card


class Shown:
    """A typed `result`, all of what is published of it, and its `card`, the answer in a dozen lines."""

    def __init__(self, result: Struct, of_result: Card) -> None:
        """Keep both."""
        self._result = result
        self.card = of_result

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data: the document that `--json` prints."""
        document: dict[str, Any] = json.decode(json.encode(self._result))
        return document

    def __str__(self) -> str:
        return "\n".join(line.plain for line in card.rendered(self.card))

    def __repr__(self) -> str:
        answers = "; ".join(f"{answer.word}: {answer.text}" for answer in self.card.answers)
        return f"<{type(self).__name__} {answers}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return cardpage.fragment(self.card)
