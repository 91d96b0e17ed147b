"""Printing: documents as JSON, renderables on the console."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def console(*, stderr: bool = False) -> Console:
    """Return a console; what is printed on it is never coloured by guess."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def show(*parts: RenderableType) -> None:
    """Print on stdout; text is not cut, so that it can be copied."""
    from rich.text import Text

    out = console()
    for part in parts:
        out.print(part, soft_wrap=isinstance(part, str | Text))


def show_json(data: Any) -> None:
    """Print one JSON document on stdout."""
    import json

    sys.stdout.write(json.dumps(data, indent=2, allow_nan=False) + "\n")
