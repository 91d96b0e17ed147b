"""A node's answer to a driver. The question comes on stdin, and the answer goes to stdout."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import NoReturn

from tuner.cli import main as run


def main() -> NoReturn:
    """Answer, and end as the commands do."""
    run(_answer)


def _answer() -> int:
    from tuner.cluster.node import answer

    question = sys.stdin.buffer.readline()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.stdout.buffer.write(answer(question))
    return 0


def _end_with_parent() -> None:
    """End as Ctrl-C does when whoever has asked is gone, and its end of stdin with it."""
    while os.read(0, 4096):  # the buffer's own lock would be held while the process ends
        pass
    os.kill(os.getpid(), signal.SIGTERM)
