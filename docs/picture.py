"""Run a command in a terminal of its own, and draw what it shows as an SVG picture:

python docs/picture.py docs/search.svg tftune search mobilenetv2 --batch-size 1

Or draw a moment of one that runs in tmux:

tmux capture-pane -e -p | python docs/picture.py docs/cluster.svg
"""

from __future__ import annotations

import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH, HEIGHT = 112, 40  # characters
CLEAR_LINE = "\x1b[2K"


def shown(command: list[str]) -> str:
    """Return what a command writes to a terminal, with its colours and without what it has cleared again."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}):
        os.close(theirs)
        chunks = []
        while True:
            try:
                chunk = os.read(ours, 1 << 16)
            except OSError:  # how Linux tells that nobody writes any more
                break
            if not chunk:
                break
            chunks.append(chunk)
    text = b"".join(chunks).decode()
    lines = [line.rpartition(CLEAR_LINE)[2].strip("\r") for line in text.split("\n")]
    return "\n".join(lines).strip("\n")


def main() -> None:
    """Draw a command."""
    out, *command = sys.argv[1:]
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    if command:
        console.print(Text(f"$ {' '.join(command)}", style="bold"))
    console.print(Text.from_ansi(shown(command) if command else sys.stdin.read().rstrip()))
    svg = console.export_svg(title="tftune")
    Path(out).write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))  # a picture needs nothing else


if __name__ == "__main__":
    main()
