"""The assignment of units to nodes. A host runs one unit at a time. The unit of a lost node goes to another node.

Pure bookkeeping. A node can run the units of its menu, which are those that it offers. Nodes of one type have the same
menu and share a queue. A unit that several menus have stands in the queue of each, and is taken from the first. A node
first continues a session that it holds. A node without units of its menu measures a case of another node again.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field

from tuner.cluster.sessions import Node, Sessions

MOST_LOSSES = 3
"""A unit fails after it has been lost with its node, or interrupted there, this often."""


@dataclass(slots=True)
class Placement:
    """The nodes, and the units that are not done."""

    sessions: Sessions = field(default_factory=Sessions)
    done: set[str] = field(default_factory=set)
    nodes: dict[str, Node] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    """The units of menus that are to be run, and run nowhere."""
    types: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The types of nodes that can run a unit."""
    _type_of: dict[tuple[str, ...], int] = field(default_factory=dict)
    """The number of each menu."""
    _queues: dict[int, deque[str]] = field(default_factory=dict)
    _losses: Counter[str] = field(default_factory=Counter)

    def join(self, node: Node) -> list[str]:
        """Take a node in, with the units of its menu that no node has offered before; return what it need not hold."""
        node.type = self._type_of.setdefault(node.menu, len(self._type_of))
        is_new = node.type not in self._queues
        if is_new:
            self.open |= {unit for unit in node.menu if unit not in self.types} - self.done
            self._queues[node.type] = deque(unit for unit in node.menu if unit in self.open)
            for unit in node.menu:
                self.types[unit].append(node.type)
        self.nodes[node.address] = node
        return self.sessions.join(node, is_new=is_new)

    def leave(self, address: str) -> str | None:
        """Forget a node; return the unit that has failed with it, None if there is none."""
        node = self.nodes.pop(address, None)
        if node is None:
            return None
        if node.unit is not None:
            self.sessions.stop(node.unit, node)
        self.sessions.leave(node)
        return None if node.unit is None else self._give_back(node.unit)

    def interrupt(self, address: str, unit: str) -> str | None:
        """Take a unit back from a node that has not ended it; return the unit if it has failed with that."""
        return self._give_back(unit) if self._free(address, unit) else None

    def place(self) -> list[tuple[str, str]]:
        """Return which node is to run which unit now, by address and name; they count as running."""
        busy = {node.host for node in self.nodes.values() if node.unit is not None}
        placed: list[tuple[str, str]] = []
        for node in self.nodes.values():
            if node.host in busy:
                continue
            held = self.sessions.next_held(node, self.done)
            unit = held or self._next(node) or self.sessions.next(node, self.done)
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

    def running(self) -> dict[str, str]:
        """Return the unit of each node that runs one, by its address."""
        return {node.address: node.unit for node in self.nodes.values() if node.unit is not None}

    def _next(self, node: Node) -> str | None:
        """Return what a node is to run of its menu: what it has in part, else the first of its queue."""
        for unit in node.held & self.open:
            if node.type in self.types[unit]:
                return unit
        queue = self._queues[node.type]
        while queue:
            unit = queue.popleft()
            if unit in self.open:
                return unit
        return None

    def _free(self, address: str, unit: str) -> bool:
        """Take a unit from a node; return whether the node ran it."""
        node = self.nodes.get(address)
        if node is None or node.unit != unit:
            return False
        node.unit = None
        self.sessions.stop(unit, node)
        return True

    def _give_back(self, unit: str) -> str | None:
        """Put a unit that was not ended in front of the others, or return it if that happened too often."""
        if unit in self.done or unit in self.open or any(node.unit == unit for node in self.nodes.values()):
            return None
        self._losses[unit] += 1
        if self._losses[unit] >= MOST_LOSSES:
            self.done.add(unit)
            return unit
        if unit not in self.sessions.of:  # a session stays with its node
            self.open.add(unit)
            for each in self.types[unit]:
                self._queues[each].appendleft(unit)
        return None
