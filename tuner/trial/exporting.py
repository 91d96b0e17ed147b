"""The export cache: each workload's model is written once, by the target interpreter, and loaded in each trial."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from tuner.errors import BadInputError
from tuner.identity import digest
from tuner.places import cache_dir
from tuner.runtime.probe import Runtime
from tuner.trial.launcher import ChildProcess
from tuner.trial.outcome import TrialFailure
from tuner.workload.workload import Workload

_FORMAT = 1  # raise it when the worker writes something else
_EXPORT_TIMEOUT_S = 600.0


def cached_folder(workload: Workload, runtime: Runtime) -> Path:
    """Return where the export of a workload by a TensorFlow version lies, whether it is there or not."""
    key = digest([_FORMAT, workload.fingerprint, runtime.tensorflow])
    return cache_dir() / "exports" / f"{workload.name}-{workload.mode}-{key}"


def export(workload: Workload, runtime: Runtime, *, python: Path, env: dict[str, str]) -> Path:
    """Return the folder of the exported workload, making it if need be.

    The export appears under its name all at once, so that two processes may make it at the same time. Raises
    BadInputError where the cache cannot be written or the workload's own code fails, in its own words.
    """
    folder = cached_folder(workload, runtime)
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise BadInputError(
            f"cannot write the cache {cache_dir()}: {error.strerror}",
            "set TFTUNE_CACHE to a folder that can be written",
        ) from error
    try:
        _write(workload, part, python=python, env=env)
        os.chmod(part, 0o755)  # noqa: PTH101  # mkdtemp's 0700 would hide it from a shared cache
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _write(workload: Workload, folder: Path, *, python: Path, env: dict[str, str]) -> None:
    spec = {"do": "export", "workload": str(workload.path), "folder": str(folder), "mode": workload.mode}
    process = ChildProcess(python, env, spec, _EXPORT_TIMEOUT_S)
    try:
        process.report("exported")
    except TrialFailure as failure:
        raise BadInputError(
            f"workload '{workload.name}' cannot be exported: {failure.message}", f"mend {workload.path}"
        ) from failure
    finally:
        process.close()
