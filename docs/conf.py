"""How the site is built from the pages: python docs/build.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the API is documented from its docstrings

project = "tftune"
author = "the tftune authors"
copyright = "the tftune authors"
extensions = ["myst_nb", "sphinx.ext.autodoc"]
include_patterns = [
    "docs/*.md",
    "docs/contributing/*.md",
    "docs/*.ipynb",
    "results/*.md",
    "results/cores16/*.md",
    "results/frameworks/*.md",
    "results/gpu/*/*.md",
    "results/overhead/*.md",
    "results/predictions/*.md",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
]
exclude_patterns = ["results/tftune*"]
root_doc = "docs/index"
html_theme = "furo"
html_title = "tftune"
html_theme_options = {"light_css_variables": {"code-font-size": "76%"}}  # lines of cards have some 100 characters
html_static_path = ["wide.css"]
html_css_files = ["wide.css"]
html_show_sphinx = False
nb_execution_mode = "off"  # a test runs the notebook
myst_heading_anchors = 4
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
toc_object_entries = False
default_role = "code"  # docstrings mark code as Markdown does


def _write_options(*_: object) -> None:
    """Write the page of all options from the help of the commands."""
    from tuner.cli import command_names

    lines = ["# All options", "", "What `tftune COMMAND --help-all` shows of this version.", ""]
    for command in command_names():
        words = [sys.executable, "-m", "tuner", *command.split(), "--help-all"]
        page = subprocess.run(
            words, capture_output=True, text=True, check=True, cwd=ROOT, env={**os.environ, "COLUMNS": "100"}
        ).stdout
        page = page.replace("python -m tuner", "tftune")
        lines += [f"## tftune {command}", "", "```text", page.strip(), "```", ""]
    (ROOT / "docs" / "options.md").write_text("\n".join(lines))


def setup(app: object) -> None:
    """Make the page of options before the pages are read."""
    app.connect("builder-inited", _write_options)  # type: ignore[attr-defined]  # Sphinx's application
