"""Terms: values of a knob relative to the machine and the graph, which is what a rule can carry to the next workload.

Notation
    P   physical cores inside the affinity mask and the quota
    S   sockets
    N   NUMA nodes
    w   pools: the graph's average width, rounded down, at most P (Wang et al., TACO 2021, is one recipe of these; its
        formula is recalled, not verified)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuner.devices.gpu import KIND as GPU
from tuner.machine.host import Machine
from tuner.space.baseline import MAX_INSTANCES
from tuner.space.values import Value

EIGEN, OPENMP = "eigen", "openmp"
COMPACT = "compact"
"""Which spelling binds compactly is a matter of the machine; the situation's owner replaces the word."""


def pools(machine: Machine, width: float) -> int:
    """Return w, how many operators run at once by Wang et al.: the average width, rounded down, at most the cores."""
    return min(max(1, int(width)), machine.usable_cores)


def processes(cores: int, each: int) -> int:
    """Return how many processes there are with so many cores for each, or twice as many while there are too many."""
    while cores // each > MAX_INSTANCES:
        each *= 2
    return max(1, cores // each)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """All of a situation that the same recipe may mean another setting by; most studies share a few of these."""

    cores: int
    """Usable ones: inside the affinity mask and the quota."""
    sockets: int
    pools: int
    """Wang et al.'s number of these."""
    batch_size: int
    pool: str
    onednn: bool
    on_gpu: bool = False
    nodes: int = 1
    """NUMA nodes that the affinity mask has CPUs of."""

    @property
    def onednn_is_open(self) -> bool:
        """Return whether oneDNN is off and could be turned on."""
        return self.pool == EIGEN and not self.onednn


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A value of a knob in words, and what it is at a scale, given the values of the knobs before it."""

    name: str
    words: str
    value_at: Callable[[Scale, Mapping[str, Value]], Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """How a rule speaks of a knob: its `label`, its `terms`, and the pool that it acts on, None if that is either.

    `has_effect` tells whether it does anything at a scale, and `device` is set where rules for one kind of device alone
    speak of it.
    """

    label: str
    terms: tuple[Term, ...]
    pool: str | None = None
    device: str | None = None
    has_effect: Callable[[Scale], bool]


def on_gpu(label: str, *terms: Term) -> Vocabulary:
    """Return the vocabulary of a knob that acts on a GPU only."""
    return Vocabulary(label=label, terms=terms, device=GPU, has_effect=lambda scale: scale.on_gpu)


def word(value: str) -> Term:
    """Return the term of a word that is the same everywhere."""
    return Term(name=value, words=value, value_at=lambda *_: value)


def number(value: int, words: str = "") -> Term:
    """Return the term of a number that is the same everywhere."""
    return Term(name=str(value), words=words or str(value), value_at=lambda *_: value)


def on_either(label: str, *terms: Term) -> Vocabulary:
    """Return the vocabulary of a knob that acts on every build."""
    return Vocabulary(label=label, terms=terms, has_effect=lambda _: True)


def on_openmp(label: str, *terms: Term) -> Vocabulary:
    """Return the vocabulary of a knob that acts on OpenMP builds only."""
    return Vocabulary(label=label, terms=terms, pool=OPENMP, has_effect=lambda scale: scale.pool == OPENMP)


def one_per(cores: int) -> Term:
    """Return the term of a process for each so many cores."""
    return Term(
        name="cores" if cores == 1 else f"cores/{cores}",
        words="one per core" if cores == 1 else f"one per {cores} cores",
        value_at=lambda s, _: processes(s.cores, cores),
    )


CORES = Term(name="cores", words="all usable cores", value_at=lambda s, _: s.cores)
SHARE = Term(
    name="cores/inter_op",
    words="the usable cores divided by inter_op",
    value_at=lambda s, known: max(1, s.cores // int(known.get("inter_op", 1))),
)
NODES = Term(
    name="nodes", words="one per NUMA node", value_at=lambda s, _: min(max(1, s.nodes), s.cores, MAX_INSTANCES)
)
SOCKETS = Term(name="sockets", words="one per socket", value_at=lambda s, _: s.sockets)
WIDTH = Term(name="width", words="the graph's average width", value_at=lambda s, _: s.pools)
COMPACTLY = Term(name=COMPACT, words="compact", value_at=lambda *_: COMPACT)
