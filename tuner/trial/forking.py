"""Forked processes: one interpreter imports the framework, and each trial begins as a fork of it.

A fork skips the seconds that an interpreter and the import take, and is otherwise a process like a fresh one: same
worker, same guard, same protocol, its variables set before the framework starts its threads. Variables that are read
earlier, when the interpreter starts or while the framework is imported, select another server.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import IO

from tuner.errors import TunerError
from tuner.machine.exits import ended_text, last_words
from tuner.paths import CHILD, boot_arguments
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.trial import group
from tuner.trial.fresh import FreshLauncher, started
from tuner.trial.launcher import Target, Worker
from tuner.trial.process import ChildProcess, GuardLost, PipeFds

_HELLO_TIMEOUT_S = 120.0
_MAX_SERVERS = 3  # each keeps an imported framework in memory
_MAX_MESSAGE_BYTES = 1 << 16


class ServerLost(Exception):  # noqa: N818  # a state of the launcher, not an error of the tool
    """The server is gone."""


class ForkLauncher:
    """Forks trials from one server for each set of early variables; falls back to fresh interpreters, saying so."""

    def __init__(self, target: Target, *, notify: Callable[[str], None]) -> None:
        """`notify` is called with one line when something has to be said: a fallback, a restart."""
        self._target = target
        self._notify = notify
        self._fresh = FreshLauncher(target=target)
        self._servers: dict[tuple[tuple[str, str], ...], Server] = {}
        self._restarted: set[tuple[tuple[str, str], ...]] = set()
        self._refusals: set[str] = set()

    def launch(self, setting: Setting, deployment: Deployment) -> Worker:
        """Fork processes with the setting's variables, as many as the deployment has.

        Raises TunerError where the server dies a second time.
        """
        energy_j = self._target.energy_j
        return group.launch(lambda number: self.launch_one(setting, deployment, number), deployment, energy_j)

    def launch_one(self, setting: Setting, deployment: Deployment, number: int = 0) -> ChildProcess:
        """Fork a single one, of several the one of that number; raises TunerError as `launch` does."""
        env = deployment.of(number).env
        early = tuple(sorted((name, value) for name, value in env.items() if self._target.is_early(name)))
        while True:
            server = self._server(early)
            try:
                refused = server.refused
                if refused is not None:
                    self._notify_once(f"trials start fresh interpreters instead of forks: {refused}")
                    return self._fresh.launch_one(setting, deployment, number)
                return self._fork(server, setting, deployment, number)
            except ServerLost:
                self._remove_dead(early, server)

    def now(self) -> float:
        """Return the monotonic clock."""
        return time.monotonic()

    def start_server(self) -> None:
        """Start the server for settings without early variables, and do not wait for it."""
        self._servers[()] = Server(self._target, {})

    def is_refused(self) -> bool:
        """Return whether a server cannot serve, so that fresh interpreters stand in; waits until all are up.

        So their import disturbs nothing that is timed.
        """
        refused = False
        for server in self._servers.values():
            with contextlib.suppress(ServerLost):  # the next launch finds out, and starts another
                refused |= server.refused is not None
        return refused

    def close(self) -> None:
        """End the servers; processes that were forked from them are not touched."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    def servers(self) -> list[Server]:
        """Return the living servers."""
        return list(self._servers.values())

    def _fork(self, server: Server, setting: Setting, deployment: Deployment, number: int) -> ChildProcess:
        target, own = self._target.of(number), deployment.of(number)
        late = {name: value for name, value in own.env.items() if not target.is_early(name)}
        seed = self._fresh.seeds.next(setting, number)
        request = {"spec": target.child_spec(setting, own, number, seed=seed), "env": late}
        try:
            return started(lambda ends: server.fork(ends, request), target, setting, own)
        except GuardLost:
            if server.ended():
                raise ServerLost from None
            raise

    def _server(self, early: tuple[tuple[str, str], ...]) -> Server:
        """Return the server for these early variables; the least recently used makes room for a new one."""
        server = self._servers.pop(early, None)
        if server is None:
            while len(self._servers) >= _MAX_SERVERS:
                self._servers.pop(next(iter(self._servers))).close()
            server = Server(self._target, dict(early))
        self._servers[early] = server
        return server

    def _remove_dead(self, early: tuple[tuple[str, str], ...], server: Server) -> None:
        """Take a dead server away; the next launch starts another, once."""
        del self._servers[early]
        log = server.close()
        if early in self._restarted:
            raise TunerError(
                "the fork server crashed twice", "run with --launcher fresh; end of its log:\n" + log[-2000:]
            )
        self._restarted.add(early)
        self._notify(f"the fork server {server.end()}; starting it again")

    def _notify_once(self, line: str) -> None:
        if line not in self._refusals:
            self._refusals.add(line)
            self._notify(line)


class Server:
    """One fork server and the channel to it; it comes up by itself, and is waited for when it is first asked."""

    def __init__(self, target: Target, early: Mapping[str, str]) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile(prefix="tftune-log-")  # noqa: SIM115  # lives as long as this object
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server_arguments = [str(theirs.fileno()), str(os.getpid()), str(target.framework)]
        command = [str(target.python), *boot_arguments(CHILD, "forkserver"), *server_arguments]
        try:
            self._process = subprocess.Popen(
                command,
                env=target.base_env | dict(early),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError as error:
            self._channel.close()
            raise TunerError(
                f"cannot start a fork server: {error}", "free some memory, or stop other processes"
            ) from error
        finally:
            theirs.close()
        self.pid = self._process.pid
        self._began_s = time.monotonic()

    def fork(self, ends: PipeFds, request: Mapping[str, object]) -> ForkedGuard:
        """Ask for a fork; raises ServerLost where nobody is there to ask."""
        message = json.dumps(request).encode()
        if len(message) > _MAX_MESSAGE_BYTES:
            raise TunerError(f"the setting is too long ({len(message)} bytes)", "use shorter values")
        try:
            socket.send_fds(self._channel, [message], list(ends))
        except (BrokenPipeError, ConnectionError) as error:
            raise ServerLost from error
        return ForkedGuard()

    def ended(self) -> bool:
        """Return whether the process is gone, or goes within the moment that a dying process takes."""
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> str:
        """Return how the process ended."""
        return ended_text(self._process.returncode)

    def close(self) -> str:
        """End the server and return what it printed; may be called twice."""
        self._channel.close()
        try:
            self._process.wait(0.2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._log.closed:
            return ""
        self._log.seek(0)
        log = self._log.read().decode(errors="replace")
        self._log.close()
        return log

    @functools.cached_property
    def refused(self) -> str | None:
        """Return why it cannot serve, None if it can; waits until the framework is imported.

        A server that cannot even do that leaves it to fresh interpreters; raises ServerLost for one that was killed.
        """
        left_s = self._began_s + _HELLO_TIMEOUT_S - time.monotonic()
        ready, _, _ = select.select([self._channel], [], [], max(0.0, left_s))
        message = b""
        with contextlib.suppress(ConnectionError):
            message = self._channel.recv(_MAX_MESSAGE_BYTES) if ready else b""
        if not message and ready and self.ended() and (self._process.returncode or 0) < 0:
            raise ServerLost
        if not message:
            return f"the fork server did not start: {last_words(self.close()) or 'no output'}"
        hello = json.loads(message)
        refused: str | None = hello["refused"]
        return refused


class ForkedGuard:
    """A guard that is nobody's child here: the end of its pipes is all that is to be waited for."""

    def wait(self, timeout: float | None = None) -> None:
        """Return at once: the guard has told how the worker ended, which is the last thing it does."""
        del timeout
