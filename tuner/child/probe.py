"""Look at a framework in this interpreter: where its package is, or what its child code finds of it.

probe locate PACKAGE                             prints where it is, without importing it: one JSON object, the last
                                                 line of stdout
probe FUNCTION FOLDER OUT PARENT_PID PLAN        writes what a function of FOLDER's own module `probe` finds to OUT,
                                                 following a plan, or why it failed: JSON objects
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import tempfile
import traceback
from typing import Any, Dict, Iterable, Iterator, List

from . import fork
from .boot import mounted


def main(arguments: List[str]) -> None:
    """Do either."""
    if arguments[0] == "locate":
        print("\n" + json.dumps(located(arguments[1])), flush=True)
    else:
        write(*arguments)


def located(package: str) -> Dict[str, Any]:
    """Return where this interpreter has a package, and when that last changed."""
    module_spec = importlib.util.find_spec(package)
    origin = module_spec.origin if module_spec else None
    return {
        "executable": sys.executable,
        "prefix": sys.prefix,
        "version": sys.version,
        "origin": origin,
        "changed": os.stat(origin).st_mtime_ns if origin else None,
        "site_changed": os.stat(os.path.dirname(os.path.dirname(origin))).st_mtime_ns if origin else None,
    }


def write(function: str, folder: str, out: str, parent: str, plan: str) -> None:
    """Write what a function finds, and end the process."""
    fork.die_with(int(parent))
    find = getattr(importlib.import_module(mounted(folder) + ".probe"), function)
    try:
        facts = find(json.loads(plan))
    except BaseException as error:
        traceback.print_exc()
        facts = {"error": "%s: %s" % (type(error).__name__, error)}
    facts["python"] = "%d.%d.%d" % sys.version_info[:3]
    with open(out, "w", encoding="utf-8") as file:
        json.dump(facts, file)
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
