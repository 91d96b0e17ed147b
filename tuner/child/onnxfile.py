"""The inputs of an ONNX file with the names of their dimensions, and its operators, read without any library.

What is read are a few fields of `onnx.proto`: ModelProto.graph and .functions (7, 25), GraphProto.node, .initializer,
.input and .output (1, 5, 11, 12), ValueInfoProto.name and .type (1, 2), TypeProto.tensor_type (1), its .shape (2),
TensorShapeProto.dim (1), and of each .dim_value and .dim_param (1, 2), TensorProto.dims, .data_type, .int32_data,
.int64_data, .name and .raw_data (1, 2, 5, 7, 8, 9),
NodeProto.input, .output, .op_type, .attribute and .domain (1, 2, 4, 5, 7), AttributeProto.name, .i, .t, .g and .ints
(1, 3, 5, 6, 8), FunctionProto.name, .input, .output and .node (1, 4, 5, 7).
All else is passed by, so that the size of the weights does not matter.
"""

from __future__ import annotations

import mmap
from math import prod
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from .usage import FEW, NOTHING, UNKNOWN, Facts, Usage, Value, given_value, of_one_item

Shape = Optional[List[Any]]
Place = Tuple[int, int]
_WHOLE = {6: (4, 5), 7: (8, 7)}  # INT32 and INT64: the bytes of a number, and the field of numbers that are not raw
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc")
"""Whose operators `usage` knows by their names; one of another may be of any kind."""
_TURNS = 3  # of a loop: after these, what one value hands to the next has come round
_WITH_BODIES = ("Loop", "Scan")  # whose operands are what their bodies begin with


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


def value_facts(path: str, fractional: Iterable[str] = ()) -> Facts:
    """Return what the values of inputs are used for, as far as the file can be read.

    Values pass through every operator but those that read a shape alone. `fractional` are the inputs of floating-point
    numbers.
    """
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            walk = _Walk(content, fractional)
            for graph in _parts(content, (0, len(content)), 7):
                known = {name: given_value(name) for name in _names(content, graph, 11)}
                known.update(_tables(content, graph))
                walk.follow(_parts(content, graph, 1), known)
                walk.take_shapes(graph)
            return walk.usage.facts
    except (ValueError, IndexError, OSError):
        return UNKNOWN


class _Walk:
    """A walk through the nodes of a model that follows the values of its inputs."""

    def __init__(self, content: Any, fractional: Iterable[str]) -> None:
        self.content = content
        functions = _parts(content, (0, len(content)), 25)
        self.functions = {_text(content, name): each for each in functions for name in _parts(content, each, 1)}
        self.usage = Usage(fractional)

    def follow(self, nodes: "Iterable[Place]", known: "Dict[str, Value]") -> None:
        """Follow values through nodes; `known` are those of this graph by name, and are added to."""
        content = self.content
        for node in nodes:
            operator = "".join(_text(content, each) for each in _parts(content, node, 4))
            operands = [known.get(_text(content, each), NOTHING) for each in _parts(content, node, 1)]
            outputs = [_text(content, each) for each in _parts(content, node, 2)]
            if operator in self.functions:
                function = self.functions[operator]
                inside = dict(zip((_text(content, each) for each in _parts(content, function, 4)), operands))
                self.follow(_parts(content, function, 7), inside)
                returned = (_text(content, each) for each in _parts(content, function, 5))
                known.update(zip(outputs, (inside.get(name, NOTHING) for name in returned)))
                continue
            domain = "".join(_text(content, each) for each in _parts(content, node, 7))
            operator = operator if domain in _DOMAINS else "%s.%s" % (domain, operator)
            made = self.made(node, operator, operands)
            for attribute in _parts(content, node, 5):
                for body in _parts(content, attribute, 6):
                    own = self.body(body, operator, operands, known)
                    made = made._replace(depends=made.depends | own)
            known.update((name, made) for name in outputs)

    def take_shapes(self, graph: Place) -> None:
        """Take note of the inputs of a graph that have no batch, as the shapes of its outputs show."""
        inputs, outputs = (
            {
                name: shape
                for each in _parts(self.content, graph, field)
                for name, shape in _described(self.content, each)
            }
            for field in (11, 12)
        )
        for name in of_one_item(inputs, outputs.values()):
            self.usage.batch_at.setdefault(name, None)

    def made(self, node: Place, operator: str, operands: "List[Value]") -> Value:
        """Return what a node makes of its operands."""
        numbers: Dict[str, List[int]] = {}
        for attribute in _parts(self.content, node, 5):
            name = "".join(_text(self.content, each) for each in _parts(self.content, attribute, 1))
            if operator == "Constant":
                for tensor in _parts(self.content, attribute, 5):
                    return _constant(self.content, tensor)[1]
            numbers[name] = [*_numbers(self.content, attribute, 3), *_numbers(self.content, attribute, 8)]
        if operator == "Constant":
            return Value(numbers=tuple(next(iter(numbers.values()), ())))
        if operator == "Scan":  # with a state it goes from one time to the next, and without one over anything
            n_states = len(operands) - sum(numbers.get("num_scan_inputs", ()))
            self.usage.take_batch(operands[n_states:] if n_states else (), None)
        if numbers.get("sampling_ratio", []) > [0]:
            operator = "CropAndResize"  # so many points of a box, however large it is
        axis = numbers.get("axis", numbers.get("gather_axis", []))[:1] or [0]
        perm = numbers.get("perm", numbers.get("axes"))
        is_batch_first = numbers.get("layout") == [1]
        return self.usage.see(operator, operands, axis=axis[0], perm=perm, is_batch_first=is_batch_first)

    def body(self, body: Place, operator: str, operands: "List[Value]", known: "Dict[str, Value]") -> "frozenset[str]":
        """Follow values through the body of a branch or a loop, and return what its outputs depend on.

        The first output of a loop's body tells whether it goes on, and the others are what its next turn begins with.
        """
        begins = [each._replace(places=NOTHING.places) for each in operands] if operator in _WITH_BODIES else []
        is_loop, results = operator == "Loop", [NOTHING]
        for _ in range(_TURNS if is_loop else 1):
            inside = {**known, **dict(_tables(self.content, body))}
            inside.update(zip(_names(self.content, body, 11), begins))
            self.follow(_parts(self.content, body, 1), inside)
            results = [inside.get(name, NOTHING) for name in _names(self.content, body, 12)]
            begins[2:] = [_later(begin, results[n : n + 1]) for n, begin in enumerate(begins[2:], start=1)]
        if is_loop:
            self.usage.decisive.update(*(each.depends for each in results[:1]))
        return frozenset().union(*(each.depends for each in results))


def _later(begin: Value, result: "List[Value]") -> Value:
    """Return what a value of a loop is in later turns: what the first began with, or what a turn has made of it."""
    for each in result:
        same = frozenset() if begin.numbers or each.numbers else begin.same & each.same
        return Value(begin.depends | each.depends, same, begin.bounded & each.bounded)
    return begin


def _tables(content: Any, graph: Place) -> "Iterator[Tuple[str, Value]]":
    """Yield the name of each initializer, and what is known of it."""
    for tensor in _parts(content, graph, 5):
        yield _constant(content, tensor)


def _constant(content: Any, tensor: Place) -> "Tuple[str, Value]":
    """Return the name of a tensor, its shape, and its numbers if they are whole and few."""
    name = "".join(_text(content, each) for each in _parts(content, tensor, 8))
    dims, kind = tuple(_numbers(content, tensor, 1)), next(_numbers(content, tensor, 2), 0)
    if kind not in _WHOLE or prod(dims) > FEW:
        return name, Value(dims=dims)
    size, field = _WHOLE[kind]
    raw = b"".join(bytes(content[begin:end]) for begin, end in _parts(content, tensor, 9))
    numbers = [int.from_bytes(raw[at : at + size], "little", signed=True) for at in range(0, len(raw), size)]
    return name, Value(dims=dims, numbers=tuple(numbers or _numbers(content, tensor, field)))


def _numbers(content: Any, place: Place, wanted: int) -> "Iterator[int]":
    """Yield the whole numbers of a field, each a field of its own or packed into one."""
    for number, value in _fields(content, place):
        if number != wanted:
            continue
        if isinstance(value, int):
            yield _signed(value)
            continue
        at = value[0]
        while at < value[1]:
            each, at = _varint(content, at)
            yield _signed(each)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


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
