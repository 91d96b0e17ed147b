"""The knobs that several frameworks have: how many items a step has, the CPUs of the process, its allocator, TF32."""

from __future__ import annotations

from tuner.devices.gpu import KIND as GPU
from tuner.devices.nvidia import NVIDIA, TF32_VARIABLE
from tuner.machine.host import Machine
from tuner.space import auditing, term
from tuner.space.baseline import MAX_INSTANCES
from tuner.space.carrier import Argument, Mask, Preload, Processes, Streams, Variable
from tuner.space.knob import Knob
from tuner.space.values import SWITCH, Cpus, Numbers, Value, Words


def first_node(machine: Machine) -> str | None:
    """Return the CPUs of the first NUMA node, None where there is no second one."""
    return next(iter(machine.numa_nodes.values())) if len(machine.numa_nodes) > 1 else None


def one_or_all(machine: Machine) -> tuple[Value, Value]:
    """Return one thread, and one a core: two at least, so that they are far apart."""
    return 1, max(2, machine.physical_cores)


BATCH_SIZE = Knob(
    name="batch_size",
    meaning="items per step",
    values=Numbers(),
    carrier=Argument("batch_size"),
    default=lambda _machine, _build, batch_size: batch_size,
    audit=None,
    is_additive=lambda _: True,
)
CPUS = Knob(
    name="cpus",
    meaning="the CPUs that the program may use, as with taskset",
    values=Cpus(presets={"all": lambda machine: machine.affinity, "one_node": first_node}),
    carrier=Mask(),
    in_every_setting=False,
    default=lambda machine, *_: machine.affinity,
    audit=auditing.mask,
)
INSTANCES = Knob(
    name="instances",
    meaning="processes that run the workload at the same time, each with its own model and cores",
    values=Numbers(limit=MAX_INSTANCES, counts_cores=True),
    carrier=Processes(),
    in_every_setting=False,
    default=lambda *_: 1,
    audit=auditing.core_set,
    vocabulary=term.on_either("processes", *map(term.one_per, (1, 2, 4)), term.NODES),
)
STREAMS = Knob(
    name="streams",
    meaning="calls of the model that run at the same time in one process",
    values=Numbers(limit=64),
    carrier=Streams(),
    in_every_setting=False,
    default=lambda *_: 1,
    audit=None,
    n_threads=lambda values: int(values["streams"]) - 1,
)
MALLOC = Knob(
    name="malloc",
    meaning="the memory allocator of the process",
    values=Words(words=("glibc", "jemalloc", "tcmalloc")),
    carrier=Preload("glibc"),
    in_every_setting=False,
    read_at_start=True,
    default=lambda *_: "glibc",
    audit=auditing.malloc,
)
TF32 = Knob(
    name="tf32",
    meaning="whether products may round their factors to TF32's 10 bits, as by default (1); changes numerics",
    values=SWITCH,
    carrier=Variable(TF32_VARIABLE, {1: None, 0: "0"}),
    in_every_setting=False,
    read_at_start=True,
    default=lambda *_: 1,
    devices=(GPU,),
    makers=(NVIDIA,),
    changes_numerics=True,
)

OF_PROCESSES = (CPUS, INSTANCES, STREAMS, MALLOC)
"""The knobs of processes, whatever they run."""
