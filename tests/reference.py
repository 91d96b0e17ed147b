"""The stored studies behind the shipped rules, all of them or few: to list all takes seconds."""

from __future__ import annotations

import lzma
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parents[1]


def unpack(database: Path) -> Path:
    """Write the storage of these studies, and return its path."""
    database.write_bytes(lzma.decompress((ROOT / "results" / "reference.db.xz").read_bytes()))
    return database


def keep(database: Path, beginnings: Sequence[str]) -> Path:
    """Leave only the studies whose names begin so, and return the storage's path."""
    kept = " or ".join("study_name like ? || '%'" for _ in beginnings)
    with closing(sqlite3.connect(database)) as connection, connection:
        for table in ("study_user_attributes", "studies"):
            others = f"study_id not in (select study_id from studies where {kept})"
            connection.execute(f"delete from {table} where {others}", beginnings)
    return database
