"""TensorFlow as a framework."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from msgspec import convert

from tuner.devices.device import Device
from tuner.devices.nvidia import NVIDIA
from tuner.errors import BadInputError
from tuner.frameworks import framework, probing
from tuner.frameworks.framework import StepParts
from tuner.frameworks.tensorflow import affinity, auditing, build, timeline
from tuner.frameworks.tensorflow.baselines import BASELINES, DEFAULT, INTEL, WIDTH_GUIDES, threads_on
from tuner.frameworks.tensorflow.build import SUBJECT, TensorFlowBuild, is_off_by_default
from tuner.frameworks.tensorflow.knobs import FOREIGN, KNOBS
from tuner.machine.host import Machine
from tuner.machine.openmp import Binding
from tuner.paths import shipped_folder
from tuner.space import experiment
from tuner.space.deployment import Deployment
from tuner.space.experiment import Reach
from tuner.space.setting import Setting
from tuner.space.space import Canonicalize, Space
from tuner.space.term import EIGEN, OPENMP
from tuner.space.values import Value
from tuner.workload.pyfile import INFERENCE, TRAINING
from tuner.workload.workload import Execution, Kind, Workload

_KERAS = "keras"

# ---- what a search tries before its model speaks --------------------------------------------------------------------
# A model that has seen one regime only believes in it: teams bound to cores in one pool, or unbound ones in several.
# The design shows it both: 1 pool bound, and 1, 2 and 4 pools unbound, with as many threads as fill the cores. Each
# stands at another batch size, as what a batch gains is much the same for all of them. What the baselines show is left
# out, and so is what would be the same setting on a small machine.

_REGIMES = ((1, True), (2, False), (4, False), (1, False))
"""Pools, and whether threads are bound: several bound teams lie on the same cores, which the baselines show."""
_BATCHES = (4, 2, 8)  # times the default's
_BLOCKTIMES = (1, 30)  # ms
_GUIDE = "tf-guide"
_ON_GPU = "gpu_thread_mode"  # a knob that acts on a GPU only
_SCAN_STEP = 4  # of batch sizes
_BINDING = ("kmp_affinity", "omp_proc_bind")  # knobs that bind threads


def _initial_design(space: Space) -> list[Setting]:
    """Return the settings of the design, points of the space, none of them in the regime of a baseline."""
    domains, reference = space.domains, space.reference
    if _ON_GPU in domains:
        return _batch_scan(space)
    if not {"inter_op", "intra_op", "batch_size"} <= domains.keys():
        return []
    points = set(space.points)
    cores = int(space.baselines.get(_GUIDE, reference)["intra_op"])
    covered_regimes = {_regime(setting) for setting in space.baselines.values()}
    design_settings: list[Setting] = []
    for pools, bound in _REGIMES:
        if pools > cores:
            continue
        wanted_values: dict[str, Value] = {"inter_op": pools, "intra_op": cores, **_binding(space, bound=bound)}
        if "omp_num_threads" in domains:
            wanted_values["omp_num_threads"] = max(1, cores // pools)
        if "kmp_blocktime" in domains:
            wanted_values["kmp_blocktime"] = _BLOCKTIMES[len(design_settings) % len(_BLOCKTIMES)]
        wanted_values["batch_size"] = reference.batch_size * _BATCHES[len(design_settings) % len(_BATCHES)]
        setting = _nearest(space, reference.to_dict() | wanted_values)
        # A pin may leave no such regime.
        if setting["inter_op"] == pools and setting in points and _regime(setting) not in covered_regimes:
            covered_regimes.add(_regime(setting))
            design_settings.append(setting)
    return design_settings


def _batch_scan(space: Space) -> list[Setting]:
    """Return the default at batch sizes four times as large each, to the last of the space.

    On a GPU the batch decides most, and where memory ends is not known: the first that does not fit tells.
    """
    points, reference = set(space.points), space.reference
    sizes = [size for size in sorted(map(int, space.domains["batch_size"])) if size > reference.batch_size]
    wanted_sizes, least = [], reference.batch_size * _SCAN_STEP
    for size in sizes:
        if size >= least:
            wanted_sizes.append(size)
            least = size * _SCAN_STEP
    settings = [reference.with_values(batch_size=size) for size in wanted_sizes]
    return [setting for setting in settings if setting in points]


def _binding(space: Space, *, bound: bool) -> dict[str, Value]:
    """Return how threads are bound by Intel's recommendation, or are not by default; nothing where no knob binds."""
    setting = space.baselines.get(INTEL, space.reference) if bound else space.baselines[DEFAULT]
    return {name: setting[name] for name in _BINDING if name in space.domains}


def _regime(setting: Setting) -> tuple[Value | None, ...]:
    """Return what makes a regime: pools, the threads of a team, and whether they are bound."""
    values = setting.to_dict()
    team = values.get("omp_num_threads", values["intra_op"])
    return (values["inter_op"], team, *(values.get(name) for name in _BINDING))


def _nearest(space: Space, values: Mapping[str, Value]) -> Setting:
    """Return the setting with each number replaced by the nearest one of its domain."""

    def of(name: str, value: Value) -> Value:
        if isinstance(value, str):
            return value
        return min((int(v) for v in space.domains[name]), key=lambda v: (abs(v - value), v))

    return Setting.of({name: of(name, value) for name, value in values.items() if name in space.domains})


# ---- the GPUs that it sees ------------------------------------------------------------------------------------------
# TensorFlow says nothing but that it "cannot dlopen some GPU libraries"; which ones it says only where its loader is
# asked to talk (TF_CPP_VMODULE).

_LOADER_TALKS = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_MAX_VLOG_LEVEL": "0", "TF_CPP_VMODULE": "dso_loader=3"}
_NOT_LOADED = re.compile(r"Could not load dynamic library '([^']+)'")
_DRIVER = "libcuda.so"  # that of NVIDIA's driver, not of CUDA's toolkit
_INIT_FAILED = re.compile(r"(?:failed call to cuInit|could not retrieve CUDA device count): (?:INTERNAL: )?([^\n]+)")
_SEE_LOG = "see the log of: python -c 'import tensorflow as tf; tf.config.list_physical_devices()'"
_CPU_WHEELS = "tensorflow-cpu, and wheels for ARM, have no CUDA"


def why_no_gpu(facts: Mapping[str, Any]) -> BadInputError:
    """Return why no GPU is seen, from what the target interpreter told (`child.probe.devices`)."""
    if not facts["is_cuda_build"]:
        return _without_cuda()
    missing = list(dict.fromkeys(_NOT_LOADED.findall(facts["log"])))
    if any(name.startswith(_DRIVER) for name in missing):
        return _none(
            f"NVIDIA's driver is not there ({_DRIVER}.1 cannot be loaded)",
            "install the driver, or start the container with its GPUs (docker run --gpus all)",
        )
    if missing:
        return _none(
            f"{', '.join(missing)} cannot be loaded; this build is for CUDA {facts['cuda']} and cuDNN {facts['cudnn']}",
            "install tensorflow[and-cuda] there, or add the folder of these libraries to LD_LIBRARY_PATH",
        )
    failed = _INIT_FAILED.search(facts["log"])
    reason = failed[1].strip() if failed else facts["failed"]
    if reason:
        return _none(
            f"CUDA does not start: {reason}",
            f"this build is for CUDA {facts['cuda']}: compare with the driver that nvidia-smi shows",
        )
    return _none("it gives no reason", _SEE_LOG)


def _without_cuda() -> BadInputError:
    return _none("it was built without CUDA", f"install tensorflow[and-cuda] there: {_CPU_WHEELS}")


def _none(reason: str, hint: str) -> BadInputError:
    return BadInputError(f"TensorFlow sees no GPU: {reason}", hint)


class TensorFlow(framework.Framework):
    """Stock wheels and OpenMP builds."""

    name = "tensorflow"
    title = "TensorFlow"
    child = build.CHILD
    spaces = shipped_folder("search_spaces")
    knobs = KNOBS
    baselines = BASELINES
    width_guides = WIDTH_GUIDES
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
    executor = framework.ExecutorKnobs(
        slots="inter_op",
        threads="intra_op",
        team="omp_num_threads",
        blocktime="kmp_blocktime",
        binding="kmp_affinity",
    )
    tells_steps = True
    scrubbed_prefixes = FOREIGN
    # TensorFlow's own, oneDNN's, XLA's and the allocators'. Not all of TF_*: Terraform keeps its secrets there.
    timing_prefixes = (
        *framework.LOADER_AND_ALLOCATORS,
        "MKL_",
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

    def reach(self, build: framework.Build) -> dict[str, Reach]:
        """Return which variables reach a build, by the experiments of its probe."""
        return experiment.reach(self.catalogue.experiments, _own(build).observations)

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

    def stored_build(self, build: Mapping[str, Any]) -> TensorFlowBuild:
        """Return a build from plain data; raises ValueError for what is none."""
        return convert(build, TensorFlowBuild)

    def pool(self, build: Mapping[str, Any]) -> str:
        """Return which threads oneDNN's operators run on, and with them all that are of any size."""
        return OPENMP if build.get("onednn_runtime") == "openmp" else EIGEN

    def has_onednn(self, build: Mapping[str, Any]) -> bool:
        """Return whether operators are handed to oneDNN."""
        enabled = build.get("onednn_enabled")
        return build["onednn_runtime"] is not None if enabled is None else bool(enabled)

    def steps_of(self, told: Mapping[str, Any], *, on_gpu: bool) -> list[list[StepParts]]:
        """Return where the time of each step goes, by block, of what TensorFlow's profiler tells of them."""
        return timeline.steps_of(told, on_gpu=on_gpu)

    def thread_binding(self, value: str, machine: Machine, *, n_threads: int) -> tuple[Path, Binding]:
        """Return the intel-openmp package's library, and where it would bind threads under KMP_AFFINITY."""
        return affinity.thread_binding(value, machine, n_threads=n_threads)

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
        self, python: Path, env: Mapping[str, str], build: framework.Build, device: Device
    ) -> tuple[str, ...]:
        """Return the GPUs that TensorFlow sees; raises BadInputError that explains why there is none."""
        if device.kind != "gpu":
            return ()
        if device.maker == NVIDIA and _own(build).cuda is None:
            raise _without_cuda()
        facts, _ = probing.run_probe(python, {**env, **_LOADER_TALKS}, SUBJECT, {}, function="devices")
        if not facts["gpus"]:
            is_nvidia = device.maker == NVIDIA
            raise why_no_gpu(facts) if is_nvidia else _none(f"this build finds none of {device.maker}'s", _SEE_LOG)
        return tuple(facts["gpus"])

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
        return _initial_design(space)

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
