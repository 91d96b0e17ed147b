"""What the workloads cost: loading one into a child, its first step, a step and the memory that a process takes.

    python -m tests.benchmarks.workloads            all of them, in both modes; a quarter of an hour
    python -m tests.benchmarks.workloads resnet50   only these

Prints the table that the README points to. Nothing else may run meanwhile.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.benchmarks.figures import Figure
from tuner.job.job import prepare
from tuner.job.parsed import parse_request
from tuner.job.request import SearchRequest
from tuner.machine.host import detect
from tuner.machine.locks import machine_lock
from tuner.model.graph import features, read
from tuner.trial.exporting import GRAPH
from tuner.trial.fresh import FreshLauncher
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import catalogue

LOADS = {"resnet50": 1.5, "bert-base": 3.0}
"""The longest that loading a cached workload may take (s)."""
N_LOADS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one process of TensorFlow's default took; times in seconds, memory in bytes."""

    batch_size: int
    load_s: float
    first_step_s: float
    step_s: float
    memory_bytes: int


def cost(name: str, mode: str, batch_size: int) -> Cost:
    """Start one process of TensorFlow's default, alone, and time a slice of it."""
    job = prepare(
        parse_request(
            SearchRequest(
                workload=WorkloadSpec.of_name(name, mode=mode), batch_size=str(batch_size), trial_timeout="5m"
            ),
            stores=False,
        )
    )
    job.export()
    launcher = FreshLauncher(target=job.target())
    process = launcher.launch(job.space.reference, job.space.deployment(job.space.reference))
    facts = process.ready()
    timed = process.slice(1.0)
    peak = process.close().peak_memory_bytes
    assert peak is not None
    return Cost(
        batch_size=batch_size,
        load_s=facts.load_s,
        first_step_s=facts.first_step_s,
        step_s=timed.elapsed_s / timed.n_steps,
        memory_bytes=peak,
    )


def loading() -> Iterator[Figure]:
    """How long a cached workload takes to load, in the median of a few processes; and the features of a large graph."""
    with machine_lock():
        for name, most_s in LOADS.items():
            batch_size = catalogue()[name].batch_size
            loads = [cost(name, "inference", batch_size).load_s for _ in range(N_LOADS)]
            median = statistics.median(loads)
            yield Figure(f"loading {name} into a child", f"{median:.2f} s", f"at most {most_s} s", median <= most_s)
    for mode in ("inference", "training"):
        job = prepare(
            parse_request(SearchRequest(workload=WorkloadSpec.of_name("densenet201", mode=mode)), stores=False)
        )
        path = job.export()[0] / GRAPH
        began = time.perf_counter()
        features(read(path))
        took_s = time.perf_counter() - began
        yield Figure(f"features of densenet201, {mode}", f"{took_s:.2f} s", "less than 1 s", took_s < 1.0)


def rows(names: Sequence[str]) -> Iterator[str]:
    """Yield the table's rows: every mode of the workloads at the default batch, and inference of one item."""
    yield "| workload | mode | batch | load (s) | first step (s) | a step (ms) | peak memory (GiB) |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    files = catalogue()
    for name in names or files:
        for mode in files[name].modes:
            default_batch = files[name].batch_size
            for batch_size in sorted({default_batch, 1 if mode == "inference" else default_batch}):
                measured = cost(name, mode, batch_size)
                yield (
                    f"| {name} | {mode} | {batch_size} | {measured.load_s:.2f} | {measured.first_step_s:.2f} | "
                    f"{1000 * measured.step_s:.3g} | {measured.memory_bytes / 2**30:.2f} |"
                )


def main(names: list[str]) -> None:
    """Measure and print."""
    machine = detect()
    print(f"{machine.cpu_model}, {machine.physical_cores} cores, {machine.memory_bytes / 2**30:.0f} GiB\n")
    with machine_lock():
        for row in rows(names):
            print(row, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
