"""What is recommended for OpenVINO, resolved on a machine."""

from __future__ import annotations

from tuner.frameworks.openvino.child.compiling import THROUGHPUT
from tuner.machine.host import Machine
from tuner.space.baseline import Baseline, of_instances
from tuner.space.values import Value


def threads_on(cores: int) -> dict[str, Value]:
    """Return the knobs of a process that has so many cores to itself: its mask keeps it to them."""
    return {"inference_num_threads": cores, "cpu_pinning": 0}


def _throughput(machine: Machine) -> dict[str, Value]:
    return {"performance_hint": THROUGHPUT, "streams": machine.usable_cores}


BASELINES: tuple[Baseline, ...] = (
    Baseline(
        name="ov-default",
        source="OpenVINO documentation, CPU device: a thread per core, bound, one stream (the hint LATENCY)",
        rule=lambda _: {},
    ),
    Baseline(
        name="ov-unpinned",
        source="OpenVINO documentation, CPU device: where other programs share the machine, threads are not bound",
        rule=lambda machine: {"inference_num_threads": machine.usable_cores, "cpu_pinning": 0},
        at_best_batch=True,
    ),
    Baseline(
        name="ov-throughput",
        source="OpenVINO documentation, High-level performance hints: THROUGHPUT, with a request for each core",
        rule=_throughput,
        needs=frozenset({"performance_hint", "streams"}),
    ),
    *of_instances(threads_on),
)
