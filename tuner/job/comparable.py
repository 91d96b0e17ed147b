"""What makes measurements not comparable: the first fact in which two machines, builds, workloads … differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.frameworks import registry
from tuner.machine.host import Machine
from tuner.study.subject import BuildFacts, WorkloadFacts

_GIB = 1024**3
_LONGEST = 80  # characters of a fact that is shown
_NO_FACTS = frozenset({"id", "framework"})
_IDLE = frozenset({"python", "cuda", "xla"})
"""Facts of a build by which no operator of a graph takes longer on the CPU."""
_LONGEST_ISA = 160  # characters: names of instruction sets are long


def machine_difference(there: Machine, here: Machine) -> str:
    """Return in what two machines differ."""
    return difference(_machine_facts(there), _machine_facts(here), otherwise="its topology differs")


def build_difference(there: BuildFacts, here: BuildFacts) -> str:
    """Return in what two builds differ, besides what only a probe has seen of them."""
    facts = [{"framework": registry.for_build(build).title, **_identity(build)} for build in (there, here)]
    return difference(*facts, otherwise="its facts differ")


def workload_difference(there: WorkloadFacts, here: WorkloadFacts) -> str:
    """Return in what two workloads differ."""
    names = ("name", "mode", "execution", "params", "members")
    facts = [{name: getattr(each, name) for name in names} for each in (there, here)]
    return difference(*facts, otherwise="its code, its model or a variable that it reads is another")


def build_differences(first: BuildFacts, second: BuildFacts, *places: str) -> list[str]:
    """Return in what two builds differ that operators may take longer by, each in a few words; see `differences`."""
    known, own = ({k: v for k, v in _identity(build).items() if k not in _IDLE} for build in (first, second))
    return differences(known, own, *places, longest=_LONGEST_ISA)


def difference(there: Mapping[str, Any], here: Mapping[str, Any], *, otherwise: str = "they differ") -> str:
    """Return the first fact in which two things differ, in one short line; `otherwise` where none does."""
    return next(iter(differences(there, here)), otherwise)


def differences(
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    in_first: str = "there",
    in_second: str = "here",
    *,
    longest: int = _LONGEST,
) -> list[str]:
    """Return each fact in which two things differ, in a few words: what it is in the first, and in the second."""
    before, now = dict(_flat(first)), dict(_flat(second))
    differ = []
    for name in dict.fromkeys([*before, *now]):
        if before.get(name) != now.get(name):
            texts = [_text(facts[name]) if name in facts else "not set" for facts in (before, now)]
            is_long = max(map(len, texts)) > longest
            told = f"{name} is {texts[0]} {in_first}, and {texts[1]} {in_second}"
            differ.append(f"{name} differs" if is_long else told)
    return differ


def _machine_facts(machine: Machine) -> dict[str, Any]:
    """Return what of a machine timings depend on; memory to the GiB, as kernels reserve a little of it."""
    return {
        "cpu_model": machine.cpu_model,
        "affinity": machine.affinity,
        "cpu_quota": machine.cpu_quota,
        "memory (GiB)": round(machine.memory_bytes / _GIB),
        "cache (bytes)": {each.name: each.size_bytes for each in machine.caches},
        "numa_nodes": machine.numa_nodes,
    }


def _identity(build: BuildFacts) -> dict[str, Any]:
    """Return what a build is by, without what is only of a day or of a mask."""
    passing = registry.for_build(build).passing_facts | _NO_FACTS
    return {name: value for name, value in build.items() if name not in passing}


def _flat(facts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the facts by name, those within a fact by both names."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from ((f"{name} {each}", own) for each, own in _flat(value))
        else:
            yield name, value


def _text(value: object) -> str:
    """Return a fact as it is shown."""
    if value is None or value == "":
        return "none"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)
