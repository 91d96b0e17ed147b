"""What `tftune inspect` shows of GPUs, and what `--audit` and `--affinity` do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import UNSET
from rich.console import Group, RenderableType
from rich.text import Text

from tuner.devices import registry as devices
from tuner.devices.gpu import Gpu, GpuFacts, GpuState
from tuner.machine.cpulist import format_list, parse_list
from tuner.machine.host import Machine
from tuner.machine.openmp import Binding
from tuner.quantity import gib_text, ratio_text
from tuner.report.layout import table
from tuner.result import fields_of
from tuner.result.inspection import BindingResult, GpuResult, ProofResult, ThreadBinding

FoundGpu = tuple[Gpu, str | None, GpuFacts, GpuState]
"""The device of its maker, what `--device` calls it if it is visible, the GPU, and how it is now."""
_ANSWERS = {True: "yes", False: "no", None: "unknown"}


def found_gpus() -> tuple[list[FoundGpu], str]:
    """Return the GPUs of this host with the words of their makers, and why there is none."""
    found: list[FoundGpu] = []
    reasons = []
    for device in devices.all_devices():
        if isinstance(device, Gpu):
            seen, reason = device.survey()
            found += [(device, *each) for each in seen]
            reasons += [reason] if reason else []
    return found, "" if found else "; ".join(reasons)


def gpu_results(found: Sequence[FoundGpu]) -> tuple[GpuResult, ...]:
    """Return GPUs as they are published."""
    results = [
        GpuResult(
            **fields_of(GpuResult, gpu, state)
            | {
                "throttle": tuple(map(str, state.throttle)),
                "processes": tuple(process.text for process in state.processes),
            },
            device=name,
            number=gpu.index,
            cuda=gpu.versions.get("cuda", UNSET),
        )
        for _, name, gpu, state in found
    ]
    return tuple(results)


def shared(wake_s: float | None, busy_loss: float | None) -> list[RenderableType]:
    """Return how long it takes (s) to wake a thread, and how much slower busy cores are, as far as it is known."""
    wakes = "" if wake_s is None else f"wakes a thread on another core in {1e6 * wake_s:.1f} µs"
    loss = "" if busy_loss is None else f"a core takes {1 + busy_loss:.2f}× as long while all cores are at work"
    return [Text(line) for line in (wakes, loss) if line]


def gpus(found: Sequence[FoundGpu], reason: str) -> RenderableType:
    """Return the GPUs of this host as a table, or why there is none."""
    if not found:
        return Text(f"GPUs: none seen; {reason}", style="dim")
    rendered = table(
        "GPU", "model", ">memory free", ">clock", ">power", ">temperature", "now", title="GPUs of this host"
    )
    drivers: dict[Gpu, str] = {}
    for (device, _, facts, _), each in zip(found, gpu_results(found), strict=True):
        drivers.setdefault(device, f"driver {each.driver}, {'; '.join(device.versions(facts.to_dict()))}")
        notes = [f"{device.split}: its slices compute"] if each.is_split else []
        notes += [f"below its highest clock: {reason}" for reason in each.throttle]
        notes += [f"used by {process}" for process in each.processes]
        rendered.add_row(
            each.device or f"hidden (number {each.number})",
            each.model,
            f"{each.free_bytes / 2**30:.1f} of {gib_text(each.memory_bytes, 1)}",
            _of(each.clock_mhz, each.max_clock_mhz, "MHz"),
            _of(each.power_w, each.power_limit_w, "W"),
            "—" if each.temperature_c is None else f"{each.temperature_c} °C",
            "; ".join(notes) or "—",
        )
    return Group(rendered, *(Text(line, style="dim") for line in drivers.values()))


def _of(now: float | None, most: float | None, unit: str) -> str:
    """Return a figure and the most that it can be."""
    if now is None:
        return "—"
    return f"{now:.0f} {unit}" if most is None else f"{now:.0f} of {most:.0f} {unit}"


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
    rows = ((str(each.thread), each.cpus, ", ".join(each.numa_nodes)) for each in result.threads)
    return Group(
        Text(title, style="bold"),
        table(">thread", "CPUs", "NUMA node", rows=rows),
        *(Text(f"the library reports: {line}", style="dim") for line in result.warnings),
    )


def reach(proofs: Sequence[ProofResult], pinned: str = "") -> RenderableType:
    """Return which knobs reach the build, and how that is known.

    And, before all, that the CPUs which the processes were given do not hold: `pinned`.
    """
    rendered = table("knob", "!set by", "reaches", "evidence", title="which knobs take effect in this build")
    styles = {True: "green", False: "red", None: "yellow"}
    if pinned:
        rendered.add_row("the CPUs given", "affinity mask", Text(_ANSWERS[False], style=styles[False]), pinned)
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
