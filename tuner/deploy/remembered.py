"""What studies recommend, remembered while their storage stays as it is.

To read a study and what its finals say takes a second; a program that is started again and again need not wait for it.
Only storages that are files are looked at: whether one has changed since is told by its size and its time.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from tuner import __version__
from tuner.errors import BadInputError
from tuner.identity import digest
from tuner.paths import FILE_URL, cache_dir
from tuner.space.deployment import Deployment

_FORM = 3  # of what is remembered: from 3 on with the knobs that go among the words


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """The place of what a study recommends, and the state of its storage for which that holds."""

    file: Path
    state: list[int]

    def recall(self) -> tuple[Deployment, str | None] | None:
        """Return what was remembered for this state, and what is better than that in words, where something is.

        None where there is nothing, or nothing that can be read.
        """
        try:
            data = json.loads(self.file.read_text(encoding="utf-8"))
            return (Deployment.from_dict(data["deployment"]), data["better"]) if data["state"] == self.state else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def remember(self, deployment: Deployment, better: str | None = None) -> None:
        """Keep what a study recommends; where the cache cannot be written it is found out again."""
        text = json.dumps({"state": self.state, "deployment": deployment.to_dict(), "better": better})
        own = self.file.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            own.write_text(text, encoding="utf-8")
            own.replace(self.file)


def of_study(study: str, storage_url: str, *, groups: bool, same_latency: bool = False) -> Remembered | None:
    """Return the place for what a study recommends, of `groups` if several processes may run, or at the `same_latency`.

    None for storages that are no files, and for files that are not there.
    """
    path = Path(storage_url.removeprefix(FILE_URL)).absolute()
    try:
        status = path.stat() if storage_url.startswith(FILE_URL) else None
    except OSError:
        status = None
    if status is None:
        return None
    try:
        folder = cache_dir() / "deployments"
    except BadInputError:  # there is no home: a program can start all the same
        return None
    name = digest([__version__, _FORM, str(path), study, groups, same_latency])
    return Remembered(file=folder / f"{name}.json", state=[status.st_ino, status.st_size, status.st_mtime_ns])
