"""What `tftune inspect --audit` and `--affinity` show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from tuner.machine.cpulist import format_list, parse_list
from tuner.machine.host import Machine
from tuner.machine.openmp import Binding
from tuner.report.layout import ratio_text, table
from tuner.report.result.inspection import BindingResult, ProofResult, ThreadBinding

_ANSWERS = {True: "yes", False: "no", None: "unknown"}


def describe_binding(value: str, library: Path, bound: Binding, machine: Machine) -> BindingResult:
    """Return where threads are bound."""
    nodes = {name: parse_list(cpus) for name, cpus in machine.numa_nodes.items()}
    threads = [
        ThreadBinding(
            thread=number,
            cpus=format_list(cpus),
            numa_nodes=tuple(name for name, members in nodes.items() if members & set(cpus)),
        )
        for number, cpus in enumerate(bound.cpus)
    ]
    return BindingResult(
        kmp_affinity=value, library=str(library), threads=tuple(threads), warnings=tuple(bound.warnings)
    )


def binding(result: BindingResult) -> RenderableType:
    """Return which thread sits on which CPU."""
    title = f"KMP_AFFINITY={result.kmp_affinity}: bound by {Path(result.library).name}"
    rendered = table(">thread", "CPUs", "NUMA node")
    for each in result.threads:
        rendered.add_row(str(each.thread), each.cpus, ", ".join(each.numa_nodes))
    return Group(
        Text(title, style="bold"),
        rendered,
        *(Text(f"the library says: {line}", style="dim") for line in result.warnings),
    )


def reach(proofs: Sequence[ProofResult]) -> RenderableType:
    """Return which knobs reach the build, and how that is known."""
    rendered = table("knob", "set by", "reaches", "evidence", title="which knobs take effect in this build")
    styles = {True: "green", False: "red", None: "yellow"}
    for proof in proofs:
        answer = Text(_ANSWERS[proof.reaches], style=styles[proof.reaches])
        rendered.add_row(proof.knob, proof.set_by, answer, proof.evidence)
    return rendered


def controls(proofs: Sequence[ProofResult]) -> RenderableType:
    """Return the measured control: each knob at two far values in a pair of new processes."""
    rendered = table(
        "knob", "from", "to", ">ratio [95 %]", ">timed", "it", title="each knob measured at two distant values"
    )
    for proof in proofs:
        measured = proof.measured
        ratio = "" if measured is None else ratio_text(measured.speedup, measured.low, measured.high)
        low, high = map(str, proof.values)
        rendered.add_row(proof.knob, low, high, ratio, f"{proof.timed_s:.0f} s", proof.says)
    return rendered
