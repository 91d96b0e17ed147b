"""Measurement conditions: what else the machine did while something was measured.

A `Reading` is taken before and after; `between` says what happened in the meantime. Readers take a root, so that
made `/proc` and `/sys` trees test them; what a kernel does not tell is None.

Sources: proc(5) for `/proc/stat` (steal, jiffies a CPU), the kernel's `Documentation/accounting/psi.rst` for
`/proc/pressure/cpu`, `admin-guide/cgroup-v2.rst` for `cpu.stat`, `admin-guide/pm/cpufreq.rst` for frequencies.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil

from tuner.machine.cgroup import throttled_s
from tuner.machine.cpulist import parse_list
from tuner.machine.topology import text_of

_IDLE, _IOWAIT, _STEAL, _GUEST = 3, 4, 7, 8  # columns of a CPU's line in /proc/stat


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Counters at one moment, in seconds since some beginning; `None` where the kernel does not tell."""

    monotonic_s: float
    boot_s: float
    """As the monotonic clock, but it goes on while the machine sleeps."""
    busy_s: float
    """Time that the CPUs of our mask ran something, whoever's it was."""
    steal_s: float
    """Time that the hypervisor gave to others while a CPU of our mask wanted to run."""
    own_s: float
    """CPU time of this process and of everything that it started."""
    pressure_s: float | None
    throttled_s: float
    hot: int | None
    """Thermal throttling events."""
    mhz: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConditions:
    """What was seen of a device of its own, such as a GPU, in `n_looks` looks while something was measured.

    `throttled` is the share of the looks in which it ran slower than it could, by the reason; `foreign` are other
    programs that used it; `mhz` the lowest and the highest clock; `lost` why it could not be read any more.
    """

    n_looks: int
    throttled: dict[str, float]
    foreign: tuple[str, ...]
    mhz: tuple[int, int] | None
    power_w: float | None
    temperature_c: int | None
    lost: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What happened between two readings; shares are of the time of all CPUs in our mask.

    `foreign_cpus` is how many CPUs others kept busy; `pressure_share` the share of time in which something waited for
    a CPU, our own threads included; `throttled_share` the share in which the quota held us back; `asleep_s` how long
    the machine slept; `mhz` the mean of the two frequencies read.
    """

    elapsed_s: float
    n_cpus: int
    steal_share: float
    foreign_cpus: float
    pressure_share: float | None
    throttled_share: float
    hot: int | None
    mhz: float | None
    asleep_s: float
    device: DeviceConditions | None = None
    """What was seen of the device that computes, where that is not the CPU."""
    pinned: str = ""
    """How the workload's own code has changed the CPUs of its processes, in words; empty where it has not."""
    unlike_cores: str = ""
    """How the cores of processes that ran side by side differ, in words; empty where they are alike."""
    not_finite: str = ""
    """Which outputs of the default hold NaN or infinite values, in words; empty where none do."""

    def to_dict(self) -> dict[str, Any]:
        """Return the conditions as plain data."""
        data = {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(self).items()}
        if self.device is None:
            del data["device"]
        return data


def read(cpus: str, root: Path = Path("/")) -> Reading:
    """Read the counters now, for the CPUs of a list such as `0-3`."""
    mask = parse_list(cpus)
    jiffy = 1.0 / os.sysconf("SC_CLK_TCK")
    rows = _jiffies(root, mask)
    throttled = _numbers(root, mask, "thermal_throttle/core_throttle_count")
    khz = _numbers(root, mask, "cpufreq/scaling_cur_freq")
    return Reading(
        monotonic_s=time.monotonic(),
        boot_s=time.clock_gettime(time.CLOCK_BOOTTIME),
        busy_s=jiffy * sum(_busy(row) for row in rows),
        steal_s=jiffy * sum(row[_STEAL] for row in rows),
        own_s=_own_s() if root == Path("/") else 0.0,
        pressure_s=_pressure_s(root),
        throttled_s=throttled_s(root),
        hot=sum(throttled) if throttled else None,
        mhz=fmean(khz) / 1000 if khz else None,
    )


def between(before: Reading, after: Reading, *, cpus: str) -> Conditions:
    """Return what happened between two readings of the same CPUs."""
    n_cpus = len(parse_list(cpus))
    elapsed = max(after.monotonic_s - before.monotonic_s, 1e-9)
    foreign = max(0.0, (after.busy_s - before.busy_s) - (after.own_s - before.own_s)) / elapsed
    has_pressure = before.pressure_s is not None and after.pressure_s is not None
    return Conditions(
        elapsed_s=elapsed,
        n_cpus=n_cpus,
        steal_share=max(0.0, after.steal_s - before.steal_s) / (n_cpus * elapsed),
        foreign_cpus=min(foreign, float(n_cpus)),
        pressure_share=((after.pressure_s or 0.0) - (before.pressure_s or 0.0)) / elapsed if has_pressure else None,
        throttled_share=(after.throttled_s - before.throttled_s) / elapsed,
        hot=None if before.hot is None or after.hot is None else after.hot - before.hot,
        mhz=None if before.mhz is None or after.mhz is None else (before.mhz + after.mhz) / 2,
        asleep_s=max(0.0, (after.boot_s - before.boot_s) - (after.monotonic_s - before.monotonic_s)),
    )


class Watch:
    """What happens to the CPUs of a list such as `0-3` from when this is made."""

    def __init__(self, cpus: str) -> None:
        self._cpus = cpus
        self._before = read(cpus)

    def conditions(self) -> Conditions:
        """Return what has happened since."""
        return between(self._before, read(self._cpus), cpus=self._cpus)


def suspended_s() -> float:
    """Return for how long (s) the machine has slept since it was started: a difference of two tells of a pause."""
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic())


def is_foreign(pid: int, own: int) -> bool:
    """Return whether a process is somebody else's: neither `own`, nor started by it.

    False where it cannot be looked at, as in a container, where a driver may number our own as the host does.
    """
    try:
        process = psutil.Process(pid)
        return pid != own and all(parent.pid != own for parent in process.parents())
    except psutil.Error:
        return False


def _jiffies(root: Path, mask: frozenset[int]) -> list[list[int]]:
    """Return the counters of the CPUs in the mask.

    A container may show its own CPUs alone, numbered from 0, whatever their numbers in the mask: then all are ours.
    """
    rows: dict[int, list[int]] = {}
    for line in text_of(root / "proc/stat").splitlines():
        name, _, fields_text = line.partition(" ")
        if name.startswith("cpu") and name[3:].isdigit():
            row = [int(field) for field in fields_text.split()]
            rows[int(name[3:])] = row + [0] * (10 - len(row))
    is_renumbered = not mask <= rows.keys() and len(rows) <= len(mask)
    return [row for cpu, row in rows.items() if is_renumbered or cpu in mask]


def _busy(row: list[int]) -> int:
    """Return what ran here; a guest's time is part of the user's, and stolen time ran elsewhere."""
    return sum(row[:_GUEST]) - row[_IDLE] - row[_IOWAIT] - row[_STEAL]


def _own_s() -> float:
    """Return the CPU time of this process, of its live descendants, and of those that they have seen off."""
    own_times = os.times()
    total = own_times.user + own_times.system + own_times.children_user + own_times.children_system
    for process in psutil.Process().children(recursive=True):
        try:
            used = process.cpu_times()
        except psutil.Error:  # it has just ended; its parent has its time
            continue
        total += used.user + used.system + used.children_user + used.children_system
    return float(total)


def _pressure_s(root: Path) -> float | None:
    for line in text_of(root / "proc/pressure/cpu").splitlines():
        if line.startswith("some "):
            return int(line.rpartition("total=")[2]) / 1e6
    return None


def _numbers(root: Path, mask: frozenset[int], file: str) -> list[int]:
    """Return the numbers that a file of each CPU in the mask holds, of those that have it."""
    texts = [text_of(root / f"sys/devices/system/cpu/cpu{cpu}/{file}") for cpu in sorted(mask)]
    return [int(text) for text in texts if text.isdigit()]
