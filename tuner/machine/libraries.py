"""Shared libraries of this machine that can be preloaded into a trial."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

from tuner.machine.exits import captured

INTEL_OPENMP = "intel-openmp"
PRELOADABLE = (INTEL_OPENMP, "jemalloc", "tcmalloc")
_MALLOCS = {"jemalloc": ("jemalloc",), "tcmalloc": ("tcmalloc_minimal", "tcmalloc")}
_FOLDERS = ("/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/local/lib")


def find_library(name: str) -> Path | None:
    """Return the path of `intel-openmp` (the package's libiomp5), `jemalloc` or `tcmalloc`; None if not installed."""
    if name == INTEL_OPENMP:
        return intel_openmp()
    return next((path for stem in _MALLOCS[name] if (path := _installed(stem)) is not None), None)


def intel_openmp() -> Path | None:
    """Return the libiomp5 that the intel-openmp package brings to the tuner's own environment."""
    try:
        files = importlib.metadata.files(INTEL_OPENMP) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = [Path(str(file.locate())).resolve() for file in files if file.name == "libiomp5.so"]
    return next((path for path in paths if path.is_file()), None)


def _installed(stem: str) -> Path | None:
    """Return the library that the loader would take for a name, by its full path."""
    try:
        cache_listing = captured(["/sbin/ldconfig", "-p"]).stdout
    except OSError:
        cache_listing = ""
    # Only libraries of this machine's own word size can be preloaded: they come first in the loader's list.
    match = re.search(rf"^\s*lib{re.escape(stem)}\.so\S* .*=> (\S+)$", cache_listing, re.MULTILINE)
    if match:
        return Path(match[1])
    return next((path for folder in _FOLDERS for path in sorted(Path(folder).glob(f"lib{stem}.so*"))), None)
