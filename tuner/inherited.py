"""The environment that this process was started with, which trials inherit: libraries of ours may change it.

threadpoolctl sets KMP_DUPLICATE_LIB_OK when it is imported, for example.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

RENAME = "rename it, or unset PYTHONPATH"
"""What to do about a file that `shadow` finds."""
_PACKAGES = {
    "absl", "astunparse", "flatbuffers", "gast", "google", "grpc", "h5py", "keras", "markdown", "markdown_it",
    "ml_dtypes", "namex", "numpy", "onnx", "onnxruntime", "openvino", "opt_einsum", "optree", "packaging", "protobuf",
    "pygments", "requests", "rich", "scipy", "setuptools", "six", "tensorboard", "tensorflow", "tensorrt", "termcolor",
    "tf2onnx", "tf_keras", "typing_extensions", "urllib3", "wrapt",
}  # fmt: skip
"""What frameworks are, and what they import."""
_MODULES = _PACKAGES | (sys.stdlib_module_names - {"test", "this"})  # nothing imports these
_kept: dict[str, str] | None = None


def keep() -> None:
    """Remember the environment as it is: from now on nobody but libraries changes it."""
    global _kept
    _kept = dict(os.environ)


def environment() -> Mapping[str, str]:
    """Return the variables that the user has set; in a program that uses the API also those that it sets later."""
    return os.environ if _kept is None else _kept


def shadow(env: Mapping[str, str], log: str) -> str | None:
    """Return which file of a folder in PYTHONPATH takes the place of a module, None if there is none.

    It has the name of a module of Python's, or of one that frameworks import, and the log of a failure mentions it.
    """
    path = env.get("PYTHONPATH")
    mentioned = {name for names in re.findall(r"(\w+)\.py\b|'(\w+)'", log) for name in names}
    modules = sorted(mentioned & _MODULES)
    for folder in path.split(os.pathsep) if path else ():
        if any(Path(folder).glob("*.dist-info")):  # what is installed there is what is meant
            continue
        for module in modules:
            file = os.path.join(folder or ".", f"{module}.py")  # noqa: PTH118  # pathlib's leaves out the ./
            if os.path.isfile(file):  # noqa: PTH113  # pathlib's raises where a folder may not be entered
                own = f"Python's {module}" if module in sys.stdlib_module_names else f"the package {module}"
                return f"{file}, found through PYTHONPATH, takes the place of {own}"
    return None


@contextlib.contextmanager
def unchanged() -> Iterator[None]:
    """Take back what is changed of the environment meanwhile, such as by imports."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
