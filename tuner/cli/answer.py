"""A node's answers to a driver. Each line of stdin is a question, and its answer is a line of stdout."""

from __future__ import annotations

import os
import queue
import threading
from typing import NoReturn

from tuner.cli import main as run


def main() -> NoReturn:
    """Answer, and end as the commands do."""
    run(_answer)


def _answer() -> int:
    from tuner.cluster.node import answer
    from tuner.job.nested import end_with_stdin

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a line that a library prints would be taken for an answer
    questions = queue.SimpleQueue[bytes]()
    parts: list[bytes] = []

    def take(data: bytes) -> None:
        *ends, rest = data.split(b"\n")
        for end in ends:
            questions.put(b"".join([*parts, end]))
            parts.clear()
        parts.append(rest)

    threading.Thread(target=end_with_stdin, args=(take,), daemon=True).start()
    while True:
        answers.write(answer(questions.get()) + b"\n")
        answers.flush()
