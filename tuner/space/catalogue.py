"""The knobs: every tunable that tftune knows.

Semantics and sources of each variable: TensorFlow `process_util.cc`, `local_device.cc` and `threadpool_device.cc`
(thread pools, and what an OpenMP build does by itself), `mkl_cpu_allocator.h` (the system's allocator), `xla/flags.cc`;
the LLVM/Intel OpenMP runtime reference (KMP_*), the OpenMP 5.2 specification (OMP_*).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tuner.errors import unknown
from tuner.machine.host import Machine
from tuner.machine.libraries import INTEL_OPENMP
from tuner.runtime.probe import Runtime
from tuner.space.knob import Knob, Value

PRELOAD = "LD_PRELOAD"
_AFFINITY = re.compile(
    r"((granularity=(fine|thread|core|tile|die|node|group|socket)|norespect|respect|verbose|noverbose|warnings|nowarnings"
    r"|proclist=\[[\d,\-{}:]+\]|reset|noreset),)*(?!(no)?(respect|verbose|warnings|reset)\b)[a-z]+(,\d+){0,2}"
)
_PLACES = re.compile(r"[a-z_]+(\(\d+\))?|\{[\d,:{}\-]+\}")
_XLA_FLAGS = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"


def _no_openmp(runtime: Runtime) -> str | None:
    """Return why an OpenMP variable does nothing for TensorFlow's operators."""
    if runtime.onednn_runtime == "openmp":
        return None
    if runtime.onednn_runtime is None:
        return f"oneDNN is off ({runtime.onednn_why}), and no other TensorFlow operator uses OpenMP"
    seen = f"the probe saw runtime:{runtime.onednn_runtime}"
    return f"oneDNN runs on TensorFlow's own Eigen thread pool ({seen}), not on OpenMP"


def _no_kmp(runtime: Runtime) -> str | None:
    """Return why a KMP variable does nothing: only the OpenMP libraries of Intel and LLVM read them."""
    reason = _no_openmp(runtime)
    if reason is None and runtime.gnu_openmp:
        return f"{runtime.openmp_library} is GNU's OpenMP library, which reads no KMP variable"
    return reason


def _no_onednn(runtime: Runtime) -> str | None:
    return None if runtime.has_onednn else f"oneDNN is off ({runtime.onednn_why})"


def _onednn_is_fixed(runtime: Runtime) -> str | None:
    if runtime.onednn_runtime == "openmp":
        return "without oneDNN the OpenMP knobs of this build would do nothing"
    return None


def _no_xla(runtime: Runtime) -> str | None:
    return None if runtime.xla else "this TensorFlow was built without XLA"


def _own(name: str, machine: Machine, runtime: Runtime) -> Value:
    """Return what TensorFlow takes by itself: as the probe saw it, else as its source has it.

    A stock build takes one thread a CPU of the mask for both pools. An OpenMP build takes max(⌈CPUs / OpenMP
    threads⌉, 2) for the first (NumInterOpThreadsFromSessionOptions), and one OpenMP thread a physical core.
    """
    openmp = runtime.onednn_runtime == "openmp"
    source: dict[str, Value] = {
        "inter_op": 2 if openmp else machine.logical_cpus,
        "intra_op": machine.logical_cpus,
        "omp_num_threads": machine.physical_cores,
        "kmp_blocktime": 200,
    }
    return runtime.defaults.get(name, source[name]) if runtime.cpus == machine.logical_cpus else source[name]


def _preload(value: Value, libraries: Mapping[str, str]) -> dict[str, str]:
    """Return the preload of a library; what the build or the system brings needs none."""
    return {PRELOAD: libraries[str(value)]} if value in libraries else {}


def _xla(value: Value, _: Mapping[str, str]) -> dict[str, str]:
    return {"TF_XLA_FLAGS": _XLA_FLAGS} if value == "auto" else {}


_ALL = (
    Knob(
        name="inter_op",
        variable="TF_NUM_INTEROP_THREADS",
        meaning="operators that may run at once",
        numeric=True,
        counts_threads=True,
        default=lambda machine, runtime, _: _own("inter_op", machine, runtime),
    ),
    Knob(
        name="intra_op",
        variable="TF_NUM_INTRAOP_THREADS",
        meaning="threads inside one operator (the Eigen pool)",
        numeric=True,
        counts_threads=True,
        default=lambda machine, runtime, _: _own("intra_op", machine, runtime),
    ),
    Knob(
        name="omp_num_threads",
        variable="OMP_NUM_THREADS",
        meaning="threads of oneDNN's operators in an OpenMP build",
        numeric=True,
        counts_threads=True,
        unless=_no_openmp,
        default=lambda machine, runtime, _: _own("omp_num_threads", machine, runtime),
    ),
    Knob(
        name="kmp_affinity",
        variable="KMP_AFFINITY",
        meaning="which CPU each OpenMP thread is bound to",
        pattern=_AFFINITY,
        example="none or granularity=fine,compact,1,0",
        unless=_no_kmp,
        default=lambda *_: "none",
    ),
    Knob(
        name="kmp_blocktime",
        variable="KMP_BLOCKTIME",
        meaning="milliseconds an OpenMP thread spins before it sleeps",
        numeric=True,
        minimum=0,
        unless=_no_kmp,
        default=lambda machine, runtime, _: _own("kmp_blocktime", machine, runtime),
    ),
    Knob(
        name="batch_size",
        variable="TFTUNE_BATCH_SIZE",
        meaning="items per step",
        numeric=True,
        default=lambda _machine, _runtime, batch_size: batch_size,
    ),
    Knob(
        name="cpus",
        variable="TFTUNE_CPUS",
        meaning="the CPUs that the program may use, as with taskset",
        core=False,
        default=lambda machine, *_: machine.affinity,
    ),
    Knob(
        name="omp_proc_bind",
        variable="OMP_PROC_BIND",
        meaning="how OpenMP threads are bound to places, in OpenMP's own words",
        words=("false", "true", "close", "spread", "primary", "master"),
        core=False,
        unless=_no_openmp,
        default=lambda *_: "false",
    ),
    Knob(
        name="omp_places",
        variable="OMP_PLACES",
        meaning="the places that OpenMP threads are bound to",
        pattern=_PLACES,
        example="threads, cores, sockets or {0:4},{4:4}",
        core=False,
        unless=_no_openmp,
        default=lambda *_: "cores",
    ),
    Knob(
        name="openmp_library",
        variable=PRELOAD,
        meaning="the OpenMP library: the build's own, or the intel-openmp package's",
        words=("bundled", INTEL_OPENMP),
        core=False,
        early=True,
        unless=_no_openmp,
        renders=_preload,
        default=lambda *_: "bundled",
    ),
    Knob(
        name="malloc",
        variable=PRELOAD,
        meaning="the memory allocator of the process",
        words=("glibc", "jemalloc", "tcmalloc"),
        core=False,
        early=True,
        renders=_preload,
        default=lambda *_: "glibc",
    ),
    Knob(
        name="onednn",
        variable="TF_ENABLE_ONEDNN_OPTS",
        meaning="whether TensorFlow hands operators to oneDNN (1) or not (0); changes rounding",
        numeric=True,
        minimum=0,
        limit=1,
        core=False,
        early=True,
        unless=_onednn_is_fixed,
        default=lambda _, runtime, __: int(runtime.has_onednn),
    ),
    Knob(
        name="onednn_allocator",
        variable="TF_ONEDNN_USE_SYSTEM_ALLOCATOR",
        meaning="whether oneDNN's operators take memory from the system (1) or from TensorFlow's pool (0)",
        numeric=True,
        minimum=0,
        limit=1,
        core=False,
        early=True,
        unless=_no_onednn,
        default=lambda *_: 0,
    ),
    Knob(
        name="xla",
        variable="TF_XLA_FLAGS",
        meaning="whether XLA compiles clusters of operators (auto) or not (off); changes rounding",
        words=("off", "auto"),
        core=False,
        early=True,
        unless=_no_xla,
        renders=_xla,
        default=lambda *_: "off",
    ),
)

KNOBS: dict[str, Knob] = {knob.name: knob for knob in _ALL}

EARLY_VARIABLES = frozenset(knob.variable for knob in _ALL if knob.early)
"""Variables that are read before TensorFlow's context is created: a process has to begin with them."""

EXCLUSIVE = {"kmp_affinity": ("omp_proc_bind", "omp_places")}
"""Knobs that stay out where one of the others is named: KMP_AFFINITY overrides OpenMP's own spelling of the same."""

FOREIGN = ("KMP_", "OMP_", "GOMP_", "ONEDNN_VERBOSE", "DNNL_VERBOSE")
"""How variables begin that act on the same pools as the knobs, or slow a step down, and so would falsify a trial."""


def knob(name: str) -> Knob:
    """Return the knob of that name; raises BadInputError with the nearest names."""
    try:
        return KNOBS[name]
    except KeyError:
        raise unknown("knob", name, KNOBS) from None
