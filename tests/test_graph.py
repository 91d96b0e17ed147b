"""Features of graphs: textbook graphs whose width, layers and operations are known."""

from __future__ import annotations

import random
from types import SimpleNamespace

import msgspec
import pytest

from tuner.frameworks.tensorflow.child.graph import ordered
from tuner.model.graph import Graph, Node, Output, features, flops, moved_bytes

F32 = 4


def tensor(*shape: int | None, dtype: str = "float32") -> Output:
    return Output(dtype=dtype, shape=shape)


class Building:
    """A graph in the making."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, op: str, *inputs: int, out: Output, times: int | None = 1, **attributes: object) -> int:
        """Append a node that takes the first outputs of others; return its number."""
        node = Node(op=op, inputs=tuple((i, 0) for i in inputs), outputs=(out,), attributes=attributes, times=times)
        self.nodes.append(node)
        return len(self.nodes) - 1

    def product(self, x: int, m: int = 8, n: int = 8) -> int:
        """Append a matrix product by a constant."""
        return self.add("MatMul", x, self.add("Const", out=tensor(m, n)), out=tensor(1, n))

    def done(self, *outputs: int) -> Graph:
        return Graph(nodes=tuple(self.nodes), outputs=tuple((i, 0) for i in outputs))


def chain(n: int) -> Graph:
    builder = Building()
    x = builder.add("Placeholder", out=tensor(1, 8))
    for _ in range(n):
        x = builder.add("Relu", builder.product(x), out=tensor(1, 8))
    return builder.done(x)


def towers(n: int, length: int) -> Graph:
    builder = Building()
    x = builder.add("Placeholder", out=tensor(1, 8))
    ends = []
    for _ in range(n):
        end = x
        for _ in range(length):
            end = builder.product(end)
        ends.append(end)
    return builder.done(builder.add("AddN", *ends, out=tensor(1, 8)))


@pytest.mark.parametrize("n", [1, 5, 40])
def test_the_width_of_a_chain_is_1(n: int) -> None:
    of_chain = features(chain(n))
    assert (of_chain.heavy_operators, of_chain.layers, of_chain.width) == (n, n, 1.0)
    assert of_chain.depth == 2 * n


@pytest.mark.parametrize(("n", "length"), [(2, 1), (2, 7), (3, 4)])
def test_the_width_of_parallel_towers_is_their_number(n: int, length: int) -> None:
    of_towers = features(towers(n, length))
    assert (of_towers.heavy_operators, of_towers.layers, of_towers.width) == (n * length, length, float(n))


def test_a_graph_without_heavy_operators_has_no_width() -> None:
    builder = Building()
    x = builder.add("Relu", builder.add("Placeholder", out=tensor(1, 8)), out=tensor(1, 8))
    of_graph = features(builder.done(x))
    assert (of_graph.heavy_operators, of_graph.layers, of_graph.width, of_graph.depth) == (0, 0, 0.0, 1)
    assert features(Graph(nodes=(), outputs=())).depth == 0


def test_gradients_are_work_and_no_width() -> None:
    """The loss is what a training step returns; what is made from the loss is a gradient."""
    builder = Building()
    x = builder.add("Placeholder", out=tensor(1, 8))
    forward = builder.product(x)
    loss = builder.add("Mean", forward, out=tensor())
    gradient = builder.add("MatMul", loss, forward, out=tensor(8, 8))
    builder.add("ResourceApplyGradientDescent", gradient, out=tensor())
    of_graph = features(builder.done(loss))
    assert (of_graph.heavy_operators, of_graph.layers) == (1, 1)
    assert of_graph.operators["MatMul"] == 2


def test_what_looks_up_a_shape_is_not_heavy() -> None:
    builder = Building()
    table, sizes = builder.add("Const", out=tensor(1000, 16)), builder.add("Const", out=tensor(4, dtype="int32"))
    words = builder.add("Placeholder", out=tensor(1, 4, dtype="int32"))
    rows = builder.add("GatherV2", table, words, out=tensor(1, 4, 16))
    some = builder.add("GatherV2", sizes, words, out=tensor(2, dtype="int32"))
    assert features(builder.done(builder.add("Reshape", rows, some, out=tensor(4, 16)))).heavy_operators == 1


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("float32", 4), ("bfloat16", 2), ("int64", 8), ("bool", 1), ("complex64", 8), ("int4", 1), ("resource", 0)],
)
def test_elements_have_their_size(dtype: str, size: int) -> None:
    assert tensor(1, dtype=dtype).itemsize == size


def test_a_net_of_many_joins_takes_no_time() -> None:
    """Every layer takes every earlier one: the number of paths is exponential, that of edges is not."""
    builder = Building()
    layer_nodes = [builder.add("Placeholder", out=tensor(1, 8))]
    for _ in range(300):
        joined = builder.add("ConcatV2", *layer_nodes, out=tensor(1, 8))
        layer_nodes.append(builder.product(joined))
    of_graph = features(builder.done(layer_nodes[-1]))  # one path after another would never end
    assert (of_graph.heavy_operators, of_graph.layers, of_graph.width) == (300, 300, 1.0)


def test_width_is_what_counting_all_paths_says() -> None:
    """The pass in topological order against a walk over every path, on small random graphs."""
    rng = random.Random(0)
    for _ in range(50):
        builder = Building()
        ids = [builder.add("Placeholder", out=tensor(1, 8))]
        for _ in range(10):
            parents = rng.sample(ids, k=min(len(ids), rng.choice((1, 2))))
            ids.append(builder.add(rng.choice(("MatMul", "AddV2")), *parents, out=tensor(1, 8)))
        graph = builder.done(*ids)

        def longest(i: int, graph: Graph = graph) -> int:
            node = graph.nodes[i]
            return (node.op == "MatMul") + max((longest(j) for j, _ in node.inputs), default=0)

        assert features(graph).layers == max(longest(i) for i in ids)


@pytest.mark.parametrize(
    ("op", "input_shapes", "out", "attributes", "expected"),
    [
        ("MatMul", [(3, 5), (5, 7)], (3, 7), {}, 2 * 3 * 5 * 7),
        ("MatMul", [(5, 3), (5, 7)], (3, 7), {"transpose_a": True}, 2 * 3 * 5 * 7),
        ("BatchMatMulV2", [(4, 3, 5), (4, 5, 7)], (4, 3, 7), {}, 2 * 4 * 3 * 5 * 7),
        ("BatchMatMulV2", [(4, 5, 3), (4, 5, 7)], (4, 3, 7), {"adj_x": True}, 2 * 4 * 3 * 5 * 7),
        ("Einsum", [(2, 3, 4), (4, 5, 6)], (2, 3, 5, 6), {"equation": "abc,cde->abde"}, 2 * 2 * 3 * 4 * 5 * 6),
        ("Einsum", [(2, 9, 3, 4), (4, 5)], (2, 9, 3, 5), {"equation": "...c,cd->...d"}, 2 * 2 * 9 * 3 * 4 * 5),
        ("Conv2D", [(1, 8, 8, 3), (5, 5, 3, 6)], (1, 4, 4, 6), {}, 2 * 4 * 4 * 6 * 5 * 5 * 3),
        ("DepthwiseConv2dNative", [(1, 8, 8, 3), (3, 3, 3, 2)], (1, 8, 8, 6), {}, 2 * 8 * 8 * 6 * 3 * 3),
        ("Relu", [(1, 8, 8, 3)], (1, 8, 8, 3), {}, 192),
        ("Mean", [(1, 8, 8, 3)], (1, 3), {}, 192),
        ("ConcatV2", [(1, 8), (1, 8)], (1, 16), {}, 0),
        ("Reshape", [(1, 8)], (8, 1), {}, 0),
        ("GatherV2", [(1000, 16), (4,)], (4, 16), {}, 0),
    ],
)
def test_operations_are_counted(
    op: str,
    input_shapes: list[tuple[int, ...]],
    out: tuple[int, ...],
    attributes: dict[str, object],
    expected: int,
) -> None:
    builder = Building()
    inputs = [builder.add("Placeholder", out=tensor(*shape)) for shape in input_shapes]
    node = builder.add(op, *inputs, out=tensor(*out), **attributes)
    assert flops(builder.done(node), builder.nodes[node]) == expected


def test_the_gradients_of_a_convolution_cost_as_much_as_itself() -> None:
    builder = Building()
    image, kernel = builder.add("Placeholder", out=tensor(1, 8, 8, 3)), builder.add("Const", out=tensor(5, 5, 3, 6))
    forward = builder.add("Conv2D", image, kernel, out=tensor(1, 4, 4, 6))
    sizes = builder.add("Const", out=tensor(4, dtype="int32"))
    to_input = builder.add("Conv2DBackpropInput", sizes, kernel, forward, out=tensor(1, 8, 8, 3))
    to_filter = builder.add("Conv2DBackpropFilter", image, sizes, forward, out=tensor(5, 5, 3, 6))
    graph = builder.done(to_input, to_filter)
    assert len({flops(graph, graph.nodes[i]) for i in (forward, to_input, to_filter)}) == 1


def test_a_loop_is_counted_as_often_as_it_runs() -> None:
    builder = Building()
    x = builder.add("Placeholder", out=tensor(1, 8))
    weights = builder.add("Const", out=tensor(8, 8))
    builder.add("MatMul", x, weights, out=tensor(1, 8), times=35)
    assert features(builder.done(2)).flops == 35 * 2 * 8 * 8
    assert features(builder.done(2)).known
    builder.add("MatMul", x, weights, out=tensor(1, 8), times=None)
    assert not features(builder.done(3)).known


def test_bytes_are_what_is_read_and_written() -> None:
    builder = Building()
    x, weights = builder.add("Placeholder", out=tensor(3, 5)), builder.add("Const", out=tensor(5, 7))
    node = builder.add("MatMul", x, weights, out=tensor(3, 7))
    assert moved_bytes(builder.done(node), builder.nodes[node]) == F32 * (15 + 35 + 21)
    table, ids = builder.add("Const", out=tensor(1000, 16)), builder.add("Placeholder", out=tensor(4))
    lookup = builder.add("GatherV2", table, ids, out=tensor(4, 16))
    assert moved_bytes(builder.done(lookup), builder.nodes[lookup]) == F32 * (2 * 64 + 4)


def test_a_graph_is_written_and_read() -> None:
    data = {
        "nodes": [
            ["Placeholder", [], [["float32", [1, 8]]], {}, 1],
            ["Relu", [[0, 0]], [["float32", [1, None]]], {}, None],
            ["Placeholder", [], [["resource", []]], {}, 1],
        ],
        "outputs": [[1, 0]],
        "variables": [[0, 64, 256], [2, 100, 400]],
    }
    graph = msgspec.convert(data, Graph)
    assert graph.nodes[1].inputs == ((0, 0),)
    of_graph = features(graph)
    assert (of_graph.parameters, of_graph.parameter_bytes, of_graph.known) == (64, 256, False)
    assert of_graph.intensity == of_graph.flops / of_graph.moved_bytes


def operation(name: str) -> SimpleNamespace:
    """Return an operation of TensorFlow's, as far as its order goes."""
    return SimpleNamespace(name=name, type=name, inputs=[])


def feed(op: SimpleNamespace, *sources: SimpleNamespace) -> None:
    op.inputs += [SimpleNamespace(op=source) for source in sources]


def test_operations_come_after_what_they_take() -> None:
    rng = random.Random(1)
    for _ in range(50):
        ops = [operation(str(i)) for i in range(20)]
        for i, op in enumerate(ops):
            feed(op, *rng.sample(ops[:i], k=min(i, 2)))
        shuffled = rng.sample(ops, k=len(ops))
        at = {op.name: i for i, op in enumerate(ordered(shuffled))}
        assert len(at) == len(ops)
        assert all(at[tensor.op.name] < at[op.name] for op in ops for tensor in op.inputs)


def test_a_loop_of_tensorflow_1_has_an_order_too() -> None:
    enter, merge, body, back = (operation(name) for name in ("Enter", "Merge", "Body", "NextIteration"))
    feed(merge, enter, back)
    feed(body, merge)
    feed(back, body)
    names = [op.name for op in ordered([merge, body, back, enter])]
    assert sorted(names) == ["Body", "Enter", "Merge", "NextIteration"]
    assert names.index("Enter") < names.index("Merge") < names.index("Body")


def test_an_einstein_sum_of_unknown_rank_is_counted_by_what_is_known() -> None:
    builder = Building()
    unknown = Output(dtype="float32", shape=None)
    x = builder.add("Placeholder", out=unknown)
    builder.add("Einsum", x, builder.add("Const", out=tensor(8, 4)), out=unknown, equation="...d,de->...e")
    graph = builder.done(2)
    assert flops(graph, graph.nodes[2]) == 2 * 8 * 4
