"""What is recommended for ONNX Runtime, resolved on a machine."""

from __future__ import annotations

from tuner.frameworks.onnxruntime.knobs import PARALLEL, UNBOUND
from tuner.machine.host import Machine
from tuner.space.baseline import Baseline, of_instances
from tuner.space.values import Value


def _parallel(machine: Machine) -> dict[str, Value]:
    """Return parallel execution; with a single core ONNX Runtime itself falls back to the sequential one."""
    if machine.usable_cores == 1:
        return {}
    return {"execution_mode": PARALLEL, "inter_op_num_threads": machine.usable_cores, "intra_op_affinity": UNBOUND}


def threads_on(cores: int) -> dict[str, Value]:
    """Return the knobs of a process that has so many cores to itself: its mask keeps it to them."""
    return {"intra_op_num_threads": cores, "intra_op_affinity": UNBOUND}


BASELINES: tuple[Baseline, ...] = (
    Baseline(
        name="ort-default",
        source="ONNX Runtime documentation, Thread management: one thread per physical core, each bound to its core",
        rule=lambda _: {},
    ),
    Baseline(
        name="ort-explicit",
        source="ONNX Runtime documentation, Thread management: one thread per usable core, set explicitly, none bound",
        rule=lambda machine: {"intra_op_num_threads": machine.usable_cores, "intra_op_affinity": UNBOUND},
        at_best_batch=True,
    ),
    Baseline(
        name="ort-parallel",
        source="ONNX Runtime documentation, Thread management: for models with many branches",
        rule=_parallel,
    ),
    *of_instances(threads_on),
)
