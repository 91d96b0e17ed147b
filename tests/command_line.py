"""The command line, as a user runs it: in a process of its own, or, where that is not what is tested, in this one."""

from __future__ import annotations

import subprocess
import sys
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


@dataclass(frozen=True)
class CompletedCommand:
    """What a command ended with."""

    returncode: int
    stdout: str
    stderr: str


def tftune_here(
    *args: str, cwd: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CompletedCommand:
    """Run the command in this process, through the same `main`: a second faster, for what needs no process."""
    monkeypatch.chdir(cwd)
    monkeypatch.setattr(sys, "argv", ["tftune", *args])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    validate(args, captured.out)
    return CompletedCommand(returncode=int(ended.value.code or 0), stdout=captured.out, stderr=captured.err)
