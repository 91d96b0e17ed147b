"""The graph of one call of a workload, and its features: what rules and performance models know of it.

Notation
    V   operators; an edge (u, v) says that v takes an output of u
    H   heavy operators, a subset of V: matrix products, convolutions, embedding lookups; those of gradients are not
        counted, as only what the model's outputs are made from is
    d   longest path: d(v) = [v ∈ H] + max over edges (u, v) of d(u)
    layers = max d,    average width = |H| / layers

Source of width and heavy operators: Wang et al., Exploiting Parallelism Opportunities with Deep Learning Frameworks
(ACM TACO 2021); theirs walks every path, which is exponential in nets with many joins; one pass in topological
order finds the same.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

_PRODUCTS = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "SparseMatMul"})
_CONVOLUTIONS = frozenset({"Conv2D", "Conv3D", "DepthwiseConv2dNative"})
# A transposed convolution is a layer where it is not a gradient.
_TRANSPOSED = frozenset({"Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput"})
_FILTER_GRADIENTS = frozenset({"Conv2DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter"})
_LOOKUPS = frozenset({"ResourceGather", "Gather", "GatherV2"})
_COMPUTING = _PRODUCTS | _CONVOLUTIONS | _TRANSPOSED | _FILTER_GRADIENTS
HEAVY = _PRODUCTS | _CONVOLUTIONS | _TRANSPOSED | _LOOKUPS
# What moves no data: names, views, and what is known before the call.
_FREE = frozenset(
    {
        "Const",
        "Identity",
        "IdentityN",
        "NoOp",
        "Placeholder",
        "ReadVariableOp",
        "Reshape",
        "ExpandDims",
        "Squeeze",
        "Shape",
        "ShapeN",
        "StopGradient",
        "VarHandleOp",
    }
)
# Operators that compute nothing, but do move data.
_MOVES = frozenset(
    {"Cast", "Concat", "ConcatV2", "Fill", "Pack", "Pad", "PadV2", "Slice", "Split", "SplitV", "StridedSlice", "Tile",
     "Transpose", "Unpack", "OneHot", "BroadcastTo", *_LOOKUPS}
)  # fmt: skip


_SHORT = {"float64": "f64", "float32": "f32", "bfloat16": "bf16", "float16": "f16"}
"""Precisions as TensorFlow names them, and as they are shown."""


class Output(Struct, frozen=True, array_like=True):
    """One output of a node: data type, as TensorFlow names it, and shape, None where it is not known."""

    dtype: str
    shape: tuple[int | None, ...] | None

    @property
    def itemsize(self) -> int:
        """Return the bytes an element takes; 0 for what is no tensor of numbers."""
        if self.dtype == "bool":
            return 1
        bits = re.search(r"\d+$", self.dtype)
        return -(-int(bits[0]) // 8) if bits else 0

    @property
    def floating(self) -> bool:
        """Return whether its elements are floating-point numbers."""
        return "float" in self.dtype

    @property
    def size(self) -> int:
        """Return the number of elements; unknown dimensions count as 1."""
        return 0 if self.shape is None else math.prod(1 if n is None else n for n in self.shape)

    @property
    def n_bytes(self) -> int:
        """Return the bytes it takes."""
        return self.size * self.itemsize


class Node(Struct, frozen=True, array_like=True):
    """An operator: its type, the (node, output) pairs it takes, its outputs, and how often it runs in one call."""

    op: str
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[Output, ...]
    attributes: dict[str, Any]
    times: int | None = 1


class Graph(Struct, frozen=True):
    """The nodes of one call with one item, in topological order; what it returns, and its variables.

    As a child writes it (`tuner.frameworks.tensorflow.child.graph`).

    `variables` holds (node, elements, bytes) of each.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[tuple[int, int], ...]
    variables: tuple[tuple[int, int, int], ...] = ()

    def taken(self, node: Node) -> list[Output]:
        """Return the tensors that a node takes."""
        return [self.nodes[i].outputs[k] for i, k in node.inputs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What is known of a workload's graph: of one call with one item.

    `operators` counts by type; `depth` is the longest path in operators; `flops` counts a multiplication and an
    addition as two; `moved_bytes` is what the operators read and write; `parameters` are the elements of the variables
    that the outputs, or the loss, are made from, so that an optimizer's own do not count; `known` is False where a
    loop does not tell how often it runs, and its body counts once, or a shape is not known, and counts as 1.
    """

    operators: dict[str, int]
    heavy_operators: int
    layers: int
    width: float
    depth: int
    flops: int
    moved_bytes: int
    parameters: int
    parameter_bytes: int
    known: bool
    exposed_overhead: float | None = None
    """The share of the default's step in which no operator runs; None where `tftune overhead` has not measured it."""
    intensity: float = field(init=False)
    """The arithmetic intensity, FLOPs per byte moved."""

    def __post_init__(self) -> None:
        """Derive what is published with the others."""
        object.__setattr__(self, "intensity", self.flops / self.moved_bytes if self.moved_bytes else 0.0)


def read(path: Path) -> Graph | None:
    """Return the graph of an export, None where it could not be understood."""
    graph: Graph | None = msgspec.json.decode(path.read_bytes(), type=Graph | None)
    return graph


def features(graph: Graph) -> Features:
    """Return the features of a graph: a few passes over its nodes, linear in nodes and edges."""
    made_from = _ancestors(graph, {i for i, _ in graph.outputs})
    heavy = [_is_heavy(node) and i in made_from for i, node in enumerate(graph.nodes)]
    layers = _longest(graph, heavy)
    n_heavy = sum(heavy)
    counted = [node for node in graph.nodes if node.op not in ("Placeholder", "Const")]
    return Features(
        operators=dict(Counter(node.op for node in counted).most_common()),
        heavy_operators=n_heavy,
        layers=layers,
        width=n_heavy / layers if layers else 0.0,
        depth=_longest(graph, [node.op not in ("Placeholder", "Const") for node in graph.nodes]),
        flops=sum((node.times or 1) * flops(graph, node) for node in graph.nodes),
        moved_bytes=sum((node.times or 1) * moved_bytes(graph, node) for node in graph.nodes),
        parameters=sum(n for node, n, _ in graph.variables if node in made_from),
        parameter_bytes=sum(size for node, _, size in graph.variables if node in made_from),
        known=all(_is_known(graph, node) for node in graph.nodes),
    )


def precision(graph: Graph) -> str | None:
    """Return the lowest precision that products and convolutions are computed in, such as f32; None where it has none.

    It is that of the tensors: a library may compute in a lower one where it is told to.
    """
    names = {node.outputs[0].dtype for node in graph.nodes if node.op in _COMPUTING and node.outputs}
    known = [(Output(dtype=name, shape=()).itemsize, name) for name in names if name in _SHORT]
    return _SHORT[min(known)[1]] if known else None


def _is_heavy(node: Node) -> bool:
    """Return whether an operator is heavy; a lookup is, where it looks up numbers, not the sizes of shapes."""
    return node.op in HEAVY and (node.op not in _LOOKUPS or node.outputs[0].floating)


def _is_known(graph: Graph, node: Node) -> bool:
    """Return whether it is known how often a node runs, and, of what computes most, on what shapes."""
    shapes = [each.shape for each in (*graph.taken(node), *node.outputs)] if node.op in _COMPUTING else []
    return node.times is not None and all(shape is not None and None not in shape for shape in shapes)


def _ancestors(graph: Graph, starts: set[int]) -> set[int]:
    """Return the nodes that the given ones are made from, themselves included."""
    ancestors: set[int] = set()
    waiting = list(starts)
    while waiting:
        i = waiting.pop()
        if i not in ancestors:
            ancestors.add(i)
            waiting.extend(j for j, _ in graph.nodes[i].inputs)
    return ancestors


def _longest(graph: Graph, counts: Sequence[bool]) -> int:
    """Return the number of counted nodes on the path that has most of them; nodes are in topological order."""
    longest = [0] * len(graph.nodes)
    for i, node in enumerate(graph.nodes):
        longest[i] = counts[i] + max((longest[j] for j, _ in node.inputs), default=0)
    return max(longest, default=0)


def flops(graph: Graph, node: Node) -> int:
    """Return the floating-point operations of a node.

    A product or convolution has 2 for each multiplication with its addition; any other operator that computes has one
    for each element of its output, a reduction one for each element that it takes.
    """
    op, inputs = node.op, graph.taken(node)
    output_size = node.outputs[0].size if node.outputs else 0
    if op in _FREE or op in _MOVES:
        return 0
    if op in ("MatMul", "SparseMatMul"):
        a = inputs[0].shape or (0, 0)
        return 2 * output_size * (a[0 if node.attributes.get("transpose_a") else 1] or 1)
    if op.startswith("BatchMatMul"):
        a = inputs[0].shape or (0, 0)
        return 2 * output_size * (a[-2 if node.attributes.get("adj_x") else -1] or 1)
    if op == "Einsum":
        return 2 * math.prod(_labels(node.attributes["equation"], inputs).values())
    if op in _CONVOLUTIONS | _TRANSPOSED | _FILTER_GRADIENTS:
        # A gradient is as the convolution that it is of: each of its elements meets each of the filter's.
        met_size = output_size if op in _CONVOLUTIONS else inputs[2].size
        filter_ = (node.outputs[0] if op in _FILTER_GRADIENTS else inputs[1]).shape or (0,)
        return 2 * met_size * math.prod(n or 1 for n in (filter_[:2] if "Depthwise" in op else filter_[:-1]))
    if op in ("Sum", "Mean", "Max", "Min", "Prod", "MaxPool", "AvgPool", "L2Loss", "BiasAddGrad"):
        return inputs[0].size if inputs else 0
    return output_size if node.outputs and node.outputs[0].itemsize else 0


def _labels(equation: str, inputs: Sequence[Output]) -> dict[str, int]:
    """Return the size of each label of an Einstein sum; an ellipsis is one label."""
    sizes: dict[str, int] = {}
    for term, tensor in zip(equation.partition("->")[0].split(","), inputs, strict=True):
        if tensor.shape is None:
            continue
        for label, n in _dimensions(term, tensor.shape):
            sizes[label] = max(sizes.get(label, 1), n)
    return sizes


def _dimensions(term: str, shape: Sequence[int | None]) -> Iterator[tuple[str, int]]:
    head, dots, tail = term.partition("...")
    sizes = [n or 1 for n in shape]
    yield from zip(head, sizes, strict=False)
    if dots:
        middle = sizes[len(head) : len(sizes) - len(tail)]
        yield "...", math.prod(middle)
        yield from zip(tail, sizes[len(sizes) - len(tail) :], strict=True)


def moved_bytes(graph: Graph, node: Node) -> int:
    """Return what a node reads and writes, in bytes; of a table of embeddings it reads only what it looks up."""
    if node.op in _FREE:
        return 0
    written = sum(output.n_bytes for output in node.outputs)
    if node.op in _LOOKUPS:
        return 2 * written + sum(t.n_bytes for t in graph.taken(node)[1:2])
    return written + sum(t.n_bytes for t in graph.taken(node))
