"""The CPU quota and the memory limit that a container lays on this process, cgroup v1 and v2.

Every group on the way up may carry a limit; the smallest one holds. Sources: the kernel's
`Documentation/admin-guide/cgroup-v2.rst` (`cpu.max`, `memory.max`, `memory.events`) and `cgroup-v1`
(`cpu.cfs_quota_us`, `memory.limit_in_bytes`, `memory.oom_control`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_UNLIMITED_BYTES = 1 << 60  # v1 says "no limit" with a page-rounded 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupLimits:
    """What the cgroups allow: `cpu_quota` in CPUs and `memory_bytes`; None is no limit."""

    cpu_quota: float | None
    memory_bytes: int | None


def read_limits(root: Path = Path("/")) -> CgroupLimits:
    """Return the tightest limits on the process whose `/proc/self` lies below `root`."""
    quotas = [q for folder in _groups(root, "cpu") for q in _readings(folder, (_quota_v2, _quota_v1))]
    limits = [m for folder in _groups(root, "memory") for m in _readings(folder, (_memory_v2, _memory_v1))]
    return CgroupLimits(cpu_quota=min(quotas, default=None), memory_bytes=int(min(limits)) if limits else None)


def more_memory() -> str:
    """Return how there would be more memory: by a higher limit where a container has one."""
    limit_bytes = read_limits().memory_bytes
    if limit_bytes is None:
        return "free some memory"
    return f"raise the container's memory limit of {limit_bytes / 2**20:,.0f} MiB"


def used_memory_bytes(root: Path = Path("/")) -> int | None:
    """Return what this process's memory group has taken and cannot give back; None where there is none.

    Of the innermost group that tells: pages of files can be given back, and do not count.
    """
    for folder in _groups(root, "memory"):
        text = _field(folder / "memory.stat", "anon") or _field(folder / "memory.stat", "total_rss")
        if text is not None:
            return int(text)
    return None


def oom_kills(root: Path = Path("/")) -> int:
    """Return how often the kernel has killed for memory in this process's group; 0 where nothing tells.

    Of the innermost group that tells, or else of the whole machine since boot, from `/proc/vmstat`.
    """
    # Of a group outside of the cgroup namespace nothing can be read: the mount's top is another one.
    is_outside = any(".." in path.parts for path in _own_paths(root).values())
    folders = () if is_outside else _groups(root, "memory")
    files = [folder / name for folder in folders for name in ("memory.events", "memory.oom_control")]
    texts = (_field(path, "oom_kill") for path in [*files, root / "proc/vmstat"])
    return int(next((text for text in texts if text is not None), 0))


def throttled_s(root: Path = Path("/")) -> float:
    """Return for how long (s) the CPU quota has held this process's groups back so far: the worst one's figure."""
    readings_s = [s for folder in _groups(root, "cpu") for s in _readings(folder, (_throttled_v2, _throttled_v1))]
    return max(readings_s, default=0.0)


def cpu_groups(root: Path = Path("/")) -> list[Path]:
    """Return this process's group in the hierarchy that limits CPUs, and its ancestors up to the mount."""
    return list(_groups(root, "cpu"))


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield this process's group and its ancestors, up to the mount, in each hierarchy with `controller`."""
    own_paths = _own_paths(root)
    for mount_root, mount_point, names in _mounts(root):
        key = "" if names is None else controller
        if names is not None and controller not in names:
            continue
        if key not in own_paths:
            continue
        top = root / mount_point.relative_to("/")
        below = _below(own_paths[key], mount_root)
        folder = top / below
        if not folder.is_dir():  # a container sees its own group as the mount's top
            folder = top
        yield folder
        while folder != top:
            folder = folder.parent
            yield folder


def _below(group: PurePosixPath, mount_root: PurePosixPath) -> PurePosixPath:
    """Return where `group` lies below a mount that shows the hierarchy from `mount_root` on."""
    if ".." in group.parts:  # outside of the cgroup namespace: only the mount's top can be read
        return PurePosixPath()
    try:
        return group.relative_to(mount_root)
    except ValueError:
        return group.relative_to("/")


def _own_paths(root: Path) -> dict[str, PurePosixPath]:
    """Return this process's group by controller; the v2 hierarchy has the empty name."""
    paths: dict[str, PurePosixPath] = {}
    for line in _lines(root / "proc/self/cgroup"):
        _, _, remainder = line.partition(":")
        names, _, path = remainder.partition(":")
        for name in names.split(","):
            paths[name] = PurePosixPath(path)
    return paths


def _mounts(root: Path) -> Iterator[tuple[PurePosixPath, PurePosixPath, frozenset[str] | None]]:
    """Yield (root inside the hierarchy, mount point, v1 controllers or None for v2) of each cgroup mount."""
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, tail = before.split(), after.split()
        if len(fields) < 5 or len(tail) < 3 or tail[0] not in ("cgroup", "cgroup2"):
            continue
        names = None if tail[0] == "cgroup2" else frozenset(tail[2].split(","))
        yield PurePosixPath(fields[3]), PurePosixPath(fields[4]), names


def _readings(folder: Path, readers: tuple[Callable[[Path], float | None], ...]) -> Iterator[float]:
    for reader in readers:
        value = reader(folder)
        if value is not None:
            yield value


def _quota_v2(folder: Path) -> float | None:
    quota, _, period = _first(folder / "cpu.max").partition(" ")
    if not quota or quota == "max":
        return None
    return int(quota) / int(period or 100_000)


def _quota_v1(folder: Path) -> float | None:
    quota, period = _first(folder / "cpu.cfs_quota_us"), _first(folder / "cpu.cfs_period_us")
    if not quota or int(quota) <= 0:
        return None
    return int(quota) / int(period or 100_000)


def _throttled_v2(folder: Path) -> float | None:
    text = _field(folder / "cpu.stat", "throttled_usec")
    return None if text is None else int(text) / 1e6


def _throttled_v1(folder: Path) -> float | None:
    text = _field(folder / "cpu.stat", "throttled_time")
    return None if text is None else int(text) / 1e9


def _field(path: Path, name: str) -> str | None:
    """Return the value of a `name value` line."""
    return next((line.split()[1] for line in _lines(path) if line.split()[:1] == [name]), None)


def _memory_v2(folder: Path) -> float | None:
    text = _first(folder / "memory.max")
    return None if text in ("", "max") else float(text)


def _memory_v1(folder: Path) -> float | None:
    text = _first(folder / "memory.limit_in_bytes")
    return float(text) if text and int(text) < _UNLIMITED_BYTES else None


def _first(path: Path) -> str:
    return next(iter(_lines(path)), "")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
