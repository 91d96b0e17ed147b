"""A search or a check in a process of its own. The request comes on stdin, and the study goes to stdout."""

from __future__ import annotations

import pickle
import sys
from typing import NoReturn

from tuner.cli import main as run
from tuner.cli.output import console, show_json
from tuner.cli.search import INTERRUPTED


def main() -> NoReturn:
    """Search or check, and end as the commands do."""
    run(_measure)


def _measure() -> int:
    from tuner.job.request import CheckRequest
    from tuner.job.run import check_on_node
    from tuner.job.run import run as search
    from tuner.report.progress import SearchShown
    from tuner.result.document import describe_study

    request = pickle.load(sys.stdin.buffer)  # from the process that has started this one
    if isinstance(request, CheckRequest):
        show_json(check_on_node(request, SearchShown(console(stderr=True))))
        return 0
    record, interrupted = search(request, SearchShown(console(stderr=True)))
    if record is not None:
        show_json(describe_study(record))
    return INTERRUPTED if interrupted else 0
