"""Plain data: how values are stored, by the names of their fields. `msgspec.convert` reads them again.

What is stored in another way has it in the metadata of its field.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from unicodedata import category

from msgspec import Struct, to_builtins

from tuner.errors import BadInputError

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


def read_toml(path: Path, *, instead: str) -> dict[str, Any]:
    """Return what a TOML file holds; raises BadInputError with its path and line, or what to do `instead`."""
    if not os.path.isfile(path):  # noqa: PTH113  # pathlib's raises where a folder may not be entered
        what = "is a folder" if os.path.isdir(path) else "is no file"  # noqa: PTH112
        raise BadInputError(f"{path} {what}", instead)
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path} is not UTF-8 text: {error.reason}", "save it as UTF-8") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}", instead) from None
    except (ValueError, RecursionError) as error:  # TOMLDecodeError is one, and a number of 5,000 digits another
        end = f"at line {len(text.splitlines())}, the end of the file"
        raise BadInputError(
            f"{path}: {str(error).replace('at end of document', end)}", "fix the TOML syntax there"
        ) from None


def printable(text: str) -> str:
    """Return a text without characters that would move a terminal's cursor, or reverse the text; line breaks stay."""
    if text.isprintable():
        return text
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if category(c) in ("Cc", "Cf") and c not in _HARMLESS else c for c in text
    )


_HARMLESS = "\n\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}\N{SOFT HYPHEN}"
