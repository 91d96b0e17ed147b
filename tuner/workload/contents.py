"""What files hold, in the fingerprint of a workload: a model with other contents is another workload."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tuner.errors import BadInputError
from tuner.workload import pyfile


def contents(files: Iterable[Path], folder: Path) -> str:
    """Return a name for the contents of files and for where they lie in a folder; raises BadInputError."""
    mark = hashlib.sha256()
    for file in files:
        try:
            with file.open("rb") as content:
                mark.update(hashlib.file_digest(content, "sha256").digest())
        except OSError as error:
            raise BadInputError(f"{file} cannot be read: {error.strerror}", "check its permissions") from error
        mark.update(os.fsencode(os.path.relpath(file, folder)))
    return mark.hexdigest()


def text_of(file: Path) -> str:
    """Return what a script holds, "" if it cannot be read or is no text."""
    try:
        content = file.read_bytes()
    except OSError:  # whose contents are refused elsewhere
        return ""
    return "" if b"\0" in content else content.decode(errors="replace")


def loaded_first(op_libraries: Sequence[str]) -> list[object]:
    """Return what a fingerprint holds of what is loaded before a model, of files their contents; [] if nothing."""
    libraries = [
        pyfile.fingerprint(Path(each)) if each.endswith(".py")
        else contents([Path(each)], Path(each).parent) if os.sep in each
        else each
        for each in op_libraries
    ]  # fmt: skip
    return [{"libraries": libraries}] if libraries else []


def value_digest(value: Mapping[str, str]) -> list[str]:
    """Return what changes with the value of an input: a text, or the contents of a file and what it is read as."""
    if "file" not in value:
        return [value["text"]]
    path = Path(value["file"])
    return [contents([path], path.parent), path.suffix]
