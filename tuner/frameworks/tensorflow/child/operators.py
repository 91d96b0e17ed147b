"""What each operator of a step takes, from the statistics that TensorFlow's executor keeps where it is asked to.

They are `StepStats` in the metadata of a session's run, when each node began and ended and the shapes of what it made;
functions keep none, so that the signature is loaded into a session, which has the same executor, kernels and optimizer.
A node that runs several times in a step, as in a loop, counts with the sum. What the optimizer fuses is one node.
"""

from __future__ import annotations

import functools
import statistics
from typing import Any, Callable, Dict, List, Optional, Tuple

from ....child.callers import CLOCK

NANO = 1e-9
ATTRIBUTES = ("transpose_a", "transpose_b", "adj_x", "adj_y", "equation")
PEAK_SIZE, SUM_BYTES = 2048, 1 << 26
PEAK_RUNS = 3
UNKNOWN = ["variant", []]
LONG_STEP_S = 0.5
Report = Dict[str, Any]
Ran = Dict[str, Tuple[float, List[Any], int]]  # by the node's name: its time (s), its outputs, how often it ran


class Signature:
    """A SavedModel's signature in a session. Of what the session is not told, variables of the environment decide."""

    def __init__(self, folder: str, tags: "Tuple[str, ...]", name: str) -> None:
        import tensorflow as tf

        v1 = tf.compat.v1
        with tf.Graph().as_default() as graph:
            self._session = v1.Session(graph=graph)  # it holds the callables, and lasts as long as the process
            signature = v1.saved_model.load(self._session, list(tags), folder).signature_def[name]
            self._names = {each.name: key for key, each in signature.inputs.items()}
            fetches = [name for each in signature.outputs.values() for name in tensor_names(each)]
            self.run = self._session.make_callable(fetches, list(self._names))
            self._run_told = self._session.make_callable(fetches, list(self._names), accept_options=True)
        self._definitions: Optional[Report] = None

    def fed(self, arrays: Report) -> "List[Any]":
        """Return arrays by name in the order in which the callables take them."""
        return [arrays[key] for key in self._names.values()]

    def run_told(self, fed: "List[Any]", *, with_graphs: bool = False) -> Any:
        """Run once, and return the metadata, with the graphs as they are run where these are asked for."""
        import tensorflow as tf

        v1 = tf.compat.v1
        options = v1.RunOptions(trace_level=v1.RunOptions.SOFTWARE_TRACE, output_partition_graphs=with_graphs)
        metadata = v1.RunMetadata()
        self._run_told(*fed, options=options, run_metadata=metadata)
        return metadata

    def definitions(self, fed: "List[Any]", again: bool) -> Report:
        """Return the nodes by name as they are run, fused and rewritten: the same ones for every batch size.

        A step is prepared anew after that: one is run `again`, where steps follow that are all to be alike.
        """
        if self._definitions is None:
            graphs = self.run_told(fed, with_graphs=True).partition_graphs
            self._definitions = {node.name: node for graph in graphs for node in graph.node}
            if again:
                self.run_told(fed)
        return self._definitions


@functools.lru_cache(maxsize=1)
def loaded(folder: str, tags: "Tuple[str, ...]", signature_name: str) -> Signature:
    """Return a signature, loaded once for all batch sizes."""
    return Signature(folder, tags, signature_name)


def tensor_names(info: Any) -> "List[str]":
    """Return the names of the tensors that an output of a signature is made of: a sparse one of three."""
    kind = info.WhichOneof("encoding")
    if kind == "coo_sparse":
        sparse = info.coo_sparse
        return [sparse.indices_tensor_name, sparse.values_tensor_name, sparse.dense_shape_tensor_name]
    if kind == "composite_tensor":
        return [name for each in info.composite_tensor.components for name in tensor_names(each)]
    return [info.name]


def traced(folder: str, tags: "List[str]", signature_name: str, arrays: Report, n_steps: int) -> Report:
    """Run so many steps of a SavedModel's signature on arrays by name, and return what its operators take.

    Steps with statistics take turns with steps without, of which one is enough where it is long: `plain_s` and
    `steps_s` are the two as the caller sees them, `busy_s` the parts of the second in which an operator ran. With 0
    steps all is made ready for that, and nothing returned. A node is

        [name, operator, [[index of a node, output that it takes], ...], [[data type, shape], ...], attributes,
         runs in a step, [index of a node that it only waits for, ...], median of its time (s)]

    The index is -1 where nothing is known of what it takes.
    """
    signature = loaded(folder, tuple(tags), signature_name)
    fed = signature.fed(arrays)
    plain: List[float] = []
    steps_s: List[float] = []
    steps: List[Tuple[Ran, float]] = []
    if n_steps > 1:  # a single one is long
        signature.run(*fed)
    definitions = signature.definitions(fed, again=n_steps > 1)
    if not n_steps:
        large()
        return {}
    for _ in range(n_steps):
        if not plain or min(*plain, *steps_s) < LONG_STEP_S:
            began = CLOCK()
            signature.run(*fed)
            plain.append(CLOCK() - began)
        began = CLOCK()
        metadata = signature.run_told(fed)
        steps_s.append(CLOCK() - began)
        steps.append(times_of(metadata, definitions))
    nodes = nodes_of(definitions, [ran for ran, _ in steps])
    return {"plain_s": plain, "steps_s": steps_s, "busy_s": [busy for _, busy in steps], "nodes": nodes}


def nodes_of(definitions: "Dict[str, Any]", steps: "List[Ran]") -> "List[Any]":
    """Return the nodes that ran, and the constants that they take, from their definitions and what each step tells.

    A node that did not run in a step, as in a branch, took no time in it.
    """
    stats = {name: each for step in reversed(steps) for name, each in step.items()}
    names = [name for name in definitions if name in stats or definitions[name].op == "Const"]
    index = {name: number for number, name in enumerate(names)}
    nodes = []
    for name in names:
        definition = definitions[name]
        taken = [text.partition(":") for text in definition.input if not text.startswith("^")]
        awaited = [index[text[1:]] for text in definition.input if text.startswith("^") and text[1:] in index]
        durations = [step[name][0] if name in step else 0.0 for step in steps]
        nodes.append(
            [
                name,
                definition.op,
                [[index.get(other, -1), int(slot or 0)] for other, _, slot in taken],
                stats[name][1] if name in stats else constant(definition),
                attributes(definition),
                stats[name][2] if name in stats else 1,
                awaited,
                statistics.median(durations),
            ]
        )
    return nodes


def times_of(metadata: Any, definitions: "Dict[str, Any]") -> "Tuple[Ran, float]":
    """Return (what ran, how long (s) anything ran); what runs inside of a function is part of its call."""
    ran: Ran = {}
    spans = []
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            if node.node_name not in definitions:
                continue
            begin = node.all_start_nanos + node.op_start_rel_nanos
            end = node.all_start_nanos + node.op_end_rel_nanos
            spans.append((begin, end))
            before = ran.get(node.node_name, (0.0, [], 0))
            ran[node.node_name] = (before[0] + (end - begin) * NANO, outputs_of(node), before[2] + 1)
    return ran, union(spans) * NANO


def outputs_of(node: Any) -> "List[Any]":
    """Return data type and shape of each output that a node made; of some it makes none."""
    import tensorflow as tf

    outputs: List[Any] = []
    for each in node.output:
        outputs += [UNKNOWN] * (each.slot + 1 - len(outputs))
        tensor = each.tensor_description
        outputs[each.slot] = [tf.dtypes.as_dtype(tensor.dtype).name, [n.size for n in tensor.shape.dim]]
    return outputs


def union(spans: "List[Tuple[int, int]]") -> int:
    """Return how long at least one of some spans lasts."""
    total = last = 0
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, last))
        last = max(last, end)
    return total


def constant(definition: Any) -> "List[Any]":
    """Return the output of a constant, which the executor has at hand and does not run."""
    import tensorflow as tf

    tensor = definition.attr["value"].tensor
    return [[tf.dtypes.as_dtype(tensor.dtype).name, [n.size for n in tensor.tensor_shape.dim]]]


def attributes(definition: Any) -> Report:
    """Return the attributes of a node that tell how much it computes."""
    told: Report = {}
    for name in ATTRIBUTES:
        if name in definition.attr:
            value = definition.attr[name]
            told[name] = value.s.decode() if value.WhichOneof("value") == "s" else bool(value.b)
    return told


@functools.lru_cache(maxsize=1)
def roof() -> Report:
    """Return what TensorFlow reaches here with the threads that it has: FLOP/s of a product, bytes/s of a sum.

    Both are in single precision, and the best of a few runs: a roof is what nothing disturbs. They are measured once.
    """
    product, add = large()
    return {"flops": 2 * PEAK_SIZE**3 / least(product), "bytes_s": 3 * SUM_BYTES / least(add)}


@functools.lru_cache(maxsize=1)
def large() -> "Tuple[Callable[[], Any], Callable[[], Any]]":
    """Return calls of a large product and of a large sum, each after one that prepares."""
    import tensorflow as tf

    a = tf.random.stateless_uniform((PEAK_SIZE, PEAK_SIZE), (1, 2))
    b = tf.random.stateless_uniform((SUM_BYTES // 4,), (3, 4))
    total = tf.Variable(b)  # added to in its place: memory is neither asked for nor given back
    product = tf.function(lambda x: tf.matmul(x, x), autograph=False)
    add = tf.function(lambda x: total.assign_add(x), autograph=False)
    product(a)
    add(b)
    return lambda: product(a), lambda: add(b)


def least(call: Callable[[], Any]) -> float:
    """Return the least time (s) of a few calls."""
    times = []
    for _ in range(PEAK_RUNS):
        began = CLOCK()
        call()
        times.append(CLOCK() - began)
    return min(times)
