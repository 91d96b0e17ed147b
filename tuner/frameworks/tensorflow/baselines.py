"""The recommended settings that a winner has to beat, resolved on a machine.

P physical cores, S sockets, both inside the affinity mask and the container's quota; L logical CPUs inside
the mask. The rows contradict each other, and on small machines several are one setting.
"""

from __future__ import annotations

from tuner.machine.host import Machine
from tuner.space.baseline import Baseline, WidthGuide, of_instances
from tuner.space.term import COMPACT, pools
from tuner.space.values import Value

_COMPACT_SMT = "granularity=fine,compact,1,0"
_COMPACT = "granularity=fine,compact"
# The same in OpenMP's own words, for spaces that speak those: one thread per core, neighbours beside each other.
_PORTABLE: dict[str, Value] = {"omp_proc_bind": "close", "omp_places": "cores"}
DEFAULT = "tf-default"
INTEL = "intel"
WANG = "wang-width"


def _tf_guide_mkl(machine: Machine) -> dict[str, Value]:
    return {
        "inter_op": machine.sockets,
        "intra_op": machine.usable_cores,
        "omp_num_threads": machine.usable_cores,
        "kmp_blocktime": 0,
        "kmp_affinity": _COMPACT_SMT,
        **_PORTABLE,
    }


def _intel(machine: Machine) -> dict[str, Value]:
    return {
        "inter_op": machine.sockets,
        "intra_op": max(1, machine.usable_cores // machine.sockets),
        "omp_num_threads": machine.usable_cores,
        "kmp_blocktime": 1,
        "kmp_affinity": _COMPACT_SMT,
        **_PORTABLE,
        "onednn": 1,
        "onednn_allocator": 1,
        "malloc": "tcmalloc",
    }


def _intel_zoo(machine: Machine) -> dict[str, Value]:
    return {
        "inter_op": 2,
        "intra_op": machine.usable_cores,
        "omp_num_threads": machine.usable_cores,
        "kmp_blocktime": 0,
        "kmp_affinity": _COMPACT_SMT if machine.threads_per_core > 1 else _COMPACT,
        **_PORTABLE,
    }


def wang_width(machine: Machine, width: float) -> dict[str, Value]:
    """Return Wang et al.'s guideline: as many pools as the graph is wide on average, which share the cores.

    Source: Exploiting Parallelism Opportunities with Deep Learning Frameworks, ACM TACO 2021. The width is theirs
    (`tuner.model.graph`); the formula, w = max(1, ⌊width⌋) and P/w threads each, is recalled, not verified. More
    pools than cores are none, so w is at most P.
    """
    inter_op = pools(machine, width)
    threads = max(1, machine.usable_cores // inter_op)
    return {
        "inter_op": inter_op,
        "intra_op": threads,
        "omp_num_threads": threads,
        "kmp_blocktime": 30,
        "kmp_affinity": _COMPACT_SMT,
        **_PORTABLE,
    }


def threads_on(cores: int) -> dict[str, Value]:
    """Return the knobs of a process that has so many cores to itself, and runs one operator at a time."""
    return {"inter_op": 1, "intra_op": cores, "omp_num_threads": cores}


WIDTH_GUIDES = (
    WidthGuide(
        name=WANG,
        source="Wang et al., ACM TACO 2021; the formula as recalled, not verified from the paper",
        rule=wang_width,
        whose="Wang et al.'s",
    ),
)
BASELINES: tuple[Baseline, ...] = (
    Baseline(
        name=DEFAULT,
        whose="the defaults",
        source="TensorFlow source, process_util.cc and local_device.cc: one thread for each CPU of the affinity mask",
        rule=lambda _: {},
    ),
    Baseline(
        name="tf-guide",
        source="TensorFlow performance guide, common alternative: both pools as large as the physical cores",
        rule=lambda machine: {"inter_op": machine.usable_cores, "intra_op": machine.usable_cores},
    ),
    Baseline(
        name="tf-guide-mkl",
        source="TensorFlow performance guide, section on MKL",
        rule=_tf_guide_mkl,
    ),
    Baseline(
        name=INTEL,
        source="Intel, Maximize TensorFlow Performance on CPU, 12/2022; oneDNN and allocators if the space has them",
        rule=_intel,
        at_best_batch=True,
        whose="Intel's",
        terms={
            "inter_op": "sockets",
            "intra_op": "cores/inter_op",
            "omp_num_threads": "cores",
            "kmp_affinity": COMPACT,
            "kmp_blocktime": "1",
            "onednn": "1",
        },
    ),
    Baseline(
        name="intel-zoo",
        source="Intel reference models, general best practices for convolutional networks",
        rule=_intel_zoo,
    ),
    *of_instances(threads_on),
    Baseline(
        name="tf-gpu-guide",
        source="TensorFlow, guide on GPU performance with the Profiler: private launch threads, and XLA",
        rule=lambda _: {"gpu_thread_mode": "gpu_private", "gpu_thread_count": 2, "xla": "auto"},
        needs=frozenset({"gpu_thread_mode", "gpu_thread_count", "xla"}),
        devices=("gpu",),
        must_run=False,
    ),
    Baseline(
        name="gpu-private",
        source="the same guide, section on kernel launch contention: TF_GPU_THREAD_MODE=gpu_private, two threads",
        rule=lambda _: {"gpu_thread_mode": "gpu_private", "gpu_thread_count": 2},
        needs=frozenset({"gpu_thread_mode", "gpu_thread_count"}),
        devices=("gpu",),
        must_run=False,
    ),
    Baseline(
        name="xla-auto",
        source="the same guide, section on XLA: auto-clustering alone",
        rule=lambda _: {"xla": "auto"},
        needs=frozenset({"xla"}),
        devices=("gpu",),
        must_run=False,
    ),
)
