"""TensorRT as a framework, on NVIDIA's GPUs: `.onnx` files, and whatever TensorFlow exports, by way of tf2onnx."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.devices.device import Device
from tuner.devices.gpu import KIND as GPU
from tuner.devices.nvidia import NVIDIA
from tuner.errors import BadInputError
from tuner.frameworks import framework, probing
from tuner.frameworks.converted import ConvertedFramework
from tuner.space.baseline import Baseline
from tuner.space.carrier import Option
from tuner.space.common import BATCH_SIZE, OF_PROCESSES, TF32
from tuner.space.deployment import Deployment
from tuner.space.knob import Knob
from tuner.space.values import Numbers, Words

_SUBJECT = probing.ProbedPackage(
    title="TensorRT", package="tensorrt", install="tensorrt", folder=Path(__file__).parent / "child"
)
DEFAULT_LEVEL, MOST_LEVEL = 3, 5

_ALL = (
    Knob(
        name="builder_optimization_level",
        meaning="how long the builder looks for faster kernels: from 0, the first that works, to 5, all",
        values=Numbers(minimum=0, limit=MOST_LEVEL),
        carrier=Option("builder_optimization_level"),
        default=lambda *_: DEFAULT_LEVEL,
        devices=(GPU,),
    ),
    Knob(
        name="max_aux_streams",
        meaning="CUDA streams next to the main one, for layers that may run at the same time; auto: as TensorRT likes",
        values=Words(words=("auto", "0", "1", "3")),
        carrier=Option("max_aux_streams", without="auto"),
        in_every_setting=False,
        default=lambda *_: "auto",
        devices=(GPU,),
    ),
    BATCH_SIZE,
    TF32,
    *OF_PROCESSES,
)


BASELINES: tuple[Baseline, ...] = (
    Baseline(
        name="trt-default",
        source="TensorRT documentation, IBuilderConfig: builder optimization level 3",
        rule=lambda _: {},
        devices=(GPU,),
    ),
    Baseline(
        name="trt-thorough",
        source="TensorRT documentation, Optimizing builder performance: level 5 compares the most kernels",
        rule=lambda _: {"builder_optimization_level": MOST_LEVEL},
        at_best_batch=True,
        devices=(GPU,),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtBuild(probing.ProbedBuild):
    """A TensorRT build. An engine tells nothing of how it was built."""

    subject = _SUBJECT
    tensorrt: str
    converters: dict[str, str]
    """The versions of what a workload is exported by, by name; none of what is not installed."""
    fork_refusal = "CUDA does not survive a fork"
    """CUDA's driver is none in a fork."""


class TensorRt(ConvertedFramework):
    """Engines that are built for one shape of the inputs."""

    knobs: Mapping[str, Knob] = {knob.name: knob for knob in _ALL}  # not changed
    baselines = BASELINES
    build = TensorRtBuild
    switches = ("LD_", "PYTHON")
    files: Mapping[str, str] = {".onnx": "onnx"}  # not changed
    conversion = 1
    devices = (GPU,)
    makers = (NVIDIA,)
    timing_prefixes = (*framework.LOADER_AND_ALLOCATORS, "TRT_")

    def build_lines(self, build: Mapping[str, Any]) -> list[str]:
        """Return what to tell of a build."""
        return [f"TensorRT {build['tensorrt']}, Python {build['python']}"]

    def seen_devices(
        self, python: Path, env: Mapping[str, str], build: framework.Build, device: Device
    ) -> tuple[str, ...]:
        """Return that its builder starts on the GPU; raises BadInputError in TensorRT's words where it does not."""
        facts, _ = probing.run_probe(python, env, _SUBJECT, {}, function="devices")
        if not facts["works"]:
            reason = (facts["log"] or ["it gives no reason"])[-1]
            raise BadInputError(f"TensorRT sees no GPU: {reason}", "compare with the driver that nvidia-smi shows")
        return ("TensorRT's builder",)

    def session_code(self, deployment: Deployment) -> list[str]:
        """Return the lines of Python that build an engine with its options; nothing where it has none."""
        if not deployment.options:
            return []
        lines = [
            "import tensorrt",
            "",
            "logger = tensorrt.Logger()",
            "builder = tensorrt.Builder(logger)",
            "network = builder.create_network(0)",
            'assert tensorrt.OnnxParser(network, logger).parse_from_file("model.onnx")',
            "config = builder.create_builder_config()",
        ]
        lines += [f"config.{name} = {value}" for name, value in deployment.options.items()]
        lines += [
            "# An engine is for one batch size.",
            "profile = builder.create_optimization_profile()",
            "for each in (network.get_input(i) for i in range(network.num_inputs)):",
            f"    shape = ({deployment.arguments.get('batch_size', 1)}, *each.shape[1:])",
            "    profile.set_shape(each.name, shape, shape, shape)",
            "config.add_optimization_profile(profile)",
        ]
        return [*lines, "plan = builder.build_serialized_network(network, config)"]


FRAMEWORK = TensorRt()
