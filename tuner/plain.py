"""Plain data: how values are stored, by the names of their fields. `msgspec.convert` reads them again.

What is stored in another way has it in the metadata of its field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any
from unicodedata import category

from msgspec import Struct, to_builtins

SPARSE = {"sparse": True}
"""Of a field that is left out where its value is as by default."""
UNSTORED = {"unstored": True}
"""Of a field that is never stored."""


def digits(n: int) -> dict[str, int]:
    """Return the metadata of a field whose number is rounded to so many decimals."""
    return {"digits": n}


def to_plain(value: Any) -> Any:
    """Return a value as plain data; one with a `to_dict` says itself what that is."""
    match value:
        case Enum():
            return value.value
        case float():
            return float(value)  # NumPy's, too
        case list() | tuple():
            return [to_plain(each) for each in value]
        case Mapping():
            return {key: to_plain(each) for key, each in value.items()}
        case Struct():
            return to_builtins(value)
    if hasattr(value, "to_dict"):
        return to_plain(value.to_dict())
    return _fields(value) if is_dataclass(value) else value


def _fields(value: Any) -> dict[str, Any]:
    data = {}
    for each in fields(value):
        own = getattr(value, each.name)
        is_empty = "sparse" in each.metadata and own in (each.default, {})
        if "unstored" not in each.metadata and not is_empty:
            n = each.metadata.get("digits")
            data[each.name] = to_plain(own if own is None or n is None else round(own, n))
    return data


def printable(text: str) -> str:
    """Return a text without characters that would move a terminal's cursor, or reverse the text; line breaks stay."""
    if text.isprintable():
        return text
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if category(c) in ("Cc", "Cf") and c not in _HARMLESS else c for c in text
    )


_HARMLESS = "\n\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}\N{SOFT HYPHEN}"
