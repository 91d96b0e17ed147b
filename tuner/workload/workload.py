"""A workload: the thing that is timed, named and fingerprinted without running its file.

A workload file is plain Python. Its first docstring line is the description, its upper-case constants are
literals that this module reads from the syntax tree, and its functions import TensorFlow themselves:

    ITEM = "image"            what one item of a batch is called
    BATCH_SIZE = 8            the default batch size
    def build(): ...          -> a Keras model or a callable, with seeded weights
    def inputs(batch_size):   -> the arguments of one call, a tuple of NumPy arrays whose first axis is the batch
"""

from __future__ import annotations

import ast
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import BadInputError, unknown
from tuner.places import shipped

_REQUIRED = ("build", "inputs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model in a mode on a device. `fingerprint` changes when the file does, or one that it imports beside it."""

    name: str
    path: Path
    description: str
    mode: str
    device: str
    item: str
    batch_size: int
    fingerprint: str

    def to_dict(self) -> dict[str, object]:
        """Return the workload as plain data, without the path, which is only this host's."""
        return {
            "name": self.name,
            "mode": self.mode,
            "device": self.device,
            "fingerprint": self.fingerprint,
            "description": self.description,
            "item": self.item,
            "batch_size": self.batch_size,
        }


def names() -> list[str]:
    """Return the names of the workloads that the project ships."""
    return sorted(path.stem for path in shipped("workloads").glob("*.py") if not path.stem.startswith("_"))


def load(name: str, *, mode: str = "inference") -> Workload:
    """Return the workload of a shipped name or of a path to a Python file; raises BadInputError."""
    path = Path(name) if name.endswith(".py") or "/" in name else shipped("workloads") / f"{name}.py"
    if not os.path.isfile(path):  # noqa: PTH113  # pathlib's raises where a folder may not be entered
        if path.parent == shipped("workloads"):
            raise unknown("workload", name, names())
        raise BadInputError(
            f"no workload file {name}", "give the path of a Python file, or one of: " + ", ".join(names())
        )
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        raise BadInputError(f"{path}{line}: {error.msg}", "a workload file is valid Python") from error
    except (OSError, ValueError, MemoryError, RecursionError) as error:
        raise BadInputError(f"{path} cannot be read: {error}", "a workload file is Python source") from error
    constants = _constants(tree)
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for required in _REQUIRED:
        if required not in functions:
            raise BadInputError(
                f"{path} defines no function {required}()", f"see {shipped('workloads') / 'resnet50.py'} for the form"
            )
    batch_size = constants.get("BATCH_SIZE", 1)
    if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
        raise BadInputError(f"{path}: BATCH_SIZE is {batch_size!r}, expected a whole number of at least 1")
    return Workload(
        name=path.stem,
        path=path.resolve(),
        description=(ast.get_docstring(tree) or "").partition("\n")[0],
        mode=mode,
        device="cpu",
        item=str(constants.get("ITEM", "item")),
        batch_size=batch_size,
        fingerprint=_fingerprint(path, mode),
    )


def _fingerprint(path: Path, mode: str) -> str:
    """Return a name for the mode and the text of the file and of all that it imports from its own folder."""
    texts: dict[Path, bytes] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file in texts:
            continue
        texts[file] = file.read_bytes()
        try:
            tree = ast.parse(texts[file])
        except (SyntaxError, ValueError, MemoryError, RecursionError):  # the import will tell, where it is run
            continue
        for module in _imported(tree):
            stem = path.parent.joinpath(*module.split("."))
            waiting += [near for near in (stem.with_suffix(".py"), stem / "__init__.py") if near.is_file()]
    mark = hashlib.sha256(mode.encode())
    for file in sorted(texts):
        mark.update(b"\0" + texts[file])
    return mark.hexdigest()[:12]


def _imported(tree: ast.Module) -> set[str]:
    """Return the names that may be modules in a file's imports, parents included."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {".".join(name.split(".")[:depth]) for name in found for depth in range(1, name.count(".") + 2)}


def _constants(tree: ast.Module) -> dict[str, object]:
    """Return the module's upper-case names that are bound to literals."""
    found: dict[str, object] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name) and target.id.isupper():
            try:
                found[target.id] = ast.literal_eval(value)
            except ValueError:
                continue
    return found
