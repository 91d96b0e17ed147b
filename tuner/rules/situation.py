"""A situation: the facts that a rule may use before anything is measured (graph, machine, build), and when it applies.

A condition says the latter as a person would.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
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
            nodes=max(1, len(self.machine.numa_nodes)),
        )

    def values(self) -> dict[str, float]:
        """Return the value of each feature; NaN where it is not known."""
        return {feature.name: float(feature.value(self)) for feature in FEATURES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Something that a condition may ask about.

    A feature that `is_binary` is 1 or 0 and is spoken of by `words` = (what 1 is called, what 0 is called); any other
    has a name and a unit, and is compared on a log scale where it spans decades. Those that
    decide what a number of threads means on a machine are known before there is a workload: `on_machine`.
    """

    name: str
    words: tuple[str, str]
    unit: str = ""
    is_binary: bool = False
    log: bool = False
    on_machine: Callable[[Machine], float] | None = None
    value_of: Callable[[Situation], float] = lambda _: math.nan

    def value(self, situation: Situation) -> float:
        """Return its value in a situation; NaN where it is not known."""
        return self.value_of(situation) if self.on_machine is None else self.on_machine(situation.machine)


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
    Feature(name="cores", words=("usable cores", ""), on_machine=lambda machine: machine.usable_cores, log=True),
    Feature(name="oversubscribed", words=("visible CPUs per CPU of the quota", ""), on_machine=_oversubscribed),
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
    Feature(
        name="smt",
        words=("with several hardware threads per core", "with one hardware thread per core"),
        on_machine=lambda machine: machine.threads_per_core > 1,
        is_binary=True,
    ),
    Feature(name="sockets", words=("sockets", ""), on_machine=lambda machine: machine.sockets),
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


@dataclass(frozen=True, slots=True, order=True)
class Literal:
    """One comparison: a feature is below a threshold, or is at least that."""

    feature: str
    threshold: float
    below: bool

    def holds(self, values: Mapping[str, float]) -> bool:
        """Return whether it holds; a value that is not known lies on neither side."""
        value = values[self.feature]
        if math.isnan(value):
            return False
        return value < self.threshold if self.below else value >= self.threshold

    def __str__(self) -> str:
        feature = FEATURE[self.feature]
        if feature.is_binary:
            return feature.words[1 if self.below else 0]
        unit = f" {feature.unit}" if feature.unit else ""
        threshold = f"{self.threshold:g}{unit}"
        return f"{feature.words[0]} below {threshold}" if self.below else f"{feature.words[0]} of {threshold} or more"


@dataclass(frozen=True, slots=True)
class Condition:
    """Literals that all have to hold; none at all is always true."""

    literals: tuple[Literal, ...] = ()

    def holds(self, values: Mapping[str, float]) -> bool:
        """Return whether it holds for the values of a situation's features."""
        return all(literal.holds(values) for literal in self.literals)

    def __str__(self) -> str:
        return " and ".join(map(str, self.literals)) or "everywhere"


def thresholds(values: Sequence[float], *, log: bool, at_most: int) -> list[float]:
    """Return round numbers that part the values, one between each two neighbours, `at_most` so many.

    Of more neighbours those that part the values most evenly are taken.
    """
    distinct_values = sorted({value for value in values if not math.isnan(value)})
    cuts = [roundest(a, b, log=log) for a, b in itertools.pairwise(distinct_values)]
    if len(cuts) <= at_most:
        return cuts
    ordered = sorted(value for value in values if not math.isnan(value))
    targets = [ordered[round(q * (len(ordered) - 1) / (at_most + 1))] for q in range(1, at_most + 1)]
    return sorted({min(cuts, key=lambda cut: abs(cut - value)) for value in targets})


def roundest(low: float, high: float, *, log: bool = False) -> float:
    """Return the number above `low` and at most `high` with the fewest digits, near the middle of the two."""
    middle = math.sqrt(low * high) if log and low > 0 else (low + high) / 2
    if low.is_integer() and high.is_integer() and high <= low + 2:
        return high  # of counts: 2 or more, not 1.5 or more
    if middle == 0:
        return 0.0
    for digits in range(1, 17):
        step = 10.0 ** (math.floor(math.log10(abs(middle))) + 1 - digits)
        for part in (1, 2) if digits == 1 else (1,):  # 1.5 is as round as 2
            rounded = float(f"{round(middle / step * part) * step / part:.15g}")
            if low < rounded <= high:
                return rounded
    return high
