"""Write the result of a framework's `probe` as JSON, or why it failed."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import sys
import tempfile
import traceback
from typing import Any, Callable, Dict, Iterable, Iterator, List

from . import fork


def write(arguments: List[str], describe: Callable[[Dict[str, Any]], Dict[str, Any]]) -> None:
    """Write what `describe` finds, following a plan, and end the process; `arguments` are OUT PARENT_PID PLAN."""
    fork.die_with(int(arguments[1]))
    try:
        facts = describe(json.loads(arguments[2]))
    except BaseException as error:
        traceback.print_exc()
        facts = {"error": "%s: %s" % (type(error).__name__, error)}
    facts["python"] = "%d.%d.%d" % sys.version_info[:3]
    with open(arguments[0], "w", encoding="utf-8") as out:
        json.dump(facts, out)
    sys.stdout.flush()
    os._exit(0)


def installed(names: Iterable[str]) -> Dict[str, str]:
    """Return the versions of packages without importing them; none of one that is not there."""
    versions = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


@contextlib.contextmanager
def logged() -> Iterator[List[str]]:
    """Keep what is written to stderr meanwhile, by libraries too; at the end it is the one text in the list."""
    texts: List[str] = []
    with tempfile.TemporaryFile() as log:
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            yield texts
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            log.seek(0)
            texts.append(log.read().decode(errors="replace"))
