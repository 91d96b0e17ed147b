"""The display of a suite on a cluster: a table of nodes, and a line for each finished case; or an event per line."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tuner.cluster.wire import Offer, OfferedCase
from tuner.quantity import duration_text, plural
from tuner.report.layout import table
from tuner.report.studylist import shape_text


@dataclass(slots=True)
class _Row:
    machine: str
    case: OfferedCase | None = None
    began_s: float = 0.0
    n_done: int = 0
    is_lost: bool = False


@dataclass(slots=True)
class FleetShown:
    """The events of a fleet on a console: lines, and below them the table if it is a terminal."""

    out: Console
    budget_s: float
    _rows: dict[str, _Row] = field(default_factory=dict)
    _live: Live | None = None
    _n_left: int = 0

    def __enter__(self) -> FleetShown:
        """Begin to show the table."""
        if self.out.is_terminal:
            self._live = Live(self._table(), console=self.out, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the table."""
        if self._live is not None:
            self._live.stop()

    def joined(self, offer: Offer) -> None:
        """Show a node that has come."""
        self._rows[offer.node] = _Row(machine=offer.machine)
        cpus = ", ".join(dict.fromkeys(case.key.affinity for case in offer.cases))
        n = plural(len(offer.cases), "search", "searches")
        self._line(f"{offer.node} has joined: {offer.machine}, CPUs {cpus}; it can run {n}", "dim")

    def refused(self, node: str, reason: str) -> None:
        """Show a node that cannot be used."""
        if node in self._rows:
            self._rows[node].case, self._rows[node].is_lost = None, True
        self._line(f"{node} cannot be used: {reason}")

    def skipped(self, node: str, case: OfferedCase) -> None:
        """Show that a node has another file of a workload."""
        hint = "copy the driver's to the same path there, then start the node again"
        self._line(f"{node} skips {_title(case)}: its file of {case.word} differs; {hint}")

    def left(self, node: str, case: OfferedCase | None) -> None:
        """Show a node that is lost."""
        if node in self._rows:
            self._rows[node].case, self._rows[node].is_lost = None, True
        what = "" if case is None else f"; {_title(case)} waits for another node of its type"
        self._line(f"{node} is lost{what}")

    def started(self, node: str, case: OfferedCase, n_left: int) -> None:
        """Show what a node runs."""
        row = self._rows[node]
        row.case, row.began_s, row.is_lost = case, time.monotonic(), False
        self._n_left = n_left
        if self._live is None:
            self._line(f"{node} starts {_title(case)}; {n_left} not finished", "dim")

    def ended(self, node: str, case: OfferedCase, outcome: str, n_left: int) -> None:
        """Show what came of a case."""
        row = self._rows.get(node)
        took = ""
        if row is not None:
            took = f"  ({duration_text(time.monotonic() - row.began_s)})" if row.case is not None else ""
            row.case, row.n_done = None, row.n_done + 1
        self._n_left = n_left
        self._line(f"{_title(case)}  {node}  {outcome}{took}; {n_left} not finished")

    def notice(self, line: str) -> None:
        """Show a line."""
        self._line(line)

    def turn(self) -> None:
        """Draw the table again."""
        if self._live is not None:
            self._live.update(self._table(), refresh=True)

    def _line(self, text: str, style: str = "") -> None:
        self.out.print(text, style=style, soft_wrap=True, markup=False, highlight=False)

    def _table(self) -> Table:
        shown = table("!node", "machine", "runs", ">time", ">left", ">finished")
        for node, row in self._rows.items():
            if row.case is None:
                words = ["lost" if row.is_lost else "idle", "", ""]
            else:
                took_s = time.monotonic() - row.began_s
                left_s = self.budget_s - took_s  # a search may overrun its budget by its finals
                left = f"about {duration_text(left_s)}" if left_s > 0 and not row.case.again else ""
                words = [_title(row.case), duration_text(took_s), left]
            shown.add_row(node, row.machine, *words, str(row.n_done))
        shown.caption = (
            f"{plural(self._n_left, 'search', 'searches')} not finished" if self._rows else "waiting for nodes"
        )
        return shown


@dataclass(frozen=True, slots=True)
class FleetLines:
    """The events of a fleet as JSON objects, one per line, for programs."""

    out: TextIO

    def __enter__(self) -> FleetLines:
        """Nothing is shown before the first event."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing stays open."""

    def joined(self, offer: Offer) -> None:
        """Write that a node has come."""
        self._write("joined", offer.node, machine=offer.machine, searches=len(offer.cases))

    def refused(self, node: str, reason: str) -> None:
        """Write that a node cannot be used."""
        self._write("refused", node, reason=reason)

    def skipped(self, node: str, case: OfferedCase) -> None:
        """Write that a node has another file of a workload."""
        self._write("skipped", node, case)

    def left(self, node: str, case: OfferedCase | None) -> None:
        """Write that a node is lost."""
        self._write("lost", node, case)

    def started(self, node: str, case: OfferedCase, n_left: int) -> None:
        """Write what a node runs."""
        self._write("started", node, case, unfinished=n_left)

    def ended(self, node: str, case: OfferedCase, outcome: str, n_left: int) -> None:
        """Write what came of a case."""
        self._write("ended", node, case, outcome=outcome, unfinished=n_left)

    def notice(self, line: str) -> None:
        """Write a line for people."""
        self._write("notice", None, text=line)

    def turn(self) -> None:
        """Events come when they happen."""

    def _write(self, event: str, node: str | None, case: OfferedCase | None = None, **facts: object) -> None:
        document: dict[str, object] = {"event": event, "time": datetime.now(UTC).isoformat(timespec="seconds")}
        document |= {} if node is None else {"node": node}
        if case is not None:
            document |= {"workload": case.workload, "mode": case.key.mode, "shape": case.shape, "again": case.again}
        self.out.write(json.dumps(document | facts) + "\n")
        self.out.flush()


def _title(case: OfferedCase) -> str:
    again = ", again" if case.again else ""
    return f"{case.workload} {case.key.mode}, {shape_text(case.shape, case.key.batch_sizes)}{again}"
