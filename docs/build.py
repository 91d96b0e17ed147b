"""Build the site into a folder; a dead link, or a name that the API does not have, is an error.

python docs/build.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.cmd.build import main

DOCS = Path(__file__).parent


def build(folder: Path) -> int:
    """Build the site; return Sphinx's exit code, which is not 0 where anything was warned about."""
    words = ["-W", "--keep-going", "-q", "-b", "html", "-c", DOCS, "-d", folder / ".doctrees", DOCS.parent, folder]
    return main([str(word) for word in words])


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1] if len(sys.argv) > 1 else "site")))
