"""TensorFlow as a framework."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from tuner.frameworks import framework
from tuner.frameworks.tensorflow import affinity, auditing, build, design, gpus
from tuner.frameworks.tensorflow.baselines import BASELINES, threads_on
from tuner.frameworks.tensorflow.build import TensorFlowBuild, is_off_by_default
from tuner.frameworks.tensorflow.knobs import FOREIGN, KNOBS
from tuner.machine.host import Machine
from tuner.paths import shipped_folder
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.space import Canonicalize, Space
from tuner.space.values import Value
from tuner.workload.pyfile import INFERENCE, TRAINING
from tuner.workload.workload import Execution, Kind, Workload

_KERAS = "keras"


class TensorFlow(framework.Framework):
    """Stock wheels and OpenMP builds."""

    name = "tensorflow"
    title = "TensorFlow"
    child = build.CHILD
    spaces = shipped_folder("search_spaces")
    knobs = KNOBS
    baselines = BASELINES
    suffixes: Mapping[str, str] = {".keras": _KERAS, ".h5": _KERAS, ".hdf5": _KERAS}  # not changed
    kinds = (Kind.PYTHON, _KERAS, Kind.SAVED_MODEL)
    modes = (INFERENCE, TRAINING)
    executions = tuple(Execution)
    passing_facts = build.PASSING
    devices = ("cpu", "gpu")
    server_flags: Mapping[str, str] = {  # not changed
        "TF_NUM_INTEROP_THREADS": "--tensorflow_inter_op_parallelism",
        "TF_NUM_INTRAOP_THREADS": "--tensorflow_intra_op_parallelism",
    }
    calls: Mapping[str, str] = {  # not changed
        "TF_NUM_INTEROP_THREADS": "tf.config.threading.set_inter_op_parallelism_threads({})",
        "TF_NUM_INTRAOP_THREADS": "tf.config.threading.set_intra_op_parallelism_threads({})",
    }
    scrubbed_prefixes = FOREIGN
    # TensorFlow's own, oneDNN's, XLA's and the allocators'. Not all of TF_*: Terraform keeps its secrets there.
    timing_prefixes = (
        "LD_",
        "GLIBC_TUNABLES",
        "MALLOC_",
        "MKL_",
        "TCMALLOC_",
        "ONEDNN_",
        "DNNL_",
        "MKLDNN_",
        "ITEX_",
        "ZENDNN_",
        "XLA_",
        "TF_AUTO_MIXED_",
        "TF_CPP_MAX_VLOG_",
        "TF_CPP_VMODULE",
        "TF_DETERMINISTIC_",
        "TF_DISABLE_",
        "TF_ENABLE_",
        "TF_FUNCTION_JIT_",
        "TF_MKL_",
        "TF_ONEDNN_",
        "TF_OVERRIDE_",
        "TF_RUN_EAGER_OP_",
        "TF_SET_ONEDNN_",
        "TF_XLA_",
    )

    def threads_on(self, cores: int) -> dict[str, Value]:
        """Return one pool of so many threads."""
        return threads_on(cores)

    def probe(self, python: Path, env: Mapping[str, str]) -> TensorFlowBuild:
        """Return the build of an interpreter."""
        return build.probe(python, env, self.catalogue.experiments)

    def build_lines(self, build: Mapping[str, Any]) -> list[str]:
        """Return what to tell of a build."""
        pools = {"threadpool": "Eigen thread pool", "openmp": "OpenMP"}
        pool = pools.get(build["onednn_runtime"], build["onednn_runtime"])
        is_off = build.get("onednn_enabled") is False  # whatever it said: Eigen's products use it, too
        is_off |= not build["onednn_runtime"]
        onednn = "oneDNN off" if is_off else f"oneDNN {build['onednn']} on {pool}"
        onednn += " (off by default)" if is_off_by_default(build) else ""
        return [
            f"TensorFlow {build['tensorflow']}, {onednn}, Python {build['python']}",
            f"oneDNN: {build['onednn_why']}",
            f"XLA {'yes' if build['xla'] else 'no'}, CUDA {build['cuda'] or 'no'}",
            f"OpenMP libraries loaded: {', '.join(build['openmp_libraries']) or 'none'}",
        ]

    def space_notes(self, build: Mapping[str, Any], knobs: Collection[str]) -> list[str]:
        """Return that oneDNN is off and could be on, where the space does not ask about it: it may decide most."""
        if "onednn" in knobs or not is_off_by_default(build):
            return []
        return ["oneDNN is off by default on this CPU, and this search space does not tune it (--space threads does)"]

    def export_key(self, workload: Workload, build: framework.Build) -> list[object]:
        """Return what an export depends on: of a SavedModel it is a link, so that a copy elsewhere is another one."""
        place = str(workload.path) if workload.kind == Kind.SAVED_MODEL else ""
        eager = workload.execution is Execution.EAGER
        return [place, eager, build.version, _own(build).keras]

    def environment(self, build: framework.Build, device: str) -> dict[str, str]:
        """Return what makes an OpenMP library tell its settings, once; the audit reads them.

        And what makes TensorFlow take a GPU's memory as it needs it, and not all: two processes have to fit.
        """
        settings = {"KMP_SETTINGS": "1"} if _own(build).openmp_library is not None else {}
        return settings | ({"TF_FORCE_GPU_ALLOW_GROWTH": "true"} if device == "gpu" else {})

    def seen_devices(
        self, python: Path, env: Mapping[str, str], build: framework.Build, device: str
    ) -> tuple[str, ...]:
        """Return the GPUs that TensorFlow sees; raises BadInputError that explains why there is none."""
        return gpus.seen(python, env, _own(build)) if device == "gpu" else ()

    def unavailable(self, build: framework.Build, machine: Machine) -> dict[str, str]:
        """Return that threads cannot be bound, where they cannot."""
        missing = affinity.why_unbindable(_own(build))
        return {} if missing is None else {"kmp_affinity": missing}

    def precision(self, effective: Mapping[str, Any], of_graph: str | None, *, has_tf32: bool) -> str | None:
        """Return both precisions where half of a graph may be in the lower one."""
        if effective["mixed_precision"]:
            return f"{framework.F16}+{of_graph}"
        return super().precision(effective, of_graph, has_tf32=has_tf32)

    def pinned(self, effective: Mapping[str, Any]) -> str | None:
        """Return how a process, or a thread of its pools, has changed the CPUs that it was given."""
        return auditing.pinned(effective)

    def canonicalizer(self, build: framework.Build, machine: Machine) -> Canonicalize:
        """Return what gives one spelling for all affinities that bind alike."""
        return affinity.AffinityCanonicalizer(_own(build), machine)

    def check(self, build: framework.Build, settings: Sequence[Setting]) -> None:
        """Raise BadInputError for an affinity that the OpenMP library refuses."""
        affinity.check(_own(build), settings)

    def initial_design(self, space: Space) -> list[Setting]:
        """Return a setting of each regime of pools and bindings."""
        return design.design(space)

    def session_code(self, deployment: Deployment) -> list[str]:
        """Return the lines of Python that set the options of the graph's optimizer; nothing where there are none."""
        if not deployment.options:
            return []
        values = {name: value == "on" for name, value in deployment.options.items()}
        return ["import tensorflow as tf", "", f"tf.config.optimizer.set_experimental_options({values})"]

    def fixed_while_proving(self, knob: str) -> dict[str, Value]:
        """Return one operator at a time: two that happen to share two CPUs would hide what another knob does."""
        return {} if knob == "inter_op" else {"inter_op": 1}


def _own(generic: framework.Build) -> TensorFlowBuild:
    return cast("TensorFlowBuild", generic)


FRAMEWORK = TensorFlow()
