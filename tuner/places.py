"""Where things lie on disk: the data that the project ships, and the caches of a user."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT_STORAGE = "sqlite:///results/tftune.db"
"""Below the folder that tftune is run in, so that results lie beside the work they belong to."""

_PACKAGE = Path(__file__).resolve().parent


def shipped(folder: str) -> Path:
    """Return a data folder of the project: beside the package in a checkout, inside it in a wheel."""
    inside = _PACKAGE / "data" / folder
    return inside if inside.is_dir() else _PACKAGE.parent / folder


def cache_dir() -> Path:
    """Return the folder for what can be made again (`TFTUNE_CACHE`, else the XDG cache folder)."""
    chosen = os.environ.get("TFTUNE_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tftune"
