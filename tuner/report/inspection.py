"""What `tftune inspect --audit` and `--affinity` show: documents, and the tables that are drawn from them."""

from __future__ import annotations

from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from tuner.machine.cpulist import format_list, parse_list
from tuner.machine.host import Machine
from tuner.machine.openmp import Binding
from tuner.report.document import SCHEMA, Document
from tuner.report.layout import ratio_text, table

_ANSWERS = {True: "yes", False: "no", None: "unknown"}


def describe_binding(value: str, library: Path, bound: Binding, machine: Machine) -> Document:
    """Return where threads are bound as plain data."""
    nodes = {name: parse_list(cpus) for name, cpus in machine.numa_nodes.items()}
    threads = [
        {
            "thread": number,
            "cpus": format_list(cpus),
            "numa_nodes": [name for name, members in nodes.items() if members & set(cpus)],
        }
        for number, cpus in enumerate(bound.cpus)
    ]
    return {
        "schema": SCHEMA,
        "kmp_affinity": value,
        "library": str(library),
        "threads": threads,
        "warnings": list(bound.warnings),
    }


def binding(document: Document) -> RenderableType:
    """Return which thread sits on which CPU."""
    title = f"KMP_AFFINITY={document['kmp_affinity']}, as {Path(document['library']).name} binds"
    shown = table(">thread", "CPUs", "NUMA node")
    for row in document["threads"]:
        shown.add_row(str(row["thread"]), row["cpus"], ", ".join(row["numa_nodes"]))
    return Group(
        Text(title, style="bold"),
        shown,
        *(Text(f"the library says: {line}", style="dim") for line in document["warnings"]),
    )


def reach(document: Document) -> RenderableType:
    """Return which knobs reach the build, and how that is known."""
    shown = table("knob", "set by", "reaches", "evidence", title="which knobs reach this build")
    styles = {True: "green", False: "red", None: "yellow"}
    for row in document["audit"]:
        answer = row["reaches"]
        shown.add_row(row["knob"], row["set_by"], Text(_ANSWERS[answer], style=styles[answer]), row["evidence"])
    return shown


def controls(document: Document) -> RenderableType:
    """Return the measured control: each knob at two far values in a pair of fresh processes."""
    shown = table("knob", "from", "to", ">ratio [95 %]", ">timed", "it", title="each knob at two far values, in a pair")
    for row in document["audit"]:
        measured = row["measured"]
        ratio = ratio_text(measured["speedup"], measured["low"], measured["high"]) if measured else ""
        low, high = map(str, row["values"])
        shown.add_row(row["knob"], low, high, ratio, f"{row['timed_s']:.0f} s", row["says"])
    return shown
