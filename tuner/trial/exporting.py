"""The export cache: each workload's model is written once, by the target interpreter, and loaded in each trial."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tuner.errors import BadInputError
from tuner.frameworks.framework import Build, Framework
from tuner.identity import digest
from tuner.paths import cache_dir, file_stem, shipped_folder
from tuner.trial.fresh import interpreter
from tuner.trial.outcome import NO_SPACE, Status, TrialFailure, is_out_of_space, way_out
from tuner.trial.process import ChildProcess
from tuner.workload import pyfile
from tuner.workload.workload import Kind, Workload

_FORMAT = 12  # raise it when the worker writes something else
_ABANDONED_S = 2 * 3600.0  # old is a part that no process writes any more
_OUT_OF_TIME = "give it more time, once, as it is kept: --trial-timeout 10m"
_LESS = "use a smaller model, as exporting takes several times the memory of its weights"
_TOO_LATE = "remove that call: tftune sets the threads, by variables"
_FULL_BYTES = 64 << 20  # free on a disk that may be full: who ran into its end may have removed what filled it
_BLOCK_BYTES = 1 << 20
_LOG_CHARS = 1000  # of what a process printed that ended without a word of its own
_MANIFEST = "tftune.json"
_PART = ".part-"
_WHOLE: set[tuple[object, ...]] = set()
"""The exports that this process has found whole, with the times of their files: a search asks more than once."""
_INPUTS, GRAPH, _MODEL = "inputs.json", "graph.json", "model"  # as the child names them


def cached_folder(workload: Workload, framework: Framework, build: Build) -> Path:
    """Return where the export of a workload by a build of a framework lies, whether it is there or not."""
    key = digest([_FORMAT, workload.fingerprint, framework.name, *framework.export_key(workload, build)])
    return cache_dir() / "exports" / f"{file_stem(workload.name)}-{workload.mode}-{key}"


def export(
    workload: Workload,
    framework: Framework,
    build: Build,
    *,
    python: Path,
    env: dict[str, str],
    deadline_s: float,
    notify: Callable[[str], None] = lambda _: None,
) -> Path:
    """Return the folder of the exported workload, making it if need be, and first what it is made from.

    Making it may take `deadline_s`, and `notify` is called with a line before.

    The export appears under its name all at once, so that two processes may make it at the same time. Raises
    BadInputError where the cache cannot be written or the workload's own code fails, in its own words.
    """
    folder = cached_folder(workload, framework, build)
    if is_complete(folder):
        return folder
    if folder.exists():
        notify(f"{folder.name} of the cache is not as it was written: it is made again")
    source = framework.export_source(workload)
    made_from = None
    if source is not None:
        try:
            source_build = source.probe(python, env)
        except BadInputError as error:
            reason = f"{framework.title} runs what {source.title} exports of {workload.name}: {error.message}"
            raise BadInputError(reason, error.hint) from error
        made_from = export(workload, source, source_build, python=python, env=env, deadline_s=deadline_s, notify=notify)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder.parent)
        part = Path(tempfile.mkdtemp(prefix=_PART, dir=folder.parent))
    except OSError as error:
        raise BadInputError(
            f"cannot write the cache {cache_dir()}: {error.strerror}",
            "set TFTUNE_CACHE to a folder that can be written",
        ) from error
    try:
        notify(f"writing {workload.name} for {framework.title} (done once, and kept)")
        _write(workload, framework, part, made_from, python=python, env=env, deadline_s=deadline_s)
        (part / _MANIFEST).write_text(json.dumps(contents_of(part)))
        os.chmod(part, 0o755)  # noqa: PTH101  # mkdtemp's 0700 would hide it from a shared cache
        publish(part, folder)
    except (OSError, BadInputError) as error:
        is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if is_full or (free_bytes := shutil.disk_usage(folder.parent).free) < _FULL_BYTES:
            how = "full" if is_full else f"all but full, {free_bytes / 2**20:.0f} MiB are free"
            message = f"cannot write the cache {cache_dir()}: its disk is {how}"
            raise BadInputError(message, "free some space, or set TFTUNE_CACHE to a folder on another disk") from error
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def publish(part: Path, folder: Path) -> None:
    """Give an export its name, unless another process was faster; what is there and not whole is moved out first."""
    try:
        part.rename(folder)
    except OSError:
        if is_complete(folder):
            return
        with (
            contextlib.suppress(FileNotFoundError),
            tempfile.TemporaryDirectory(prefix=_PART, dir=folder.parent) as bin_,
        ):
            folder.rename(Path(bin_) / folder.name)
        try:
            part.rename(folder)
        except OSError:
            if not is_complete(folder):
                raise


def contents_of(folder: Path) -> dict[str, list[int]]:
    """Return the size in bytes and the checksum of each file of an export, by its path in it."""
    return {name: [path.stat().st_size, _checksum(path)] for name, path in _files(folder)}


def is_complete(folder: Path) -> bool:
    """Return whether an export is there as it was made: a cache may be cleaned in parts, and a disk may fail."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        stats = {name: path.stat() for name, path in _files(folder)}
        if {name: each.st_size for name, each in stats.items()} != {name: size for name, (size, _) in manifest.items()}:
            return False
        if not all(path.exists() for path in folder.iterdir()):  # a SavedModel is linked to
            return False
        state = (folder, tuple(sorted((name, each.st_size, each.st_mtime_ns) for name, each in stats.items())))
        if state not in _WHOLE:
            if contents_of(folder) != manifest:
                return False
            _WHOLE.add(state)
        return True
    except (OSError, ValueError, AttributeError, TypeError):
        return False


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of an export with their paths in it."""
    for path in folder.rglob("*"):
        if path.is_file() and path.name != _MANIFEST:
            yield str(path.relative_to(folder)), path


def _checksum(path: Path) -> int:
    """Return the CRC-32 of a file: a gigabyte takes about a second."""
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            checksum = zlib.crc32(block, checksum)
    return checksum


def _sweep(parent: Path) -> None:
    """Remove what killed exports left behind."""
    for part in parent.glob(f"{_PART}*"):
        if time.time() - part.stat().st_mtime > _ABANDONED_S:
            shutil.rmtree(part, ignore_errors=True)


def _write(
    workload: Workload,
    framework: Framework,
    folder: Path,
    made_from: Path | None,
    *,
    python: Path,
    env: dict[str, str],
    deadline_s: float,
) -> None:
    request = {"do": "export", "framework": str(framework.child), "folder": str(folder)}
    spec = request | ({} if made_from is None else {"from": str(made_from)}) | workload.child_spec()
    process = ChildProcess(interpreter(python, env, spec), deadline_s)
    try:
        process.report("exported")
    except TrialFailure as failure:
        exported = re.escape(str(folder / _MODEL)) + r"(\.onnx)?"
        reason = re.sub(exported, lambda _: str(workload.path), failure.message)
        silent = failure.status in (Status.CRASHED, Status.OOM)  # it had no word of its own
        if failure.status is Status.TIMEOUT:
            reason = f"the model was not made within {deadline_s:g} s"
        less = f"let inputs() make less, or {_LESS}" if workload.kind == Kind.PYTHON else _LESS
        hints = {
            Status.OOM: way_out(Status.OOM, reason, otherwise="", less=less),
            Status.TIMEOUT: _OUT_OF_TIME,
            Status.CRASHED: f"see the end of what it printed, and try {framework.title} by itself: {python}",
        }
        too_late = _TOO_LATE if "cannot be modified after initialization" in reason else ""
        usual = hints.get(failure.status) or _fix(workload, framework)
        raise BadInputError(
            f"cannot use workload '{workload.name}': {reason}",
            failure.hint or too_late or (NO_SPACE if is_out_of_space(reason) else usual),
            log=failure.evidence(_LOG_CHARS) if silent else failure.frames,
        ) from failure
    finally:
        process.close()


def _fix(workload: Workload, framework: Framework) -> str:
    """Return what may be wrong with a workload that gave no hint: its code, or what a shipped one was told."""
    if workload.kind != Kind.PYTHON:
        return f"try {framework.title} by itself with {workload.path}: the file and this version may not fit each other"
    if shipped_folder("workloads") not in workload.path.parents:
        return f"fix {workload.path}"
    usual = pyfile.read(workload.path).params
    typed = [f"{name}={value}" for name, value in workload.params.items() if usual.get(name) != value]
    return f"check --param: {', '.join(typed)}" if typed else "it is shipped with tftune: please report it"


def described_inputs(folder: Path) -> list[dict[str, Any]]:
    """Return name, dtype and shape of each input of an export; None in a shape is the batch size."""
    inputs: list[dict[str, Any]] = json.loads((folder / _INPUTS).read_text(encoding="utf-8"))
    return inputs
