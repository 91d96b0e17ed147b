"""The command `tftune`, wherever it is started: the user's own `tuner.py` or `statistics.py` stay out of it.

An installation has this file beside the package, as the console script imports it by this name: with `PYTHONPATH=.`
the first `tuner` of the path may be the user's. Processes that search for another task run the file itself, `python -P
tftune_command.py -m tuner.cli.nested`; in a checkout it finds the package around it.
"""

import os
import sys

_FOLDER = os.path.dirname(os.path.realpath(__file__))


def take_path() -> None:
    """Put the current folder and those of PYTHONPATH last in the path, except those that packages are installed in."""
    named = {"", os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    last = {os.path.realpath(folder) for folder in named if not _is_installation(folder)}
    sys.path.sort(key=lambda folder: os.path.realpath(folder) in last)


def _is_installation(folder: str) -> bool:
    try:
        return any(name.endswith(".dist-info") for name in os.listdir(folder or "."))
    except OSError:
        return False


def _load_package() -> None:
    """Make `tuner` the package that this file lies in, whatever the path has; installed, it lies beside."""
    import importlib.util  # not before the path is in order

    folder = os.path.dirname(_FOLDER)
    if os.path.basename(_FOLDER) != "entry" or "tuner" in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(
        "tuner", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None  # a path that ends in .py has both
    module = sys.modules["tuner"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def main(module: str = "tuner.cli") -> None:
    """Run the command, or the `main` of another module of ours."""
    try:
        os.getcwd()
    except OSError:
        sys.stderr.write("tftune: the current folder has been removed: change to another one, then run it again\n")
        sys.exit(2)
    take_path()
    _load_package()
    from tuner.__main__ import main as run

    run(module)


if __name__ == "__main__":
    main(*(sys.argv[2:] if sys.argv[1:2] == ["-m"] else ()))
