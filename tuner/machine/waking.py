"""How long it takes to wake a thread on another core: what every operator pays that several threads share.

Two processes on two cores hand a byte to and fro. The one that sleeps tells when it was awake, on the clock that both
see. Between two bytes the other one computes for as long as an operator takes, so that the sleeper's core is idle.
"""

from __future__ import annotations

import subprocess
import sys
from statistics import median

from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine

LONGEST_WAKE_S = 0.1
_N, _IDLE_S, _LIMIT_S = 200, 2e-4, 5.0
_PROGRAM = f"""
import os, signal, sys, time
signal.alarm({int(_LIMIT_S)})
os.sched_setaffinity(0, {{int(sys.argv[2])}})
waits, wakes = os.pipe(), os.pipe()
if os.fork() == 0:
    signal.alarm({int(_LIMIT_S)})
    for _ in range({_N}):
        os.read(waits[0], 1)
        os.write(wakes[1], time.monotonic_ns().to_bytes(8, "little"))
    os._exit(0)
os.sched_setaffinity(0, {{int(sys.argv[1])}})
for _ in range({_N}):
    until = time.perf_counter() + {_IDLE_S}
    while time.perf_counter() < until:
        pass
    began = time.monotonic_ns()
    os.write(waits[1], b"x")
    print(int.from_bytes(os.read(wakes[0], 8), "little") - began)
"""


def wake_s(machine: Machine) -> float | None:
    """Return the median time (s) from a byte that is written to the thread that it wakes on another core.

    None where the process may use one core only, or may not choose its CPUs. It takes a tenth of a second; both
    processes end by themselves after some seconds.
    """
    cores = [min(parse_list(core)) for core in machine.cores]
    if len(cores) < 2:
        return None
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, *map(str, cores[:2])]
    try:
        told = subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True, timeout=2 * _LIMIT_S)
    except (OSError, subprocess.SubprocessError):
        return None
    return median(map(int, told.split())) / 1e9
