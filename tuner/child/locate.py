"""Say where a package of this interpreter is, without importing it: one JSON object, the last line of stdout.

locate PACKAGE
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import List


def main(arguments: List[str]) -> None:
    """Look for it and print what was found."""
    module_spec = importlib.util.find_spec(arguments[0])
    origin = module_spec.origin if module_spec else None
    place = {
        "executable": sys.executable,
        "prefix": sys.prefix,
        "version": sys.version,
        "origin": origin,
        "changed": os.stat(origin).st_mtime_ns if origin else None,
        "site_changed": os.stat(os.path.dirname(os.path.dirname(origin))).st_mtime_ns if origin else None,
    }
    print("\n" + json.dumps(place), flush=True)
