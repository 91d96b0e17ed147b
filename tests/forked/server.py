"""A fork server for tests: as `tuner.child.forkserver`, but for workers of any kind, and wherever a test stands.

    server CHANNEL_FD PARENT_PID FRAMEWORK

A request is {"spec": ..., "environment": {...}, "folder": ..., "cpus": [...]}: the worker has that environment and no
other, as an interpreter that is started has it. A spec {"code": ..., "words": [...]} is Python code that is run as
`python -c` runs it. The first message to the channel is the framework's refusal, or null.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import traceback
from typing import Any

from tftune.child import adapter, fork, forkserver, worker  # type: ignore[import-not-found]


def run_code(_commands: int, _reports: int, spec: dict[str, Any]) -> None:
    """Run Python code, and end the process."""
    sys.argv = ["-c", *spec["words"]]
    sys.path.insert(0, "")
    sys.path.append(spec["root"])
    ended = 0
    try:
        exec(compile(spec["code"], "<string>", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        ended = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended)


def main(arguments: list[str]) -> None:
    """Import, say whether it can be done, then fork on request until the channel ends."""
    fork.die_with(int(arguments[1]))
    channel = socket.socket(fileno=int(arguments[0]))
    framework = adapter.load_adapter(arguments[2])
    framework.load()
    channel.send(json.dumps(getattr(framework, "refusal", lambda: None)()).encode())
    signal.signal(signal.SIGCHLD, forkserver.reap)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, forkserver.MAX_MESSAGE_BYTES, forkserver.N_DESCRIPTORS)
        if not message:
            os._exit(0)
        if fork.fork() == 0:
            channel.close()
            request = json.loads(message)
            os.chdir(request["folder"])
            os.sched_setaffinity(0, request["cpus"])
            os.environ.clear()
            os.environ.update(request["environment"])
            if "code" in request["spec"]:
                worker.run = run_code
            forkserver.serve({"spec": request["spec"], "env": {}}, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
