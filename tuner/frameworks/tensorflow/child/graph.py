"""The graph of one call of a workload, in plain data: what the tuner takes a workload's features from.

Functions that are called, and the bodies of loops and branches, are put in the place of the call, so that the result
is one graph without cycles. A node is a list

    [operator, [[node, output], ...], [[data type, shape], ...], attributes, times]

of its type, its data inputs, its outputs (a shape with null for what is not known), the few attributes that tell how
much it computes, and how often it runs in one call, null where a loop does not tell.
"""

from __future__ import annotations

from typing import Any, Iterator, Tuple

from ....child import usage

CALLS = {"PartitionedCall", "StatefulPartitionedCall"}
LOOPS = {"While", "StatelessWhile"}
BRANCHES = {"If", "StatelessIf"}
CHECKS = {"Assert", "NoOp", "Const", "Identity", "StringFormat", "AsString", "StringJoin", "PrintV2"}
CASES = {"Case", "StatelessCase"}
PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
BACK = {"NextIteration", "RefNextIteration"}
PLAIN = {
    *("Abs", "Add", "AddN", "AddV2", "All", "Any", "ArgMax", "ArgMin", "AvgPool", "BatchMatMulV2", "BiasAdd", "Cast"),
    *("ConcatV2", "Conv2D", "Cos", "DepthwiseConv2dNative", "Einsum", "Elu", "Equal", "Erf", "Exp", "ExpandDims"),
    *("Floor", "FloorDiv", "FloorMod", "FusedBatchNormV3", "GatherV2", "Greater", "GreaterEqual", "Identity"),
    *("LeakyRelu", "Less", "LessEqual", "Log", "LogicalAnd", "LogicalNot", "LogicalOr", "MatMul", "Max", "MaxPool"),
    *("Maximum", "Mean", "Min", "Minimum", "Mul", "Neg", "NotEqual", "OneHot", "Pack", "Pow", "Prod", "RealDiv"),
    *("Relu", "Relu6", "Reshape", "ResourceGather", "Round", "Rsqrt", "SelectV2", "Selu", "Sigmoid", "Sign", "Sin"),
    *("Softmax", "Softplus", "Split", "Sqrt", "Square", "SquaredDifference", "Squeeze", "StopGradient", "StridedSlice"),
    *("Sub", "Sum", "Tanh", "Transpose", "Unpack"),
}
"""Operators that do the same work whatever the values are, unless these decide a size."""
LOOKUPS = {"ResourceGather", "GatherV2", "Gather", "GatherNd", "ResourceGatherNd"}
SCATTERS = {f"UnsortedSegment{each}" for each in ("Sum", "Max", "Min", "Prod")} | {"SegmentSum", "TensorScatterAdd"}
SAME_NUMBERS = {"Cast", "Identity", "Reshape", "ExpandDims", "Squeeze"}
PARTS = {"StridedSlice": 0, "Slice": 0, "Unpack": 0, "Split": 1, "SplitV": 0, "Transpose": 0, "GatherV2": 0}
"""Operators that give some of the numbers, such as a column for each table, and where these come in."""
ONE_BY_ONE = {
    *("AddV2", "Sub", "Mul", "RealDiv", "FloorDiv", "Floor", "Ceil", "Round", "Maximum", "Minimum", "ClipByValue"),
    *("Log", "Exp", "Sqrt", "Pow", "Sigmoid", "SelectV2", "ConcatV2", "Pack", "Bucketize"),
}.union(SAME_NUMBERS, PARTS)
"""Operators that work out each number of theirs from one of each input."""
BOUNDING = {"FloorMod", "AsString", "StringToHashBucket", "StringToHashBucketFast", "StringToHashBucketStrong"}
"""Operators that make any numbers possible indices, and spread them over the rows of a table."""
IN_ONNX = {
    **dict.fromkeys(("Conv2D", "Conv3D", "DepthwiseConv2dNative", "ResizeBilinear", "ResizeNearestNeighbor"), "Conv"),
    **{name: name for name in ("Add", "Sub", "Mul", "Cast", "Identity", "Relu", "MaxPool")},
    **dict.fromkeys(("GatherV2", "ResourceGather"), "Gather"),
    "ExpandDims": "Unsqueeze",
    "AddV2": "Add",
    "RealDiv": "Div",
}
"""Operators that tell whether the first dimension is the batch, in the words of `usage`."""
READ = {"ReadVariableOp", "VariableV2"}
PASSED_ON = {"Identity", "IdentityN", "StopGradient"}
SHAPES_ALONE = {"Shape", "ShapeN", "Size", "Rank"}
DECIDING: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Range", "LinSpace", "RaggedRange", "NonMaxSuppression", "NonMaxSuppressionV2"), (0, 1, 2, 3)),
    **dict.fromkeys(("NonMaxSuppressionV3", "NonMaxSuppressionV4", "NonMaxSuppressionV5"), (0, 1, 2, 3, 4)),
    **dict.fromkeys(("CombinedNonMaxSuppression", "SparseFillEmptyRows", "SparseSegmentSum"), (0, 1, 2)),
    **dict.fromkeys(("Where", "Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2", "Fill"), (0,)),
    **dict.fromkeys(("ListDiff", "DynamicPartition"), (0, 1)),
    **dict.fromkeys(("DecodeJpeg", "DecodePng", "DecodeBmp", "DecodeGif", "DecodeImage", "DecodeAndCropJpeg"), (0,)),
    **dict.fromkeys(("StringSplit", "StringSplitV2", "UnicodeDecode", "UnicodeDecodeWithOffsets", "DecodeWav"), (0,)),
    **dict.fromkeys(("Tile", "BroadcastTo", "Pad", "PadV2", "MirrorPad", "TopKV2", "OneHot", "Switch"), (1,)),
    **dict.fromkeys(("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea"), (1,)),
    **dict.fromkeys(("LoopCond", "BlockLSTM", "BlockLSTMV2", "Conv2DBackpropInput"), (0,)),
    **dict.fromkeys(("RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal"), (0,)),
    **dict.fromkeys(("StatelessRandomUniformV2", "StatelessRandomUniformIntV2", "StatelessRandomNormalV2"), (0,)),
    **dict.fromkeys(("StatefulUniform", "StatefulStandardNormalV2", "ImageProjectiveTransformV3"), (2,)),
    **dict.fromkeys(("Bincount", "DenseBincount", "SparseToDense", "Multinomial"), (1,)),
    **dict.fromkeys(("SimpleMLInferenceOp", "SimpleMLInferenceOpWithHandle"), (0, 1, 2)),  # trees
    **dict.fromkeys(("SegmentSumV2", "UnsortedSegmentSum", "UnsortedSegmentMax", "ScatterNd"), (2,)),
    **dict.fromkeys(("ScaleAndTranslate", "SplitV", "Reshape"), (1,)),
    "Slice": (1, 2),
    "StridedSlice": (1, 2, 3),
    "CropAndResize": (3,),
}
"""Operators whose output has a size that values decide, and the places of these among their inputs."""
NAMED = PLAIN.union(SCATTERS, LOOKUPS, DECIDING, BACK, ("Merge", "Enter", "Exit"))
ATTRIBUTES = (
    *("shrink_axis_mask", "new_axis_mask", "transpose_a", "transpose_b", "adj_x", "adj_y", "equation", "batch_dims"),
)

Source = Tuple[int, int]  # node, output
_TURNS = 3  # of a loop: after these, what one value hands to the next has come round


def describe(function: Any) -> dict[str, Any]:
    """Return the graph of a concrete function whose inputs have known shapes.

    `outputs` are the sources of what it returns, `variables` the node, the elements and the bytes of each variable.
    Of `values`, `decisive` are the numbers of the inputs whose values decide how much is computed, or go into an
    operator that is not known, `plain` those that are used by plain arithmetic alone, and `rows` are the rows of the
    tables that inputs index, by the input's number. Of `worked_out` inputs an index is computed, or they index what is.
    The first dimension of those `without_batch` is none.
    The function's own graph is added to, and of no use afterwards.
    """
    graph = function.graph
    inside = {id(outer): inner for outer, inner in graph.captures}
    captured = {key(inner) for inner in inside.values()}
    given, returned = [each for each in graph.inputs if key(each) not in captured], list(graph.outputs)
    flat = Flat(graph)
    flat.add(graph.get_operations(), 1)
    variables = []
    tables: dict[int, list[int]] = {}  # the shapes of variables, by their nodes
    for variable in graph.variables:
        handle, n = inside.get(id(variable.handle)), int(variable.shape.num_elements() or 0)
        if handle is not None:
            node = flat.sources[key(handle)][0]
            variables.append([node, n, n * variable.dtype.size])
            tables.update({node: variable.shape.as_list()} if variable.shape.rank and n else {})
    sources = [flat.sources.get(key(tensor)) for tensor in given]
    outputs = [flat.sources[key(tensor)] for tensor in returned]
    decisive, plain, indexing = flat.followed(sources)
    fewest, most, unknown = flat.rows_of(sources, tables)
    uneven = {place for place, n_rows in fewest.items() if n_rows < most[place]}  # few rows of a large table are cached
    values = {"decisive": sorted({*decisive, *uneven}), "plain": plain, "rows": fewest}
    values["worked_out"] = sorted((indexing | unknown) - {*fewest})
    shapes = {str(place): output(tensor)[1] for place, tensor in enumerate(given)}
    of_one_item = usage.of_one_item(shapes, [flat.nodes[node][2][n][1] for node, n in outputs])
    values["without_batch"] = sorted({*flat.without_batch(sources), *map(int, of_one_item)})
    return {"nodes": flat.nodes, "outputs": outputs, "variables": variables, "values": values}


def calls_python(function: Any) -> bool:
    """Return whether a concrete function goes back to Python, in itself or in what it calls."""
    definition = function.graph.as_graph_def()
    nodes = [definition.node, *(inner.node_def for inner in definition.library.function)]
    return any(node.op in PYTHON for each in nodes for node in each)


def is_complete(described: dict[str, Any]) -> bool:
    """Return whether the shapes of all products and convolutions are known, and how often they run."""
    nodes = described["nodes"]
    products = [node for node in nodes if "MatMul" in node[0] or "Conv" in node[0] or node[0] == "Einsum"]
    shapes = [nodes[i][2][k][1] for node in products for i, k in node[1]]
    shapes += [node[2][0][1] for node in products]
    return all(node[4] for node in products) and all(shape is not None and None not in shape for shape in shapes)


class Flat:
    """A graph in the making, without calls.

    A function that is called is imported into TensorFlow's own graph, on the very tensors that it is called with: so
    the shapes inside, of variables too, are worked out again for the call at hand.
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.functions = {f.signature.name: f for f in graph.as_graph_def().library.function}
        self.nodes: list[list[Any]] = []
        self.sources: dict[tuple[str, int], Source] = {}
        self.conditions: list[Source] = []
        """What branches and loops look at before they run."""
        self.loops: list[tuple[range, list[tuple[Source, Source]]]] = []
        """The nodes of each loop's body, with (what it begins with, what it hands to its next turn) of each value."""
        self.unknown: set[int] = set()
        """The nodes whose work may depend on values in ways that are not known here."""

    def add(self, operations: list[Any], times: int | None) -> None:
        """Append the nodes of operations that run `times` times."""
        for op in ordered(operations):
            if op.type in CALLS:
                outputs = self.call(op.get_attr("f"), op.inputs, times)
            elif op.type in LOOPS:
                trips, tested = self.iterations(op)
                begin = len(self.nodes)
                outputs = self.call(
                    op.get_attr("body"), op.inputs, None if trips is None or times is None else trips * times
                )
                initial = [self.sources[key(tensor)] for tensor in op.inputs]
                self.loops.append((range(begin, len(self.nodes)), list(zip(initial, outputs))))
                self.conditions += [each for place in tested for each in (initial[place], outputs[place])]
            elif op.type in BRANCHES:
                if not self.is_check(op):
                    self.conditions.append(self.sources[key(op.inputs[0])])
                # Both branches are in the graph; one of them runs.
                self.call(op.get_attr("else_branch"), op.inputs[1:], times)
                outputs = self.call(op.get_attr("then_branch"), op.inputs[1:], times)
            elif op.type in CASES:
                self.conditions.append(self.sources[key(op.inputs[0])])
                outputs = [self.call(branch, op.inputs[1:], times) for branch in op.get_attr("branches")][-1]
            else:
                # The way back of a loop of TensorFlow 1 has no source yet; how often it is taken is not known.
                inputs = [self.sources[key(tensor)] for tensor in op.inputs if key(tensor) in self.sources]
                runs = None if op.type in BACK else times
                self.unknown.update([] if is_known(op) else [len(self.nodes)])
                self.nodes.append([op.type, inputs, [output(t) for t in op.outputs], attributes(op), runs])
                outputs = [(len(self.nodes) - 1, i) for i in range(len(op.outputs))]
            for tensor, source in zip(op.outputs, outputs):
                self.sources[key(tensor)] = source

    def call(self, function: Any, tensors: Any, times: int | None) -> list[Source]:
        """Append the nodes of a function that is called with `tensors`; return the sources of its outputs."""
        operations, outputs = self.imported(function, tensors)
        self.add(operations, times)
        return [self.sources[key(tensor)] for tensor in outputs]

    def imported(self, function: Any, tensors: Any) -> tuple[list[Any], list[Any]]:
        """Return (operations, outputs) of a function's body on `tensors`."""
        import tensorflow as tf
        from tensorflow.python.framework.function_def_to_graph import function_def_to_graph_def

        definition = self.functions[function.name]
        arguments = [argument.name for argument in definition.signature.input_arg]
        body, names = function_def_to_graph_def(definition)
        del body.library.function[:]
        for node in body.node:
            # Where an operator is placed says nothing here, and may name what is in another graph.
            node.attr.pop("_class", None)
            node.device = ""
        n_before = len(self.graph.get_operations())
        with self.graph.as_default(), tf.control_dependencies(None), tf.device(None):
            outputs = tf.graph_util.import_graph_def(
                body,
                input_map={"%s:0" % name: tensor for name, tensor in zip(arguments, tensors)},
                return_elements=[names[definition.ret[out.name]] for out in definition.signature.output_arg],
                name="flat",
            )
        operations = [
            op
            for op in self.graph.get_operations()[n_before:]
            if not (op.type == "Placeholder" and op.name.rpartition("/")[2] in arguments)
        ]
        return operations, outputs

    def is_check(self, op: Any) -> bool:
        """Return whether a branch does nothing but stop with an error, as tf.debugging has them."""
        nodes = list(self.branch_nodes(op.node_def))
        return "Assert" in nodes and CHECKS.issuperset(nodes)

    def branch_nodes(self, node: Any) -> Iterator[str]:
        """Yield the operators of the branches at a node, those inside of others too."""
        for name in ("then_branch", "else_branch"):
            for inner in self.functions[node.attr[name].func.name].node_def:
                yield from self.branch_nodes(inner) if inner.op in BRANCHES else [inner.op]

    def iterations(self, op: Any) -> tuple[int | None, list[int]]:
        """Return how often a loop runs and which of its values its condition reads.

        The first is None if the condition does not compare with constants.
        """
        from tensorflow.python.framework.tensor_util import constant_value

        operations, _ = self.imported(op.get_attr("cond"), op.inputs)
        read = {key(tensor) for test in operations for tensor in test.inputs}
        tested = [place for place, tensor in enumerate(op.inputs) if key(tensor) in read]
        limits = []
        for test in operations:
            if test.type not in ("Less", "LessEqual"):
                continue
            tensor = test.inputs[1]
            while tensor.op.type in PASSED_ON:
                tensor = tensor.op.inputs[tensor.value_index]
            value = constant_value(tensor)
            if value is not None and value.ndim == 0 and value.dtype.kind in "iu":
                limits.append(int(value) + (test.type == "LessEqual"))
            elif (
                value is None and tensor.op.type in LOOPS
            ):  # the loop of a gradient runs as often as the one that it goes back through
                limits += [trips for trips, _ in [self.iterations(tensor.op)] if trips is not None]
        return min(limits) if limits else None, tested

    def followed(self, given: list[Source | None]) -> tuple[list[int], list[int], set[int]]:
        """Return which inputs, by their sources, decide how much is computed, and which are for plain arithmetic alone.

        The third are those that the indices of tables depend on: of what depends on no input. Values pass through
        every operator but those that read a shape alone; floating-point numbers are indices if they come one by one.
        """
        carried: list[set[int]] = [set() for _ in self.nodes]  # the inputs that a node's outputs depend on
        near: list[set[int]] = [set() for _ in self.nodes]  # those that its numbers are worked out from one by one
        kinds = {place: self.nodes[each[0]][2][each[1]][0] for place, each in enumerate(given) if each is not None}
        fractional = {place for place, kind in kinds.items() if "float" in kind}
        decisive: set[int] = set()
        special: set[int] = set()
        indexing: set[int] = set()
        given_by = {source[0]: {place} for place, source in enumerate(given) if source is not None}
        for _ in range(_TURNS if self.loops else 1):
            for number, (operator, sources, _, attributes, _) in enumerate(self.nodes):
                handed = [pair for body, pairs in self.loops if number in body for pair in pairs]
                parts = [
                    carried[node].union(*(carried[last[0]] for first, last in handed if first == (node, k)))
                    for node, k in sources
                ]
                for place in DECIDING.get(operator, ()):
                    if place < len(parts):
                        decisive |= self.sizes(attributes, sources[place], carried, parts[place])
                decisive |= set().union(*parts) if number in self.unknown else set()
                if (operator in LOOKUPS or "LookupTableFind" in operator) and not parts[0]:
                    indexing |= parts[1] - (fractional - near[sources[1][0]])
                special |= set() if operator in PLAIN or operator in SHAPES_ALONE else set().union(*parts)
                own = given_by.get(number, set())
                carried[number] = own if operator in SHAPES_ALONE else own.union(*parts)
                near[number] = own.union(*(near[node] for node, _ in sources if operator in ONE_BY_ONE))
        decisive = decisive.union(*(carried[node] for node, _ in self.conditions))
        return sorted(decisive), sorted(set(range(len(given))) - decisive - special), indexing

    def rows_of(
        self, given: list[Source | None], tables: dict[int, list[int]]
    ) -> tuple[dict[int, int], dict[int, int], set[int]]:
        """Return the fewest rows of the tables that each input indexes, and the most.

        `tables` are the shapes of variables; a constant may be a table, too.

        The third are the inputs that index what has no known number of rows, such as the nodes of a graph.
        """
        fewest: dict[int, int] = {}
        most: dict[int, int] = {}
        unknown: set[int] = set()
        for operator, sources, _, attributes, _ in self.nodes:
            if operator in LOOKUPS and len(sources) > 1:
                table = self.origin(sources[0], READ | SAME_NUMBERS)
                index = self.origin(sources[1], SAME_NUMBERS | {*PARTS} | BOUNDING)
                place = given.index(index) if index in given else None
                shape = tables.get(table[0]) or []
                if self.nodes[table[0]][0] == "Const":
                    shape = self.nodes[table[0]][2][table[1]][1] or []
                axis = attributes.get("axis", 0)
                is_table = -len(shape) <= axis < len(shape) and not attributes.get("batch_dims")
                n_rows = shape[axis] if is_table else None
                if operator.endswith("GatherNd") and n_rows:  # of so many dimensions a row is indexed
                    width = (self.nodes[sources[1][0]][2][sources[1][1]][1] or [None])[-1]
                    n_rows = min(shape[:width]) if width else None
                if place is not None and n_rows:
                    fewest[place] = min(n_rows, fewest.get(place, n_rows))
                    most[place] = max(n_rows, most.get(place, n_rows))
                elif place is not None:
                    unknown.add(place)
            elif operator in SCATTERS and (index := self.origin(sources[1], SAME_NUMBERS | {*PARTS})) in given:
                unknown.add(given.index(index))
        return fewest, most, unknown

    def without_batch(self, given: list[Source | None]) -> list[int]:
        """Return the inputs whose first dimension is no batch: another one is put before it, and taken for it."""
        walk, known = usage.Usage(), [usage.NOTHING for _ in self.nodes]
        for number, (operator, sources, outputs, attributes, _) in enumerate(self.nodes):
            operands = [known[node] for node, _ in sources]
            rank = len(outputs[0][1] or ()) if outputs else 0
            axes = [attributes["axis"] % rank] if rank and "axis" in attributes else []
            if attributes.get("new_axis_mask") and not attributes["shrink_axis_mask"]:  # x[None]
                operator, axes = "ExpandDims", [n for n in range(rank) if attributes["new_axis_mask"] >> n & 1]
            known[number] = walk.see(IN_ONNX.get(operator, operator + "_"), operands, perm=axes)
            if (number, 0) in given:
                known[number] = usage.given_value(str(given.index((number, 0))))
        return sorted(int(place) for place, batch in walk.batch_at.items() if batch is None)

    def origin(self, source: Source, through: set[str]) -> Source:
        """Return where a value comes from, through operators that keep its numbers.

        Keras counts negative indices from the end: where(i < 0, i + n, i).
        """
        while self.nodes[source[0]][1]:
            operator, sources, *_ = self.nodes[source[0]]
            if operator not in through and operator != "SelectV2":
                break
            source = sources[-1 if operator == "SelectV2" else PARTS.get(operator, 0)]
        return source

    def sizes(self, attributes: dict[str, Any], source: Source, carried: list[set[int]], part: set[int]) -> set[int]:
        """Return which of the inputs that an operand depends on decide a size: x[:, i] has one, whatever i is."""
        indexed = attributes.get("shrink_axis_mask", 0)
        operator, packed, *_ = self.nodes[source[0]]
        if not indexed or operator != "Pack":
            return part
        return set().union(*(carried[node] for axis, (node, _) in enumerate(packed) if not indexed >> axis & 1))


def is_known(op: Any) -> bool:
    """Return whether an operator is known to do the same work whatever the values are, but those that `DECIDING` names.

    Of TensorFlow's own these are the operators whose outputs have sizes that follow from their inputs' sizes. Others,
    and those that hide functions, may do anything.
    """
    import tensorflow as tf

    def are_sized(tensors: Any) -> bool:
        return all(tensor.shape.is_fully_defined() for tensor in tensors)

    if op.type in NAMED or op.type.startswith(("TensorList", "TensorArray")):
        return True
    hides = any(each.type in ("func", "list(func)") for each in op.op_def.attr)
    return hasattr(tf.raw_ops, op.type) and not hides and (are_sized(op.outputs) or not are_sized(op.inputs))


def ordered(operations: list[Any]) -> list[Any]:
    """Return operations so that each comes after those that it takes something from; they need not be made so.

    The way back of a loop of TensorFlow 1 does not count.
    """
    waiting = {op.name: op for op in operations}
    sorted_operations = []
    for first in operations:
        stack = [first]
        visiting: set[str] = set()
        while stack:
            op = stack[-1]
            producers = [tensor.op for tensor in op.inputs if tensor.op.type not in BACK]
            missing = [other for other in producers if other.name in waiting and other.name not in visiting]
            if op.name in waiting and missing and op.name not in visiting:
                visiting.add(op.name)
                stack += missing
                continue
            stack.pop()
            if waiting.pop(op.name, None) is not None:
                sorted_operations.append(op)
    return sorted_operations


def key(tensor: Any) -> tuple[str, int]:
    """Return what a tensor is known by."""
    return tensor.op.name, tensor.value_index


def output(tensor: Any) -> list[Any]:
    """Return the name of its data type, and its shape."""
    return [tensor.dtype.name, tensor.shape.as_list() if tensor.shape.rank is not None else None]


def attributes(op: Any) -> dict[str, Any]:
    """Return what tells how much an operator computes."""
    values = {}
    for name in ATTRIBUTES:
        if name in op.node_def.attr:
            value = op.get_attr(name)
            values[name] = value.decode() if isinstance(value, bytes) else value
    if op.type in ("GatherV2", "ExpandDims"):
        from tensorflow.python.framework.tensor_util import constant_value

        axis = constant_value(op.inputs[-1])
        if axis is not None or op.type == "GatherV2":
            values["axis"] = 0 if axis is None else int(axis.ravel()[0])
    return values
