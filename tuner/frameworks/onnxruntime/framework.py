"""ONNX Runtime as a framework: `.onnx` files, and whatever TensorFlow exports, by way of tf2onnx."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tuner.devices.device import Device
from tuner.devices.nvidia import NVIDIA
from tuner.errors import BadInputError
from tuner.frameworks import framework, probing
from tuner.frameworks.converted import ConvertedFramework
from tuner.frameworks.onnxruntime.child.session import CONFIG, CPU_PROVIDER, CUDA_OPTIONS, CUDA_PROVIDER, MODES
from tuner.frameworks.onnxruntime.knobs import (
    AFFINITIES,
    KNOBS,
    PARALLEL,
    SEQUENTIAL,
    SUBJECT,
    UNBOUND,
    OnnxRuntimeBuild,
)
from tuner.machine.host import Machine
from tuner.space import experiment
from tuner.space.baseline import Baseline, of_instances
from tuner.space.deployment import Deployment
from tuner.space.experiment import Reach
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.values import Value

# It looks for the cores where it runs: the numbers of CPUs differ from one container to the next.
_AFFINITY_LINES = """
# intra_op_affinity: a physical core for each thread but the caller's, which keeps the first
cores = {}
for cpu in sorted(os.sched_getaffinity(0)):
    with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as siblings:
        cores.setdefault(siblings.read(), []).append(str(cpu + 1))  # ONNX Runtime counts CPUs from 1
groups = [",".join(cpus) for cpus in cores.values()]
threads = [groups[i % len(groups)] for i in range(1, {n})]
options.add_session_config_entry("session.intra_op_thread_affinities", ";".join(threads))
""".strip().splitlines()


def _parallel(machine: Machine) -> dict[str, Value]:
    """Return parallel execution; with a single core ONNX Runtime itself falls back to the sequential one."""
    if machine.usable_cores == 1:
        return {}
    return {"execution_mode": PARALLEL, "inter_op_num_threads": machine.usable_cores, "intra_op_affinity": UNBOUND}


def threads_on(cores: int) -> dict[str, Value]:
    """Return the knobs of a process that has so many cores to itself: its mask keeps it to them."""
    return {"intra_op_num_threads": cores, "intra_op_affinity": UNBOUND}


BASELINES: tuple[Baseline, ...] = (
    Baseline(
        name="ort-default",
        source="ONNX Runtime documentation, Thread management: one thread per physical core, each bound to its core",
        rule=lambda _: {},
    ),
    Baseline(
        name="ort-explicit",
        source="ONNX Runtime documentation, Thread management: one thread per usable core, set explicitly, none bound",
        rule=lambda machine: {"intra_op_num_threads": machine.usable_cores, "intra_op_affinity": UNBOUND},
        at_best_batch=True,
    ),
    Baseline(
        name="ort-parallel",
        source="ONNX Runtime documentation, Thread management: for models with many branches",
        rule=_parallel,
    ),
    *of_instances(threads_on),
)


# ---- whether it can use a GPU ---------------------------------------------------------------------------------------

_NOT_LOADED = re.compile(r"error: (lib[^:\s]+): cannot open shared object file")
_FAILED = re.compile(r"CUDA failure \d+: ([^;\n]+)")
_NEEDS = re.compile(r"Require (cuDNN [^,]+(?:,| and) CUDA [\d*]+(?:\.[\d*]+)*)")
_INSTALL = "install onnxruntime-gpu there in place of onnxruntime"


def why_no_gpu(facts: Mapping[str, Any]) -> BadInputError:
    """Return why no GPU is used, from what the target interpreter told (`child.probe.devices`)."""
    missing = list(dict.fromkeys(_NOT_LOADED.findall(facts["log"])))
    needs = _NEEDS.search(facts["log"])
    if missing:
        of_build = f"; this build needs {needs[1]}" if needs else ""
        return _none(
            f"{', '.join(missing)} cannot be loaded{of_build}",
            "install onnxruntime-gpu[cuda,cudnn] there, or add the folder of these libraries to LD_LIBRARY_PATH",
        )
    failed = _FAILED.search(facts["log"])
    if failed:
        return _none(f"CUDA does not start: {failed[1].strip()}", "compare with the driver that nvidia-smi shows")
    return _none("it gives no reason", "see what it logs when a session asks for CUDAExecutionProvider")


def _none(reason: str, hint: str) -> BadInputError:
    return BadInputError(f"ONNX Runtime sees no GPU: {reason}", hint)


class OnnxRuntime(ConvertedFramework):
    """Its execution providers for CPUs, and for NVIDIA's GPUs."""

    name = "onnxruntime"
    title = "ONNX Runtime"
    child = SUBJECT.folder
    spaces = Path(__file__).parent / "spaces"
    knobs = KNOBS
    baselines = BASELINES
    build = OnnxRuntimeBuild
    switches = ("ORT_", "LD_", "PYTHON")
    files: Mapping[str, str] = {".onnx": "onnx"}  # not changed
    conversion = 3
    devices = ("cpu", "gpu")
    makers = (NVIDIA,)
    timing_prefixes = (*framework.LOADER_AND_ALLOCATORS, "ORT_")

    def threads_on(self, cores: int) -> dict[str, Value]:
        """Return so many threads, which the process's mask keeps to its cores."""
        return threads_on(cores)

    def probe(self, python: Path, env: Mapping[str, str]) -> framework.Build:
        """Return the build of an interpreter, and what the experiments of its knobs show."""
        cpus = sorted(os.sched_getaffinity(0))
        plan = experiment.plan(self.catalogue.experiments, cpus)
        return self.found(python, env, looks=[cpus], plan=plan, cpus=len(cpus))

    def reach(self, build: framework.Build) -> dict[str, Reach]:
        """Return which options reach a build, by the experiments of its probe."""
        return experiment.reach(self.catalogue.experiments, cast("OnnxRuntimeBuild", build).observations)

    def build_lines(self, build: Mapping[str, Any]) -> list[str]:
        """Return what to tell of a build."""
        return [
            f"ONNX Runtime {build['onnxruntime']}, Python {build['python']}",
            f"execution providers: {', '.join(build['providers'])}",
        ]

    def seen_devices(
        self, python: Path, env: Mapping[str, str], build: framework.Build, device: Device
    ) -> tuple[str, ...]:
        """Return what it calls the GPU that it can use; raises BadInputError that explains why it cannot.

        Without one it falls back to the CPU, and says why in its log alone.
        """
        if device.kind != "gpu":
            return ()
        if CUDA_PROVIDER not in cast("OnnxRuntimeBuild", build).providers:
            raise _none("it was built without CUDA", _INSTALL)
        facts, _ = probing.run_probe(python, env, SUBJECT, {}, function="devices")
        if CUDA_PROVIDER not in facts["providers"]:
            raise why_no_gpu(facts)
        return (CUDA_PROVIDER,)

    def initial_design(self, space: Space) -> list[Setting]:
        """Return, as far as they are new points of the space: sleeping threads, two pools, and one thread."""
        values = space.reference.to_dict()
        share = max(1, int(values["intra_op_num_threads"]) // 2)
        candidates: list[dict[str, Value]] = [
            {"execution_mode": SEQUENTIAL, "intra_op_spinning": 0},
            {
                "execution_mode": PARALLEL,
                "inter_op_num_threads": 2,
                "intra_op_num_threads": share,
                "intra_op_affinity": UNBOUND,
            },
            {"execution_mode": SEQUENTIAL, "intra_op_num_threads": 1, "intra_op_affinity": UNBOUND},
        ]
        return space.new_points(
            Setting.of(values | {k: v for k, v in each.items() if k in values}) for each in candidates
        )

    def session_code(self, deployment: Deployment) -> list[str]:
        """Return the lines of Python that make a session with its options; nothing where it has none."""
        options = deployment.options
        if not options:
            return []
        lines = ["import os", ""] if AFFINITIES in options else []
        lines += ["import onnxruntime", "", "options = onnxruntime.SessionOptions()"]
        for name, value in options.items():
            if name == AFFINITIES:
                n_threads = str(options.get("intra_op_num_threads", "len(groups)"))
                lines += [line.replace("{n}", n_threads) for line in _AFFINITY_LINES]
            elif name in CUDA_OPTIONS:
                continue
            elif name.startswith(CONFIG):
                lines.append(f'options.add_session_config_entry("{name}", "{value}")')
            elif name == "execution_mode":
                lines.append(f"options.{name} = onnxruntime.ExecutionMode.{MODES[str(value)]}")
            else:
                lines.append(f"options.{name} = {value}")
        cuda_options = {name: str(value).upper() for name, value in options.items() if name in CUDA_OPTIONS}
        if not cuda_options:
            return [*lines, 'session = onnxruntime.InferenceSession("model.onnx", options)']
        lines.append(f'providers = [("{CUDA_PROVIDER}", {cuda_options}), "{CPU_PROVIDER}"]')
        return [*lines, 'session = onnxruntime.InferenceSession("model.onnx", options, providers=providers)']

    def fixed_while_proving(self, knob: str) -> dict[str, Value]:
        """Return the mode in which several operators may run at once: without it, that pool has no threads."""
        return {"execution_mode": PARALLEL} if knob in ("inter_op_num_threads", "inter_op_spinning") else {}


FRAMEWORK = OnnxRuntime()
