"""What to do about an error that is the fault of the environment, and not of the workload."""

from __future__ import annotations

import errno
import os
import sys
import tempfile

ROOM = "free some space, or set TMPDIR to a folder on another disk"
WRITABLE = "set TMPDIR to a folder that can be written"


def advice(error: BaseException) -> str:
    """Return what to do about an error, "" if it does not tell of the environment."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        return "install %s (%s -m pip install %s), or put it next to the workload" % (package, sys.executable, package)
    if isinstance(error, ImportError):
        if "failed to map segment" in str(error):
            return "the file system of that library does not let programs run: set TMPDIR to a folder of another one"
        return "fix that environment, or choose another interpreter with --python"
    if isinstance(error, OSError):
        return of_files(error)
    return ""


def of_files(error: OSError) -> str:
    """Return what to do about a file that could not be written, "" if that is not what the error tells of."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ROOM
    if "No usable temporary directory" in str(error):
        return WRITABLE
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM) and isinstance(error.filename, str):
        folder = os.environ.get("TMPDIR") or tempfile.gettempdir()
        return WRITABLE if error.filename.startswith(folder.rstrip(os.sep) + os.sep) else ""
    return ""
