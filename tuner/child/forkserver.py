"""The fork server: has imported a framework, has started nothing of it, and forks a worker for each request.

    forkserver CHANNEL_FD PARENT_PID FRAMEWORK

FRAMEWORK is the folder of the framework's child code. The channel is a Unix socket that keeps messages apart. The
server first says whether it can serve: {"refused": null or the reason}. A request is {"spec": ..., "env": {...}} with
five descriptors (commands, reports, lifeline, status, log). The server forks a guard, which forks the worker, and
forgets both. They have their own lifeline to the tuner, so that they outlive the server, and the tuner's end ends them
without it. The server ends with its channel.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
from typing import Any, Callable, Optional

from . import adapter, fork, guard, worker

N_DESCRIPTORS = 5
MAX_MESSAGE_BYTES = 1 << 17


def serve(request: Any, descriptors: list[int]) -> None:
    """Be the guard of a forked worker; does not return."""
    commands, reports, lifeline, status, log = descriptors
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)

    def run() -> None:
        os.environ.update(request["env"])
        worker.run(commands, reports, request["spec"])

    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        guard.watch(lifeline, status, run, theirs=frozenset({commands, reports}))
    finally:
        os._exit(0)


def reap(*_: Any) -> None:
    """See off the guards that have ended; their CPU time, and their workers', is ours then, as the tuner counts it."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:  # there is none left
        pass


def main(arguments: list[str]) -> None:
    """Import, say whether it can be done, then fork on request until the channel ends."""
    fork.die_with(int(arguments[1]))
    channel = socket.socket(fileno=int(arguments[0]))
    framework = adapter.load_adapter(arguments[2])
    framework.load()  # what every worker begins with
    refusal: Callable[[], Optional[str]] = getattr(framework, "refusal", lambda: None)
    channel.send(json.dumps({"refused": refusal()}).encode())
    signal.signal(signal.SIGCHLD, reap)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tuner decides when to end
    gc.freeze()  # a collection in a worker would copy every page of what they share; garbage went after the import
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, MAX_MESSAGE_BYTES, N_DESCRIPTORS)
        if not message:
            os._exit(0)
        if fork.fork() == 0:
            channel.close()
            serve(json.loads(message), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
