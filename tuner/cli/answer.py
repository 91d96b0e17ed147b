"""A node's answers to a driver. Each line of stdin is a question, and its answer is a line of stdout."""

from __future__ import annotations

import os
import queue
import signal
import threading
from typing import NoReturn

from tuner.cli import main as run


def main() -> NoReturn:
    """Answer, and end as the commands do."""
    run(_answer)


def _answer() -> int:
    from tuner.cluster.node import answer

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a line that a library prints would be taken for an answer
    questions = queue.SimpleQueue[bytes]()
    threading.Thread(target=_read, args=(questions,), daemon=True).start()
    while True:
        answers.write(answer(questions.get()) + b"\n")
        answers.flush()


def _read(questions: queue.SimpleQueue[bytes]) -> None:
    """Read questions, and end as Ctrl-C does when whoever asks is gone."""
    parts: list[bytes] = []
    while data := os.read(0, 1 << 20):  # the buffer's own lock would be held while the process ends
        *ends, rest = data.split(b"\n")
        for end in ends:
            questions.put(b"".join([*parts, end]))
            parts = []
        parts.append(rest)
    os.kill(os.getpid(), signal.SIGTERM)
