"""The constants of a workload file, worked out from its syntax tree without running any of it.

What is made of literals and of other such constants is worked out: arithmetic, f-strings, `dict(...)`, `if`, names that
come from modules of the same folder. What else a name may be bound to is `Computed`: only running the file would tell.
"""

from __future__ import annotations

import ast
import operator
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tuner.workload.effects import Effects, bound_names, effects_of, functions_of

_PARSING = threading.Lock()
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


def syntax_tree(source: str | bytes, *, name: str = "<unknown>", mode: str = "exec") -> Any:
    """Return the syntax tree of a file, or of an expression with `mode="eval"`; raises as `ast.parse` does.

    One thread parses at a time. CPython 3.11 counts the depth of all threads' trees together, so parsing in several
    threads may raise SystemError.
    """
    with _PARSING:
        return ast.parse(source, filename=name, mode=mode)


@dataclass(frozen=True, slots=True)
class Computed:
    """A value that only running the file would tell: the line that binds it, and what stands there."""

    line: int
    text: str


class Namespace(dict[str, Any]):
    """The names of a module or a class, with their values."""


_WANTED = ("BATCH_SIZE",)  # what has to be right even if a file binds it in ways of its own


class _Unknown(Exception):  # noqa: N818  # a value, not an error
    """An expression whose value is not known."""


def constants(tree: ast.Module, path: Path) -> Namespace:
    """Return every name that a module's own statements bind, with its last value."""
    return _Reader(path.parent, frozenset({path.resolve()})).module(tree, path)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads modules of a folder; those in `being_read` import each other."""

    folder: Path
    being_read: frozenset[Path]
    modules: dict[Path, Namespace] = field(default_factory=dict)
    """Modules of the folder that were read: a module is one, whoever imports it."""
    functions: dict[str, Effects] = field(default_factory=dict)
    """What calls of the module's own functions do, by function."""

    def module(self, tree: ast.Module, path: Path) -> Namespace:
        names = Namespace(__name__=path.stem, __file__=str(path))
        self.functions.update(functions_of(tree, lambda name: _is_ours(name, names)))
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
                    self.augment(name, op, self.value(value, names), names)
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
                    own = {name: value for name, value in inside.items() if names.get(name) is not value}
                    names[node.name] = Namespace(own)
                case ast.Expr(value=ast.Call(func=ast.Attribute()) as call):  # such as PARAMS.update(...)
                    self.value(call, names)
                case ast.AnnAssign() | ast.Expr(value=ast.Constant()) | ast.Pass():
                    pass
                case _:
                    raise _Unknown
        except _Unknown:
            self.lose(node, names, {*bound_names([node])})

    def lose(self, node: ast.stmt, names: Namespace, bound: Collection[str] = ()) -> None:
        """Leave unknown the names that a statement binds, and all whose values it may change, by whatever name."""
        trusts_imports = isinstance(node, ast.Assign | ast.AnnAssign)
        effects = effects_of(node, self.functions, lambda name: _is_ours(name, names), trusts_imports=trusts_imports)
        lost = {*bound, *effects.bound}
        if effects.binds_any:  # other names are believed to stay: what comes of them is compared when the file runs
            lost |= {*_WANTED}
        changed = [part for name in effects.changed for part in _parts(names.get(name))]
        lost |= {
            name for name, value in names.items() if any(part is each for part in _parts(value) for each in changed)
        }
        for name in lost:
            names[name] = _computed(node)

    def augment(self, name: str, op: ast.operator, value: Any, names: Namespace) -> None:
        """Do what NAME += value does: what has parts is changed in place, under all of its names."""
        old = self.value(ast.Name(id=name), names)
        new = (
            list(old) + list(value) if isinstance(old, list) and isinstance(op, ast.Add) else _combined(op, old, value)
        )
        if not isinstance(old, list | dict | set) or _size(new) > _MOST:
            names[name] = new
            return
        old.clear()
        old.extend(new) if isinstance(old, list) else old.update(new)

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
                if isinstance(value, Computed):
                    raise _Unknown
                try:
                    names[name][self.value(key, names)] = value
                except (TypeError, IndexError):
                    raise _Unknown from None
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if isinstance(names.get(name), Namespace):
                names[name][attribute] = value
            case ast.Tuple(elts=elements) | ast.List(elts=elements) if isinstance(value, tuple | list):
                if len(elements) != len(value):
                    raise _Unknown
                for each, part in zip(elements, value, strict=True):
                    self.store(each, part, node, names)
            case ast.Tuple() | ast.List() | ast.Subscript() | ast.Attribute():
                raise _Unknown

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
            if resolved in self.modules:
                return self.modules[resolved]
            if resolved in self.being_read or not path.is_file():
                continue
            try:
                tree = syntax_tree(path.read_bytes())
            except (OSError, SyntaxError, ValueError, MemoryError, RecursionError):
                return None
            reader = _Reader(self.folder, self.being_read | {resolved}, self.modules)
            self.modules[resolved] = reader.module(tree, path)
            return self.modules[resolved]
        return None

    def value_or_computed(self, node: ast.expr, statement: ast.stmt, names: Namespace) -> Any:
        try:
            return self.value(node, names)
        except _Unknown:
            self.lose(statement, names)
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


def _is_ours(name: str, names: Namespace) -> bool:
    """Return whether a function is code of the workload: neither Python's own, nor imported from elsewhere."""
    value = names.get(name)
    if isinstance(value, Computed):
        return not value.text.startswith(("import ", "from "))
    return isinstance(value, Namespace)


def _parts(value: Any) -> list[Any]:
    """Return all that can be changed of a value, itself and what it holds; of a class or module what is in it."""
    parts: dict[int, Any] = {}
    waiting = list(value.values()) if isinstance(value, Namespace) else [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Namespace) or not isinstance(each, dict | list | tuple | set) or id(each) in parts:
            continue
        parts[id(each)] = each
        waiting += each.values() if isinstance(each, dict) else each
    return [each for each in parts.values() if not isinstance(each, tuple)]


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
