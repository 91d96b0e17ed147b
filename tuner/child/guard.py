"""The guard: stands between the tuner and a trial's process, so that nothing outlives either.

    guard LIFELINE_FD STATUS_FD OOM_SCORE COMMAND...

OOM_SCORE says how readily the kernel takes COMMAND when memory runs out (oom_score_adj). The guard starts COMMAND
in a session of its own and waits until that ends or until the lifeline pipe does, which is when the tuner closes
it or dies, even by SIGKILL. Then it kills every descendant, those that changed session or lost their parent
included (it is their subreaper), and writes how the command ended. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import time
from typing import Callable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
EXPENDABLE = 1000
"""The score of a trial: the kernel is to take it, not the tuner or the user's desktop, when memory runs out."""
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def start(run: Callable[[], object], private: set[int], oom_score: int) -> int:
    """Fork a worker that calls `run` in a new session; `private` descriptors stay with the guard."""
    guard = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:  # the guard died before the line above
            os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in private:
            os.close(descriptor)
        if oom_score:
            with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="utf-8") as score:
                score.write(str(oom_score))
        run()
    except OSError as error:
        os.write(2, f"cannot start: {error}\n".encode())
    os._exit(127)


def default_signals() -> None:
    """Give back what Python has set aside: a program that is executed is to end where nobody reads its output."""
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)


def stat_fields(pid: int) -> list[str]:
    """Return what the kernel's `stat` of a process holds behind its name; raises OSError if there is no process."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
        return stat.read().rpartition(")")[2].split()


def descendants(root: int) -> list[int]:
    """Return the living processes below `root`; a subreaper's orphans are its children again."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            parents[int(entry)] = int(stat_fields(int(entry))[1])
        except OSError:
            continue
    below: list[int] = []
    frontier = {root}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier}
        below.extend(frontier)
    return below


def kill_all(worker: int, ended: dict[str, object]) -> None:
    """Kill and reap until no descendant is left."""
    while True:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            reap(worker, ended)
        except ChildProcessError:
            return
        time.sleep(0.005)


def reap(worker: int, ended: dict[str, object]) -> None:
    """Reap every dead child, and fill `ended` when the worker is among them. ChildProcessError: none is left."""
    while True:
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid == 0:
            return
        if pid == worker:
            ended["returncode"] = os.waitstatus_to_exitcode(status)
            ended["peak_memory_bytes"] = usage.ru_maxrss * 1024


def watch(
    lifeline: int,
    status: int,
    run: Callable[[], object],
    theirs: frozenset[int] = frozenset(),
    oom_score: int = EXPENDABLE,
) -> None:
    """Start a worker, wait, clean up, tell; `theirs` are descriptors that only the worker keeps."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    wakeup_read, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup_write)
    worker = start(run, {lifeline, status, wakeup_read, wakeup_write}, oom_score)
    for descriptor in theirs:
        os.close(descriptor)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the tuner decides, through the lifeline
        signal.signal(number, signal.SIG_IGN)
    os.write(status, json.dumps({"pid": worker, "guard": os.getpid()}).encode() + b"\n")
    ended: dict[str, object] = {}
    while not ended:
        ready, _, _ = select.select([lifeline, wakeup_read], [], [])
        if lifeline in ready:
            break
        os.read(wakeup_read, 4096)
        with contextlib.suppress(ChildProcessError):
            reap(worker, ended)
    kill_all(worker, ended)
    with contextlib.suppress(OSError):
        os.write(status, json.dumps(ended).encode() + b"\n")


def main(arguments: list[str]) -> None:
    """Guard a command."""
    lifeline, status, oom_score, *command = arguments

    def execute() -> None:
        default_signals()
        try:
            os.execvp(command[0], command)
        except OSError as error:
            raise OSError(error.errno, error.strerror, command[0]) from error

    watch(int(lifeline), int(status), execute, oom_score=int(oom_score))
