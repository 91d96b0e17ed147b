"""What statements do to the names of a module, by their syntax alone: which they bind, and whose values they change."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

MUTATORS = {
    "update", "append", "extend", "insert", "pop", "popitem", "clear", "setdefault", "remove", "sort", "reverse",
    "add", "discard",
}  # fmt: skip
_SCOPES = {"globals", "vars", "locals"}
_RUNNERS = {"exec", "eval"}
_SHUFFLERS = {"shuffle", "heapify", "heappush", "heappop"}  # functions of the standard library that change a list
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IsOurs = Callable[[str], bool]
"""Returns whether the function of a name may be code of the workload."""


@dataclass(slots=True)
class Effects:
    """The names that code binds again besides its own assignments, and the names whose values it changes in place.

    If it `binds_any`, it may bind every name of the module.
    """

    bound: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    binds_any: bool = False

    def add(self, other: Effects) -> bool:
        """Add the names of other code; return whether that was new."""
        before = len(self.bound), len(self.changed), self.binds_any
        self.bound |= other.bound
        self.changed |= other.changed
        self.binds_any |= other.binds_any
        return before != (len(self.bound), len(self.changed), self.binds_any)


def bound_names(statements: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements bind in their own scope, inside of `if`, `try`, `with` and loops too."""
    for node in statements:
        if isinstance(node, _DEFINITIONS):
            yield node.name
            continue
        for each in _own_nodes(node):
            if isinstance(each, ast.Import | ast.ImportFrom):
                yield from (alias.asname or alias.name.partition(".")[0] for alias in each.names)
            elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store | ast.Del):
                yield each.id
            elif isinstance(each, _DEFINITIONS):
                yield each.name


def effects_of(
    node: ast.AST, functions: Mapping[str, Effects], is_ours: IsOurs, *, trusts_imports: bool = False
) -> Effects:
    """Return what a statement does besides its own assignments. `functions` are the module's, by name.

    What has a result, such as `dumps(PARAMS)`, changes nothing if it `trusts_imports` from elsewhere.
    """
    effects = Effects()
    aliases: list[tuple[set[str], set[str]]] = []
    for each in _own_nodes(node):
        match each:
            case ast.Subscript(value=value, slice=key, ctx=ast.Store() | ast.Del()):
                if _is_scope(value):
                    effects.bound |= _text(key)
                    effects.binds_any |= not _text(key)
                effects.changed |= _owners(value)
            case ast.Attribute(value=value, attr=name, ctx=ast.Store() | ast.Del()):
                effects.bound |= {name} if isinstance(value, ast.Subscript) else set()  # sys.modules[__name__].NAME
                effects.changed |= _owners(value)
            case ast.AugAssign(target=ast.Name(id=name)):
                effects.changed.add(name)
            case ast.Call():
                effects.add(_of_call(each, functions, is_ours, trusts_imports=trusts_imports))
            case ast.For(target=target, iter=value) | ast.Assign(targets=[target], value=value):
                aliases.append(({n.id for n in ast.walk(target) if isinstance(n, ast.Name)}, _passed([value])))
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                aliases.append(({n.id for n in ast.walk(target) if isinstance(n, ast.Name)}, _passed([value])))
    for _ in aliases:  # one may lead to another
        for targets, values in aliases:
            effects.changed |= values if targets & effects.changed else set()
    return effects


def functions_of(tree: ast.Module, is_ours: IsOurs) -> dict[str, Effects]:
    """Return what calls of a module's own functions do to names of the module, by the functions' names."""
    nodes = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    functions = {name: Effects() for name in nodes}
    is_new = True
    while is_new:  # they may call each other
        is_new = False
        for name, node in nodes.items():
            declared = {each for part in ast.walk(node) if isinstance(part, ast.Global) for each in part.names}
            own = Effects(bound=declared)
            for statement in node.body:
                own.add(effects_of(statement, functions, is_ours))
            arguments = {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)}
            own.changed -= (arguments | set(bound_names(node.body))) - declared
            is_new |= functions[name].add(own)
    return functions


def _of_call(call: ast.Call, functions: Mapping[str, Effects], is_ours: IsOurs, *, trusts_imports: bool) -> Effects:
    """Return what a call may do to names."""
    effects = Effects()
    arguments = _passed([*call.args, *(each.value for each in call.keywords)])
    match call.func:
        case ast.Name(id=name) if name in functions:
            effects.add(functions[name])
            effects.changed |= arguments
        case ast.Name(id=name) if name in _RUNNERS:
            effects.binds_any = not call.args[1:] or _is_scope(call.args[1])
            effects.changed |= arguments
        case ast.Name(id="setattr" | "delattr") if len(call.args) > 1:
            effects.bound |= _text(call.args[1])
            effects.changed |= _owners(call.args[0])
        case ast.Name(id=name) if is_ours(name) or not (trusts_imports or hasattr(builtins, name)):
            effects.changed |= arguments
        case ast.Attribute(value=owner, attr=name):
            effects.binds_any = name in MUTATORS and _is_scope(owner)
            effects.changed |= _owners(owner) if name in MUTATORS else set()
            is_helper = any(map(is_ours, _owners(owner)))
            effects.changed |= arguments if is_helper or name in _SHUFFLERS else set()
    return effects


def _text(node: ast.expr) -> set[str]:
    """Return what a literal text says; nothing of another expression."""
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def _is_scope(node: ast.expr) -> bool:
    """Return whether an expression is the dictionary of a module's names: globals(), or __dict__ of something."""
    if isinstance(node, ast.Attribute):
        return node.attr == "__dict__"
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _SCOPES


def _owners(node: ast.expr) -> set[str]:
    """Return the names whose values hold what an expression stands for: A of A["x"].y, and A and B of (A or B)["x"]."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    if isinstance(node, ast.Call):  # A.get("x")["y"]
        return _owners(node.func) if isinstance(node.func, ast.Attribute) else set()
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _passed(nodes: Sequence[ast.expr]) -> set[str]:
    """Return the names whose values expressions pass on: by themselves, as parts, or in a tuple, list or dictionary."""
    passed: set[str] = set()
    for node in nodes:
        match node:
            case ast.Name() | ast.Subscript() | ast.Attribute():
                passed |= _owners(node)
            case ast.Starred(value=value):
                passed |= _passed([value])
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
                passed |= _passed(parts)
            case ast.Call(func=ast.Attribute(value=owner, attr="values" | "items" | "get")):
                passed |= _owners(owner)
            case ast.IfExp(body=body, orelse=orelse):
                passed |= _passed([body, orelse])
            case ast.BoolOp(values=parts):
                passed |= _passed(parts)
    return passed


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a statement and what it holds, without the inside of functions, classes and lambdas."""
    yield node
    if not isinstance(node, (*_DEFINITIONS, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from _own_nodes(child)
