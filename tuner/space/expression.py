"""The small language of search-space files: whole numbers, symbols, arithmetic, comparisons.

    inter_op * intra_op <= 2 * logical_cpus and batch_size >= 1

Python's own grammar is parsed, and only the nodes below are walked; nothing is ever evaluated by Python.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from tuner.errors import BadInputError, unknown_name
from tuner.space.values import Value
from tuner.workload.constants import syntax_tree

_MAX_LENGTH = 300

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Value, Value], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_CALLS: dict[str, Callable[..., int]] = {"min": min, "max": max}


class Expression:
    """A parsed expression; `names` are the symbols and knobs it speaks of."""

    def __init__(self, text: str) -> None:
        """Parse `text`; raises BadInputError that quotes it."""
        self.text = text
        if len(text) > _MAX_LENGTH:
            raise BadInputError(
                f"the expression is too long: {len(text)} characters", f"expected at most {_MAX_LENGTH}"
            )
        try:
            self._tree: ast.expr = syntax_tree(text.strip(), mode="eval").body
        except (SyntaxError, ValueError) as error:  # the second of characters that no encoding has
            reason = error.msg if isinstance(error, SyntaxError) else "it is no text"
            raise BadInputError(f"cannot read {text!a}: {reason}", "expected e.g. inter_op <= physical_cores") from None
        self.names = frozenset(
            node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name) and node.id not in _CALLS
        )

    def value(self, symbols: Mapping[str, Value]) -> Value:
        """Return the value for these symbols (comparisons give 0 or 1); raises BadInputError."""
        return self._walk(self._tree, symbols)

    def _walk(self, node: ast.expr, symbols: Mapping[str, Value]) -> Value:
        match node:
            case ast.Constant(value=int() | str() as value) if not isinstance(value, bool):
                return value
            case ast.Name(id=name):
                if name not in symbols:
                    raise unknown_name("symbol", name, symbols)
                return symbols[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._number(operand, symbols)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return int(not self._walk(operand, symbols))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return self._binary(type(op), left, right, symbols)
            case ast.BoolOp(op=ast.And(), values=values):
                return int(all(self._walk(value, symbols) for value in values))
            case ast.BoolOp(op=ast.Or(), values=values):
                return int(any(self._walk(value, symbols) for value in values))
            case ast.Compare(left=left, ops=ops, comparators=rights):
                return self._compare(left, ops, rights, symbols)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS and args:
                return _CALLS[name](*[self._number(argument, symbols) for argument in args])
        raise BadInputError(
            f"'{ast.unparse(node)}' is not allowed in '{self.text}'",
            "expected whole numbers, symbols, + - * // %, min(), max(), comparisons, and, or, not",
        )

    def _number(self, node: ast.expr, symbols: Mapping[str, Value]) -> int:
        value = self._walk(node, symbols)
        if isinstance(value, str):
            raise BadInputError(f"'{ast.unparse(node)}' in '{self.text}' is not a number", "expected a whole number")
        return value

    def _binary(self, op: type[ast.operator], left: ast.expr, right: ast.expr, symbols: Mapping[str, Value]) -> int:
        try:
            return _BINARY[op](self._number(left, symbols), self._number(right, symbols))
        except ZeroDivisionError:
            raise BadInputError(f"'{self.text}' divides by zero on this machine", "use max(1, …)") from None

    def _compare(
        self, left: ast.expr, ops: list[ast.cmpop], rights: list[ast.expr], symbols: Mapping[str, Value]
    ) -> int:
        a = self._walk(left, symbols)
        for op, right in zip(ops, rights, strict=True):
            if type(op) not in _COMPARE:
                raise BadInputError(f"comparison in '{self.text}' is not allowed", "expected == != < <= > >=")
            b = self._walk(right, symbols)
            if (isinstance(a, str) or isinstance(b, str)) and not isinstance(op, ast.Eq | ast.NotEq):
                raise BadInputError(f"'{self.text}' compares text with <, <=, > or >=", "use numbers, or == and !=")
            if not _COMPARE[type(op)](a, b):
                return 0
            a = b
        return 1
