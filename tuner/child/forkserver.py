"""The fork server: has imported TensorFlow, has created no context, and forks a worker for each request.

    forkserver CHANNEL_FD PARENT_PID

The channel is a Unix socket that keeps messages apart. The server first says whether it can serve:
{"refused": null or the reason}. A request is {"spec": ..., "env": {...}} with five descriptors
(commands, reports, lifeline, status, log): the server forks a guard, which forks the worker, and forgets both. They
have their own lifeline to the tuner, so that they outlive the server, and the tuner's end ends them without it. The
server ends with its channel.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import warnings
from typing import Any, Callable, Optional

from . import effective, guard, importing, lifetime, worker

N_DESCRIPTORS = 5
MAX_MESSAGE_BYTES = 1 << 17
CANARY_TIMEOUT_S = 60.0


def fork() -> int:
    """Fork; newer Pythons warn that the idle threads of NumPy's BLAS are not in the child, which is what we want."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_a_fork(ask: Callable[[], Any], timeout_s: float = CANARY_TIMEOUT_S) -> Any:
    """Return what `ask` returns in a forked child (plain data), None if the child does not come to an end."""
    read, write = os.pipe()
    asking = os.getpid()
    pid = fork()
    if pid == 0:
        try:
            os.close(read)
            lifetime.die_with(asking)
            with os.fdopen(write, "w") as out:
                json.dump(ask(), out)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answers:
        told = select.select([answers], [], [], timeout_s)[0]
        answer = answers.read() if told else ""
    if not told:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        return json.loads(answer)
    except ValueError:
        return None


def threads_of_a_context() -> int:
    """Return how many threads the creation of TensorFlow's context starts here."""
    import tensorflow as tf

    before = effective.threads()
    tf.constant(0.0)
    return len(effective.threads().keys() - before.keys())


def refusal() -> Optional[str]:
    """Return why forked workers would not be what fresh ones are, or None if they are.

    TensorFlow is asked, and then seen: where the context were already there, creating it would start no thread.
    """
    reason = effective.live()
    if reason is None and not in_a_fork(threads_of_a_context):
        reason = "a forked process creates no context of its own"
    return reason


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
    lifetime.die_with(int(arguments[1]))
    channel = socket.socket(fileno=int(arguments[0]))
    importing.tensorflow()  # what every worker begins with
    channel.send(json.dumps({"refused": refusal()}).encode())
    signal.signal(signal.SIGCHLD, reap)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tuner decides
    gc.freeze()  # a collection in a worker would copy every page of what they share; garbage went after the import
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, MAX_MESSAGE_BYTES, N_DESCRIPTORS)
        if not message:
            os._exit(0)
        if fork() == 0:
            channel.close()
            serve(json.loads(message), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
