"""TensorRT as a framework, on NVIDIA's GPUs: `.onnx` files, and whatever TensorFlow exports, by way of tf2onnx."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.devices.gpu import KIND as GPU
from tuner.errors import BadInputError
from tuner.frameworks import framework, probing
from tuner.frameworks.converted import ConvertedFramework
from tuner.frameworks.tensorflow.framework import FRAMEWORK as TENSORFLOW
from tuner.frameworks.tensorrt import build
from tuner.frameworks.tensorrt.baselines import BASELINES
from tuner.frameworks.tensorrt.build import TensorRtBuild
from tuner.frameworks.tensorrt.knobs import KNOBS
from tuner.space.deployment import Deployment

_ONNX = "onnx"


class TensorRt(ConvertedFramework):
    """Engines that are built for one shape of the inputs."""

    name = "tensorrt"
    title = "TensorRT"
    child = build.CHILD
    spaces = Path(__file__).parent / "spaces"
    knobs = KNOBS
    baselines = BASELINES
    suffixes: Mapping[str, str] = {".onnx": _ONNX, **TENSORFLOW.suffixes}  # not changed
    kinds = (_ONNX, *TENSORFLOW.kinds)
    own_kinds = (_ONNX,)
    conversion = 1
    devices = (GPU,)
    timing_prefixes = ("LD_", "GLIBC_TUNABLES", "MALLOC_", "TCMALLOC_", "TRT_")

    def probe(self, python: Path, env: Mapping[str, str]) -> TensorRtBuild:
        """Return the build of an interpreter."""
        return build.probe(python, env)

    def build_lines(self, build: Mapping[str, Any]) -> list[str]:
        """Return what to tell of a build."""
        return [f"TensorRT {build['tensorrt']}, Python {build['python']}"]

    def seen_devices(
        self, python: Path, env: Mapping[str, str], built: framework.Build, device: str
    ) -> tuple[str, ...]:
        """Return that its builder starts on the GPU; raises BadInputError in TensorRT's words where it does not."""
        facts, _ = probing.run_probe(python, env, build.SUBJECT, {}, module="devices")
        if not facts["works"]:
            reason = (facts["log"] or ["it gives no reason"])[-1]
            raise BadInputError(f"TensorRT sees no GPU: {reason}", "compare with what nvidia-smi says of the driver")
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
