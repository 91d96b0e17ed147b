"""The command, imported once, and a fork of this process for each call of it.

A line of the input is {"words": [...], "folder": ..., "environment": {...}, "streams": [...]}: the command has that
environment and no other, and the files in the place of its three streams. The answer is its exit code.
"""

import importlib
import json
import os
import pkgutil
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
import tuner
from tuner.__main__ import main
from tuner.child.fork import fork

for module in pkgutil.walk_packages(tuner.__path__, "tuner."):
    if "child" not in module.name.split("."):
        importlib.import_module(module.name)
for line in sys.stdin:  # noqa: B007  # the last one is read below
    if (pid := fork()) == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
else:
    sys.exit()
signal.alarm(600)  # s: what hangs fails its test, and does not stop all tests
call = json.loads(line)
os.chdir(call["folder"])
os.environ.clear()
os.environ.update(call["environment"])
for descriptor, stream in enumerate(call["streams"]):
    os.dup2(os.open(stream, os.O_RDWR), descriptor)
sys.argv = ["tftune", *call["words"]]
main()
