"""What results of the API have in common: a card or a page that is printed, and that a notebook shows; a table."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, json
from rich.console import Console, RenderableType

from tuner.report import card, pages
from tuner.report.card import Card

if TYPE_CHECKING:
    import pandas as pd

_WIDTH = 120


class Shown:
    """A typed `result`, all of what is published of it, and its `card`, the answer in a dozen lines."""

    result: Any

    def __init__(self, result: Struct, of_result: Card) -> None:
        """Keep both."""
        self.result = result
        self.card = of_result

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data: the document that `--json` prints."""
        document: dict[str, Any] = json.decode(json.encode(self.result))
        return document

    def __str__(self) -> str:
        return "\n".join(line.plain for line in card.rendered(self.card))

    def __repr__(self) -> str:
        answers = "; ".join(f"{answer.word}: {answer.text}" for answer in self.card.answers)
        return f"<{type(self).__name__} {answers}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return pages.card_fragment(self.card)


class Tabled(ABC):
    """A typed `result` that has rows, and prints as a page: `csv` gives the rows as text."""

    result: Any

    @abstractmethod
    def csv(self) -> str:
        """Return the rows as CSV with a header."""

    @abstractmethod
    def page(self) -> Sequence[RenderableType]:
        """Return what is printed."""

    @abstractmethod
    def files(self) -> dict[str, str | None]:
        """Return what a folder gets besides the document, by name: the table and the pictures, None of what is none."""

    def table(self) -> pd.DataFrame:
        """Return the rows as a table."""
        import pandas as pd

        return pd.read_csv(io.StringIO(self.csv()))


class Printed(Tabled):
    """What a program prints as that page."""

    def __init__(self, result: Struct) -> None:
        """Take a result."""
        self.result = result

    def __str__(self) -> str:
        text = io.StringIO()
        Console(file=text, width=_WIDTH).print(*self.page(), sep="\n")
        return text.getvalue()
