"""The constants of a workload file, worked out from its syntax tree without running any of it.

What is made of literals and of other such constants is worked out: arithmetic, f-strings, `dict(...)`, `if`, names that
come from modules of the same folder. What else a name may be bound to is `Computed`: only running the file would tell.
"""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

_MOST = 100_000  # of a number's bits, a text's characters or a list's elements
_NUMBERS = (int, float)
_CALLS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        f.__name__: f
        for f in (dict, tuple, list, set, int, float, str, bool, len, min, max, sum, abs, round, sorted, range)
    }
)
_METHODS: Mapping[type, tuple[str, ...]] = MappingProxyType(
    {
        dict: ("update", "setdefault", "pop", "get", "copy", "items", "keys", "values"),
        list: ("append", "extend", "insert", "remove", "pop", "copy", "index", "sort", "reverse"),
        str: ("lower", "upper", "strip", "title", "split", "join", "replace", "format"),
    }
)
_BINARY: Mapping[type, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
        ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift,
        ast.RShift: operator.rshift, ast.BitOr: operator.or_, ast.BitAnd: operator.and_, ast.BitXor: operator.xor,
    }
)  # fmt: skip
_UNARY: Mapping[type, Callable[[Any], Any]] = MappingProxyType(
    {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_, ast.Invert: operator.invert}
)
_COMPARISONS: Mapping[type, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
        ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b, ast.Is: operator.is_,
        ast.IsNot: operator.is_not,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Computed:
    """A value that only running the file would tell: the line that binds it, and what stands there."""

    line: int
    text: str


class Namespace(dict[str, Any]):
    """The names of a module or a class, with their values."""


_MUTATORS = {
    "update", "append", "extend", "insert", "pop", "popitem", "clear", "setdefault", "remove", "sort", "reverse",
}  # fmt: skip
_SCOPES = {"globals", "vars", "locals"}
_WANTED = ("BATCH_SIZE",)  # what has to be right even if a file binds it in ways of its own


class _Unknown(Exception):  # noqa: N818  # a value, not an error
    """An expression whose value is not known."""


def constants(tree: ast.Module, path: Path) -> Namespace:
    """Return every name that a module's own statements bind, with its last value."""
    return _Reader(path.parent, frozenset({path.resolve()})).module(tree, path)


def bound_names(statements: list[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements bind in their own scope, inside of `if`, `try`, `with` and loops too."""
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            continue
        for each in _own_nodes(node):
            if isinstance(each, ast.Import | ast.ImportFrom):
                yield from (alias.asname or alias.name.partition(".")[0] for alias in each.names)
            elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store | ast.Del):
                yield each.id
            elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield each.name


def changed_names(node: ast.stmt, writers: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield the names whose values a statement changes in place, or may change by calls of functions.

    `writers` are the names that functions of the module declare as global.
    """
    for each in _own_nodes(node):
        match each:
            case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
                yield from (inner.id for inner in ast.walk(each) if isinstance(inner, ast.Name))
                yield from _keys_of_globals(each)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in _MUTATORS:
                yield name
            case ast.Call(func=ast.Name(id="exec")) | ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id=_)))):
                yield from _WANTED if _writes_globals(each) else ()
            case ast.Call(func=ast.Name(id=name), args=arguments) if not hasattr(builtins, name):
                yield from (argument.id for argument in arguments if isinstance(argument, ast.Name))
                yield from writers.get(name, ())


def _keys_of_globals(target: ast.Subscript | ast.Attribute) -> Iterator[str]:
    """Yield the name that is set by globals()["NAME"]."""
    match target:
        case ast.Subscript(value=ast.Call(func=ast.Name(id=function)), slice=ast.Constant(value=str(name))):
            if function in _SCOPES:
                yield name


def _writes_globals(call: ast.Call) -> bool:
    """Return whether a call may bind any name of the module: exec(...), or globals().update(...)."""
    match call.func:
        case ast.Attribute(value=ast.Call(func=ast.Name(id=function)), attr=method):
            return function in _SCOPES and method in _MUTATORS
    return True


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a statement and what it holds, without the inside of functions, classes and lambdas."""
    yield node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _own_nodes(child)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads modules of a folder; those in `being_read` import each other."""

    folder: Path
    being_read: frozenset[Path]
    writers: dict[str, set[str]] = field(default_factory=dict)
    """The names that functions of the module declare as global, by function."""

    def module(self, tree: ast.Module, path: Path) -> Namespace:
        names = Namespace(__name__=path.stem, __file__=str(path))
        for function in (each for each in tree.body if isinstance(each, ast.FunctionDef)):
            declared = {name for each in ast.walk(function) if isinstance(each, ast.Global) for name in each.names}
            self.writers[function.name] = declared
        self.run(tree.body, names)
        return names

    def run(self, statements: list[ast.stmt], names: Namespace) -> None:
        for node in statements:
            self.statement(node, names)

    def statement(self, node: ast.stmt, names: Namespace) -> None:
        """Do what a statement does to the names; what is not understood leaves those that it binds unknown."""
        try:
            match node:
                case ast.Assign(targets=targets, value=value):
                    self.assign(node, targets, value, names)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self.assign(node, [target], value, names)
                case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                    names[name] = _combined(op, self.value(ast.Name(id=name), names), self.value(value, names))
                case ast.If(test=test, body=body, orelse=orelse):
                    self.run(body if self.value(test, names) else orelse, names)
                case ast.ImportFrom() if node.module != "__future__":
                    self.import_from(node, names)
                case ast.Import():
                    for alias in node.names:
                        top = alias.name.partition(".")[0]
                        module = self.imported(alias.name if alias.asname else top, 0, names)
                        self.bind(alias.asname or top, module, node, names)
                case ast.ClassDef(bases=[], keywords=[], decorator_list=[]):
                    inside = Namespace(names)
                    self.run(node.body, inside)
                    names[node.name] = inside
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name))) as call) if name in names:
                    self.mutate(name, call, node, names)
                case ast.AnnAssign() | ast.Expr(value=ast.Constant()) | ast.Pass():
                    pass
                case _:
                    raise _Unknown
        except _Unknown:
            for name in bound_names([node]):
                names[name] = _computed(node)
            for name in changed_names(node, self.writers):
                names[name] = _computed(node)

    def assign(self, node: ast.stmt, targets: list[ast.expr], value: ast.expr, names: Namespace) -> None:
        """Bind targets to a value; in a tuple each to its own."""
        for target in targets:
            match target, value:
                case ast.Tuple(elts=left) | ast.List(elts=left), ast.Tuple(elts=right) | ast.List(elts=right) if len(
                    left
                ) == len(right) and not any(isinstance(each, ast.Starred) for each in left + right):
                    bound = [
                        (each, self.value_or_computed(part, node, names))
                        for each, part in zip(left, right, strict=True)
                    ]
                    for each, part in bound:
                        self.store(each, part, node, names)
                case _:
                    self.store(target, self.value_or_computed(value, node, names), node, names)

    def store(self, target: ast.expr, value: Any, node: ast.stmt, names: Namespace) -> None:
        match target:
            case ast.Name(id=name):
                names[name] = value
            case ast.Subscript(value=ast.Name(id=name), slice=key) if isinstance(names.get(name), dict | list):
                try:
                    names[name][self.value(key, names)] = value
                except (_Unknown, TypeError, IndexError):
                    names[name] = _computed(node)
                if isinstance(value, Computed):
                    names[name] = value
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if isinstance(names.get(name), Namespace):
                names[name][attribute] = value
            case ast.Tuple(elts=elements) | ast.List(elts=elements) if isinstance(value, tuple | list):
                if len(elements) != len(value):
                    raise _Unknown
                for each, part in zip(elements, value, strict=True):
                    self.store(each, part, node, names)
            case ast.Tuple() | ast.List():
                raise _Unknown
            case ast.Subscript() | ast.Attribute():
                raise _Unknown

    def mutate(self, name: str, call: ast.Call, node: ast.stmt, names: Namespace) -> None:
        """Call a method of what a name is bound to, such as PARAMS.update(...)."""
        if isinstance(names[name], dict | list) and not isinstance(names[name], Namespace):
            try:
                self.value(call, names)
            except _Unknown:
                names[name] = _computed(node)

    def import_from(self, node: ast.ImportFrom, names: Namespace) -> None:
        module = self.imported(node.module or "", node.level, names)
        for alias in node.names:
            if alias.name != "*":
                value = None if module is None else module.get(alias.name)
                if value is None:
                    value = self.imported(".".join(filter(None, (node.module, alias.name))), node.level, names)
                self.bind(alias.asname or alias.name, value, node, names)
            elif module is not None:
                names.update({name: value for name, value in module.items() if not name.startswith("_")})

    def bind(self, name: str, value: Any, node: ast.stmt, names: Namespace) -> None:
        names[name] = _computed(node) if value is None else value

    def imported(self, name: str, level: int, names: Namespace) -> Namespace | None:
        """Return the names of a module of the folder, None where it lies elsewhere, or imports this one.

        A relative import begins at the folder of the module that `names` are of.
        """
        folder = Path(names["__file__"]).parents[level - 1] if level else self.folder
        stem = folder.joinpath(*filter(None, name.split(".")))
        for path in (stem.with_suffix(".py"), stem / "__init__.py") if name else ():
            resolved = path.resolve()
            if resolved in self.being_read or not path.is_file():
                continue
            try:
                tree = ast.parse(path.read_bytes())
            except (OSError, SyntaxError, ValueError, MemoryError, RecursionError):
                return None
            return _Reader(self.folder, self.being_read | {resolved}).module(tree, path)
        return None

    def value_or_computed(self, node: ast.expr, statement: ast.stmt, names: Namespace) -> Any:
        try:
            return self.value(node, names)
        except _Unknown:
            return _computed(statement)

    def value(self, node: ast.expr, names: Namespace) -> Any:
        """Return the value of an expression; raises _Unknown."""
        try:
            found = self._value(node, names)
        except (ArithmeticError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise _Unknown from None
        if isinstance(found, Computed) or _size(found) > _MOST:
            raise _Unknown
        return found

    def _value(self, node: ast.expr, names: Namespace) -> Any:
        def of(each: ast.expr) -> Any:
            return self.value(each, names)

        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return names[name]
            case ast.Attribute(value=owner, attr=name):
                inside = of(owner)
                if not isinstance(inside, Namespace):
                    raise _Unknown
                return inside[name]
            case ast.Tuple(elts=elements):
                return tuple(self.elements(elements, names))
            case ast.List(elts=elements):
                return self.elements(elements, names)
            case ast.Set(elts=elements):
                return set(self.elements(elements, names))
            case ast.Dict(keys=keys, values=values):
                pairs: dict[Any, Any] = {}
                for key, value in zip(keys, values, strict=True):
                    pairs |= of(value) if key is None else {of(key): of(value)}
                return pairs
            case ast.BinOp(left=left, op=op, right=right):
                return _combined(op, of(left), of(right))
            case ast.UnaryOp(op=op, operand=operand):
                return _UNARY[type(op)](of(operand))
            case ast.BoolOp(op=op, values=values):
                result = of(values[0])
                for each in values[1:]:
                    result = (result and of(each)) if isinstance(op, ast.And) else (result or of(each))
                return result
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                operands = [of(each) for each in (left, *comparators)]
                pairs_of = zip(ops, operands, operands[1:], strict=False)
                return all(_COMPARISONS[type(op)](a, b) for op, a, b in pairs_of)
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                names[name] = of(value)
                return names[name]
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return of(body) if of(test) else of(orelse)
            case ast.Subscript(value=owner, slice=ast.Slice(lower=lower, upper=upper, step=step)):
                bounds = [None if each is None else of(each) for each in (lower, upper, step)]
                return of(owner)[slice(*bounds)]
            case ast.Subscript(value=owner, slice=key):
                return of(owner)[of(key)]
            case ast.JoinedStr(values=parts):
                return "".join(str(of(part)) for part in parts)
            case ast.FormattedValue(value=value, conversion=conversion, format_spec=form):
                content = of(value)
                converted = {ord("r"): repr(content), ord("s"): str(content), ord("a"): ascii(content)}
                return format(converted.get(conversion, content), "" if form is None else of(form))
            case ast.Call(func=ast.Name(id=name)) if name in _CALLS and name not in names:
                return _CALLS[name](*self.elements(node.args, names), **self.keywords(node, names))
            case ast.Call(func=ast.Attribute(value=owner, attr=name)):
                target = of(owner)
                if name not in _METHODS.get(type(target), ()):
                    raise _Unknown
                return getattr(target, name)(*self.elements(node.args, names), **self.keywords(node, names))
            case _:
                raise _Unknown

    def elements(self, nodes: list[ast.expr], names: Namespace) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            found += self.value(node.value, names) if isinstance(node, ast.Starred) else [self.value(node, names)]
        return found

    def keywords(self, node: ast.Call, names: Namespace) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for each in node.keywords:
            value = self.value(each.value, names)
            found |= value if each.arg is None else {each.arg: value}
        return found


def _combined(op: ast.operator, left: Any, right: Any) -> Any:
    """Return what an operator makes of two values; raises _Unknown where that would be huge."""
    grows = isinstance(op, ast.Pow | ast.LShift)
    repeats = isinstance(op, ast.Mult) and not (isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS))
    if repeats and isinstance(left, int):
        left, right = right, left
    if (grows or repeats) and (not isinstance(right, _NUMBERS) or _size(left) * abs(right) > _MOST):
        raise _Unknown
    return _BINARY[type(op)](left, right)


def _size(value: Any) -> int:
    """Return how large a value is: a number's bits, or how many parts another has."""
    if isinstance(value, bool | float | complex) or value is None:
        return 1
    return value.bit_length() if isinstance(value, int) else len(value) if hasattr(value, "__len__") else 1


def _computed(node: ast.stmt) -> Computed:
    return Computed(node.lineno, ast.unparse(node).partition("\n")[0][:100])
