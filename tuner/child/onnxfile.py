"""The inputs of an ONNX file with the names of their dimensions, and its operators, read without any library.

What is read are a few fields of `onnx.proto`: ModelProto.graph (7), GraphProto.node, .input and .output (1, 11, 12),
ValueInfoProto.name and .type (1, 2), TypeProto.tensor_type (1), its .shape (2), TensorShapeProto.dim (1), and of each
.dim_value and .dim_param (1, 2), NodeProto.input, .output, .op_type and .attribute (1, 2, 4, 5), AttributeProto.g (6).
All else is passed by, so that the size of the weights does not matter.
"""

from __future__ import annotations

import mmap
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

Shape = Optional[List[Any]]
Place = Tuple[int, int]
SHAPES_ALONE = {"Shape", "Size"}
DECIDING = {
    "NonZero": (0,), "Unique": (0,), "ConstantOfShape": (0,), "StringSplit": (0,), "If": (0,), "Loop": (0, 1),
    "Range": (0, 1, 2), "NonMaxSuppression": (0, 1, 2, 3, 4), "Slice": (1, 2), "Resize": (1, 2, 3), "Upsample": (1,),
    "Expand": (1,), "Tile": (1,), "Pad": (1,), "TopK": (1,), "OneHot": (1,), "Compress": (1,), "CenterCropPad": (1,),
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


def decisive_inputs(path: str) -> Set[str]:
    """Return the inputs whose values decide how much is computed, as far as the file can be read.

    Values pass through every operator but those that read a shape alone.
    """
    decisive: Set[str] = set()
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for graph in _parts(content, (0, len(content)), 7):
                names = list(_names(content, graph, 11))
                _follow(content, graph, {name: {name} for name in names}, decisive)
    except (ValueError, IndexError, OSError):
        return set()
    return decisive


def _follow(content: Any, graph: Place, carried: Dict[str, Set[str]], decisive: Set[str]) -> None:
    """Follow values through the nodes of a graph: `carried` are the inputs that each value depends on."""
    for node in _parts(content, graph, 1):
        operator = "".join(_text(content, each) for each in _parts(content, node, 4))
        sources = [carried.get(_text(content, each), set()) for each in _parts(content, node, 1)]
        places = DECIDING.get(operator, ())
        decisive.update(*(source for place, source in enumerate(sources) if place in places))
        made: Set[str] = set() if operator in SHAPES_ALONE else set().union(*sources)
        for attribute in _parts(content, node, 5):
            for body in _parts(content, attribute, 6):
                inside = dict(carried)
                inside.update(zip(_names(content, body, 11), sources))
                _follow(content, body, inside, decisive)
                outputs = [inside.get(name, set()) for name in _names(content, body, 12)]
                made = made.union(*outputs)
                if operator == "Loop" and outputs:  # whether it goes on
                    decisive.update(outputs[0])
        for each in _parts(content, node, 2):
            carried[_text(content, each)] = made


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
