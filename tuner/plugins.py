"""Objects by name: built-in ones, and plugins that other packages register as entry points of a group.

An entry point says where the object is, such as `mine = "package.module:OBJECT"`. Its module is imported when it is
asked for.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import sys
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar, cast

from tuner.errors import TunerError, unknown_name

T = TypeVar("T")


class Plugins(Generic[T]):
    """The objects of one kind; what comes with tftune cannot be replaced."""

    def __init__(
        self, kind: str, *, group: str, shipped: Mapping[str, str], has: tuple[str, ...], short: Mapping[str, str]
    ) -> None:
        """`kind` is what one of them is called; `shipped` are the places of our own, as entry points write them.

        `has` are attributes that each has to have, and `short` other names that people use, in small letters.
        """
        self._short = short
        self._kind = kind
        self._has = has
        self._group = group
        self._shipped = shipped

    @functools.cached_property
    def _places(self) -> dict[str, str]:
        """Return where each object is; looking through what is installed takes a while."""
        plugin_places = {each.name: each.value for each in importlib.metadata.entry_points(group=self._group)}
        return {**self._shipped, **{name: place for name, place in plugin_places.items() if name not in self._shipped}}

    def names(self) -> list[str]:
        """Return all names, our own first."""
        return list(self._places)

    def find(self, name: str) -> T:
        """Return the object of that name, in capitals or not; raises BadInputError with the nearest names."""
        if name not in self._places:
            plain = self._short.get(name.lower(), name.lower())
            if plain not in self._places:
                raise unknown_name(self._kind, name, self._places)
            name = plain
        module, _, attribute = self._places[name].partition(":")
        hint = "reinstall or remove the package that provides it"
        try:
            with contextlib.redirect_stdout(sys.stderr):  # what it prints is no part of a document
                plugin = getattr(importlib.import_module(module), attribute)
        except (Exception, SystemExit) as error:  # the module is not ours, and may raise anything
            raise TunerError(f"cannot load the {self._kind} '{name}': {error!r}", hint) from error
        missing = next((each for each in self._has if not hasattr(plugin, each)), None)
        if missing is not None or isinstance(plugin, type):
            lacks = "it is a class" if missing is None else f"it has no {missing}"
            problem = f"it is {plugin!r}, not a {self._kind}: {lacks}"
            raise TunerError(f"cannot load the {self._kind} '{name}': {problem}", hint)
        return cast("T", plugin)

    def __iter__(self) -> Iterator[T]:
        """Iterate over all that can be loaded, each imported when it is its turn; `find` says why one cannot."""
        for name in self._places:
            try:
                yield self.find(name)
            except TunerError:
                if name in self._shipped:
                    raise
