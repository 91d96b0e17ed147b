"""Make the outputs that pages show again.

The block after each comment `<!-- $ tftune … -->` is what that command prints; it may cut it with `| tail -n N`.

python docs/outputs.py --list                   what there is
python docs/outputs.py README.md docs/rules.md  run the commands of these pages, and write their outputs into them
python docs/outputs.py --only recommend         those whose command has this word, in all pages

A page's commands run in one new folder, one after another, so that a later one finds the study of an earlier one.
Those that measure want the machine for themselves.
"""

from __future__ import annotations

import argparse
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
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "COLUMNS": str(WIDTH)}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{command} ended with {done.returncode}")
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip("\n") + "\n"


def refresh(page: Path, only: str | None) -> None:
    """Write the outputs of a page's commands into it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ".openmp").symlink_to(ROOT / ".openmp")

        def replaced(block: re.Match[str]) -> str:
            command = block["command"]
            if only is not None and only not in command:
                return block[0]
            print(command, flush=True)
            return f"{block[1]}{output(command, folder)}{block[4]}"

        page.write_text(BLOCK.sub(replaced, page.read_text()))


def main() -> None:
    """Take the options, and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only")
    options = parser.parse_args()
    for page in [page.resolve() for page in options.pages] or PAGES:
        if options.list:
            for command in commands(page):
                print(f"{page.name}: {command}")
        elif commands(page):
            refresh(page, options.only)


if __name__ == "__main__":
    main()
