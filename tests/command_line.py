"""The command line, as a user runs it: in a process of its own, or, where that is not what is tested, in this one."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.schemas import validate
from tuner.cli import main

ROOT = Path(__file__).parents[1]


def tftune(*args: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    command = [str(Path(sys.executable).with_name("tftune")), *args]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env=env)
    validate(args, done.stdout)
    return done


def _kept() -> contextlib.closing[io.TextIOWrapper]:
    """Return a stream that keeps what is written, and is a file as a process's own output is."""
    return contextlib.closing(tempfile.TemporaryFile("w+", encoding="utf-8"))  # type: ignore[arg-type]


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


@dataclass(frozen=True)
class CompletedCommand:
    """What a command ended with."""

    returncode: int
    stdout: str
    stderr: str


def tftune_here(*args: str, cwd: Path, env: dict[str, str] | None = None) -> CompletedCommand:
    """Run the command in this process, through the same `main`: seconds faster, for what needs no process."""
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(cwd), _kept() as out, _kept() as err:
        for name in os.environ.keys() - (os.environ if env is None else env).keys():
            patch.delenv(name)
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["tftune", *args])
        patch.setattr("signal.signal", lambda *_: None)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main()
        stdout, stderr = (_text(each) for each in (out, err))
    validate(args, stdout)
    return CompletedCommand(returncode=int(ended.value.code or 0), stdout=stdout, stderr=stderr)
