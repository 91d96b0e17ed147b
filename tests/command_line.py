"""The command line, as a user runs it: in a process of its own, or, where that is not what is tested, in this one.

Such a process is a fork of one that has imported the command (`tests.forked.command`), which takes an interpreter more
than a second of a CPU. `tftune_started` starts an interpreter, for tests of how the command itself starts.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.schemas import validate
from tuner.cli import main

ROOT = Path(__file__).parents[1]


MAX_SERVERS = 2  # in each worker of pytest
EARLY = ("LD_", "PYTHON", "LC_", "LANG")  # what is read before a fork
_servers: dict[tuple[object, ...], subprocess.Popen[str]] = {}


def server_of(env: Mapping[str, str]) -> subprocess.Popen[str]:
    """Return the process that forks commands, for what an interpreter reads early; the oldest makes room."""
    early = tuple(sorted((name, value) for name, value in env.items() if name.startswith(EARLY)))
    server = _servers.pop(early, None)
    if server is None:
        while len(_servers) >= MAX_SERVERS:
            _end(_servers.pop(next(iter(_servers))))
        command = [sys.executable, "-P", str(ROOT / "tests/forked/command.py")]
        server = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    _servers[early] = server
    return server


def _end(server: subprocess.Popen[str]) -> None:
    with server:
        server.kill()


def close() -> None:
    """End all."""
    while _servers:
        _end(_servers.popitem()[1])


@dataclass(frozen=True)
class CompletedCommand:
    """What a command ended with."""

    returncode: int
    stdout: str
    stderr: str


def tftune(*args: str, cwd: Path, env: Mapping[str, str] | None = None) -> CompletedCommand:
    """Run the command in a process of its own, with that environment."""
    env = os.environ if env is None else env
    server = server_of(env)
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        streams = [os.devnull, out.name, err.name]
        call = {"words": args, "folder": str(cwd), "environment": dict(env), "streams": streams}
        print(json.dumps(call), file=server.stdin, flush=True)
        code = int(server.stdout.readline())
        done = CompletedCommand(returncode=code, stdout=out.read(), stderr=err.read())
    validate(args, done.stdout)
    return done


def tftune_started(*args: str, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command as a shell does, in an interpreter that is started."""
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
