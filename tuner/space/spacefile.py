"""Search-space files: TOML whose values are symbols of the machine, checked before anything is measured.

schema = 1
[knobs.intra_op]
values = [1, "physical_cores"]          numbers, or expressions of the machine's symbols
powers_of_2 = [1, "logical_cpus"]       all powers of 2 from the first to the second
[knobs.kmp_affinity]
choices = ["granularity=fine,compact"]  words, taken as they are
presets = ["none", "compact", "one_node"]  words that depend on the machine; see the knob's own `values`
[[constraints]]
require = "inter_op * intra_op <= 2 * logical_cpus"     of symbols, knobs, and default_KNOB: the framework's own value
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import BadInputError, unknown_name
from tuner.identity import digest
from tuner.machine.host import Machine
from tuner.plain import read_toml
from tuner.space.catalogue import Catalogue
from tuner.space.expression import Expression
from tuner.space.knob import Knob
from tuner.space.values import Numbers, Value, expand

Symbols = Mapping[str, Value]

_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceFile:
    """A space file resolved on a machine: each named knob's domain, the constraints, and the symbols' values."""

    name: str
    digest: str
    """Of what the file says, resolved nowhere."""
    domains: dict[str, tuple[Value, ...]]
    constraints: tuple[Expression, ...]
    symbols: Symbols


def names(folder: Path) -> list[str]:
    """Return the names of the spaces that lie in a folder."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def read(name: str, machine: Machine, *, catalogue: Catalogue, folder: Path, default_batch: int = 1) -> SpaceFile:
    """Read a space of a `folder` by its name, or a path to a TOML file.

    `default_batch` is the workload's own batch size. Raises BadInputError that names the file and the place.
    """
    path = Path(name) if name.endswith(".toml") or "/" in name else folder / f"{name}.toml"
    if not os.path.isfile(path):  # noqa: PTH113  # pathlib's raises where a folder may not be entered
        if path.parent == folder:
            raise unknown_name(f"{catalogue.framework} search space", name, names(folder))
        space_names = ", ".join(names(folder))
        raise BadInputError(f"no search space file {name}", f"give the path of a TOML file, or one of: {space_names}")
    data = read_toml(path, instead="give --space another file")
    try:
        return _resolve(path.stem, data, machine, symbols(machine, default_batch), catalogue)
    except BadInputError as error:
        raise BadInputError(f"{path}: {error.message}", error.hint) from None


def symbols(machine: Machine, default_batch: int) -> Symbols:
    """Return the symbols that a space file may speak of."""
    return {
        "default_batch": default_batch,
        "sockets": machine.sockets,
        "numa_nodes": max(1, len(machine.numa_nodes)),
        "physical_cores": machine.physical_cores,
        "logical_cpus": machine.logical_cpus,
        "usable_cpus": machine.usable_cpus,
    }


def default_of(knob: str) -> str:
    """Return the symbol by which a constraint speaks of a knob's default, which the machine and the build decide."""
    return f"default_{knob}"


def _resolve(
    name: str, data: Mapping[str, Any], machine: Machine, symbol_values: Symbols, catalogue: Catalogue
) -> SpaceFile:
    _only(data, ("schema", "knobs", "constraints"), "the file")
    if data.get("schema") != _SCHEMA:
        raise BadInputError(f"schema is {data.get('schema')!r}", f"expected schema = {_SCHEMA}")
    knobs = data.get("knobs")
    if not isinstance(knobs, dict) or not knobs:
        raise BadInputError("the file has no knobs", "expected at least one table [knobs.NAME]")
    domains = {}
    for knob_name, table in knobs.items():
        if not isinstance(table, dict):
            raise BadInputError(
                f"knobs.{knob_name} is {table!r}", "expected a table with values, powers_of_2, choices or presets"
            )
        domains[knob_name] = _domain(catalogue.knob(knob_name), table, machine, symbol_values)
    constraints = tuple(_constraints(data, symbol_values, catalogue.knobs))
    return SpaceFile(name=name, digest=digest(data), domains=domains, constraints=constraints, symbols=symbol_values)


def _domain(knob: Knob, table: Mapping[str, Any], machine: Machine, symbol_values: Symbols) -> tuple[Value, ...]:
    place = f"knobs.{knob.name}"
    _only(table, ("values", "powers_of_2") if knob.is_numeric else ("choices", "presets"), place)
    try:
        if not isinstance(knob.values, Numbers):
            words = [str(word) for word in _list(table, "choices")]
            words += (
                expand(knob.name, knob.values.presets, _list(table, "presets"), machine) if "presets" in table else []
            )
            if not words:
                raise BadInputError("it has no choices", 'give e.g. choices = ["none"]')
            return tuple(dict.fromkeys(knob.parse(word, machine) for word in words))
        numbers = {knob.check(_number(v, symbol_values), machine) for v in _list(table, "values")}
        ends = [_number(v, symbol_values) for v in _list(table, "powers_of_2")]
    except BadInputError as error:
        raise BadInputError(f"{place}: {error.message}", error.hint) from None
    if ends:
        if len(ends) != 2 or not 1 <= ends[0] <= ends[1]:
            raise BadInputError(f"{place}: powers_of_2 is {ends}", "expected [first, last] with 1 <= first <= last")
        numbers |= {knob.check(1 << p, machine) for p in range(ends[1].bit_length()) if ends[0] <= 1 << p <= ends[1]}
    if not numbers:
        raise BadInputError(f"{place} has no values", "give values, powers_of_2 or both")
    return tuple(sorted(numbers))


def _constraints(data: Mapping[str, Any], symbol_values: Symbols, knobs: Collection[str]) -> list[Expression]:
    rows = data.get("constraints", [])
    if not isinstance(rows, list):
        raise BadInputError("constraints is not a list of tables", "write [[constraints]] and require = '…'")
    constraints = []
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("require"), str):
            raise BadInputError(f"invalid constraint {row!r}", 'expected require = "…"')
        _only(row, ("require",), "a constraint")
        expression = Expression(row["require"])
        allowed = symbol_values.keys() | set(knobs) | {default_of(name) for name in knobs}
        for name in expression.names - allowed:
            raise unknown_name("symbol", name, allowed)
        constraints.append(expression)
    return constraints


def _number(value: object, symbol_values: Mapping[str, Value]) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        number = Expression(value).value(symbol_values)
        if isinstance(number, int):
            return number
    raise BadInputError(f"invalid value {value!r}", "expected a whole number or an expression such as 'physical_cores'")


def _list(table: Mapping[str, Any], key: str) -> list[object]:
    values = table.get(key, [])
    if not isinstance(values, list):
        raise BadInputError(f"{key} is {values!r}", "expected a list")
    return values


def _only(table: Mapping[str, Any], keys: tuple[str, ...], place: str) -> None:
    for key in table:
        if key not in keys:
            raise BadInputError(f"unknown key '{key}' in {place}", f"expected {', '.join(keys)}")
