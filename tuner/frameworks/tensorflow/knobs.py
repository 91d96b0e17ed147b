"""The knobs of TensorFlow.

Semantics and sources of each variable: TensorFlow `process_util.cc`, `local_device.cc` and `threadpool_device.cc`
(thread pools, and what an OpenMP build does by itself), `mkl_cpu_allocator.h` (the system's allocator), `xla/flags.cc`,
`gpu_device.cc` and `gpu_process_state.cc` (a GPU's threads and allocator), `auto_mixed_precision.cc`;
the LLVM/Intel OpenMP runtime reference (KMP_*), the OpenMP 5.2 specification (OMP_*).
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.devices.gpu import KIND as GPU
from tuner.devices.nvidia import NVIDIA
from tuner.frameworks.tensorflow import affinity, auditing
from tuner.frameworks.tensorflow.build import (
    INTER_OP,
    INTRA_OP,
    KMP_AFFINITY,
    KMP_BLOCKTIME,
    OMP_NUM_THREADS,
    TensorFlowBuild,
)
from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine
from tuner.machine.libraries import INTEL_OPENMP
from tuner.machine.openmp import THREADING
from tuner.space import term
from tuner.space.carrier import Option, Preload, Variable
from tuner.space.common import BATCH_SIZE, CPUS, INSTANCES, MALLOC, STREAMS, TF32, one_or_all
from tuner.space.knob import Knob
from tuner.space.values import SWITCH, Numbers, Value, Words

_XLA_FLAGS = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"
_THREADS = Numbers(counts_threads=True)
_GLOBAL, _PRIVATE, _SHARED = "global", "gpu_private", "gpu_shared"


def _no_openmp(build: TensorFlowBuild) -> str | None:
    """Return why an OpenMP variable does nothing for TensorFlow's operators."""
    if build.onednn_runtime == "openmp":
        return None
    if build.onednn_runtime is None:
        return f"oneDNN is off ({build.onednn_why}), and no other TensorFlow operator uses OpenMP"
    evidence = f"the probe saw runtime:{build.onednn_runtime}"
    return f"oneDNN runs on TensorFlow's own Eigen thread pool ({evidence}), not on OpenMP"


def _no_kmp(build: TensorFlowBuild) -> str | None:
    """Return why a KMP variable does nothing: only the OpenMP libraries of Intel and LLVM read them."""
    reason = _no_openmp(build)
    if reason is None and build.gnu_openmp:
        return f"{build.openmp_library} is GNU's OpenMP library, which does not read KMP variables"
    return reason


def _no_onednn(build: TensorFlowBuild) -> str | None:
    return None if build.has_onednn else f"oneDNN is off ({build.onednn_why})"


def _onednn_is_fixed(build: TensorFlowBuild) -> str | None:
    if build.onednn_runtime == "openmp":
        return "without oneDNN, the OpenMP knobs of this build would have no effect"
    return None


def _no_xla(build: TensorFlowBuild) -> str | None:
    return None if build.xla else "this TensorFlow was built without XLA"


def _own(name: str, machine: Machine, build: TensorFlowBuild) -> Value:
    """Return what TensorFlow takes by itself: as the probe saw it, else as its source has it.

    A stock build takes one thread a CPU of the mask for both pools. An OpenMP build takes max(⌈CPUs / OpenMP
    threads⌉, 2) for the first (NumInterOpThreadsFromSessionOptions), and one OpenMP thread a physical core.
    """
    openmp = build.onednn_runtime == "openmp"
    source: dict[str, Value] = {
        "inter_op": 2 if openmp else machine.logical_cpus,
        "intra_op": machine.logical_cpus,
        "omp_num_threads": machine.physical_cores,
        "kmp_blocktime": 200,
    }
    return build.defaults.get(name, source[name]) if build.cpus == machine.logical_cpus else source[name]


def _free_or_bound(machine: Machine) -> tuple[Value, Value]:
    return "none", f"granularity=fine,proclist=[{min(parse_list(machine.affinity))}],explicit"


def _has_own_threads(values: Mapping[str, Value]) -> bool:
    return values.get("gpu_thread_mode", _GLOBAL) != _GLOBAL


def _gpu_threads(values: Mapping[str, Value]) -> int:
    """Return the threads that are there for the GPU alone."""
    return int(values["gpu_thread_count"]) if _has_own_threads(values) else 0


def _teams(values: Mapping[str, Value]) -> int:
    """Return the OpenMP threads: each operator that runs at once has a team of its own."""
    return int(values.get("inter_op", 1)) * int(values["omp_num_threads"])


_ALL = (
    Knob(
        name="inter_op",
        meaning="operators that may run at once",
        values=_THREADS,
        carrier=Variable(INTER_OP.name),
        default=lambda machine, build, _: _own("inter_op", machine, build),
        audit=auditing.pool("inter_op", INTER_OP.name),
        experiment=INTER_OP,
        contrast_values=one_or_all,
        n_threads=lambda values: int(values["inter_op"]),
        vocabulary=term.on_either("inter_op", term.number(1), term.SOCKETS, term.WIDTH, term.CORES),
    ),
    Knob(
        name="intra_op",
        meaning="threads inside one operator (the Eigen pool)",
        values=_THREADS,
        carrier=Variable(INTRA_OP.name),
        default=lambda machine, build, _: _own("intra_op", machine, build),
        audit=auditing.pool("intra_op", INTRA_OP.name),
        experiment=INTRA_OP,
        contrast_values=one_or_all,
        n_threads=lambda values: int(values["intra_op"]),
        is_additive=lambda knobs: "omp_num_threads" in knobs,  # its pool is beside the one that oneDNN's operators use
        vocabulary=term.on_either("intra_op", term.CORES, term.SHARE, term.number(1)),
    ),
    Knob(
        name="omp_num_threads",
        meaning="threads of oneDNN's operators in an OpenMP build",
        values=_THREADS,
        carrier=Variable(OMP_NUM_THREADS.name),
        inactive_reason=_no_openmp,
        default=lambda machine, build, _: _own("omp_num_threads", machine, build),
        audit=auditing.openmp_number("omp_num_threads", OMP_NUM_THREADS.name),
        experiment=OMP_NUM_THREADS,
        contrast_values=one_or_all,
        n_threads=_teams,
        vocabulary=term.on_openmp("OMP_NUM_THREADS", term.CORES, term.SHARE, term.number(1)),
    ),
    Knob(
        name="kmp_affinity",
        meaning="which CPU each OpenMP thread is bound to",
        values=affinity.AFFINITY,
        carrier=Variable(KMP_AFFINITY.name),
        inactive_reason=_no_kmp,
        overrides=("omp_proc_bind", "omp_places"),
        default=lambda *_: "none",
        audit=auditing.openmp_binding,
        experiment=KMP_AFFINITY,
        contrast_values=_free_or_bound,
        vocabulary=term.on_openmp("KMP_AFFINITY", term.COMPACTLY),
    ),
    Knob(
        name="kmp_blocktime",
        meaning="milliseconds an OpenMP thread spins before it sleeps",
        values=Numbers(minimum=0, octaves=4.0),  # 0, 1, 30 and 200 ms are about one step apart on this scale
        carrier=Variable(KMP_BLOCKTIME.name),
        inactive_reason=_no_kmp,
        default=lambda machine, build, _: _own("kmp_blocktime", machine, build),
        audit=auditing.openmp_number("kmp_blocktime", KMP_BLOCKTIME.name),
        experiment=KMP_BLOCKTIME,
        contrast_values=lambda _: (0, 200),
        is_additive=lambda _: True,
        vocabulary=term.on_openmp("KMP_BLOCKTIME", *(term.number(ms, f"{ms} ms") for ms in (0, 1, 30, 200))),
    ),
    BATCH_SIZE,
    CPUS,
    Knob(
        name="omp_proc_bind",
        meaning="how OpenMP threads are bound to places, in OpenMP's own words",
        values=affinity.PROC_BIND,
        carrier=Variable("OMP_PROC_BIND"),
        in_every_setting=False,
        inactive_reason=_no_openmp,
        default=lambda *_: "false",
        audit=auditing.openmp_binding,
    ),
    Knob(
        name="omp_places",
        meaning="the places that OpenMP threads are bound to",
        values=affinity.PLACES,
        carrier=Variable("OMP_PLACES"),
        in_every_setting=False,
        inactive_reason=_no_openmp,
        default=lambda *_: "cores",
        audit=auditing.openmp_binding,
    ),
    Knob(
        name="openmp_library",
        meaning="the OpenMP library: the build's own, or the intel-openmp package's",
        values=Words(words=("bundled", INTEL_OPENMP)),
        carrier=Preload("bundled"),
        in_every_setting=False,
        read_at_start=True,
        inactive_reason=_no_openmp,
        default=lambda *_: "bundled",
        audit=auditing.openmp_library,
    ),
    INSTANCES,
    STREAMS,
    MALLOC,
    Knob(
        name="onednn",
        meaning="whether TensorFlow hands operators to oneDNN (1) or not (0); changes rounding",
        values=SWITCH,
        carrier=Variable("TF_ENABLE_ONEDNN_OPTS"),
        in_every_setting=False,
        read_at_start=True,
        inactive_reason=_onednn_is_fixed,
        default=lambda _, build, __: int(build.has_onednn),
        audit=auditing.onednn,
        vocabulary=term.Vocabulary(
            label="oneDNN",
            terms=(term.number(1, "on (changes rounding)"),),
            pool=term.EIGEN,
            has_effect=lambda scale: scale.onednn_is_open,
        ),
    ),
    Knob(
        name="onednn_allocator",
        meaning="whether oneDNN's operators take memory from the system (1) or from TensorFlow's pool (0)",
        values=SWITCH,
        carrier=Variable("TF_ONEDNN_USE_SYSTEM_ALLOCATOR"),
        in_every_setting=False,
        read_at_start=True,
        inactive_reason=_no_onednn,
        default=lambda *_: 0,
    ),
    Knob(
        name="xla",
        meaning="whether XLA compiles clusters of operators (auto) or not (off); changes rounding",
        values=Words(words=("off", "auto")),
        carrier=Variable("TF_XLA_FLAGS", {"off": None, "auto": _XLA_FLAGS}),
        in_every_setting=False,
        read_at_start=True,
        inactive_reason=_no_xla,
        default=lambda *_: "off",
        audit=auditing.xla,
        vocabulary=term.on_gpu("XLA", term.word("auto")),
    ),
    Knob(
        name="gpu_thread_mode",
        meaning="which threads launch the GPU's kernels: all (global), or launch threads of its own",
        values=Words(words=(_GLOBAL, _PRIVATE, _SHARED)),
        carrier=Variable("TF_GPU_THREAD_MODE"),
        in_every_setting=False,
        default=lambda *_: _GLOBAL,
        audit=auditing.gpu_threads,
        devices=(GPU,),
        vocabulary=term.on_gpu("launch threads", term.word(_PRIVATE)),
    ),
    Knob(
        name="gpu_thread_count",
        meaning="launch threads of the GPU, if it has some of its own",
        values=Numbers(limit=64),
        carrier=Variable("TF_GPU_THREAD_COUNT"),
        in_every_setting=False,
        default=lambda *_: 2,
        audit=auditing.gpu_threads,
        has_effect=_has_own_threads,
        n_threads=_gpu_threads,
        devices=(GPU,),
    ),
    Knob(
        name="gpu_allocator",
        meaning="who gives out the GPU's memory: TensorFlow (bfc) or CUDA (cuda_malloc_async)",
        values=Words(words=("bfc", "cuda_malloc_async")),
        carrier=Variable("TF_GPU_ALLOCATOR", {"bfc": None, "cuda_malloc_async": "cuda_malloc_async"}),
        in_every_setting=False,
        default=lambda *_: "bfc",
        devices=(GPU,),
        makers=(NVIDIA,),
    ),
    TF32,
    Knob(
        name="mixed_precision",
        meaning="whether the graph computes partly in half precision (on); changes numerics",
        values=Words(words=("off", "on")),
        carrier=Option("auto_mixed_precision", without="off"),
        in_every_setting=False,
        default=lambda *_: "off",
        devices=(GPU,),
        changes_numerics=True,
    ),
)

KNOBS: dict[str, Knob] = {knob.name: knob for knob in _ALL}

FOREIGN = (*THREADING, "ONEDNN_VERBOSE", "DNNL_VERBOSE")
"""How variables begin that act on the same pools as the knobs, or slow a step down, and so would falsify a trial."""
