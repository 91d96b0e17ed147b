"""The knobs that every framework has: how many items a step has, the CPUs of the process, and its allocator."""

from __future__ import annotations

from tuner.machine.host import Machine
from tuner.space import judging
from tuner.space.carrier import Argument, Mask, Preload, Processes
from tuner.space.knob import Knob
from tuner.space.values import Cpus, Numbers, Words


def first_node(machine: Machine) -> str | None:
    """Return the CPUs of the first NUMA node, None where there is no second one."""
    return next(iter(machine.numa_nodes.values())) if len(machine.numa_nodes) > 1 else None


BATCH_SIZE = Knob(
    name="batch_size",
    meaning="items per step",
    values=Numbers(),
    carrier=Argument("batch_size"),
    default=lambda _machine, _build, batch_size: batch_size,
    judge=None,
)
CPUS = Knob(
    name="cpus",
    meaning="the CPUs that the program may use, as with taskset",
    values=Cpus(presets={"all": lambda machine: machine.affinity, "one_node": first_node}),
    carrier=Mask(),
    core=False,
    default=lambda machine, *_: machine.affinity,
    judge=judging.mask,
)
INSTANCES = Knob(
    name="instances",
    meaning="processes that run the workload beside each other, each with a model of its own",
    values=Numbers(limit=64),
    carrier=Processes(),
    core=False,
    default=lambda *_: 1,
    judge=None,
)
MALLOC = Knob(
    name="malloc",
    meaning="the memory allocator of the process",
    values=Words(words=("glibc", "jemalloc", "tcmalloc")),
    carrier=Preload("glibc"),
    core=False,
    early=True,
    default=lambda *_: "glibc",
    judge=judging.malloc,
)
