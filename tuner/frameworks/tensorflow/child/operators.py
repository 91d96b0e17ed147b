"""What each operator of a step takes, from the statistics that TensorFlow's executor keeps where it is asked to.

They are `StepStats` in the metadata of a session's run, when each node began and ended and the shapes of what it made;
functions keep none, so that the signature is loaded into a session, which has the same executor, kernels and optimizer.
A node that runs several times in a step, as in a loop, counts with the sum. What the optimizer fuses is one node.
"""

from __future__ import annotations

import statistics
from typing import Any, Callable, Dict, List, Tuple

from ....child.callers import CLOCK

NANO = 1e-9
# Nodes that contain others, whose time is theirs.
CALLS = ("PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf", "Case")
ATTRIBUTES = ("transpose_a", "transpose_b", "adj_x", "adj_y", "equation")
PEAK_SIZE, COPY_BYTES = 2048, 1 << 26
PEAK_RUNS = 3
N_WARM = 2
SERVE = "serve"
Report = Dict[str, Any]


def traced(folder: str, signature_name: str, arrays: Report, n_steps: int) -> Report:
    """Run so many steps of a SavedModel's signature on arrays by name, and return what its operators take.

    Steps with statistics take turns with steps without: `plain_s` and `steps_s` are the two as the caller sees them,
    `busy_s` the parts of the second in which an operator ran. A node is

        [name, operator, [index of a node that it takes an output of, ...], [[data type, shape], ...], attributes,
         runs in a step, median of its time (s)]
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
    plain, runs = [], []
    # Of what the session is not told, variables of the environment decide, as for functions.
    with tf.Graph().as_default(), v1.Session() as session:
        signature = v1.saved_model.load(session, [SERVE], folder).signature_def[signature_name]
        feed = {each.name: arrays[name] for name, each in signature.inputs.items()}
        fetches = [each.name for each in signature.outputs.values()]
        run = session.make_callable(fetches, list(feed))
        with_statistics = session.make_callable(fetches, list(feed), accept_options=True)
        for _ in range(N_WARM):
            run(*feed.values())
            with_statistics(*feed.values(), options=options, run_metadata=v1.RunMetadata())
        for _ in range(n_steps):
            began = CLOCK()
            run(*feed.values())
            plain.append(CLOCK() - began)
            metadata = v1.RunMetadata()
            began = CLOCK()
            with_statistics(*feed.values(), options=options, run_metadata=metadata)
            runs.append((CLOCK() - began, metadata))
    definitions = {
        node.name: node for graph in runs[-1][1].partition_graphs for node in graph.node if node.op not in CALLS
    }
    steps = [times_of(metadata, definitions) for _, metadata in runs]
    return {
        "plain_s": plain,
        "steps_s": [seconds for seconds, _ in runs],
        "busy_s": [busy for _, busy in steps],
        "nodes": nodes_of(definitions, [ran for ran, _ in steps]),
    }


def nodes_of(definitions: "Dict[str, Any]", steps: "List[Dict[str, Tuple[float, List[Any], int]]]") -> "List[Any]":
    """Return the nodes that ran, and the constants that they take, from their definitions and what each step tells."""
    stats = {name: each for step in reversed(steps) for name, each in step.items()}
    names = [name for name in definitions if name in stats or definitions[name].op == "Const"]
    index = {name: number for number, name in enumerate(names)}
    nodes = []
    for name in names:
        definition = definitions[name]
        taken = [text.partition(":")[0] for text in definition.input if not text.startswith("^")]
        durations = [step[name][0] for step in steps if name in step]
        nodes.append(
            [
                name,
                definition.op,
                [index[other] for other in taken if other in index],
                stats[name][1] if name in stats else constant(definition),
                attributes(definition),
                stats[name][2] if name in stats else 1,
                statistics.median(durations) if durations else 0.0,
            ]
        )
    return nodes


def times_of(metadata: Any, definitions: "Dict[str, Any]") -> "Tuple[Dict[str, Tuple[float, List[Any], int]], float]":
    """Return (what ran, how long anything ran): of each node its time (s), its outputs, and how often it ran."""
    import tensorflow as tf

    ran: "Dict[str, Tuple[float, List[Any], int]]" = {}
    spans = []
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            if node.node_name not in definitions:
                continue
            begin = node.all_start_nanos + node.op_start_rel_nanos
            end = node.all_start_nanos + node.op_end_rel_nanos
            spans.append((begin, end))
            outputs = [
                [
                    tf.dtypes.as_dtype(each.tensor_description.dtype).name,
                    [n.size for n in each.tensor_description.shape.dim],
                ]
                for each in node.output
            ]
            before = ran.get(node.node_name, (0.0, outputs, 0))
            ran[node.node_name] = (before[0] + (end - begin) * NANO, outputs, before[2] + 1)
    return ran, union(spans) * NANO


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


def roof() -> Report:
    """Return what TensorFlow reaches here with the threads that it has: FLOP/s of a product, bytes/s of a sum.

    The best of a few runs: a roof is what nothing disturbs.
    """
    import tensorflow as tf

    a = tf.random.stateless_uniform((PEAK_SIZE, PEAK_SIZE), (1, 2))
    b = tf.random.stateless_uniform((COPY_BYTES // 4,), (3, 4))
    product, total = tf.function(lambda x: tf.matmul(x, x)), tf.function(lambda x: x + 1.0)
    product_s = least(lambda: product(a))
    sum_s = least(lambda: total(b))
    return {"flops": 2 * PEAK_SIZE**3 / product_s, "bytes_s": 2 * COPY_BYTES / sum_s}


def least(call: Callable[[], Any]) -> float:
    """Return the least time (s) of a few calls, after one that prepares."""
    call()
    times = []
    for _ in range(PEAK_RUNS):
        began = CLOCK()
        call()
        times.append(CLOCK() - began)
    return min(times)
