"""Make the outputs that pages show again.

The block after each comment `<!-- $ tftune … -->` is what that command prints; it may cut it with `| tail -n N`. Pages
that are made together show one run of a command that they share.

python docs/outputs.py --list                   what there is
python docs/outputs.py README.md docs/rules.md  run the commands of these pages, and write their outputs into them
python docs/outputs.py --only recommend         those whose command has this word, in all pages

The commands run in one new folder, one after another, so a later one finds the study of an earlier one.
Those that measure want the machine for themselves.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"(<!-- \$ (?P<command>tftune .*?) -->\n+```text\n)(?P<output>.*?)(^```$)", re.MULTILINE | re.DOTALL)
WIDTH = 120  # characters


def commands(page: Path) -> list[str]:
    """Return the commands whose outputs a page shows."""
    return [block["command"] for block in BLOCK.finditer(page.read_text())]


def output(command: str, folder: Path) -> str:
    """Return what a command prints on stdout, in a folder whose environment has this tftune first."""
    command, _, cut = command.partition(" | ") if "&&" not in command else (command, "", "")
    text = printed(command, folder)
    if cut:
        text = subprocess.run(["bash", "-c", cut], input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n") + "\n"


@functools.cache
def printed(command: str, folder: Path) -> str:
    """Return all that a command prints on stdout; it is run once."""
    print(command, flush=True)
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "COLUMNS": str(WIDTH)}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{command} ended with {done.returncode}")
    return done.stdout


def refresh(page: Path, folder: Path, only: str | None) -> None:
    """Write the outputs of a page's commands into it."""

    def replaced(block: re.Match[str]) -> str:
        command = block["command"]
        if only is not None and only not in command:
            return block[0]
        return f"{block[1]}{output(command, folder)}{block[4]}"

    page.write_text(BLOCK.sub(replaced, page.read_text()))


def main() -> None:
    """Take the options, and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ".openmp").symlink_to(ROOT / ".openmp")
        for page in [page.resolve() for page in options.pages] or PAGES:
            if options.list:
                for command in commands(page):
                    print(f"{page.name}: {command}")
            elif commands(page):
                refresh(page, folder, options.only)


if __name__ == "__main__":
    main()
