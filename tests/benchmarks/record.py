"""Record traces: what slices of one setting look like on this machine, from many fresh processes.

    python -m tests.benchmarks.record resnet50-stock 18

A session starts a few fresh processes of TensorFlow's default, which then take turns, there and back, in slices of
half a second; then the next session begins. Every slice goes into tests/benchmarks/traces/NAME.csv as it comes, with
the number of its session and of its process. Drift, spikes, the process effect and what a slice scatters by are all
in there; `tests.benchmarks.simulation` replays them. Nothing else may run meanwhile.
"""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path

from tests.benchmarks.figures import BUILDS, job_on
from tuner.machine.locks import machine_lock
from tuner.trial.fresh import FreshLauncher
from tuner.trial.launcher import start_together

FOLDER = Path(__file__).parent / "traces"
N_PROCESSES = 6
SESSION_S = 45.0
SLICE_S = 0.5
HEADER = ["session", "process", "start_s", "elapsed_s", "n_steps"]


def record(name: str, minutes: float) -> None:
    """Record one trace; `name` is WORKLOAD-BUILD."""
    workload, _, build = name.rpartition("-")
    job, target = job_on(BUILDS[build], workload)
    launcher = FreshLauncher(target=target)
    default = (job.space.reference, job.space.deployment(job.space.reference))
    FOLDER.mkdir(exist_ok=True)
    with machine_lock(), (FOLDER / f"{name}.csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(HEADER)
        began, session = time.monotonic(), 0
        while time.monotonic() - began < 60 * minutes:
            started = start_together(launcher, [default] * N_PROCESSES, parallel=2)
            live = [each.process for each in started if each.failure is None]
            turns = [*range(len(live)), *reversed(range(len(live)))]
            session_began = time.monotonic()
            while time.monotonic() - session_began < SESSION_S:
                for turn in turns:
                    live[turn].resume()
                    slice_ = live[turn].slice(SLICE_S)
                    live[turn].pause()
                    where = f"{slice_.start_s - began:.3f}"
                    rows.writerow(
                        [session, session * N_PROCESSES + turn, where, f"{slice_.elapsed_s:.5f}", slice_.n_steps]
                    )
            for process in live:
                process.close()
            file.flush()
            session += 1


if __name__ == "__main__":
    record(sys.argv[1], float(sys.argv[2]))
