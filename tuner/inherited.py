"""The environment that this process was started with, which trials inherit: libraries of ours may change it.

threadpoolctl sets KMP_DUPLICATE_LIB_OK when it is imported, for example.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

_kept: dict[str, str] | None = None


def keep() -> None:
    """Remember the environment as it is: from now on nobody but libraries changes it."""
    global _kept
    _kept = dict(os.environ)


def environment() -> Mapping[str, str]:
    """Return the variables that the user has set; in a program that uses the API also those that it sets later."""
    return os.environ if _kept is None else _kept


@contextlib.contextmanager
def unchanged() -> Iterator[None]:
    """Take back what is changed of the environment meanwhile, such as by imports."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
