"""Forks in the place of interpreters, for tests in which how a process begins is not what is tested.

An interpreter takes seconds of both CPUs to import a framework, and tests start hundreds. Here one imports it once for
a worker of pytest, and each process begins as its fork: same guard, same worker, same pipes. What is read while an
interpreter starts, or a framework is imported, selects another server. `tests/test_launchers.py` and the tests that
run the command in a process of its own (`tests.command_line.tftune`) start what users start.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tuner.frameworks.tensorflow.framework import FRAMEWORK as TENSORFLOW
from tuner.paths import boot_arguments
from tuner.trial import exporting, fresh
from tuner.trial.forking import ForkedGuard, ServerLost
from tuner.trial.launcher import Target
from tuner.trial.outcome import TrialFailure
from tuner.trial.process import ChildProcess, PipeFds, StartProcess

HERE = Path(__file__).parent
MAX_SERVERS = 3  # each keeps an imported framework in memory, in each worker of pytest
HELLO_TIMEOUT_S = CODE_TIMEOUT_S = 180.0
# What nothing reads before a worker runs.
LATE = ("TFTUNE_", "TF_NUM_", "OMP_", "KMP_", "PYTEST_", "PWD", "OLDPWD", "COLUMNS", "LINES", "_")


class Server:
    """An interpreter that has imported a framework, and forks."""

    def __init__(self, python: Path, framework: Path, env: Mapping[str, str]) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as this object
        with theirs:
            command = [str(python), *boot_arguments(HERE, "server"), str(theirs.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(
                [*command, str(framework)],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.pid = self._process.pid

    @functools.cached_property
    def refused(self) -> str | None:
        """Return why it cannot serve, None if it can; waits until the framework is imported."""
        ready, _, _ = select.select([self._channel], [], [], HELLO_TIMEOUT_S)
        message = self._channel.recv(1 << 16) if ready else b""
        if not message:
            self._log.seek(0)
            raise RuntimeError(f"no fork server for tests: {self._log.read()[-2000:].decode(errors='replace')}")
        refused: str | None = json.loads(message)
        return refused

    def fork(self, ends: PipeFds, spec: Mapping[str, object], env: Mapping[str, str]) -> ForkedGuard:
        """Start a worker, as an interpreter that is started now and here would be."""
        assert self.refused is None, self.refused
        request = {
            "spec": spec,
            "environment": dict(env),
            "folder": os.getcwd(),  # noqa: PTH109
            "cpus": sorted(os.sched_getaffinity(0)),
        }
        socket.send_fds(self._channel, [json.dumps(request).encode()], list(ends))
        return ForkedGuard()

    def ended(self) -> bool:
        """Return whether it is gone."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End it; what was forked lives on."""
        self._channel.close()
        self._process.kill()
        self._process.wait()
        self._log.close()


_servers: dict[tuple[object, ...], Server] = {}
_lock = threading.Lock()


def server_of(python: Path, framework: Path, env: Mapping[str, str]) -> Server:
    """Return the server of an interpreter and a framework, for what is read early; the oldest makes room."""
    early = tuple(sorted((name, value) for name, value in env.items() if not name.startswith(LATE)))
    key = (python, framework, early)
    with _lock:
        server = _servers.pop(key, None)
        if server is not None and server.ended():
            server.close()
            server = None
        if server is None:
            while len(_servers) >= MAX_SERVERS:
                _servers.pop(next(iter(_servers))).close()
            server = Server(python, framework, env)
        _servers[key] = server
        server.refused  # noqa: B018  # it is up before another thread asks it
    return server


def close() -> None:
    """End all."""
    while _servers:
        _servers.popitem()[1].close()


_interpreter = fresh.interpreter


def interpreter(python: Path, env: Mapping[str, str], spec: Mapping[str, object]) -> StartProcess:
    """Return what starts a worker: a fork, if it begins by importing TensorFlow."""
    if not (spec["framework"] == str(TENSORFLOW.child) or "from" in spec):
        return _interpreter(python, env, spec)
    return lambda ends: server_of(python, TENSORFLOW.child, env).fork(ends, spec, env)


def run(code: str, *words: str, folder: Path) -> str:
    """Run Python code that begins by importing TensorFlow, as `python -c` does in a folder; return what it prints."""
    spec, env = {"code": code, "words": words, "root": str(HERE.parents[1])}, dict(os.environ)
    server = server_of(Path(sys.executable), TENSORFLOW.child, env)
    with contextlib.chdir(folder):
        process = ChildProcess(lambda ends: server.fork(ends, spec, env), CODE_TIMEOUT_S)
    try:
        process.finish()
        return process.log_tail()
    except TrialFailure as failure:
        raise AssertionError(failure.log) from failure
    finally:
        process.close()


class SharedServer:
    """What a launcher of forks takes for a server of its own, and shares with those before and after it."""

    def __init__(self, target: Target, early: Mapping[str, str]) -> None:
        self._env = target.base_env | dict(early)
        self._server = server_of(target.python, target.framework, self._env)
        self.pid = self._server.pid
        self.refused = self._server.refused

    def fork(self, ends: PipeFds, request: Mapping[str, Any]) -> ForkedGuard:
        """Start a worker with the target's environment and the setting's; raises ServerLost if nobody is there."""
        try:
            return self._server.fork(ends, request["spec"], self._env | request["env"])
        except ConnectionError as error:
            raise ServerLost from error

    def ended(self) -> bool:
        """Return whether the server is gone."""
        return self._server.ended()

    def end(self) -> str:
        """Return how the server ended."""
        return "has ended"

    def close(self) -> str:
        """Leave the server to others."""
        return ""


@contextlib.contextmanager
def exports() -> Iterator[None]:
    """Let models be written by forks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting, "interpreter", interpreter)
        yield


@contextlib.contextmanager
def everywhere() -> Iterator[None]:
    """Let all processes of TensorFlow be forks: those of launchers of interpreters, too, and of searches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting, "interpreter", interpreter)
        patch.setattr(fresh, "interpreter", interpreter)
        patch.setattr("tuner.trial.forking.Server", SharedServer)
        yield
