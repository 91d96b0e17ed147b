"""Confinement: letting a process have fewer CPUs than the host has, by an affinity mask or by a CPU quota.

A quota is a cgroup of its own below this process's, or beside it, version 1 or 2; one that a killed suite left behind
is removed by the next.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tuner.child.guard import PR_SET_PDEATHSIG
from tuner.errors import BadInputError
from tuner.machine.cgroup import cpu_groups
from tuner.machine.cpulist import format_list
from tuner.machine.topology import Topology

PERIOD_US = 100_000
MIN_QUOTA = 0.05
"""Of a CPU: below it, TensorFlow would not become ready within any patience."""
_NAME = "tftune-"
_EMPTY_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuShape:
    """What processes may use of a host: its CPUs, and a quota (in CPUs) where one is laid on beside them.

    Raises BadInputError for a quota that limits nothing, or lets nothing run.
    """

    cpus: frozenset[int]
    quota: float | None = None

    def __post_init__(self) -> None:
        if self.quota is not None and not MIN_QUOTA <= self.quota < len(self.cpus):
            expected = f"expected at least {MIN_QUOTA:g} and less than {len(self.cpus)} CPUs"
            raise BadInputError(f"--cpu-quota {self.quota:g} is out of range", expected)

    def __str__(self) -> str:
        n = len(self.cpus)
        text = f"{n} CPU{'s' if n > 1 else ''}"
        return text if self.quota is None else f"{text}, quota {self.quota:g}"

    @property
    def affinity(self) -> str:
        """Return the mask as a list such as `0-3`."""
        return format_list(self.cpus)


def choose_cpus(topology: Topology, mask: frozenset[int], n: int) -> frozenset[int]:
    """Return `n` CPUs of a mask that lie beside each other: cores of one package first, one hardware thread of each.

    Raises BadInputError where there are not so many.
    """
    if not 1 <= n <= len(mask):
        raise BadInputError(
            f"--cpus {n} is out of range", f"expected 1 to {len(mask)}, the CPUs in the affinity mask of tftune"
        )
    package = {cpu: number for number, cpus in enumerate(topology.packages) for cpu in cpus}
    cores = sorted((sorted(core & mask) for core in topology.cores if core & mask), key=lambda c: (package[c[0]], c[0]))
    first, siblings = [core[0] for core in cores], [cpu for core in cores for cpu in core[1:]]
    return frozenset((first + siblings)[:n])


@contextmanager
def confined(shape: CpuShape, root: Path = Path("/")) -> Iterator[Callable[[], None]]:
    """Yield what a new process has to call, before it becomes another program, to be confined to a shape.

    The process also ends when its parent does. Raises BadInputError where the rights for a quota are missing.
    """
    with contextlib.ExitStack() as cleanup:
        group = None if shape.quota is None else cleanup.enter_context(_group(shape.quota, root))
        libc = ctypes.CDLL(None)

        def enter() -> None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            os.sched_setaffinity(0, shape.cpus)
            if group is not None:
                (group / "cgroup.procs").write_text(str(os.getpid()))

        yield enter


@contextmanager
def _group(quota: float, root: Path) -> Iterator[Path]:
    """Make a cgroup with a quota, and remove it when nothing runs in it any more."""
    group = _make(quota, root)
    try:
        yield group
    finally:
        deadline = time.monotonic() + _EMPTY_S
        while True:
            try:
                group.rmdir()
                break
            except OSError:  # a process that was just killed may not be gone yet
                if time.monotonic() > deadline:
                    break
                time.sleep(0.05)


def _make(quota: float, root: Path) -> Path:
    refused = []
    # In version 2 a group with processes of its own may not hand the controller on; then the new one stands beside it.
    for parent in cpu_groups(root):
        _sweep(parent)
        group = parent / f"{_NAME}{os.getpid()}"
        try:
            group.mkdir(exist_ok=True)
            with _controlled(group):
                _limit(group, quota)
                _try(group)
        except OSError as error:
            refused.append(f"{group.parent}: {error.strerror}")
            with contextlib.suppress(OSError):
                group.rmdir()
            continue
        return group
    why = refused[0] if refused else "no cgroup with a CPU controller is mounted"
    raise BadInputError(
        f"cannot set --cpu-quota {quota:g} here ({why})",
        "run as root, under a delegated cgroup, or in a container with --cpus",
    )


def _sweep(parent: Path) -> None:
    """Remove the groups of suites that were killed; those in which something still runs cannot be."""
    for group in parent.glob(f"{_NAME}*"):
        pid = group.name.removeprefix(_NAME)
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(OSError):
                group.rmdir()


@contextmanager
def _controlled(group: Path) -> Iterator[None]:
    """Let a new group of version 2 have a quota; if that is no use, its parent is as it was."""
    control = group.parent / "cgroup.subtree_control"
    is_new = control.exists() and "cpu" not in control.read_text().split()
    if is_new:
        control.write_text("+cpu")
    try:
        yield
    except OSError:
        if is_new:
            with contextlib.suppress(OSError):
                control.write_text("-cpu")
        raise


def _try(group: Path) -> None:
    """Move a process into a group; raises OSError if none may run there.

    A group below one with processes of its own may have a quota in version 2, and yet take no process: the kernel calls
    it "domain invalid". Other groups are closed to processes of a namespace.
    """
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            (group / "cgroup.procs").write_text(str(process.pid))
        finally:
            process.kill()


def _limit(group: Path, quota: float) -> None:
    """Write the quota of a group, version 1 or 2; raises OSError where it has none."""
    limit_us = round(quota * PERIOD_US)
    if (group / "cpu.cfs_quota_us").exists():
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(limit_us))
        return
    (group / "cpu.max").write_text(f"{limit_us} {PERIOD_US}")
