"""A situation: the facts that a rule may use before anything is measured (graph, machine, build)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tuner.machine.host import Machine
from tuner.model.graph import Features
from tuner.space.term import OPENMP, Scale, pools
from tuner.study.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A workload in a mode, on a machine, in a TensorFlow build; `batch_size` is that of TensorFlow's default."""

    workload: str
    mode: str
    batch_size: int
    features: Features
    machine: Machine
    pool: str
    onednn: bool
    """Whether operators are oneDNN's: a stock wheel leaves them to Eigen on CPUs without AVX-512 VNNI or its like."""
    gpu: str = ""
    """The model of the GPU that computes; empty on the CPU."""

    @property
    def pools(self) -> int:
        """Return Wang et al.'s number of pools: the average width, rounded down, no more than there are cores."""
        return pools(self.machine, self.features.width)

    @property
    def scale(self) -> Scale:
        """Return what recipes are relative to."""
        return Scale(
            cores=self.machine.usable_cores,
            sockets=self.machine.sockets,
            pools=self.pools,
            batch_size=self.batch_size,
            pool=self.pool,
            onednn=self.onednn,
            on_gpu=bool(self.gpu),
        )

    def values(self) -> dict[str, float]:
        """Return the value of each feature; NaN where it is not known."""
        return {feature.name: float(feature.value_of(self)) for feature in FEATURES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Something that a condition may ask about.

    A feature that `is_binary` is 1 or 0 and is spoken of by `words` = (what 1 is called, what 0 is called); any other
    has a name and a unit, and is compared on a log scale where it spans decades. Those that
    decide what a number of threads means on a machine are known before there is a workload: `on_machine`.
    """

    name: str
    words: tuple[str, str]
    value_of: Callable[[Situation], float]
    unit: str = ""
    is_binary: bool = False
    log: bool = False
    on_machine: Callable[[Machine], float] | None = None


def _of_machine(
    name: str,
    words: tuple[str, str],
    on_machine: Callable[[Machine], float],
    *,
    is_binary: bool = False,
    log: bool = False,
) -> Feature:
    """Return a feature of the machine that decides what a number of threads means there."""
    return Feature(
        name=name,
        words=words,
        value_of=lambda s: on_machine(s.machine),
        is_binary=is_binary,
        log=log,
        on_machine=on_machine,
    )


def _cache_a_cpu(s: Situation) -> float:
    """Return the MiB of the largest cache that there are for each logical CPU of the host, whatever the mask."""
    sizes = [c.size_bytes * c.n_instances for c in s.machine.caches if c.size_bytes]
    return max(sizes) / s.machine.online_cpus / 2**20 if sizes else math.nan


def _work(value_of: Callable[[Situation], float]) -> Callable[[Situation], float]:
    """Return a figure of the graph's operations; NaN where a loop of unknown length, or a shape, leaves it open."""
    return lambda s: value_of(s) if s.features.known else math.nan


def _oversubscribed(machine: Machine) -> float:
    """Return how many CPUs TensorFlow sees for each that the quota lets it use."""
    return max(1.0, machine.logical_cpus / machine.cpu_quota) if machine.cpu_quota else 1.0


# Of conditions that part the evidence in the same way, the one on the feature that comes first is taken.
FEATURES: tuple[Feature, ...] = (
    Feature(
        name="openmp",
        words=("on an OpenMP build", "on the Eigen pool"),
        value_of=lambda s: s.pool == OPENMP,
        is_binary=True,
    ),
    Feature(
        name="training", words=("in training", "in inference"), value_of=lambda s: s.mode == "training", is_binary=True
    ),
    Feature(name="onednn", words=("with oneDNN on", "with oneDNN off"), value_of=lambda s: s.onednn, is_binary=True),
    _of_machine("cores", ("usable cores", ""), lambda machine: machine.usable_cores, log=True),
    _of_machine("oversubscribed", ("visible CPUs per CPU of the quota", ""), _oversubscribed),
    Feature(name="width", words=("average width", ""), value_of=lambda s: s.features.width),
    Feature(
        name="mflops_operator",
        words=("work per operator and step", ""),
        value_of=_work(lambda s: s.features.flops * s.batch_size / max(1, sum(s.features.operators.values())) / 1e6),
        unit="MFLOPs",
        log=True,
    ),
    Feature(
        name="batch",
        words=("the workload's own batch size", ""),
        value_of=lambda s: s.batch_size,
        unit="items",
        log=True,
    ),
    Feature(
        name="mflops_item",
        words=("work per item", ""),
        value_of=_work(lambda s: s.features.flops / 1e6),
        unit="MFLOPs",
        log=True,
    ),
    Feature(
        name="intensity",
        words=("arithmetic intensity", ""),
        value_of=_work(lambda s: s.features.intensity),
        unit="FLOPs per byte",
        log=True,
    ),
    Feature(
        name="mbytes_item",
        words=("data per item", ""),
        value_of=_work(lambda s: s.features.moved_bytes / 1e6),
        unit="MB",
        log=True,
    ),
    Feature(
        name="exposed_overhead",
        words=("share of a step that is runtime", ""),
        value_of=lambda s: math.nan if s.features.exposed_overhead is None else s.features.exposed_overhead,
    ),
    Feature(
        name="heavy_operators", words=("heavy operators", ""), value_of=lambda s: s.features.heavy_operators, log=True
    ),
    Feature(name="depth", words=("depth", ""), value_of=lambda s: s.features.depth, unit="operators", log=True),
    _of_machine(
        "smt",
        ("with several hardware threads per core", "with one hardware thread per core"),
        lambda machine: machine.threads_per_core > 1,
        is_binary=True,
    ),
    _of_machine("sockets", ("sockets", ""), lambda machine: machine.sockets),
    Feature(name="cache", words=("cache per CPU", ""), value_of=_cache_a_cpu, unit="MiB", log=True),
)
FEATURE = {feature.name: feature for feature in FEATURES}


def of_study(subject: Subject, features: Features) -> Situation:
    """Return the situation of a study, of a framework that rules are about."""
    framework, runtime = subject.framework, subject.runtime
    return Situation(
        workload=subject.workload.name,
        mode=subject.workload.mode,
        batch_size=int(subject.baselines[subject.default].setting["batch_size"]),
        features=features,
        machine=subject.machine,
        pool=framework.pool(runtime),
        onednn=framework.has_onednn(runtime),
        gpu=subject.device.get("model", ""),
    )
