"""Ask an OpenMP library where it binds its threads, without any framework.

    binding LIBRARY N_THREADS [CPUS]

CPUS are those that the process may use. The variables of the environment are what is asked about. Prints one JSON
object, {"cpus": [[...], ...]}: for each thread of a parallel region, in the order of their numbers, the CPUs that the
kernel lets it run on. What the library has to complain of is on stderr.
"""

from __future__ import annotations

import ctypes
import json
import os
from typing import Dict, List

from . import worker


def main(arguments: List[str]) -> None:
    """Run one parallel region, in which each thread writes down its CPUs."""
    if arguments[2:]:
        worker.keep_to(arguments[2])
    library = ctypes.CDLL(arguments[0])
    cpus: Dict[int, List[int]] = {}

    def body(_: object) -> None:
        cpus[library.omp_get_thread_num()] = sorted(os.sched_getaffinity(0))

    # What GCC compiles a parallel region to; the libraries of Intel, LLVM and GNU all have it.
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(body)
    library.GOMP_parallel(callback, None, int(arguments[1]), 0)
    print(json.dumps({"cpus": [cpus[thread] for thread in sorted(cpus)]}), flush=True)
    os._exit(0)
