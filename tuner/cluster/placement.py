"""The assignment of units to nodes. A host runs one unit at a time. The unit of a lost node goes to another node.

Pure bookkeeping. A node can run the units of its menu, which are those that it offers. Nodes of one type have the same
menu and share a queue. A unit that several menus have stands in the queue of each, and is taken from the first. A node
first continues a session that it holds. A node without units of its menu measures a case of another node again.

A case lacks sessions if fewer than `n_nodes` nodes have measured all of its answers. Any node of its type can measure
them, and the first nodes to come are enough.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection
from dataclasses import dataclass, field

from tuner.identity import digest

_KEY_LENGTH = 12


@dataclass(slots=True, kw_only=True)
class Node:
    """A node that units can be placed on; `unit` is the one that it runs."""

    address: str
    host: str
    menu: tuple[str, ...]
    """The units that it offers."""
    name: str = ""
    """The name that its sessions are kept under."""
    held: frozenset[str] = frozenset()
    unit: str | None = None
    type: int = 0
    """The number of its menu among all menus."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The answers of a case, measured again on the node of a name."""

    case: str
    node: str


@dataclass(slots=True, kw_only=True)
class _Known:
    """The study of a case, by a `key`, and the nodes that have measured all of its answers."""

    key: str
    nodes: frozenset[str] | None
    """None if there is nothing to measure."""
    held: list[tuple[str, str]] = field(default_factory=list)
    """Its sessions that nodes hold, each with the address of the node."""


@dataclass(slots=True)
class Sessions:
    """The sessions that are missing, and those that run."""

    n_nodes: int = 1
    of: dict[str, Session] = field(default_factory=dict)
    """Each session that was ever placed, by its unit."""
    _known: dict[str, _Known] = field(default_factory=dict)
    _cases: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The cases of a type that lacked sessions, in the order in which their studies came."""
    _n_seen: Counter[str] = field(default_factory=Counter)
    """How many of these a node has gone through, by its address."""
    _waiting: dict[str, deque[str]] = field(default_factory=lambda: defaultdict(deque))
    """The cases that a node has gone through, and may still be needed for."""
    _held: dict[str, deque[str]] = field(default_factory=lambda: defaultdict(deque))
    """The cases that a node held a session of when it joined."""
    _active: set[str] = field(default_factory=set)
    """The sessions that run, as units."""
    _n_active: Counter[str] = field(default_factory=Counter)
    """How many sessions of a case run."""
    _n_missing: int = 0

    def measured(
        self, case: str, study: str, nodes: frozenset[str] | None, types: Collection[int] = ()
    ) -> list[tuple[str, str]]:
        """Take in which nodes have measured all answers of a case, None if its study has none to measure.

        `study` identifies its study, and nodes of these `types` can run the case. Return the sessions that are held and
        not needed, each with the address of its node.
        """
        before = self._n_lacking(case)
        known = self._known.setdefault(case, _Known(key=digest([case, study], length=_KEY_LENGTH), nodes=None))
        known.nodes = nodes
        n_lacking = self._n_lacking(case)
        self._n_missing += n_lacking - before
        if not before and n_lacking:
            for each in types:
                self._cases[each].append(case)
        not_needed, known.held = ([], known.held) if n_lacking else (known.held, [])
        return not_needed

    def join(self, node: Node, *, is_new: bool) -> list[str]:
        """Take in a node, the first one of its type if that `is_new`; return the held sessions that are not needed."""
        known = (
            {self._known[case].key: case for case in node.menu if case in self._known} if is_new or node.held else {}
        )
        if is_new:
            self._cases[node.type] = [*known.values()]
        not_needed = []
        for unit in node.held:
            case = known.get(unit[:_KEY_LENGTH])
            if case is not None and unit == self._unit(case, node.name):
                if self._lacks(case, node):
                    self._held[node.address].append(case)
                    self._known[case].held.append((node.address, unit))
                else:
                    not_needed.append(unit)
        return not_needed

    def leave(self, node: Node) -> None:
        """Forget a node."""
        for by_address in (self._n_seen, self._waiting, self._held):
            by_address.pop(node.address, None)

    def next_held(self, node: Node, done: Collection[str]) -> str | None:
        """Return a session for a node that it held when it joined, None if there is none."""
        cases = self._held.get(node.address)
        while cases:
            case = cases.popleft()
            if self._lacks(case, node) and self._has_room(case) and (unit := self._start(case, node, done)):
                return unit
        return None

    def next(self, node: Node, done: Collection[str]) -> str | None:
        """Return a missing session for a node, None if there is none. Units that are `done` do not run again."""
        cases, waiting = self._cases[node.type], self._waiting[node.address]
        n_waiting = len(waiting)
        while n_waiting or self._n_seen[node.address] < len(cases):
            if n_waiting:
                case, n_waiting = waiting.popleft(), n_waiting - 1
            else:
                case = cases[self._n_seen[node.address]]
                self._n_seen[node.address] += 1
            if not self._lacks(case, node):
                continue
            if not self._has_room(case):
                waiting.append(case)  # a node that runs it may be lost
            elif unit := self._start(case, node, done):
                return unit
        return None

    def stop(self, unit: str, node: Node) -> None:
        """Take in that a session does not run on a node any more."""
        if unit in self._active:
            case = self.of[unit].case
            self._active.discard(unit)
            self._n_active[case] -= 1
            self._waiting[node.address].appendleft(case)

    def n_open(self) -> int:
        """Return how many sessions are missing and run nowhere."""
        return max(0, self._n_missing - len(self._active))

    def _has_room(self, case: str) -> bool:
        """Return whether fewer sessions of a case run than it lacks."""
        return self._n_active[case] < self._n_lacking(case)

    def _start(self, case: str, node: Node, done: Collection[str]) -> str | None:
        """Start a session unless it is done, or runs on another node of this name."""
        unit = self._unit(case, node.name)
        if unit in done or unit in self._active:
            return None
        self._active.add(unit)
        self._n_active[case] += 1
        self.of[unit] = Session(case=case, node=node.name)
        return unit

    def _n_lacking(self, case: str) -> int:
        known = self._known.get(case)
        return 0 if known is None or known.nodes is None else max(0, self.n_nodes - len(known.nodes))

    def _lacks(self, case: str, node: Node) -> bool:
        return self._n_lacking(case) > 0 and node.name not in (self._known[case].nodes or ())

    def _unit(self, case: str, name: str) -> str:
        """Return the name of a session, which any driver gives it: a node that has measured it can tell."""
        return self._known[case].key + digest(name, length=_KEY_LENGTH)


# ---- units ----------------------------------------------------------------------------------------------------------

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
