"""How TensorFlow's knobs are audited, by what its processes report of themselves."""

from __future__ import annotations

import re

from tuner.frameworks.tensorflow.affinity import binding_of
from tuner.machine.cpulist import format_list, parse_list
from tuner.machine.openmp import rejections
from tuner.space import auditing
from tuner.space.auditing import Audit, AuditAnswer, AuditCase, Effective

_GPU_POOL = "gpu_private"  # of TensorFlow's gpu_device.cc


def _threads(case: AuditCase) -> dict[str, int]:
    """Return the threads by name that are looked at for the pools."""
    context = case.effective["context"]
    counts: dict[str, int] = case.effective["threads"] if context["created"] is None else context["names"]
    return counts


def pool(name: str, variable: str) -> Audit:
    """Return the audit of a pool's size, by the threads that the creation of the context started."""

    def audit(case: AuditCase) -> AuditAnswer:
        set_by_workload, shape = case.effective["getters"][name], case.build.pools
        if set_by_workload and set_by_workload != case.values[name]:
            return False, f"the workload itself sets {set_by_workload} threads, so {variable} has no effect"
        if shape is None:
            return None, "tftune cannot distinguish the thread pools of this TensorFlow"
        created = case.effective["context"]["created"]
        if case.device != "cpu" and not (shape.inter_name is not None and name == "inter_op"):
            return None, "CUDA starts threads of its own with the context, so the pool cannot be counted"
        if shape.inter_name is not None and name == "inter_op":
            inter = _threads(case).get(shape.inter_name, 0)
            return inter == case.values[name], f"{inter} threads named {shape.inter_name}"
        if created is None:
            return None, "the workload starts threads of its own, so the pool cannot be counted"
        if shape.inter_name is not None:
            intra = created - shape.others - _threads(case).get(shape.inter_name, 0)
            return intra == case.values[name], f"{intra} threads in the pool"
        both = int(case.values["inter_op"]) + int(case.values["intra_op"])
        return created - shape.others == both, f"{created - shape.others} threads in both pools together"

    return audit


def pinned(effective: Effective) -> str | None:
    """Return how a process has changed the CPUs that it was given; see `tuner.space.auditing`.

    TensorFlow binds no thread of its own pools, so that one with fewer CPUs than the process was pinned by somebody.
    """
    seen = auditing.pinned(effective)
    if seen is not None or "given" not in effective or auditing.binds_threads(effective):
        return seen
    given, pools = parse_list(effective["given"]), effective["pools"]["framework"]
    narrow = {cpus: n for cpus, n in pools.items() if parse_list(cpus) < given}
    if not narrow:
        return None
    places = " and ".join(f"{n} on CPUs {cpus}" for cpus, n in narrow.items())
    return f"the workload itself pins {sum(narrow.values())} of {sum(pools.values())} threads of the pools: {places}"


def openmp_number(name: str, variable: str) -> Audit:
    """Return the audit of a number by what the OpenMP library prints of its settings."""

    def audit(case: AuditCase) -> AuditAnswer:
        if not case.effective["openmp"]["libraries"]:
            return False, "no OpenMP library is loaded"
        printed = case.effective["openmp"]["settings"].get(variable)
        if printed is None:
            return None, "the OpenMP library does not report it"
        number = re.match(r"\d+", printed)
        applied = number is not None and int(number[0]) == case.values[name]
        return applied, f"the OpenMP library reports {variable}={printed}"

    return audit


def openmp_binding(case: AuditCase) -> AuditAnswer:
    """Audit where threads are bound by their masks: those that operators run on, and those that came with them."""
    refused = rejections(case.effective["openmp"]["warnings"])
    if refused:
        return False, f"the OpenMP library reports: {refused[0]}"
    if not case.effective["openmp"]["libraries"]:
        return False, "no OpenMP library is loaded"
    binding = binding_of(case.build, case.machine, case.libraries, case.values, case.deployment)
    allowed = parse_list(case.effective["mask"])
    pools = case.effective["pools"]
    masks = {tuple(sorted(parse_list(mask))) for mask in [*pools["framework"], *pools["later"]]}
    narrow = {cpus for cpus in masks if len(cpus) < len(allowed)}
    if binding is None or len(allowed) == 1:
        return None, f"threads run on CPUs {_places(masks)}"
    if not narrow:
        if binding.binds(len(allowed)):
            return None, "no thread is bound yet: no operator of this workload ran in parallel"
        return True, f"no thread is bound; all run on CPUs {case.effective['mask']}"
    right = binding.binds(len(allowed)) and narrow <= binding.places
    return right, f"threads are bound to CPUs {_places(narrow)}" + ("" if right else f", not {_places(binding.places)}")


def openmp_library(case: AuditCase) -> AuditAnswer:
    """Audit the OpenMP library by the files that are mapped into the process."""
    loaded = case.effective["openmp"]["libraries"]
    expected_library = case.libraries[str(case.values["openmp_library"])]
    return expected_library in loaded, f"loaded: {', '.join(loaded) or 'none'}"


def onednn(case: AuditCase) -> AuditAnswer:
    """Audit oneDNN by what TensorFlow says."""
    is_on = case.effective["onednn"]
    if is_on is None:
        return None, "this TensorFlow does not report it"
    return is_on == bool(case.values["onednn"]), f"TensorFlow reports that oneDNN is {'on' if is_on else 'off'}"


def gpu_threads(case: AuditCase) -> AuditAnswer:
    """Audit the threads that hand work to the GPU, by the name of a private pool's."""
    private = sum(n for name, n in case.effective["threads"].items() if _GPU_POOL in name)
    mode = str(case.values["gpu_thread_mode"])
    if not private:
        # The names of threads are cut, and not all versions give them one.
        return None, "no thread has the name of a private pool"
    if mode != "gpu_private":
        return False, f"{private} threads of a private pool, with TF_GPU_THREAD_MODE={mode}"
    return private == case.values["gpu_thread_count"], f"{private} threads of a private pool"


def xla(case: AuditCase) -> AuditAnswer:
    """Audit XLA by its own log."""
    if case.effective["xla"]:
        return True, "XLA compiled a cluster"
    return None, "XLA compiled nothing, or did not log it"


def _places(places: frozenset[tuple[int, ...]] | set[tuple[int, ...]]) -> str:
    return " and ".join(format_list(cpus) for cpus in sorted(places))
