"""What a workload's own code sets while its model is exported: its constants, variables, and a framework's threads."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any, Dict, List

from . import effective, inputs
from .adapter import Adapter

OWN_SETTINGS = "own_settings.json"  # beside an exported model
Report = Dict[str, Any]


def export(spec: Report, framework: Adapter) -> None:
    """Export a workload, and write what its code has set meanwhile; of one that is made from another, what that has."""
    made_from = os.path.join(spec.get("from", ""), OWN_SETTINGS)
    if os.path.exists(made_from):
        framework.export(spec)
        shutil.copy(made_from, spec["folder"])
        return
    has_code = spec["kind"] == "python"
    if has_code:
        framework.load()  # what that sets is not the workload's
    before = effective.variables()
    framework.export(spec)
    variables = effective.changed_variables(before) if has_code else {}
    threads: Dict[str, int] = getattr(framework, "own_threads", dict)() if has_code else {}
    with open(os.path.join(spec["folder"], OWN_SETTINGS), "w", encoding="utf-8") as file:
        constants = inputs.CONSTANTS.get(spec["workload"], {})
        notes: List[List[str]] = getattr(framework, "own_notes", list)()
        json.dump({"variables": variables, "threads": threads, "constants": constants, "notes": notes}, file)
