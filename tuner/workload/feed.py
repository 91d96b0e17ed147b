"""What the inputs of a model that was found are fed with, as every answer lists it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

_MOST = 8  # inputs that a line lists
BATCH = "batch"


class InputFacts(Struct, frozen=True, kw_only=True):
    """An input: its type, its shape with null for the batch, and what it holds in words.

    `given` tells whether the user said what it holds; what was made up is `doubtful` if it may remove work. It has an
    `ignored_batch` if the graph gives outputs of one size for any batch.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    values: str
    given: bool
    doubtful: bool
    ignored_batch: bool = False

    @property
    def text(self) -> str:
        """Return the input in a few words."""
        sizes = ", ".join(BATCH if n is None else str(n) for n in self.shape)
        return f"{self.name} {self.dtype} ({sizes}) {self.values}"


def facts_of(described: Iterable[Mapping[str, Any]], member: str = "") -> list[InputFacts]:
    """Return the inputs of an export that tftune feeds; none of a Python file, which makes its own.

    In an ensemble their names begin with that of the `member`.
    """
    return [
        InputFacts(
            name=f"{member}: {each['known_as']}" if member else each["known_as"],
            dtype=each["dtype"],
            shape=tuple(each["shape"]),
            values=each["values"],
            given=each["given"] is not None or each.get("range") is not None,
            doubtful=each["doubtful"],
            ignored_batch=each.get("ignored_batch", False),
        )
        for each in described
        if "values" in each
    ]


def inputs_text(inputs: Sequence[InputFacts]) -> str:
    """Return the inputs in one line, the doubtful ones first where there are too many for it."""
    shown = inputs
    if len(inputs) > _MOST:
        shown = sorted(inputs, key=lambda each: not each.doubtful)[:_MOST]
    more = f", and {len(inputs) - len(shown)} more (--json lists all)" if len(inputs) > len(shown) else ""
    return ", ".join(each.text for each in shown) + more


def made_otherwise(inputs: Iterable[InputFacts]) -> list[str]:
    """Return the inputs whose values versions before November 2026 made up otherwise: what is measured is not the same.

    They drew all numbers at random, integers from 0 and 1, and had empty strings.
    """
    return [each.text for each in inputs if not each.given and each.values.startswith(("=", "rows", "pixels"))]
