"""The inputs of an ONNX file with the names of their dimensions, and its operators, read without any library.

What is read are a few fields of `onnx.proto`: ModelProto.graph and .functions (7, 25), GraphProto.node, .initializer,
.input and .output (1, 5, 11, 12), ValueInfoProto.name and .type (1, 2), TypeProto.tensor_type (1), its .shape (2),
TensorShapeProto.dim (1), and of each .dim_value and .dim_param (1, 2), TensorProto.dims and .name (1, 8),
NodeProto.input, .output, .op_type and .attribute (1, 2, 4, 5), AttributeProto.g (6), FunctionProto.name, .input,
.output and .node (1, 4, 5, 7).
All else is passed by, so that the size of the weights does not matter.
"""

from __future__ import annotations

import mmap
from typing import Any, Dict, Iterable, Iterator, List, Optional, Set, Tuple

Shape = Optional[List[Any]]
Place = Tuple[int, int]
SHAPES_ALONE = {"Shape", "Size"}
SAME_NUMBERS = {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"}
PARTS = {"Slice", "Split", "Transpose", "Gather"}  # of the numbers, such as a column for each table
_TURNS = 3  # of a loop: after these, what one value hands to the next has come round
DECIDING = {
    "NonZero": (0,), "Unique": (0,), "ConstantOfShape": (0,), "StringSplit": (0,), "If": (0,), "Loop": (0, 1),
    "Range": (0, 1, 2), "NonMaxSuppression": (0, 1, 2, 3, 4), "Slice": (1, 2), "Resize": (1, 2, 3), "Upsample": (1,),
    "Expand": (1,), "Tile": (1,), "Pad": (1,), "TopK": (1,), "OneHot": (1,), "Compress": (1,), "CenterCropPad": (1,),
    "LSTM": (4,), "GRU": (4,), "RNN": (4,), "Split": (1,), "SplitToSequence": (1,), "STFT": (1, 3), "MaxUnpool": (2,),
    "HannWindow": (0,), "HammingWindow": (0,), "BlackmanWindow": (0,),
}  # fmt: skip
"""Operators whose output has a size that values decide, or that run as often, and the places of these values."""


def input_shapes(path: str) -> Dict[str, Shape]:
    """Return the shape of each input: numbers, names, and None; a whole shape is None where its rank is not known.

    Of what is no such file nothing is returned.
    """
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return dict(
                named
                for graph in _parts(content, (0, len(content)), 7)
                for value_info in _parts(content, graph, 11)
                for named in _described(content, value_info)
            )
    except (ValueError, IndexError, OSError):
        return {}


def value_facts(path: str) -> "Tuple[Set[str], Dict[str, int]]":
    """Return the inputs whose values decide how much is computed, and of those that index a table its rows.

    As far as the file can be read. Values pass through every operator but those that read a shape alone.
    """
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            walk = _Walk(content)
            for graph in _parts(content, (0, len(content)), 7):
                names = list(_names(content, graph, 11))
                walk.tables.update(_tables(content, graph))
                walk.follow(_parts(content, graph, 1), {n: {n} for n in names}, {n: n for n in names})
            uneven = {name for name, rows in walk.rows.items() if rows < walk.most_rows[name]}  # few rows are cached
            return walk.decisive | uneven, walk.rows
    except (ValueError, IndexError, OSError):
        return set(), {}


class _Walk:
    """A walk through the nodes of a model that follows the values of its inputs."""

    def __init__(self, content: Any) -> None:
        self.content = content
        functions = _parts(content, (0, len(content)), 25)
        self.functions = {_text(content, name): each for each in functions for name in _parts(content, each, 1)}
        self.tables: Dict[str, int] = {}
        self.decisive: Set[str] = set()
        self.rows: Dict[str, int] = {}
        self.most_rows: Dict[str, int] = {}

    def follow(self, nodes: "Iterable[Place]", carried: Dict[str, Set[str]], origins: Dict[str, str]) -> None:
        """Follow values through nodes.

        `carried` are the inputs of the model that each value depends on, and `origins` the input that it has the same
        numbers as.
        """
        content = self.content
        for node in nodes:
            operator = "".join(_text(content, each) for each in _parts(content, node, 4))
            names = [_text(content, each) for each in _parts(content, node, 1)]
            sources = [carried.get(name, set()) for name in names]
            outputs = [_text(content, each) for each in _parts(content, node, 2)]
            if operator in self.functions:
                function = self.functions[operator]
                inner = [_text(content, each) for each in _parts(content, function, 4)]
                inside = dict(zip(inner, sources))
                self.follow(
                    _parts(content, function, 7), inside, {a: origins[b] for a, b in zip(inner, names) if b in origins}
                )
                returned = (_text(content, each) for each in _parts(content, function, 5))
                carried.update(zip(outputs, (inside.get(name, set()) for name in returned)))
                continue
            if operator in SAME_NUMBERS | PARTS and names[:1] and names[0] in origins:
                origins.update((name, origins[names[0]]) for name in outputs)
            if operator == "Gather" and names[0] in self.tables and names[1] in origins:
                rows, origin = self.tables[names[0]], origins[names[1]]
                self.rows[origin] = min(rows, self.rows.get(origin, rows))
                self.most_rows[origin] = max(rows, self.most_rows.get(origin, rows))
            places = DECIDING.get(operator, ())
            self.decisive.update(*(source for place, source in enumerate(sources) if place in places))
            made: Set[str] = set() if operator in SHAPES_ALONE else set().union(*sources)
            for attribute in _parts(content, node, 5):
                for body in _parts(content, attribute, 6):
                    made = made | self.body(body, sources, carried, origins, is_loop=operator == "Loop")
            carried.update((name, made) for name in outputs)

    def body(
        self,
        body: Place,
        sources: List[Set[str]],
        carried: Dict[str, Set[str]],
        origins: Dict[str, str],
        *,
        is_loop: bool,
    ) -> Set[str]:
        """Follow values through the body of a branch or a loop, and return what its outputs depend on.

        The first output of a loop's body tells whether it goes on, and the others are what its next turn begins with.
        """
        begins = list(sources)
        results: List[Set[str]] = []
        self.tables.update(_tables(self.content, body))
        for _ in range(_TURNS if is_loop else 1):
            inside = dict(carried)
            inside.update(zip(_names(self.content, body, 11), begins))
            self.follow(_parts(self.content, body, 1), inside, dict(origins))
            results = [inside.get(name, set()) for name in _names(self.content, body, 12)]
            begins[2:] = [begin.union(*results[n : n + 1]) for n, begin in enumerate(begins[2:], start=1)]
        if is_loop:
            self.decisive.update(*results[:1])
        return set().union(*results)


def _tables(content: Any, graph: Place) -> "Iterator[Tuple[str, int]]":
    """Yield the name and the rows of each initializer of two dimensions."""
    for tensor in _parts(content, graph, 5):
        name, dims = "", []
        for number, value in _fields(content, tensor):
            if number == 8 and isinstance(value, tuple):
                name = _text(content, value)
            elif number == 1 and isinstance(value, int):
                dims.append(value)
            elif number == 1 and isinstance(value, tuple):  # packed
                at = value[0]
                while at < value[1]:
                    dim, at = _varint(content, at)
                    dims.append(dim)
        if len(dims) == 2:
            yield name, dims[0]


def _names(content: Any, graph: Place, field: int) -> "Iterator[str]":
    """Yield the names of the inputs (11) or outputs (12) of a graph."""
    for value_info in _parts(content, graph, field):
        for name in _parts(content, value_info, 1):
            yield _text(content, name)


def _described(content: Any, place: Place) -> "Iterator[Tuple[str, Shape]]":
    name = next((_text(content, each) for each in _parts(content, place, 1)), None)
    if name is None:
        return
    shape: Shape = None
    for kind in _parts(content, place, 2):
        for tensor in _parts(content, kind, 1):
            for dims in _parts(content, tensor, 2):
                shape = [_dimension(content, each) for each in _parts(content, dims, 1)]
    yield name, shape


def _dimension(content: Any, place: Place) -> Any:
    for number, value in _fields(content, place):
        if number == 1 and isinstance(value, int):
            return value
        if number == 2 and isinstance(value, tuple):
            return _text(content, value) or None
    return None


def _text(content: Any, place: Place) -> str:
    return bytes(content[place[0] : place[1]]).decode(errors="replace")


def _parts(content: Any, place: Place, wanted: int) -> "Iterator[Place]":
    """Yield where the messages and texts of a field lie."""
    return (value for number, value in _fields(content, place) if number == wanted and isinstance(value, tuple))


def _fields(content: Any, place: Place) -> "Iterator[Tuple[int, Any]]":
    """Yield the fields of a message: a number, or the place of what has a length."""
    at, end = place
    while at < end:
        key, at = _varint(content, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(content, at)
            yield key >> 3, value
        elif wire == 2:
            size, at = _varint(content, at)
            yield key >> 3, (at, at + size)
            at += size
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError("no message of protobuf")


def _varint(content: Any, at: int) -> Place:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
