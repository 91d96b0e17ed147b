"""The assignment of units to nodes. A host runs one unit at a time. The unit of a lost node goes to another node.

Pure bookkeeping. A node can run the units of its menu, which are those that it offers. Nodes of one type have the same
menu and share a queue. A unit that several menus have stands in the queue of each, and is taken from the first. A unit
that was added `like` another can run on the same nodes, but for those that `may_run` excludes.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

MOST_LOSSES = 3
"""A unit fails after it has been lost with its node, or interrupted there, this often."""

Menu = tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Node:
    """A node that units can be placed on; `unit` is the one that it runs."""

    address: str
    host: str
    menu: Menu
    held: frozenset[str] = frozenset()
    unit: str | None = None


@dataclass(slots=True)
class Placement:
    """The nodes, and the units that are not done."""

    done: set[str] = field(default_factory=set)
    may_run: Callable[[str, Node], bool] = lambda _unit, _node: True
    nodes: dict[str, Node] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    """The units that are to be run, and run nowhere."""
    _queues: dict[Menu, deque[str]] = field(default_factory=dict)
    _menus: dict[str, list[Menu]] = field(default_factory=lambda: defaultdict(list))
    """The menus that a unit is in."""
    _added: dict[str, str] = field(default_factory=dict)
    """The unit that each added unit is like."""
    _losses: Counter[str] = field(default_factory=Counter)

    def join(self, node: Node) -> None:
        """Take a node in, with the units of its menu that no node has offered before."""
        if node.menu not in self._queues:
            menu = {*node.menu}
            self.open |= {unit for unit in node.menu if unit not in self._menus} - self.done
            units = [*node.menu, *(unit for unit, other in self._added.items() if other in menu)]
            self._queues[node.menu] = deque(unit for unit in units if unit in self.open)
            for unit in units:
                self._menus[unit].append(node.menu)
        self.nodes[node.address] = node

    def add(self, unit: str, *, like: str) -> None:
        """Add a unit at the end of the queues that have another, unless it is there."""
        if unit in self._added or unit in self.done:
            return
        self._added[unit] = like
        self.open.add(unit)
        self._menus[unit] = [*self._menus[like]]
        for menu in self._menus[unit]:
            self._queues[menu].append(unit)

    def leave(self, address: str) -> str | None:
        """Forget a node; return the unit that has failed with it, None if there is none."""
        node = self.nodes.pop(address, None)
        return None if node is None or node.unit is None else self._give_back(node.unit)

    def interrupt(self, address: str, unit: str) -> str | None:
        """Take a unit back from a node that has not ended it; return the unit if it has failed with that."""
        self._free(address, unit)
        return self._give_back(unit)

    def place(self) -> list[tuple[str, str]]:
        """Return which node is to run which unit now, by address and name; they count as running."""
        busy = {node.host for node in self.nodes.values() if node.unit is not None}
        placed: list[tuple[str, str]] = []
        for node in self.nodes.values():
            if node.host in busy:
                continue
            unit = self._next(node)
            if unit is not None:
                busy.add(node.host)
                self.open.discard(unit)
                node.unit = unit
                placed.append((node.address, unit))
        return placed

    def end(self, address: str, unit: str) -> bool:
        """Take the end of a unit on a node, which may have left; return whether this is its first end."""
        self._free(address, unit)
        if unit in self.done:
            return False
        self.done.add(unit)
        self.open.discard(unit)
        return True

    def close(self, unit: str) -> None:
        """Take a unit as done that nobody needs any more."""
        if unit in self.open:
            self.open.discard(unit)
            self.done.add(unit)

    def running(self) -> dict[str, str]:
        """Return the unit of each node that runs one, by its address."""
        return {node.address: node.unit for node in self.nodes.values() if node.unit is not None}

    def _next(self, node: Node) -> str | None:
        """Return what a node is to run: what it has in part, else the first of its queue."""
        for unit in node.held & self.open:
            if node.menu in self._menus[unit] and self.may_run(unit, node):
                return unit
        queue = self._queues[node.menu]
        for _ in range(len(queue)):
            unit = queue.popleft()
            if unit not in self.open:
                continue
            if self.may_run(unit, node):
                return unit
            queue.append(unit)
        return None

    def _free(self, address: str, unit: str) -> None:
        node = self.nodes.get(address)
        if node is not None and node.unit == unit:
            node.unit = None

    def _give_back(self, unit: str) -> str | None:
        """Put a unit that was not ended in front of the others, or return it if that happened too often."""
        if unit in self.done or unit in self.open or any(node.unit == unit for node in self.nodes.values()):
            return None
        self._losses[unit] += 1
        if self._losses[unit] >= MOST_LOSSES:
            self.done.add(unit)
            return unit
        self.open.add(unit)
        for menu in self._menus[unit]:
            self._queues[menu].appendleft(unit)
        return None
