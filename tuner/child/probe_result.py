"""Write the result of a framework's `probe` as JSON, or why it failed."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable, Dict, List

from . import lifetime


def write(arguments: List[str], describe: Callable[[Dict[str, Any]], Dict[str, Any]]) -> None:
    """Write what `describe` finds, following a plan, and end the process; `arguments` are OUT PARENT_PID PLAN."""
    lifetime.die_with(int(arguments[1]))
    try:
        facts = describe(json.loads(arguments[2]))
    except BaseException as error:
        facts = {"error": "%s: %s" % (type(error).__name__, error)}
    facts["python"] = "%d.%d.%d" % sys.version_info[:3]
    with open(arguments[0], "w") as out:
        json.dump(facts, out)
    sys.stdout.flush()
    os._exit(0)
