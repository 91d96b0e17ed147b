"""How much slower a core computes while all cores are at work.

Clocks fall then, and the cores of a virtual machine may share a real one. A process on each core multiplies matrices
that fit into its caches: the first core alone and all cores take turns. CPU time counts, so that a quota or others on
the machine hardly change the figure. What cores lose by sharing memory is not in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from statistics import median

from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine

MOST_LOSS = 10.0
_SIZE, _N_TURNS, _TURN_S, _LIMIT_S = 128, 6, 0.05, 20
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_PROGRAM = f"""
import os, signal, sys, time
import numpy as np
signal.alarm({_LIMIT_S})
cpus = list(map(int, sys.argv[1:]))
a = np.ones(({_SIZE}, {_SIZE}), np.float32)
begin = time.monotonic() + 0.1 + 0.005 * len(cpus)
first, *others = cpus
for cpu in others:
    os.sched_setaffinity(0, {{cpu}})  # before the fork, as a failure of the child would be unseen
    if os.fork() == 0:
        signal.alarm({_LIMIT_S})
        first = None
        break
else:
    os.sched_setaffinity(0, {{first}})
for turn in range({2 * _N_TURNS}):
    time.sleep(max(0.0, begin + turn * {_TURN_S} - time.monotonic()))
    n, began = 0, time.thread_time()
    while time.monotonic() < begin + (turn + 1) * {_TURN_S} and (turn % 2 or first is not None):
        a @ a
        n += 1
    if first is not None:
        print((time.thread_time() - began) / max(1, n))
"""


def busy_loss(machine: Machine) -> float | None:
    """Return ℓ: with all cores at work a core takes 1 + ℓ times as long as alone, the median of some turns.

    None where the process may use one core only, or may not choose its CPUs. It takes a second; all processes end by
    themselves.
    """
    cores = [min(parse_list(core)) for core in machine.cores]
    if len(cores) < 2:
        return None
    command = [sys.executable, "-I", "-c", _PROGRAM, *map(str, cores)]
    env = {**os.environ, **_ONE_THREAD}
    try:
        told = subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True, timeout=2 * _LIMIT_S, env=env)
    except (OSError, subprocess.SubprocessError):
        return None
    times_s = list(map(float, told.split()))
    ratios = [both_s / alone_s for alone_s, both_s in zip(times_s[::2], times_s[1::2], strict=True) if alone_s > 0]
    return min(MOST_LOSS, max(0.0, median(ratios) - 1)) if len(ratios) == _N_TURNS else None
