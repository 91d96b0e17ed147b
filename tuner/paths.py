"""Paths on disk: data shipped with tftune, and the user's caches."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import shlex
import tempfile
from pathlib import Path

from tuner.errors import BadInputError

FILE_URL = "sqlite:///"
"""How the URL of a storage begins that is a file; its path follows."""
DEFAULT_STORAGE = f"{FILE_URL}results/tftune.db"
"""Below the folder that tftune is run in, so that results lie beside the work they belong to."""

_LONGEST_STEM = 100  # characters
_PACKAGE = Path(__file__).resolve().parent
CHILD = _PACKAGE / "child"
"""Code that runs outside the tuner's own process."""
_ENTRY = _PACKAGE / "entry" / "tftune_command.py"
COMMAND = _ENTRY if _ENTRY.exists() else _PACKAGE.parent / _ENTRY.name
"""The command as a file, which a wheel has beside the package: `-m tuner` would run a `tuner.py` of the folder."""


def storage_url(text: str) -> str:
    """Return the URL of a storage: of a file its path is enough, and of PostgreSQL a driver is chosen that is there."""
    path = text.removeprefix(FILE_URL)
    if "://" not in path:
        return f"{FILE_URL}{os.path.expanduser(path)}"  # noqa: PTH111  # pathlib's raises where there is no such user
    scheme, _, place = text.partition("://")
    if scheme not in ("postgres", "postgresql"):
        return text
    drivers = [name for name in ("psycopg", "psycopg2") if importlib.util.find_spec(name) is not None]
    return f"{'+'.join(['postgresql', *drivers[:1]])}://{place}"


def storage_option(url: str) -> str:
    """Return the option that names a storage, with a space in front; "" for the default one."""
    return "" if url == DEFAULT_STORAGE else f" --storage {shlex.quote(url.removeprefix(FILE_URL))}"


def shipped_folder(folder: str) -> Path:
    """Return a data folder of the project: beside the package in a checkout, inside it in a wheel."""
    inside = _PACKAGE / "data" / folder
    return inside if inside.is_dir() else _PACKAGE.parent / folder


def shipped_rules() -> Path:
    """Return the rules file of the project."""
    return shipped_folder("results") / "rules.json"


def shipped_profiles() -> Path:
    """Return the folder of the profiles that are shipped."""
    return shipped_folder("results") / "profiles"


def boot_arguments(folder: Path, module: str) -> list[str]:
    """Return the interpreter arguments that run a module of `CHILD`, or of a framework's child package."""
    return [str(CHILD / "boot.py"), str(folder), module]


def file_stem(name: str) -> str:
    """Return a name as part of a file's: TensorFlow takes a path for a pattern, and a folder may only be meant."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:_LONGEST_STEM]


@functools.cache
def code_version() -> str:
    """Return the version of tftune with a digest of its code, which differs between commits."""
    from tuner import __version__

    code = hashlib.sha256()
    for file in sorted(_PACKAGE.rglob("*.py")):
        code.update(file.read_bytes())
    return f"{__version__}+{code.hexdigest()[:8]}"


def cache_dir() -> Path:
    """Return the cache folder (`TFTUNE_CACHE`, else the XDG cache folder)."""
    override = os.environ.get("TFTUNE_CACHE")
    if override:
        return Path(override).absolute()
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "tftune"
    except RuntimeError as error:
        raise BadInputError(
            f"cannot find a home folder for the cache: {error}", "set TFTUNE_CACHE to a folder"
        ) from error


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all, and its folder where that is missing; raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(data)
    part.replace(path)


def check_writable(folder: Path, hint: str) -> None:
    """Raise BadInputError where `folder` cannot be written or made; leaves nothing behind.

    Asking for the rights is not enough: some file systems refuse the superuser too.
    """
    try:
        nearest = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
        tempfile.TemporaryDirectory(prefix=".tftune-", dir=nearest).cleanup()
    except OSError as error:
        raise BadInputError(f"{folder} cannot be written: {error.strerror}", hint) from error
