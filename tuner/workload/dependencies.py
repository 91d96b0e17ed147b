"""What a workload file depends on besides its own text: files, variables, and modules of other folders.

They are found in its syntax tree, without running it: files by the paths that stand there and exist, variables by their
names, however the code asks for them. What is worked out, such as a path with a number in its middle, is not seen.
"""

from __future__ import annotations

import ast
import glob
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from tuner import inherited
from tuner.machine.openmp import THREADING
from tuner.workload.formats import is_saved_model

_OF_NO_MODEL = {
    "HOME", "USER", "LOGNAME", "HOSTNAME", "PATH", "PWD", "OLDPWD", "TMPDIR", "SHLVL", "TERM", "COLUMNS", "LINES",
}  # fmt: skip
"""Variables that tell where a process runs, and not what it computes."""
_NAME = re.compile(r"[A-Za-z]\w+", re.ASCII)  # not `_`, which a shell sets again for each command
_IN_CAPITALS = re.compile(r"(?<![A-Za-z0-9])[A-Z][A-Z0-9_]+(?![a-z])")
_OF_THREADS = (*THREADING, "TF_NUM_")
_OF_MODELS = ("config.json", "checkpoint")
"""Files that make a folder one of Hugging Face's models, or one of TensorFlow's checkpoints."""
_CHANGING = ("/proc/", "/sys/", "/dev/")
_LONGEST = 1000  # characters of a path
_MOST_FILES = 1000  # of a folder
_MOST_BYTES = 1 << 28  # of a file that is read whole; a larger one is known by its size and time
_ABOVE = 3  # folders above the file's own that code may go up to, for modules


def mark_of(trees: Iterable[tuple[Path, ast.Module]], texts: Iterable[str] = ()) -> bytes:
    """Return what changes with the files and variables that modules read, b"" if there are none.

    `texts` are further texts that may be paths: the values of parameters.
    """
    mark, found, environment = hashlib.sha256(), set(), inherited.environment()
    for path, tree in trees:
        for name in (_variables(tree) & environment.keys()) - _OF_NO_MODEL:
            found.add((f"${name}", environment[name]))
        for text in {*_paths(tree), *texts}:
            for file in _files(text, path.parent):
                found.add((f"{text}/{file.name}", _contents(file)))
    for pair in sorted(found):
        mark.update("\0".join(pair).encode(errors="surrogateescape") + b"\0")
    return mark.digest() if found else b""


def variables_in(texts: Iterable[str]) -> dict[str, str]:
    """Return the variables that are set here and stand in the words or scripts of a command, in whatever language.

    Without variables of numbers of threads, which a trial does not inherit.
    """
    environment = inherited.environment()
    names = {name for text in texts for name in _IN_CAPITALS.findall(text)} & environment.keys() - _OF_NO_MODEL
    return {name: environment[name] for name in sorted(names) if not name.startswith(_OF_THREADS)}


def module_folders(path: Path, tree: ast.Module) -> list[Path]:
    """Return the folders that a module adds to those that Python imports from, as far as its text names them."""
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and "sys.path" in ast.unparse(each.func)]
    above = [path.parent, *path.parents[1 : 1 + _ABOVE]]
    named = [folder / text for call in calls for text in {"", *_paths(call)} for folder in (Path(), *above)]
    given = [Path(each) for each in inherited.environment().get("PYTHONPATH", "").split(os.pathsep) if each]
    return [each for each in dict.fromkeys([*named, *given]) if os.path.isdir(each)]  # noqa: PTH112  # pathlib's raises where a folder may not be entered


def _variables(tree: ast.AST) -> set[str]:
    """Return the texts of a module that may be names of variables, without those that it only sets.

    It may ask for one by `os.environ`, by another name of that, or by a package that reads configurations.
    """
    set_keys = {
        node.slice for node in ast.walk(tree) if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
    }
    texts = (
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in set_keys
    )
    return {text for text in texts if _NAME.fullmatch(text)}


def _paths(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module that may be paths, joined where code joins them, without what it writes."""
    written = {each for call in ast.walk(tree) if _writes(call) for each in ast.walk(call)}
    for node in ast.walk(tree):
        if node in written:
            continue
        match node:
            case ast.Constant(value=str(text)):
                yield from _possible([text])
            case ast.Call(func=ast.Attribute(attr="join" | "joinpath"), args=parts):
                yield from _joined(parts)
            case ast.BinOp(op=ast.Div()):
                yield from _joined(_divided(node))


def _writes(node: ast.AST) -> bool:
    """Return whether a node opens a file that is written to, or names one for a log."""
    match node:
        case ast.Call(func=ast.Name(id="open"), args=[_, ast.Constant(value=str(mode)), *_]):
            return not mode.startswith("r")
        case ast.keyword(arg="filename"):
            return True
    return False


def _divided(node: ast.expr) -> list[ast.expr]:
    """Return the parts of `folder / "a" / "b"`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return [*_divided(node.left), node.right]
    return [node]


def _joined(parts: Iterable[ast.expr]) -> Iterator[str]:
    """Yield the texts that stand side by side among the parts of a path, as one path."""
    texts = [each.value if isinstance(each, ast.Constant) and isinstance(each.value, str) else None for each in parts]
    for is_text, together in groupby(texts, key=lambda text: text is not None):
        yield from _possible([text for text in together if text is not None]) if is_text else ()


def _possible(parts: list[str]) -> Iterator[str]:
    text = str(Path(*parts))
    if text.strip("./") and len(text) <= _LONGEST and text.isprintable():
        yield text


def _files(text: str, folder: Path) -> list[Path]:
    """Return the files that a text names: one, those of a model's folder, or those of a checkpoint."""
    for place in (folder / os.path.expanduser(text), Path(text), folder / text.lstrip("/")):  # noqa: PTH111
        if str(place).startswith(_CHANGING) or place.suffix == ".log":
            continue
        if os.path.isfile(place):  # noqa: PTH113  # pathlib's raises where a folder may not be entered
            return [place]
        if os.path.isfile(f"{place}.index"):  # noqa: PTH113
            return sorted(place.parent.glob(f"{glob.escape(place.name)}.*"))
        if is_saved_model(place) or any(os.path.isfile(place / name) for name in _OF_MODELS):  # noqa: PTH113
            files = sorted(each for each in place.rglob("*") if each.is_file())
            return files if len(files) <= _MOST_FILES else []
    return []


def _contents(file: Path) -> str:
    try:
        status = file.stat()
        if status.st_size > _MOST_BYTES:
            return f"{status.st_size} {status.st_mtime_ns}"
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:  # which the workload reports, if it needs the file
        return ""
