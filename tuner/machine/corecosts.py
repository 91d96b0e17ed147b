"""What cores cost each other: how long one takes to wake a thread on another, and how much slower all at work are.

Waking is what every operator pays that several threads share. Two processes on two cores hand a byte to and fro. The
one that sleeps tells when it was awake, on the clock that both see. Between two bytes the other one computes for as
long as an operator takes, so that the sleeper's core is idle.

While all cores are at work, clocks fall, and the cores of a virtual machine may share a real one. A process on each
core multiplies matrices that fit into its caches: the first core alone and all cores take turns. CPU time counts, so
that a quota or others on the machine hardly change the figure. What cores lose by sharing memory is not in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from statistics import median

from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine

LONGEST_WAKE_S = 0.1
_N_BYTES, _IDLE_S, _WAKE_LIMIT_S = 200, 2e-4, 5.0
_WAKE_PROGRAM = f"""
import os, signal, sys, time
signal.alarm({int(_WAKE_LIMIT_S)})
os.sched_setaffinity(0, {{int(sys.argv[2])}})
waits, wakes = os.pipe(), os.pipe()
if os.fork() == 0:
    signal.alarm({int(_WAKE_LIMIT_S)})
    for _ in range({_N_BYTES}):
        os.read(waits[0], 1)
        os.write(wakes[1], time.monotonic_ns().to_bytes(8, "little"))
    os._exit(0)
os.sched_setaffinity(0, {{int(sys.argv[1])}})
for _ in range({_N_BYTES}):
    until = time.perf_counter() + {_IDLE_S}
    while time.perf_counter() < until:
        pass
    began = time.monotonic_ns()
    os.write(waits[1], b"x")
    print(int.from_bytes(os.read(wakes[0], 8), "little") - began)
"""
MOST_LOSS = 10.0
_SIZE, _N_TURNS, _TURN_S, _BUSY_LIMIT_S = 128, 6, 0.05, 20
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_BUSY_PROGRAM = f"""
import os, signal, sys, time
import numpy as np
signal.alarm({_BUSY_LIMIT_S})
cpus = list(map(int, sys.argv[1:]))
a = np.ones(({_SIZE}, {_SIZE}), np.float32)
begin = time.monotonic() + 0.1 + 0.005 * len(cpus)
first, *others = cpus
for cpu in others:
    os.sched_setaffinity(0, {{cpu}})  # before the fork, as a failure of the child would be unseen
    if os.fork() == 0:
        signal.alarm({_BUSY_LIMIT_S})
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


def wake_s(machine: Machine) -> float | None:
    """Return the median time (s) from a byte that is written to the thread that it wakes on another core.

    None where the process may use one core only, or may not choose its CPUs. It takes a tenth of a second; both
    processes end by themselves after some seconds.
    """
    printed = _printed(_WAKE_PROGRAM, machine, "-S", n_cores=2, timeout_s=2 * _WAKE_LIMIT_S)
    return median(map(int, printed)) / 1e9 if printed else None


def busy_loss(machine: Machine) -> float | None:
    """Return ℓ: with all cores at work a core takes 1 + ℓ times as long as alone, the median of some turns.

    None where the process may use one core only, or may not choose its CPUs. It takes a second; all processes end by
    themselves.
    """
    times_s = list(map(float, _printed(_BUSY_PROGRAM, machine, timeout_s=2 * _BUSY_LIMIT_S)))
    ratios = [both_s / alone_s for alone_s, both_s in zip(times_s[::2], times_s[1::2], strict=True) if alone_s > 0]
    return min(MOST_LOSS, max(0.0, median(ratios) - 1)) if len(ratios) == _N_TURNS else None


def _printed(program: str, machine: Machine, *options: str, n_cores: int | None = None, timeout_s: float) -> list[str]:
    """Return the words that a program prints which is given a CPU of each core, or of the first `n_cores`.

    Nothing where the process may use one core only, or the program fails.
    """
    cpus = [min(parse_list(core)) for core in machine.cores][:n_cores]
    command = [sys.executable, "-I", *options, "-c", program, *map(str, cpus)]
    env = {**os.environ, **_ONE_THREAD}
    if len(cpus) < 2:
        return []
    try:
        return subprocess.check_output(
            command, stderr=subprocess.DEVNULL, text=True, timeout=timeout_s, env=env
        ).split()
    except (OSError, subprocess.SubprocessError):
        return []
