"""Short, stable names for plain data: equal data have equal names on every host and in every run."""

from __future__ import annotations

import hashlib
import json


def digest(data: object, *, length: int = 12) -> str:
    """Return the first `length` hexadecimal digits of the SHA-256 of `data` as canonical JSON."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]
