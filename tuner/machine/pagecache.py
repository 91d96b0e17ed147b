"""The page cache: putting files out of it, so that a start reads them from the disk again.

Only pages that no other process has mapped, and that need not be written first, are put out (posix_fadvise(2)).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tuner.machine.exits import captured

_LOCATE_TIMEOUT_S = 30.0
_LEAST_BYTES = 16 << 10  # smaller files are many, and matter little


def files_of(python: Path, folders: Iterable[Path]) -> list[Path]:
    """Return the files that a start of an interpreter may read: those of its packages, and those of the folders."""
    code = "import os, sys; print(*filter(os.path.isdir, sys.path[1:]), sep='\\n')"
    try:
        ended = captured([str(python), "-c", code], timeout_s=_LOCATE_TIMEOUT_S)
        packages = [] if ended.returncode else [Path(line) for line in ended.stdout.splitlines() if line]
    except (OSError, subprocess.TimeoutExpired):
        packages = []
    # Of folders that lie in one another each file is named once.
    return list(dict.fromkeys(path for root in (*packages, *folders) for path in _large_files(root)))


def _large_files(root: Path) -> Iterable[Path]:
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            try:
                is_large = path.is_file() and path.stat().st_size >= _LEAST_BYTES
            except OSError:  # it has just been removed
                continue
            if is_large:
                yield path


def evict(files: Sequence[Path]) -> None:
    """Put files out of the page cache, as far as the kernel does; one that cannot be opened is left alone."""
    for path in files:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
