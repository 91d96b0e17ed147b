# ruff: noqa: E501  # lines of Markdown
"""Write docs/commands.md from the help of the commands, so that the two cannot differ.

python docs/commands.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from typer.main import get_command

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tuner.cli import app  # noqa: E402  # of this checkout

PAGE = ROOT / "docs" / "commands.md"
PAGES = {
    "search": "answers", "emit": "servers", "run": "servers", "check": "answers", "load": "servers", "report": "cluster",
    "recommend": "rules", "suite": "cluster", "inspect": "variables", "noise": "measuring", "compare": "measuring",
    "frameworks": "frameworks", "predict": "predicting", "profile": "predicting", "overhead": "predicting",
    "size": "servers", "workloads": "models", "env": "variables", "rules": "rules", "node": "cluster",
    "scheduler": "cluster", "import": "cluster",
}  # fmt: skip
"""The page that explains a command."""
HEAD = """# Commands and options

Each command, what it is for, and commands that you can copy. `tftune COMMAND --help` lists the usual options, and `--help-all` lists all.

<!-- Written by docs/commands.py from the help of the commands. -->
"""
TAIL = """## For all commands

`--json` prints one document on stdout, and all else goes to stderr. `tftune schema COMMAND` prints its JSON Schema.
`tftune --install-completion` completes commands, workloads, spaces and studies.

**Exit codes.** `run` ends with your program's code. All other commands have these:

| code | what happened |
| --- | --- |
| 0 | Fine. Also if two settings are equal, if `compare` finds the second slower, or if a check or a search stays undecided. |
| 1 | A finding. `check` shows that a recommendation no longer helps, or with `--fail-on-undecided` that this is undecided. `recommend --verify` shows that it is slower. No setting or no rate keeps to a limit. A search of `suite` failed, or its nodes did not come back. |
| 2 | Bad input, or for `check` another machine type, build or model. One line shows the value, the expectation and what to do. |
| 3 | tftune or the machine failed. The default does not run, another tftune measures here, a database is away, or a disk is full. A fault of tftune shows a traceback. |
| 130 | Interrupted with Ctrl-C or SIGTERM. |

**Time.** By default a search takes 5 minutes, a comparison or a check 2, `load` 4, `overhead` 10, `frameworks` 30, and `noise` 90 seconds.
Searches, comparisons and checks end earlier if everything is decided to ±3 %. Baselines and two rounds of finals may overrun the budget by a quarter or 45 s, whichever is longer.
If that is not enough, tftune drops baselines, and names at the start the smallest budget with all of them. A process has 2 minutes to become ready and for each slice (`--trial-timeout`).
A second measurement in the same container, or outside containers, is refused, or waits with `--wait`.

**Units.** Options take units: `--max-p99 50ms` or `0.05s`, `--max-power 250W`, `--rate 10/s` or `600/min`, `--margin 3%`, `--max-memory 2GiB`,
`--time-budget 1h30m`, `--cpu-quota 1.5` or `150%`. A plain number is in ms, W, requests per second, percent, seconds or CPUs. Memory always has a unit.

**Studies** are Optuna studies in `results/tftune.db` or in another database (`--storage FILE|URL`). [Results](contributing/results.md) describes them.
Models and probe results are cached in `~/.cache/tftune` (`TFTUNE_CACHE`).

## Next

Read [how to read an answer](answers.md), or do the same [in Python](python.md).
"""


def page() -> str:
    """Return the page: the commands by group, each with its first sentence and its examples."""
    groups: dict[str, list[str]] = {}
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]  # a group has some
        groups.setdefault(str(command.rich_help_panel), []).extend(_section(name, command))
    parts = [line for title, lines in groups.items() for line in (f"## {title}", "", *lines)]
    return "\n".join([HEAD, *parts, TAIL])


def _section(name: str, command: Any) -> list[str]:
    """Return the lines of a command."""
    link = f" [More]({PAGES[name]}.md)" if name in PAGES else ""
    help_text = command.get_short_help_str(limit=1000)
    examples = [line[2:] for line in (command.epilog or _epilog(command)).splitlines() if line.startswith("  ")]
    return [f"### tftune {name}", "", f"{help_text}{link}", "", *(f"    {line}" for line in examples), ""]


def _epilog(group: Any) -> str:
    return next(str(command.epilog) for command in group.commands.values())


if __name__ == "__main__":
    PAGE.write_text(page())
