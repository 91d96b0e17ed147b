"""ONNX Runtime as a framework: `.onnx` files, and whatever TensorFlow exports, by way of tf2onnx."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tuner.frameworks import framework
from tuner.frameworks.converted import ConvertedFramework
from tuner.frameworks.onnxruntime import build, design, gpus
from tuner.frameworks.onnxruntime.baselines import BASELINES, threads_on
from tuner.frameworks.onnxruntime.build import OnnxRuntimeBuild
from tuner.frameworks.onnxruntime.child.session import CPU_PROVIDER, CUDA_OPTIONS, CUDA_PROVIDER
from tuner.frameworks.onnxruntime.knobs import AFFINITIES, CONFIG, KNOBS, MODES, PARALLEL
from tuner.frameworks.tensorflow.framework import FRAMEWORK as TENSORFLOW
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.values import Value

_ONNX = "onnx"
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


class OnnxRuntime(ConvertedFramework):
    """Its execution providers for CPUs, and for NVIDIA's GPUs."""

    name = "onnxruntime"
    title = "ONNX Runtime"
    child = build.CHILD
    spaces = Path(__file__).parent / "spaces"
    knobs = KNOBS
    baselines = BASELINES
    suffixes: Mapping[str, str] = {".onnx": _ONNX, **TENSORFLOW.suffixes}  # not changed
    kinds = (_ONNX, *TENSORFLOW.kinds)
    own_kinds = (_ONNX,)
    conversion = 3
    devices = ("cpu", "gpu")
    timing_prefixes = ("LD_", "GLIBC_TUNABLES", "MALLOC_", "TCMALLOC_", "ORT_")

    def threads_on(self, cores: int) -> dict[str, Value]:
        """Return so many threads, which the process's mask keeps to its cores."""
        return threads_on(cores)

    def probe(self, python: Path, env: Mapping[str, str]) -> OnnxRuntimeBuild:
        """Return the build of an interpreter."""
        return build.probe(python, env, self.catalogue.experiments)

    def build_lines(self, build: Mapping[str, Any]) -> list[str]:
        """Return what to tell of a build."""
        return [
            f"ONNX Runtime {build['onnxruntime']}, Python {build['python']}",
            f"execution providers: {', '.join(build['providers'])}",
        ]

    def seen_devices(
        self, python: Path, env: Mapping[str, str], build: framework.Build, device: str
    ) -> tuple[str, ...]:
        """Return that it can use the GPU; raises BadInputError that explains why it cannot."""
        return gpus.seen(python, env, cast("OnnxRuntimeBuild", build)) if device == "gpu" else ()

    def initial_design(self, space: Space) -> list[Setting]:
        """Return a setting of each regime: operators one at a time or several at once, idle threads asleep."""
        return design.design(space)

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
                lines.append(f"options.{name} = onnxruntime.ExecutionMode.{MODES[value]}")
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
