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
    from tuner.api.progress import SearchShown
    from tuner.api.search import run_search
    from tuner.job.sessions import make_sessions

    request = pickle.load(sys.stdin.buffer)  # from the process that has started this one
    outcome = run_search(request, make_sessions(1, None), SearchShown(console(stderr=True)))
    if outcome.study is not None:
        show_json(outcome.study.result)
    return INTERRUPTED if outcome.interrupted else 0
