"""Copies of models, for nodes that do not have the driver's files at the same path.

Only data is copied: SavedModels, and files that a framework reads as models. A node takes no Python files and no
libraries. A copy lies in the node's cache by the digest of its names and contents, which is checked.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from tuner.cluster.wire import Model, Piece
from tuner.errors import BadInputError, TunerError
from tuner.job.request import SuiteRequest
from tuner.job.suite import NamedWorkload, chosen_workloads
from tuner.paths import cache_dir
from tuner.workload.contents import contents
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Kind

MOST_BYTES = 1 << 30
_PIECE_BYTES = 6 << 20  # Dask warns of messages above 10 MB, and JSON takes a third more
_KEPT_S = 30 * 86400.0
_NO_MODELS = (Kind.PYTHON, Kind.COMMAND, Kind.ENSEMBLE)
_CODE = (".py", ".pyc", ".so", ".dll", ".dylib")
_BESIDE = {".onnx": (".onnx.data", ".onnx_data"), ".xml": (".bin",)}
"""Suffixes of files with the weights of a model file."""


# ---- the driver -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The files of a model, which lie in a folder."""

    model: Model
    folder: Path
    files: tuple[Path, ...]

    @property
    def n_bytes(self) -> int:
        """Return how large it is."""
        return sum(file.stat().st_size for file in self.files)

    def pieces(self) -> Iterator[Piece]:
        """Yield what a node is sent, and at last that it is all."""
        for file in self.files:
            path, offset, data = file.relative_to(self.folder).as_posix(), 0, b""
            with file.open("rb") as content:
                while offset == 0 or data:
                    data = content.read(_PIECE_BYTES)
                    if data or offset == 0:
                        yield Piece(model=self.model, path=path, offset=offset, data=data)
                    offset += max(1, len(data))
        yield Piece(model=self.model)


def sources(named: Iterable[NamedWorkload]) -> dict[str, Source]:
    """Return the models that can be copied, by the words of their workloads."""
    found = {}
    for each in named:
        path = _path(each.spec)
        if each.workload.kind in _NO_MODELS or path.name in ("", ".."):
            continue
        files = _files(path)
        if not any(_is_code(file.name) for file in files):
            model = Model(digest=contents(files, path.parent), file=path.name, name=each.workload.name)
            found[each.word] = Source(model=model, folder=path.parent, files=files)
    return found


# ---- a node ---------------------------------------------------------------------------------------------------------


def with_copies(request: SuiteRequest, models: Mapping[str, Model]) -> tuple[SuiteRequest, dict[str, str]]:
    """Return a request with the paths of copies in the place of models that are not here as the driver has them.

    The second value has these paths by the words of the workloads, and "" for a model without a copy. The request is
    then without its workload.
    """
    chosen, copies = dict(chosen_workloads(request)), dict[str, str]()
    for word, model in models.items():
        if word not in chosen or _is_here(_path(chosen[word].spec), model):
            continue
        copy = _folder() / _hex(model.digest) / _safe(model.file)
        copies[word] = str(copy) if _is_here(copy, model) else ""
        if copies[word]:
            os.utime(copy.parent)  # it is in use
            spec = replace(chosen[word].spec, words=(copies[word],), name=model.name)
            chosen[word] = replace(chosen[word], spec=spec)
        else:
            del chosen[word]
    return (replace(request, workloads=",".join(chosen), file_workloads=chosen) if copies else request), copies


def keep(piece: Piece) -> None:
    """Keep a piece of a model, or check the whole and give it its name; raises TunerError for what is refused."""
    target = _folder() / _hex(piece.model.digest)
    part = target.with_name(f".part-{target.name}")
    if piece.path:
        _write(part, piece)
        return
    name = _safe(piece.model.file)
    if not _is_here(target / name, piece.model):
        if not _is_here(part / name, piece.model):
            shutil.rmtree(part, ignore_errors=True)
            raise TunerError(f"the copied model of {piece.model.name} is damaged", "run the same command again")
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
    shutil.rmtree(part, ignore_errors=True)
    oldest_s = time.time() - _KEPT_S
    for copy in _folder().iterdir():
        with contextlib.suppress(FileNotFoundError):  # another node with the same cache was faster
            if copy.stat().st_mtime < oldest_s:
                shutil.rmtree(copy, ignore_errors=True)


def _write(part: Path, piece: Piece) -> None:
    path = PurePosixPath(piece.path)
    file = part.joinpath(*(_safe(name) for name in path.parts))
    if _is_code(file.name):
        raise TunerError(f"{piece.path} is code, which a node does not take")
    n_bytes = sum(each.stat().st_size for each in part.rglob("*") if each.is_file() and each != file)
    if n_bytes + piece.offset + len(piece.data) > MOST_BYTES or piece.offset < 0:
        raise TunerError(f"{piece.model.name} is larger than {MOST_BYTES >> 30} GiB", "use a shared file system")
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "wb") as content:
        content.seek(piece.offset)
        content.write(piece.data)


def _folder() -> Path:
    return cache_dir() / "models"


def _hex(digest: str) -> str:
    if re.fullmatch(r"[0-9a-f]{64}", digest) is None:
        raise TunerError(f"{digest!r} is no digest of a model")
    return digest


def _safe(name: str) -> str:
    """Return the name of a file or folder; raises TunerError for one that leads elsewhere."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise TunerError(f"{name!r} is no name of a model's file")
    return name


# ---- both -----------------------------------------------------------------------------------------------------------


def _path(spec: WorkloadSpec) -> Path:
    """Return the path of a model."""
    return Path(os.path.expanduser(spec.words[0]))  # noqa: PTH111  # pathlib's raises where there is no such user


def _is_code(name: str) -> bool:
    return name.lower().endswith(_CODE) or ".so." in name.lower()


def _files(path: Path) -> tuple[Path, ...]:
    """Return the files of a model: those below a SavedModel's folder, or a file and its weights beside it."""
    if path.is_dir():
        return tuple(sorted(file for file in path.rglob("*") if file.is_file()))
    beside = [path.with_suffix(suffix) for suffix in _BESIDE.get(path.suffix.lower(), ())]
    return (path, *(file for file in beside if file.is_file()))


def _is_here(path: Path, model: Model) -> bool:
    """Return whether a model is there with these names and contents."""
    try:
        return path.exists() and contents(_files(path), path.parent) == model.digest
    except (BadInputError, OSError):
        return False
