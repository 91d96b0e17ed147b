"""Making an environment that trials can run in: an OpenMP build of TensorFlow in a virtual environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tuner import inherited
from tuner.errors import BadInputError, TunerError, unknown_name
from tuner.frameworks import registry
from tuner.frameworks.framework import Build
from tuner.machine.exits import captured
from tuner.paths import check_writable

# The last OpenMP build that the package index has; its wheels are for these Pythons, and need NumPy 1.
BUILDS = {"openmp": ("intel-tensorflow==2.14.0", "numpy<2")}
PYTHONS = ("3.11", "3.10", "3.9")
_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """An environment that is ready."""

    python: Path
    build: Build


def create(build: str, folder: Path, *, python: str | None, notify: Callable[[str], None]) -> Environment:
    """Make a virtual environment in `folder` and install a build of TensorFlow there; `notify` hears what happens.

    Raises BadInputError where the folder is in use or no fitting Python is found, and leaves no half environment
    behind.
    """
    if build not in BUILDS:
        raise unknown_name("build", build, BUILDS)
    folder = folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInputError(f"{folder} already exists and is not empty", "choose a new folder with --dir")
    check_writable(folder, "choose a folder that you can write to with --dir")
    base = _base(python)
    existed = folder.exists()
    try:
        notify(f"creating a virtual environment with {base}")
        _run([base, "-I", "-m", "venv", str(folder)], "cannot create the virtual environment")
        venv_python = folder.absolute() / "bin" / "python"
        notify(f"installing {' '.join(BUILDS[build])} (downloads 0.3 GB)")
        _run(
            [str(venv_python), "-I", "-m", "pip", "install", "-q", "--disable-pip-version-check", *BUILDS[build]],
            "pip failed",
        )
        notify("probing the new environment")
        framework = registry.find(registry.DEFAULT)
        env, _ = framework.catalogue.scrub(inherited.environment())
        return Environment(python=venv_python, build=framework.probe(venv_python, env))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        if existed:
            folder.mkdir(exist_ok=True)
        raise


def _base(python: str | None) -> str:
    """Return the Python to build on; raises BadInputError where none fits."""
    supported = f"Python {PYTHONS[-1]} to {PYTHONS[0]}"
    if python is not None:
        version = _version(python)
        if version not in PYTHONS:
            raise BadInputError(
                f"{python} is {f'Python {version}' if version else 'not a Python interpreter'}", f"expected {supported}"
            )
        return python
    for candidate in _candidates():
        if _version(candidate) in PYTHONS:
            return candidate
    raise BadInputError(f"no {supported} was found", "install one, or give --python its path")


def _candidates() -> Iterator[str]:
    """Yield Pythons to try: this one, those on the PATH, those of pyenv."""
    yield sys.executable
    for version in PYTHONS:
        yield from filter(None, [shutil.which(f"python{version}")])
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for version in PYTHONS:
        yield from (str(path / "bin" / "python") for path in sorted(versions.glob(f"{version}.*"), reverse=True))


def _version(python: str) -> str | None:
    try:
        done = captured([python, "-c", _VERSION], timeout_s=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _run(command: list[str], problem: str) -> None:
    """Run a command; raises TunerError with the end of what it said."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode:
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        raise TunerError(f"{problem}: {last}", f"run it yourself to see more: {' '.join(command)}")
