"""Machine-wide locks: two searches at the same time would disturb each other's timings.

A right is an abstract Unix socket: the kernel gives it to one process, tells a second one who that is
(SO_PEERCRED), and takes it back the moment its owner dies, however it dies.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.errors import MachineBusyError

_NAME = "TFTUNE_LOCK"
"""The variable that names another right: for containers that share a network but no CPUs, and for tests."""
_POLL_S = 1.0
_SHOWN = 100  # characters of another's command


@contextmanager
def machine_lock(
    *, wait: bool = False, on_wait: Callable[[str], None] = lambda _: None, address: str | None = None
) -> Iterator[None]:
    """Hold the machine's right to measure; raises MachineBusyError if another holds it and `wait` is false.

    `on_wait` is called once with one line when there is somebody to wait for.
    """
    own = os.environ.get(_NAME)
    name = f"-{hashlib.sha256(os.fsencode(own)).hexdigest()[:16]}" if own else ""  # of any length
    address = address or f"\0tftune-measuring{name}"
    with _locked(address, "measuring on this machine", wait=wait, waiting=on_wait):
        yield


@contextmanager
def import_lock(into: str, *, waiting: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Hold the right to import into a storage, by its URL; waits for another import of this machine to end."""
    name = hashlib.sha256(os.fsencode(into)).hexdigest()[:16]
    with _locked(f"\0tftune-importing-{name}", f"importing into {into}", wait=True, waiting=waiting):
        yield


@contextmanager
def unit_lock(unit: str) -> Iterator[None]:
    """Hold the right to run a unit of a suite on this machine, by its name; waits for another to end."""
    with _locked(f"\0tftune-unit-{unit}", f"running the unit {unit}", wait=True, waiting=lambda _: None):
        yield


@contextmanager
def _locked(address: str, doing: str, *, wait: bool, waiting: Callable[[str], None]) -> Iterator[None]:
    right = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        is_notified = False
        while not _take(right, address):
            line = f"another tftune is {doing}{_holder(address)}"
            if not wait:
                raise MachineBusyError(line, "wait until it ends, or use --wait")
            if not is_notified:
                waiting(line)
                is_notified = True
            time.sleep(_POLL_S)
        yield
    finally:
        right.close()


def _take(right: socket.socket, address: str) -> bool:
    try:
        right.bind(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    right.listen()
    return True


def _holder(address: str) -> str:
    """Return ` (process N: its command)`, as far as the kernel tells."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.setblocking(False)
            probe.connect(address)
            pid = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        except OSError:
            return ""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return f" (process {pid})"
    # The first word is the interpreter; a newline inside a word must not break the one line.
    command = " ".join(b" ".join(words[1:]).decode(errors="replace").split())
    return f" (process {pid}: {command if len(command) <= _SHOWN else command[: _SHOWN - 1] + '…'})"
