"""Run a module in any interpreter: boot.py FOLDER MODULE ARGUMENTS...

FOLDER is this one, or that of a framework's or a device's child code. All become packages under the name `tftune`, so
that their modules can import each other while nothing of the tuner can be imported by, or clash with, what the target
environment or the user's workload brings. A module of another package says `from tftune.child import effective`.
"""

import importlib
import os
import sys
import types

ROOT = "tftune"


def package(name: str, folder: str) -> None:
    """Make a folder importable as a package, without running what it has in its __init__.py."""
    module = types.ModuleType(name)
    module.__path__ = [folder]
    sys.modules[name] = module


def mounted(folder: str) -> str:
    """Return the name of the package that the modules of a folder belong to, whether it is ours or another's."""
    top = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    below = os.path.relpath(os.path.realpath(folder), top)
    if below.split(os.sep)[0] != os.pardir:
        return ".".join([ROOT, *below.split(os.sep)])
    folder = os.path.realpath(folder)  # a framework and a device may be of two packages
    name = "%s.%s" % (ROOT, "".join(letter if letter.isalnum() else "_" for letter in folder))
    if name not in sys.modules:
        package(name, folder)
    return name


def main() -> None:
    """Import the module and call its `main` with the arguments."""
    folder = os.path.dirname(os.path.realpath(__file__))
    if sys.path and os.path.realpath(sys.path[0]) == folder:
        sys.path.pop(0)
    package(ROOT, os.path.dirname(folder))
    importlib.import_module("%s.%s" % (mounted(sys.argv[1]), sys.argv[2])).main(sys.argv[3:])


if __name__ == "__main__":  # and not in the processes that a workload starts by multiprocessing
    main()
