"""The knobs: every tunable that tftune knows, how it is applied, and which runtimes it reaches.

Semantics and sources of each variable: TensorFlow `process_util.cc` and `local_device.cc` (thread pools), the
LLVM/Intel OpenMP runtime reference (KMP_*), the OpenMP 5.2 specification (OMP_NUM_THREADS).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tuner.errors import BadInputError, unknown
from tuner.machine.host import Machine
from tuner.runtime.probe import Runtime

Value = int | str

_MAX_THREADS_PER_CPU = 8  # beyond this a thread count is a typing error, not an experiment
_AFFINITY = re.compile(
    r"((granularity=(fine|thread|core|tile|die|node|group|socket)|norespect|respect|verbose|noverbose|warnings|nowarnings"
    r"|proclist=\[[\d,\-{}]+\]|reset|noreset),)*(none|compact|scatter|balanced|disabled|explicit|logical|physical)(,\d+){0,2}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One tunable.

    `variable` is the environment variable that carries it; the batch size, which no variable of TensorFlow
    carries, is handed to the workload, and emitted as TFTUNE_BATCH_SIZE for the user's own code.
    `default` is what TensorFlow does when nothing is set.
    """

    name: str
    variable: str
    meaning: str
    numeric: bool
    minimum: int = 1
    openmp_only: bool = False
    default: Callable[[Machine, Runtime, int], Value]

    def reason_off(self, runtime: Runtime) -> str | None:
        """Return why the knob cannot act on `runtime`, or None if it can."""
        if not self.openmp_only or runtime.onednn_runtime == "openmp":
            return None
        if runtime.onednn_runtime is None:
            return "oneDNN is off in this build, as the probe saw, and no other TensorFlow operator uses OpenMP"
        seen = f"the probe saw runtime:{runtime.onednn_runtime}"
        return f"oneDNN runs on TensorFlow's own Eigen thread pool ({seen}), not on OpenMP"

    def parse(self, text: str, machine: Machine) -> Value:
        """Return the value that `text` spells; raises BadInputError with what was expected."""
        if not self.numeric:
            if _AFFINITY.fullmatch(text):
                return text
            raise BadInputError(
                f"{self.name}={text} is not an affinity", "expected e.g. none or granularity=fine,compact,1,0"
            )
        try:
            value = int(text)
        except ValueError:
            raise BadInputError(
                f"{self.name}={text} is not a whole number", f"expected {self.range(machine)}"
            ) from None
        return self.check(value, machine)

    def check(self, value: int, machine: Machine) -> int:
        """Return `value` if the knob can have it; raises BadInputError otherwise."""
        if value < self.minimum or value > self.maximum(machine):
            raise BadInputError(f"{self.name}={value} is out of range", f"expected {self.range(machine)}")
        return value

    def maximum(self, machine: Machine) -> int:
        """Return the largest value that is not taken for a typing error."""
        if self.name in ("inter_op", "intra_op", "omp_num_threads"):
            return _MAX_THREADS_PER_CPU * machine.online_cpus
        return 1 << 20

    def range(self, machine: Machine) -> str:
        """Return the allowed values in words."""
        return f"a whole number from {self.minimum} to {self.maximum(machine)}"


def _default_inter_op(machine: Machine, runtime: Runtime) -> int:
    """Return TensorFlow's own choice: one a CPU, or 2 in an OpenMP build, whose operators take all CPUs themselves.

    Source: process_util.cc, NumInterOpThreadsFromSessionOptions: max(⌈CPUs / OpenMP threads⌉, 2) there.
    """
    return 2 if runtime.onednn_runtime == "openmp" else machine.logical_cpus


KNOBS: dict[str, Knob] = {
    knob.name: knob
    for knob in (
        Knob(
            name="inter_op",
            variable="TF_NUM_INTEROP_THREADS",
            meaning="operators that may run at once",
            numeric=True,
            default=lambda machine, runtime, _: _default_inter_op(machine, runtime),
        ),
        Knob(
            name="intra_op",
            variable="TF_NUM_INTRAOP_THREADS",
            meaning="threads inside one operator (the Eigen pool)",
            numeric=True,
            default=lambda machine, *_: machine.logical_cpus,
        ),
        Knob(
            name="omp_num_threads",
            variable="OMP_NUM_THREADS",
            meaning="threads of oneDNN's operators in an OpenMP build",
            numeric=True,
            openmp_only=True,
            default=lambda machine, *_: machine.logical_cpus,
        ),
        Knob(
            name="kmp_affinity",
            variable="KMP_AFFINITY",
            meaning="which CPU each OpenMP thread is bound to",
            numeric=False,
            openmp_only=True,
            default=lambda *_: "none",
        ),
        Knob(
            name="kmp_blocktime",
            variable="KMP_BLOCKTIME",
            meaning="milliseconds an OpenMP thread spins before it sleeps",
            numeric=True,
            minimum=0,
            openmp_only=True,
            default=lambda *_: 200,
        ),
        Knob(
            name="batch_size",
            variable="TFTUNE_BATCH_SIZE",
            meaning="items per step",
            numeric=True,
            default=lambda _machine, _runtime, batch_size: batch_size,
        ),
    )
}

FOREIGN_VARIABLES = (
    "KMP_SETTINGS",
    "KMP_LIBRARY",
    "KMP_HW_SUBSET",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "OMP_DYNAMIC",
    "OMP_THREAD_LIMIT",
    "OMP_WAIT_POLICY",
    "GOMP_CPU_AFFINITY",
    "GOMP_SPINCOUNT",
    "ONEDNN_VERBOSE",
    "DNNL_VERBOSE",
)
"""Variables that act on the same pools as the knobs, or slow a step down, and so would falsify a trial."""


def knob(name: str) -> Knob:
    """Return the knob of that name; raises BadInputError with the nearest names."""
    try:
        return KNOBS[name]
    except KeyError:
        raise unknown("knob", name, KNOBS) from None
