"""The profile of a workload: what each operator takes with several numbers of threads, and why.

Notation
    t_i(n)   time (s) of operator i in a step, with n threads, nothing else running
    F_i, B_i FLOPs, and bytes read and written, of operator i in a step
    P, W     the roof with one thread: FLOP/s of a large product, bytes/s of a large sum, as the framework reaches them
    roof     r_i = max(F_i / P, B_i / W), the least time that arithmetic and memory explain
    σ, κ     contention and coherency: the shares of t(1) that cannot be divided, and that each pair of threads adds
    t(n)   = t(1) · (1 + σ(n − 1) + κ n(n − 1)) / n

Source of the roof: Williams, Waterman and Patterson, Roofline (CACM 2009). An operator of which the roof explains less
than a tenth is bound by overhead; the others by what their roof is made of. That tenth is ours. Source of t(n): N. J.
Gunther, Guerrilla Capacity Planning (Springer 2007), the Universal Scalability Law; κ = 0 is Amdahl's law (AFIPS 1967)
with the serial share σ.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from scipy.optimize import nnls

from tuner.model.graph import Graph, Node, Output, flops, moved_bytes

_HARDLY = 0.05  # more time than the least: not worth another thread
_EXPLAINED = 0.1
_WITH_AWAITED = 8  # facts of a node that tells what it only waits for; earlier captures do not
_DRIFT = 0.2  # of times that were not taken in turns, on the virtual machine of results/predictions
_GAIN = 0.01  # of a step: what more threads have to save to be worth trying once more,
_CLEAR = 0.05  # on operators that each gain so much of their time: less may be noise
# What TensorFlow's rewriters put before the name of an operator that they give to a library, or fuse with others.
_REWRITTEN = re.compile(r"^_(?=Mkl|Native|PadWith|Fused)(Mkl)?(Native)?(PadWith)?(Fused)?(?=[A-Z])|WithBias$")
# What hands a tensor on, or holds a loop together.
_PASSING = frozenset({"_Arg", "_Retval", "Enter", "Exit", "Switch", "Merge", "NextIteration", "LoopCond"})
_UPDATES = re.compile(r"^(ResourceApply|Assign(Add|Sub)?VariableOp)")
_UPDATE_MOVES = 3  # times its gradient: that is read, the variable read and written; Adam's own variables are not seen


class Bound(StrEnum):
    """What bounds an operator."""

    COMPUTE = "compute"
    MEMORY = "memory"
    OVERHEAD = "overhead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The law of one operator: t(1) in seconds, σ and κ, and the root mean square of the fit's relative errors.

    The error is None where the law has as many coefficients as there were times, and fits whatever they were.
    """

    one_s: float
    contention: float
    coherency: float
    error: float | None = None

    def time_s(self, n: float) -> float:
        """Return the time (s) with n threads, n ≥ 1."""
        return self.one_s * (1 + self.contention * (n - 1) + self.coherency * n * (n - 1)) / n

    def best_threads(self, most: int) -> int:
        """Return the fewest threads, at most `most`, that take hardly more than the least time."""
        times = [self.time_s(n) for n in range(1, most + 1)]
        return next(n for n, time_s in enumerate(times, 1) if time_s <= (1 + _HARDLY) * min(times))


def fit(times_s: Mapping[int, float]) -> Scaling:
    """Return the law that fits times (s) by thread counts, in least squares of relative errors.

    Coefficients are not negative. From one count nothing is known, and the operator is taken as serial (σ = 1); from
    two, κ is 0. Raises ValueError where there are no times, or none with one thread.
    """
    if 1 not in times_s:
        raise ValueError("expected the time with one thread")
    one_s = times_s[1]
    more = sorted(n for n in times_s if n > 1 and times_s[n] > 0.0)
    if not more or one_s <= 0.0:
        return Scaling(one_s=one_s, contention=1.0, coherency=0.0)
    n = np.array(more, dtype=float)
    seen = np.array([times_s[count] for count in more])
    # n·t(n)/t(1) − 1 = σ(n − 1) + κ n(n − 1), each row divided by n·t(n)/t(1), so that errors are relative.
    weight = one_s / (n * seen)
    columns = [n - 1] if len(more) == 1 else [n - 1, n * (n - 1)]
    a = np.stack(columns, axis=1) * weight[:, None]
    coefficients, _ = nnls(a, (1 / weight - 1) * weight)
    contention, coherency = (*map(float, coefficients), 0.0)[:2]
    fitted = Scaling(one_s=one_s, contention=contention, coherency=coherency)
    if len(more) == len(columns):
        return fitted
    errors = [fitted.time_s(count) / times_s[count] - 1 for count in more]
    error = math.sqrt(sum(each**2 for each in errors) / len(errors))
    return Scaling(one_s=one_s, contention=contention, coherency=coherency, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """What a framework reaches: FLOP/s of a large product, and bytes/s of a large sum."""

    flops: float
    bytes_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What a process with so many threads told.

    A step (s) as a trial times it, one in a session without statistics and one with them, the part of the last in which
    operators ran, the roof, and the nodes. `exposed` is the share of a step in which no operator runs, by TensorFlow's
    profiler; None where it was not asked.
    """

    threads: int
    step_s: float
    plain_s: float
    traced_s: float
    busy_s: float
    roof: Roof
    nodes: Sequence[Sequence[Any]]
    """As `tuner.frameworks.tensorflow.child.operators` describes them."""
    exposed: float | None = None

    @property
    def between_shares(self) -> tuple[float, float]:
        """Return between what shares of a step no operator runs.

        The cost of statistics lies partly in operators and partly between them. The one is what is left of a step
        without statistics, which is too little, the other of a step with them, which is too much. Where statistics cost
        less than noise, a step without them may come out longer; then that with them is both.
        """
        low = max(0.0, 1 - self.busy_s / min(self.plain_s, self.traced_s))
        return low, max(low, 1 - self.busy_s / self.traced_s)

    def bounded(self, share: float) -> float:
        """Return a share of a step in which no operator runs, as far as it lies between those shares."""
        low, high = self.between_shares
        return min(max(share, low), high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator of a step: the indices of those that it waits for, and what it takes and computes."""

    name: str
    op: str
    inputs: tuple[int, ...]
    runs: int
    """How often it runs in a step."""
    flops: int
    n_bytes: int
    times_s: Mapping[int, float]
    """By the number of threads, all runs of a step together."""
    scaling: Scaling
    bound: Bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What was measured with each number of threads, ascending, and the operators that took any time."""

    traced: Sequence[Traced]
    operators: Sequence[Operator]

    @property
    def between_shares(self) -> tuple[float, float]:
        """Return between what shares of a step with one thread no operator runs: too little, and too much."""
        return self.traced[0].between_shares

    @property
    def n_runs(self) -> int:
        """Return how many operators run in a step, those of a loop as often as they run."""
        return sum(each.runs for each in self.operators if each.times_s[1] > 0)

    @property
    def between_s(self) -> float:
        """Return for how long no operator runs in a step with one thread (s).

        It is the exposed overhead (`tuner.model.overhead`), as far as it lies between those shares: operators that the
        profiler is not told of count as such. Where it was not measured, halfway between them.
        """
        one = self.traced[0]
        return one.step_s * (sum(self.between_shares) / 2 if one.exposed is None else one.bounded(one.exposed))


def plain(op: str) -> str:
    """Return the type of an operator without what a rewriter has put before it: `_FusedConv2D` is a Conv2D."""
    return _REWRITTEN.sub("", op)


def is_worth_more(traced: Sequence[Traced]) -> bool:
    """Return whether another doubling of the threads may help: the last one made some operators faster.

    That is the stop of Liu et al.'s hill climbing (IPDPS 2019), for all operators at once: each run times all of them.
    A gain below 5 % of an operator's time may be noise, and does not count.
    """
    if len(traced) < 2:
        return True
    *before, last = traced
    least_before = _least(before)
    gains_s = ((least_before.get(node[0], 0.0), least_before.get(node[0], 0.0) - node[-1]) for node in last.nodes)
    saved_s: float = sum(gain_s for before_s, gain_s in gains_s if gain_s > _CLEAR * before_s)
    return saved_s > _GAIN * traced[0].busy_s


def _least(traced: Sequence[Traced]) -> dict[str, float]:
    """Return the least time (s) of each node, by name."""
    least: dict[str, float] = {}
    for each in traced:
        for node in each.nodes:
            least[node[0]] = min(node[-1], least.get(node[0], node[-1]))
    return least


def profile(traced: Sequence[Traced], *, has_quota: bool = False) -> Profile:
    """Return the profile of what processes told; the first of them has one thread.

    It is of the nodes that ran in that: others may have taken another branch. `has_quota` tells that they ran under
    one, which makes some steps longer than most. Raises ValueError where the first has more threads.
    """
    if not traced or traced[0].threads != 1:
        raise ValueError("expected a first process of one thread")
    first = traced[0]
    names = [node[0] for node in first.nodes]
    times: dict[str, dict[int, float]] = {name: {} for name in names}
    for each in traced:
        for node in each.nodes:
            if node[0] in times:
                times[node[0]][each.threads] = node[-1]
    graph = _graph(first.nodes)
    operators = []
    for described, raw in zip(graph.nodes, first.nodes, strict=False):
        runs, times_s = raw[5], times[raw[0]]
        n_flops, n_bytes = (runs * n for n in _work(graph, described))
        operators.append(
            Operator(
                name=raw[0],
                op=raw[1],
                inputs=(*(i for i, _ in raw[2] if i >= 0), *(raw[6] if len(raw) == _WITH_AWAITED else ())),
                runs=runs,
                flops=n_flops,
                n_bytes=n_bytes,
                times_s=times_s,
                scaling=fit(times_s),
                bound=bound(times_s[1], n_flops, n_bytes, first.roof),
            )
        )
    return Profile(traced=traced if has_quota else undisturbed(traced), operators=operators)


def undisturbed(traced: Sequence[Traced]) -> list[Traced]:
    """Return what processes told, without steps that were timed while something took their CPUs.

    A step is known twice: timed in turns with one thread, so that drift is in both, and in a session of the same
    process. Machines drift by a fifth. A step that takes more than 1.2 times as long as in its session, beside what
    other steps take longer than in theirs (as a ratio, or as a time), was disturbed. It counts as so long: what
    disturbs a process only makes it slower.
    """
    usual = max(1.0, min(each.step_s / each.plain_s for each in traced))
    extra_s = max(0.0, min(each.step_s - each.plain_s for each in traced))

    def longest_s(plain_s: float) -> float:
        return (1 + _DRIFT) * plain_s + max((1 + _DRIFT) * (usual - 1) * plain_s, extra_s)

    return [replace(each, step_s=min(each.step_s, longest_s(each.plain_s))) for each in traced]


def bound(time_s: float, n_flops: int, n_bytes: int, roof: Roof) -> Bound:
    """Return what bounds an operator that takes so long (s) with one thread."""
    arithmetic_s, memory_s = n_flops / roof.flops, n_bytes / roof.bytes_s
    if max(arithmetic_s, memory_s) < _EXPLAINED * time_s:
        return Bound.OVERHEAD
    return Bound.COMPUTE if arithmetic_s >= memory_s else Bound.MEMORY


def _work(graph: Graph, node: Node) -> tuple[int, int]:
    """Return the FLOPs and the bytes of one run of a node."""
    if node.op in _PASSING:
        return 0, 0
    if _UPDATES.match(node.op):
        gradient = max(graph.taken(node), key=lambda each: each.n_bytes, default=_UNKNOWN)
        return 2 * gradient.size, _UPDATE_MOVES * gradient.n_bytes
    return flops(graph, node), moved_bytes(graph, node)


def _graph(nodes: Sequence[Sequence[Any]]) -> Graph:
    """Return nodes as a graph, with one more node at the end: what is taken of which nothing is known."""
    n_outputs = [len(node[3]) for node in nodes]

    def source(i: int, slot: int) -> tuple[int, int]:
        return (i, slot) if i >= 0 and slot < n_outputs[i] else (len(nodes), 0)

    described = [
        Node(
            op=plain(op),
            inputs=tuple(source(i, slot) for i, slot in inputs),
            outputs=tuple(Output(dtype=dtype, shape=tuple(shape)) for dtype, shape in outputs) or (_UNKNOWN,),
            attributes=dict(attributes),
            times=runs,
        )
        for _, op, inputs, outputs, attributes, runs, *_ in nodes
    ]
    nothing = Node(op="NoOp", inputs=(), outputs=(_UNKNOWN,), attributes={})
    return Graph(nodes=(*described, nothing), outputs=())


_UNKNOWN = Output(dtype="variant", shape=None)
