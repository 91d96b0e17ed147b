"""OpenVINO as a framework: its own and ONNX's files, and whatever TensorFlow exports, by OpenVINO's own reader."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.frameworks import probing
from tuner.frameworks.converted import ConvertedFramework
from tuner.frameworks.framework import LOADER_AND_ALLOCATORS
from tuner.frameworks.openvino.child import compiling
from tuner.frameworks.openvino.child.compiling import THROUGHPUT
from tuner.frameworks.openvino.knobs import KNOBS
from tuner.frameworks.tensorflow.framework import FRAMEWORK as TENSORFLOW
from tuner.identity import digest
from tuner.machine.host import Machine
from tuner.space.baseline import Baseline, of_instances
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.values import Value

_HERE = Path(__file__).parent
_SUBJECT = probing.ProbedPackage(title="OpenVINO", package="openvino", install="openvino", folder=_HERE / "child")
_SWITCHES = ("OV_", "OPENVINO_", "LD_", "PYTHON")
_FILES = {".xml": "openvino", ".onnx": "onnx"}
_PRECISIONS = ("FP32", "BF16", "FP16", "INT8")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenVinoBuild(probing.ProbedBuild):
    """An OpenVINO build."""

    subject = _SUBJECT
    openvino: str
    default_precision: str
    """What its CPU device computes in when nothing is said: bf16 where the CPU has instructions for that."""
    capabilities: list[str]
    """The precisions that the CPU device has, as it tells them."""
    converters: dict[str, str]
    """The versions of what a workload is exported by, by name; none of what is not installed."""

    @property
    def fork_refusal(self) -> str:
        """Return that it is not forked: its pool of threads begins with the import, and none of it is in a fork."""
        return "OpenVINO's thread pool does not survive a fork"


def threads_on(cores: int) -> dict[str, Value]:
    """Return the knobs of a process that has so many cores to itself: its mask keeps it to them."""
    return {"inference_num_threads": cores, "cpu_pinning": 0}


def _throughput(machine: Machine) -> dict[str, Value]:
    return {"performance_hint": THROUGHPUT, "streams": machine.usable_cores}


BASELINES: tuple[Baseline, ...] = (
    Baseline(
        name="ov-default",
        source="OpenVINO documentation, CPU device: a thread per core, bound, one stream (the hint LATENCY)",
        rule=lambda _: {},
    ),
    Baseline(
        name="ov-unpinned",
        source="OpenVINO documentation, CPU device: where other programs share the machine, threads are not bound",
        rule=lambda machine: {"inference_num_threads": machine.usable_cores, "cpu_pinning": 0},
        at_best_batch=True,
    ),
    Baseline(
        name="ov-throughput",
        source="OpenVINO documentation, High-level performance hints: THROUGHPUT, with a request for each core",
        rule=_throughput,
        needs=frozenset({"performance_hint", "streams"}),
    ),
    *of_instances(threads_on),
)


class OpenVino(ConvertedFramework):
    """Its CPU device."""

    name = "openvino"
    title = "OpenVINO"
    child = _SUBJECT.folder
    spaces = _HERE / "spaces"
    knobs = KNOBS
    baselines = BASELINES
    suffixes: Mapping[str, str] = {**_FILES, **TENSORFLOW.suffixes}  # not changed
    kinds = (*_FILES.values(), *TENSORFLOW.kinds)
    own_kinds = tuple(_FILES.values())
    conversion = 1
    timing_prefixes = (*LOADER_AND_ALLOCATORS, "OV_", "OPENVINO_", "ONEDNN_", "TBB_")

    def threads_on(self, cores: int) -> dict[str, Value]:
        """Return so many threads, which the process's mask keeps to its cores."""
        return threads_on(cores)

    def probe(self, python: Path, env: Mapping[str, str]) -> OpenVinoBuild:
        """Return the build of an interpreter; what took effect is asked of each compiled model."""
        looks = [sorted(os.sched_getaffinity(0)), probing.cpu_flags()]
        facts = probing.remembered_facts(python, env, _SUBJECT, switches=_SWITCHES, looks=looks)
        names = ("python", "openvino", "default_precision", "capabilities", "converters")
        identity = {name: facts[name] for name in names}
        return OpenVinoBuild(id=digest(identity), **identity)

    def build_lines(self, build: Mapping[str, Any]) -> list[str]:
        """Return what to tell of a build: the precision that it would choose too, of which it says nothing itself."""
        own = build["default_precision"]
        asked = (
            "" if own == compiling.F32 else f"; it would compute in {own} by itself, tftune asks for {compiling.F32}"
        )
        return [
            f"OpenVINO {build['openvino']}, Python {build['python']}",
            f"the CPU device computes in {', '.join(c for c in build['capabilities'] if c in _PRECISIONS)}{asked}",
        ]

    def precision(self, effective: Mapping[str, Any], of_graph: str | None, *, has_tf32: bool) -> str | None:
        """Return what the compiled model says that it computes in: OpenVINO chooses it."""
        return str(effective["properties"][compiling.PRECISION])

    def initial_design(self, space: Space) -> list[Setting]:
        """Return, as far as they are points and no baselines: half of the threads, bound and not, and one."""
        half = max(1, int(space.reference["inference_num_threads"]) // 2)
        wanted = [(half, 1), (half, 0), (1, 0)]
        return space.new_points(
            space.reference.with_values(inference_num_threads=n, cpu_pinning=pinned) for n, pinned in wanted
        )

    def session_code(self, deployment: Deployment) -> list[str]:
        """Return the lines of Python that compile a model with its properties; the precision is among them always."""
        values = compiling.properties(deployment.options, deployment.streams)
        return ["import openvino", "", f'model = openvino.Core().compile_model("model.xml", "CPU", {values!r})']


FRAMEWORK = OpenVino()
