"""The inputs of an ONNX file with the names of their dimensions, read without any library.

What is read are a few fields of `onnx.proto`: ModelProto.graph (7), GraphProto.input (11), ValueInfoProto.name and
.type (1, 2), TypeProto.tensor_type (1), its .shape (2), TensorShapeProto.dim (1), and of each .dim_value and .dim_param
(1, 2). All else is passed by, so that the size of the weights does not matter.
"""

from __future__ import annotations

import mmap
from typing import Any, Dict, Iterator, List, Optional, Tuple

Shape = Optional[List[Any]]


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


def _described(content: Any, place: "Tuple[int, int]") -> "Iterator[Tuple[str, Shape]]":
    name = next((_text(content, each) for each in _parts(content, place, 1)), None)
    if name is None:
        return
    shape: Shape = None
    for kind in _parts(content, place, 2):
        for tensor in _parts(content, kind, 1):
            for dims in _parts(content, tensor, 2):
                shape = [_dimension(content, each) for each in _parts(content, dims, 1)]
    yield name, shape


def _dimension(content: Any, place: "Tuple[int, int]") -> Any:
    for number, value in _fields(content, place):
        if number == 1 and isinstance(value, int):
            return value
        if number == 2 and isinstance(value, tuple):
            return _text(content, value) or None
    return None


def _text(content: Any, place: "Tuple[int, int]") -> str:
    return bytes(content[place[0] : place[1]]).decode(errors="replace")


def _parts(content: Any, place: "Tuple[int, int]", wanted: int) -> "Iterator[Tuple[int, int]]":
    """Yield where the messages and texts of a field lie."""
    return (value for number, value in _fields(content, place) if number == wanted and isinstance(value, tuple))


def _fields(content: Any, place: "Tuple[int, int]") -> "Iterator[Tuple[int, Any]]":
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


def _varint(content: Any, at: int) -> "Tuple[int, int]":
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
