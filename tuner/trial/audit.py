"""The audit of a process: did each knob of its setting take effect?

What the child reports of itself (`tuner.child.effective`) is compared with what the setting asked for. Where the
process does not tell, the answer is unknown and never "yes"; only a clear "no" makes a trial `unapplied`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.machine.cpulist import format_list, parse_list
from tuner.runtime.openmp import Binding, rejections
from tuner.runtime.reach import Pools
from tuner.space.catalogue import KNOBS
from tuner.space.knob import Value
from tuner.space.setting import Setting

Effective = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Whether a knob took effect (None: unknown), and what was seen, in one line."""

    knob: str
    value: Value
    answer: bool | None
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a process is compared with: how the runtime's pools count, and where its OpenMP library binds threads.

    `binding` gives the places of the variables of a setting, None where there is no library to ask.
    """

    pools: Pools | None
    libraries: Mapping[str, str]
    binding: Callable[[Setting, Mapping[str, str]], Binding | None]


def audit(setting: Setting, env: Mapping[str, str], effective: Effective, expected: Expected) -> list[Finding]:
    """Return a finding for each knob of `setting` that `env` applies; the batch size, which is ours, is left out."""
    found = []
    for name, value in setting.items:
        judge = _JUDGES.get(name)
        if judge is not None and any(variable in env for variable in KNOBS[name].env(value, expected.libraries)):
            answer, evidence = judge(Case(setting=setting, env=env, effective=effective, expected=expected))
            found.append(Finding(knob=name, value=value, answer=answer, evidence=evidence))
    return found


def unapplied(findings: list[Finding]) -> str | None:
    """Return why the setting does not hold in the process, None if nothing speaks against it."""
    return next((f"{f.knob}={f.value} did not take effect: {f.evidence}" for f in findings if f.answer is False), None)


Judgement = tuple[bool | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a knob is judged by."""

    setting: Setting
    env: Mapping[str, str]
    effective: Effective
    expected: Expected


def _pool(name: str, case: Case) -> Judgement:
    """Judge a pool's size by the threads that the creation of the context started."""
    chosen, shape = case.effective["getters"][name], case.expected.pools
    if chosen and chosen != case.setting[name]:
        return False, f"the workload itself sets {chosen} threads, so that {KNOBS[name].variable} has no effect"
    created = case.effective["context"]["created"]
    if shape is None:
        return None, "the threads of this TensorFlow's pools cannot be told apart"
    if shape.inter_name is not None:
        context = case.effective["context"]
        threads = case.effective["threads"] if created is None else context["names"]
        inter = threads.get(shape.inter_name, 0)
        if name == "inter_op":
            return inter == case.setting[name], f"{inter} threads named {shape.inter_name}"
        if created is None:
            return None, "the workload starts threads of its own"
        intra = created - shape.others - inter
        return intra == case.setting[name], f"{intra} threads in the pool"
    if created is None:
        return None, "the workload starts threads of its own"
    both = int(case.setting["inter_op"]) + int(case.setting["intra_op"])
    return created - shape.others == both, f"{created - shape.others} threads in both pools together"


def _omp_threads(case: Case) -> Judgement:
    return _told("OMP_NUM_THREADS", "omp_num_threads", case)


def _blocktime(case: Case) -> Judgement:
    return _told("KMP_BLOCKTIME", "kmp_blocktime", case)


def _told(variable: str, name: str, case: Case) -> Judgement:
    """Judge a number by what the OpenMP library prints of its settings."""
    if not case.effective["openmp"]["libraries"]:
        return False, "no OpenMP library is loaded"
    told = case.effective["openmp"]["settings"].get(variable)
    if told is None:
        return None, "the OpenMP library does not tell"
    number = re.match(r"\d+", told)
    return number is not None and int(number[0]) == case.setting[name], f"the OpenMP library says {variable}={told}"


def _binding(case: Case) -> Judgement:
    """Judge where threads are bound by their masks: those that operators run on, and those that came with them."""
    refused = rejections(case.effective["openmp"]["warnings"])
    if refused:
        return False, f"the OpenMP library says: {refused[0]}"
    if not case.effective["openmp"]["libraries"]:
        return False, "no OpenMP library is loaded"
    binding = case.expected.binding(case.setting, case.env)
    allowed = parse_list(case.effective["mask"])
    pools = case.effective["pools"]
    seen = {tuple(sorted(parse_list(mask))) for mask in [*pools["tensorflow"], *pools["later"]]}
    narrow = {cpus for cpus in seen if len(cpus) < len(allowed)}
    if binding is None or len(allowed) == 1:
        return None, f"threads run on CPUs {_places(seen)}"
    if not narrow:
        if binding.binds(len(allowed)):
            return None, "no thread is bound yet: no operator of this workload ran in parallel"
        return True, f"no thread is bound; all run on CPUs {case.effective['mask']}"
    right = binding.binds(len(allowed)) and narrow <= binding.places
    return right, f"threads are bound to CPUs {_places(narrow)}" + ("" if right else f", not {_places(binding.places)}")


def _cpus(case: Case) -> Judgement:
    return case.effective["mask"] == case.setting["cpus"], f"the process may use CPUs {case.effective['mask']}"


def _openmp_library(case: Case) -> Judgement:
    loaded = case.effective["openmp"]["libraries"]
    wanted = case.expected.libraries[str(case.setting["openmp_library"])]
    return wanted in loaded, f"loaded: {', '.join(loaded) or 'none'}"


def _malloc(case: Case) -> Judgement:
    loaded = case.effective["malloc"]
    return any(str(case.setting["malloc"]) in path for path in loaded), f"loaded: {', '.join(loaded) or 'none'}"


def _onednn(case: Case) -> Judgement:
    told = case.effective["onednn"]
    if told is None:
        return None, "this TensorFlow does not tell"
    return told == bool(case.setting["onednn"]), f"TensorFlow says oneDNN is {'on' if told else 'off'}"


def _xla(case: Case) -> Judgement:
    if case.effective["xla"]:
        return True, "XLA compiled a cluster"
    return None, "XLA compiled nothing, or did not tell"


def _places(places: frozenset[tuple[int, ...]] | set[tuple[int, ...]]) -> str:
    return " and ".join(format_list(cpus) for cpus in sorted(places))


_JUDGES: dict[str, Callable[[Case], Judgement]] = {
    "inter_op": lambda case: _pool("inter_op", case),
    "intra_op": lambda case: _pool("intra_op", case),
    "omp_num_threads": _omp_threads,
    "kmp_affinity": _binding,
    "kmp_blocktime": _blocktime,
    "cpus": _cpus,
    "omp_proc_bind": _binding,
    "openmp_library": _openmp_library,
    "malloc": _malloc,
    "onednn": _onednn,
    "onednn_allocator": lambda _: (None, "TensorFlow does not tell"),
    "xla": _xla,
}
