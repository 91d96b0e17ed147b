"""The fork servers of a job: what its processes are forked from, where they can be."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence

import psutil

from tuner.devices.registry import DEFAULT as DEFAULT_DEVICE
from tuner.job.job import Job
from tuner.machine.cgroup import used_memory_bytes
from tuner.machine.host import Machine
from tuner.measure.rounds import Contender
from tuner.trial.forking import ForkLauncher

_MAX_PARALLEL_STARTS = 8
_SERVER_BYTES, _KEPT_FREE_BYTES = 1 << 30, 4 << 30  # of a server; for the processes that it forks
_N_SERVERS = 3  # that the processes of finals are forked from, in turn


class Servers(contextlib.ExitStack):
    """Fork servers, each executed by itself: one for the trials of a search, and more for the rounds of finals.

    What an interpreter's execution decides for all its forks, such as where libraries lie in memory, is drawn anew
    with each server. Leaving the context ends them.
    """

    def __init__(self, job: Job, *, notify: Callable[[str], None]) -> None:
        """`notify` is called with one line when something has to be said: why there are none, a restart."""
        super().__init__()
        self._job = job
        self._notify = notify
        self._launchers: list[ForkLauncher] = []
        self._has_said_why = False

    def search_launcher(self) -> ForkLauncher | None:
        """Return what forks the trials of a search, and do not wait until it is up; None where nothing can fork."""
        if not self._launchers and self._can_fork():
            self._add()
        return self._launchers[0] if self._launchers else None

    def finals_launchers(self, contenders: Sequence[Contender]) -> Sequence[Callable[[], ForkLauncher]]:
        """Return what forks the processes of these contenders, in turn; nothing where none can.

        The first is that of the search. The others start when they are asked for, as most finals end before. A setting
        that is read while the framework is imported would need servers of its own.
        """
        deployments = [contender.deployment for contender in contenders]
        deployments += [member for each in deployments for member in each.members]
        if any(self._job.space.catalogue.is_early(name) for each in deployments for name in each.env):
            return ()
        first = self.search_launcher()
        if first is None or first.is_refused():
            return ()
        room = (free_host_memory_bytes(self._job.machine) - _KEPT_FREE_BYTES) // _SERVER_BYTES
        n = max(len(self._launchers), min(_N_SERVERS, 1 + room))
        return [functools.partial(self._up, number) for number in range(n)]

    def _can_fork(self) -> bool:
        if self._job.workload.command is not None:
            return False
        refused = self._job.build.fork_refusal
        if refused is not None and not self._has_said_why:
            self._has_said_why = True
            self._notify(f"trials start fresh interpreters instead of forks: {refused}")
        return refused is None

    def _up(self, number: int) -> ForkLauncher:
        """Return the launcher of that number once its server is up, so that its import disturbs nothing timed."""
        while len(self._launchers) <= number:
            self._add()
        self._launchers[number].is_refused()
        return self._launchers[number]

    def _add(self) -> None:
        launcher = self.enter_context(contextlib.closing(ForkLauncher(self._job.target(), notify=self._notify)))
        self._launchers.append(launcher)
        launcher.start_server()


def parallel_starts(machine: Machine) -> int:
    """Return how many processes may start at once: about one a CPU, as most of a start is one thread."""
    return min(machine.usable_cpus, _MAX_PARALLEL_STARTS)


def free_memory_bytes(job: Job) -> int | None:
    """Return the memory that processes may still take of what they are measured by: the device's own, or the host's.

    None where the device does not tell.
    """
    if job.device.kind != DEFAULT_DEVICE:
        return job.device.free_memory_bytes()
    return free_host_memory_bytes(job.machine)


def free_host_memory_bytes(machine: Machine) -> int:
    """Return the memory that processes may still take: of nine tenths of the container's limit, what is left."""
    free = int(psutil.virtual_memory().available)
    if machine.memory_limit_bytes is None:
        return free
    return max(0, min(free, int(0.9 * machine.memory_limit_bytes) - (used_memory_bytes() or 0)))
