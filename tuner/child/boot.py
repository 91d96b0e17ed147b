"""Run one module of this folder, in any interpreter: boot.py MODULE ARGUMENTS...

The folder becomes a package under a name of its own, so that its modules can import each other while nothing of
the tuner can be imported by, or clash with, what the target environment or the user's workload brings.
"""

import importlib
import os
import sys
import types

PACKAGE = "tftune_child"


def main() -> None:
    """Import the module and call its `main` with the arguments."""
    folder = os.path.dirname(os.path.realpath(__file__))
    if sys.path and os.path.realpath(sys.path[0]) == folder:
        sys.path.pop(0)
    package = types.ModuleType(PACKAGE)
    package.__path__ = [folder]
    sys.modules[PACKAGE] = package
    importlib.import_module("%s.%s" % (PACKAGE, sys.argv[1])).main(sys.argv[2:])


if __name__ == "__main__":  # and not in the processes that a workload starts by multiprocessing
    main()
