"""What a planned suite measures on a machine, in which order, and how long each study of it may take.

The workloads vary fastest: all of them on the whole machine, then on each other shape, then a few in training, and on
many cores last at other batch sizes. On few cores, where threads leave little to choose, these come with the first.

A study has 75 s, or its part of all the time if that is more. Each setting has one pass at least, and the rest of the
time is shared until ratios are known to ±3 % (`tuner.study.loop`). Estimated, not measured, for nine settings on two
cores: five of threads and processes at the workload's own batch size, and two at each of two others
    interpreter, machine, storage                              4 s
    fork server, the default and its twin                      7 s     the model is exported before
    four more starts with loading, of 1 to 3 s, two at once    4 s     other batch sizes need no start
    warming up at another batch size, four times               3 s
    passes, five of nine settings                             54 s     two slices of 0.5 s, a fifth of the reference's
which is 72 s, so that 12 workloads take a quarter of an hour. With four settings at each of four other batch sizes 75 s
gave one or two passes, and ratios known to ±7.5 to ±16.5 %. On 16 cores eight start at once, and the 13 settings of a
shape take about 10 s until they run and 30 s in passes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tuner.devices import registry as devices
from tuner.devices.device import Device
from tuner.errors import BadInputError
from tuner.frameworks.framework import Framework
from tuner.job.request import SuiteRequest
from tuner.machine.confine import CpuShape, choose_cpus, confined
from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine
from tuner.machine.topology import read_topology
from tuner.measure.budget import parse_duration
from tuner.space import spacefile
from tuner.space.design import MANY_CORES
from tuner.workload.pyfile import INFERENCE, MODES, TRAINING

WORKLOADS = (
    *("resnet50", "wide-deep", "bert-base", "mobilenetv2", "ncf", "inceptionv3"),
    *("transformer", "lstm", "densenet121", "efficientnetb0", "mlp", "bert-tiny"),
)
"""Those of a plan where none are named: wide and narrow graphs, large and small operators, the most telling first."""
_N_TRAINED = 3
_SIZES = (1.0, 1 / 8, 4.0)  # times the workload's own
_STUDY_S = 75.0
LEAST_S = 20.0
"""The time that a study needs for its first settings: with less than that none begins."""
_SHORTEST_S = 60.0
_LEAST_QUOTA = 1.0  # CPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One study of each workload: a mode on a shape of the machine, of the first `most` workloads only.

    The batch sizes are `sizes` times the workload's own. Without `sizes` they are the search space's.
    """

    mode: str
    shape: CpuShape
    sizes: tuple[float, ...] = ()
    most: int | None = None

    def batch_sizes(self, own: int) -> tuple[int, ...]:
        """Return the batch sizes of a workload by its own."""
        return tuple(sorted({max(1, int(own * each)) for each in self.sizes}))


def completed(request: SuiteRequest, framework: Framework, device: Device) -> SuiteRequest:
    """Return a request with what a plan chooses; raises BadInputError for options that would choose that."""
    typed = {
        "--mode": request.modes,
        "--cpus": request.cpus,
        "--cpu-quota": request.cpu_quotas,
        "--space": request.space,
        "--time-budget": request.time_budget,
        "--stop-after": request.stop_after,
    }
    given = [option for option, value in typed.items() if value is not None]
    if device.kind != devices.DEFAULT:
        given.append(f"--device {device.name}")
    own = {"mode": [each.modes for each in request.file_workloads.values()]}
    own["batch-size"] = [each.batch_size for each in request.file_workloads.values()]
    given += [f"{key} in {request.file}" for key, values in own.items() if any(value is not None for value in values)]
    if given:
        hint = "leave one or the other out: a plan chooses these, and is of the CPU"
        raise BadInputError(f"--plan with {', '.join(given)}", hint)
    if parse_duration(str(request.plan), option="--plan") < _SHORTEST_S:
        raise BadInputError(f"--plan {request.plan} is too short", "expected at least 1m, e.g. 15m")
    threads = "threads" if "threads" in spacefile.names(framework.spaces) else device.space
    named = ",".join(WORKLOADS) if request.workloads is None and request.file is None else request.workloads
    return replace(request, workloads=named, modes=",".join(MODES), space=threads)


def parts(machine: Machine) -> tuple[list[Part], list[str]]:
    """Return the parts of a plan, the first ones first, and what cannot be measured here.

    Halves and quarters of the usable cores are CPUs of the mask, one hardware thread of each core, on many cores; and a
    quota on all CPUs.
    """
    cpus, n = parse_list(machine.affinity), machine.usable_cores
    whole, is_many = CpuShape(cpus=cpus), n >= MANY_CORES
    quotas = [CpuShape(cpus=cpus, quota=n / share) for share in (4, 2) if n / share >= _LEAST_QUOTA]
    refused = []
    try:
        for each in quotas[:1]:
            with confined(each):
                pass
    except BadInputError as error:
        quotas, refused = [], [error.message]
    shares = (2, 4) if is_many else ()
    masks = [CpuShape(cpus=choose_cpus(read_topology(), cpus, n // share)) for share in shares]
    shapes = [*quotas[:1], *masks, *quotas[1:]]
    at_own = (1.0,)
    return [
        Part(mode=INFERENCE, shape=whole, sizes=at_own if is_many else _SIZES),
        *(Part(mode=INFERENCE, shape=shape, sizes=at_own) for shape in shapes),
        Part(mode=TRAINING, shape=whole, sizes=at_own, most=_N_TRAINED),
        *([Part(mode=INFERENCE, shape=whole, sizes=_SIZES)] if is_many else []),
    ], refused


def study_s(left_s: float, n_studies: int) -> float:
    """Return how long (s) the next of so many studies may take."""
    return min(left_s, max(_STUDY_S, left_s / n_studies))
