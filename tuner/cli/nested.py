"""A search that another task runs in a process of its own: the request comes on stdin, and the study goes to stdout."""

from __future__ import annotations

import pickle
import sys
from typing import NoReturn

from tuner.cli import main as run
from tuner.cli.output import console, show_json
from tuner.cli.search import INTERRUPTED


def main() -> NoReturn:
    """Search, and end as `tftune search` does."""
    run(_search)


def _search() -> int:
    from tuner.job.run import run as search
    from tuner.report.progress import SearchShown
    from tuner.result.document import describe_study

    request = pickle.load(sys.stdin.buffer)  # from the process that has started this one
    record, interrupted = search(request, SearchShown(console(stderr=True)))
    if record is not None:
        show_json(describe_study(record))
    return INTERRUPTED if interrupted else 0
