"""The export cache: each workload's model is written once, by the target interpreter, and loaded in each trial."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from tuner.errors import BadInputError
from tuner.frameworks.framework import Build, Framework
from tuner.identity import digest
from tuner.paths import cache_dir
from tuner.trial.fresh import interpreter
from tuner.trial.outcome import Status, TrialFailure
from tuner.trial.process import ChildProcess
from tuner.workload.workload import Workload

_FORMAT = 4  # raise it when the worker writes something else
_EXPORT_TIMEOUT_S = 600.0
_OUT_OF_MEMORY = "exporting takes several times the memory of the weights; free some, or use a smaller model"
_LOG_CHARS = 1000  # of what a process printed that ended without a word of its own
_MANIFEST = "tftune.json"
_PART = ".part-"
_INPUTS, GRAPH, _MODEL = "inputs.json", "graph.json", "model"  # as the child names them


def cached_folder(workload: Workload, framework: Framework, build: Build) -> Path:
    """Return where the export of a workload by a build of a framework lies, whether it is there or not."""
    key = digest([_FORMAT, workload.fingerprint, framework.name, *framework.export_key(workload, build)])
    # TensorFlow takes the path for a pattern: no character of one may be in it.
    name = re.sub(r"[^\w.-]", "_", workload.name)
    return cache_dir() / "exports" / f"{name}-{workload.mode}-{key}"


def export(workload: Workload, framework: Framework, build: Build, *, python: Path, env: dict[str, str]) -> Path:
    """Return the folder of the exported workload, making it if need be, and first what it is made from.

    The export appears under its name all at once, so that two processes may make it at the same time. Raises
    BadInputError where the cache cannot be written or the workload's own code fails, in its own words.
    """
    folder = cached_folder(workload, framework, build)
    if is_complete(folder):
        return folder
    source = framework.export_source(workload)
    made_from = None
    if source is not None:
        try:
            source_build = source.probe(python, env)
        except BadInputError as error:
            reason = f"{framework.title} runs what {source.title} exports of {workload.name}: {error.message}"
            raise BadInputError(reason, error.hint) from error
        made_from = export(workload, source, source_build, python=python, env=env)
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
        _write(workload, framework, part, made_from, python=python, env=env)
        (part / _MANIFEST).write_text(json.dumps(sizes_of(part)))
        os.chmod(part, 0o755)  # noqa: PTH101  # mkdtemp's 0700 would hide it from a shared cache
        publish(part, folder)
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


def sizes_of(folder: Path) -> dict[str, int]:
    """Return the size in bytes of each file of an export, by its path in it."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != _MANIFEST]
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}


def is_complete(folder: Path) -> bool:
    """Return whether an export is there as it was made: a cache may be cleaned in parts."""
    try:
        return bool(json.loads((folder / _MANIFEST).read_text()) == sizes_of(folder))
    except (OSError, ValueError):
        return False


def _sweep(parent: Path) -> None:
    """Remove what killed exports left behind."""
    for part in parent.glob(f"{_PART}*"):
        if time.time() - part.stat().st_mtime > 2 * _EXPORT_TIMEOUT_S:
            shutil.rmtree(part, ignore_errors=True)


def _write(
    workload: Workload,
    framework: Framework,
    folder: Path,
    made_from: Path | None,
    *,
    python: Path,
    env: dict[str, str],
) -> None:
    request = {"do": "export", "framework": str(framework.child), "folder": str(folder)}
    spec = request | ({} if made_from is None else {"from": str(made_from)}) | workload.child_spec()
    process = ChildProcess(interpreter(python, env, spec), _EXPORT_TIMEOUT_S)
    try:
        process.report("exported")
    except TrialFailure as failure:
        exported = re.escape(str(folder / _MODEL)) + r"(\.onnx)?"
        reason = re.sub(exported, lambda _: str(workload.path), failure.message)
        silent = failure.status in (Status.CRASHED, Status.TIMEOUT, Status.OOM)  # it had no word of its own
        raise BadInputError(
            f"cannot use workload '{workload.name}': {reason}",
            failure.hint or (_OUT_OF_MEMORY if failure.status is Status.OOM else f"fix {workload.path}"),
            log=failure.log[-_LOG_CHARS:] if silent else failure.frames,
        ) from failure
    finally:
        process.close()


def described_inputs(folder: Path) -> list[dict[str, Any]]:
    """Return name, dtype and shape of each input of an export; None in a shape is the batch size."""
    inputs: list[dict[str, Any]] = json.loads((folder / _INPUTS).read_text())
    return inputs
