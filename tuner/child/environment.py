"""What to do about an error that is the fault of the environment, and not of the workload."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from typing import Tuple

ROOM = "free some space, or set TMPDIR to a folder on another disk"
WRITABLE = "set TMPDIR to a folder that can be written"


def advice(error: BaseException, folder: str) -> str:
    """Return what to do about an error, "" if it does not tell of the environment; `folder` is the workload's."""
    own, other = hidden(error, folder)
    if own:
        return "rename %s, as %s was imported first and hides it" % (own, other)
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


def hidden(error: BaseException, folder: str) -> Tuple[str, str]:
    """Return the file of a folder that cannot be imported as another has its name, and the other; "" without one.

    Frameworks import much of Python's library before the workload's folder is in the path.
    """
    module = getattr(error, "obj", None)  # of an AttributeError, since Python 3.10
    name = error.name if isinstance(error, ImportError) else getattr(module, "__name__", "")
    top = name.partition(".")[0] if isinstance(name, str) else ""
    if top not in sys.modules or not isinstance(error, (ImportError, AttributeError)):
        return "", ""
    loaded = getattr(sys.modules[top], "__file__", None) or "Python's own %s" % top
    for own in (os.path.join(folder, top + ".py"), os.path.join(folder, top, "__init__.py")):
        if os.path.isfile(own) and os.path.realpath(own) != os.path.realpath(loaded):
            return own, loaded
    return "", ""


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
