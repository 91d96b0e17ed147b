"""What is published: every document as a type, from which its JSON, its JSON Schema and all that is shown come."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


def fields_of(published: type[Struct], *sources: object) -> dict[str, Any]:
    """Return the fields of a published type that these objects have under the same names, the last one's first of all.

    What has another name there, or is said otherwise, stands beside them where the result is made.
    """
    names = published.__struct_fields__
    return {name: getattr(source, name) for source in sources for name in names if hasattr(source, name)}
