"""A node's answer to a driver. The question comes on stdin, and the answer goes to stdout."""

from __future__ import annotations

import sys
import threading
from typing import NoReturn

from tuner.cli import main as run


def main() -> NoReturn:
    """Answer, and end as the commands do."""
    run(_answer)


def _answer() -> int:
    from tuner.cluster.node import answer
    from tuner.job.nested import end_with_stdin

    question = sys.stdin.buffer.readline()
    threading.Thread(target=end_with_stdin, daemon=True).start()
    sys.stdout.buffer.write(answer(question))
    return 0
