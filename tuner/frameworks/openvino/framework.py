"""OpenVINO as a framework: its own and ONNX's files, and whatever TensorFlow exports, by OpenVINO's own reader.

Its knobs are properties that a model is compiled with. Semantics and sources: OpenVINO documentation, CPU device
(supported properties, multi-stream execution, threads scheduling) and High-level performance hints. A model that runs
several requests at once needs as many streams as there are calls, so that how many of these there are decides both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.frameworks import framework, probing
from tuner.frameworks.converted import ConvertedFramework
from tuner.frameworks.openvino.child import compiling
from tuner.frameworks.openvino.child.compiling import F32, HINT, PRECISION, THROUGHPUT
from tuner.machine.host import Machine
from tuner.space.auditing import Audit, AuditAnswer, AuditCase
from tuner.space.baseline import Baseline, of_instances
from tuner.space.carrier import Option
from tuner.space.common import BATCH_SIZE, OF_PROCESSES, one_or_all
from tuner.space.deployment import Deployment
from tuner.space.knob import Knob
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.values import SWITCH, Numbers, Value, Words

_SUBJECT = probing.ProbedPackage(
    title="OpenVINO", package="openvino", install="openvino", folder=Path(__file__).parent / "child"
)
_PRECISIONS = ("FP32", "BF16", "FP16", "INT8")
THREADS, PINNING = "INFERENCE_NUM_THREADS", "ENABLE_CPU_PINNING"
LATENCY = "LATENCY"


def _is_split(values: Mapping[str, Value]) -> bool:
    """Return whether there are several streams to speak of."""
    return int(values.get("streams", 1)) > 1


_SWITCH = {"True": "1", "False": "0", "YES": "1", "NO": "0"}


def property_(knob: str, name: str) -> Audit:
    """Return the audit of a property by what the compiled model tells of it; unknown where it does not."""

    def audit(case: AuditCase) -> AuditAnswer:
        reported = case.effective["properties"].get(name)
        if reported is None:
            return None, f"the compiled model does not report {name}"
        is_applied = _SWITCH.get(reported, reported) == str(case.values[knob])
        return is_applied, f"the compiled model reports {name}={reported}"

    return audit


_ALL = (
    Knob(
        name="inference_num_threads",
        meaning="threads of the model, shared among its streams",
        values=Numbers(counts_threads=True),
        carrier=Option(THREADS),
        default=lambda machine, *_: machine.physical_cores,  # of those that the mask leaves
        audit=property_("inference_num_threads", THREADS),
        contrast_values=one_or_all,
        n_threads=lambda values: int(values["inference_num_threads"]),
    ),
    Knob(
        name="cpu_pinning",
        meaning="whether each thread is bound to a core (1) or none is (0)",
        values=SWITCH,
        carrier=Option(PINNING),
        default=lambda *_: 1,
        audit=property_("cpu_pinning", PINNING),
        contrast_values=lambda _: (0, 1),
    ),
    BATCH_SIZE,
    Knob(
        name="performance_hint",
        meaning="what OpenVINO chooses its streams and threads for, where these are not set",
        values=Words(words=(LATENCY, THROUGHPUT)),
        carrier=Option(HINT),
        in_every_setting=False,
        default=lambda *_: LATENCY,
        has_effect=_is_split,
        audit=property_("performance_hint", HINT),
    ),
    Knob(
        name="inference_precision",
        meaning="the precision that it computes in; OpenVINO's own choice may be bf16, tftune asks for f32",
        values=Words(words=(F32, "bf16", "f16")),
        carrier=Option(PRECISION),
        in_every_setting=False,
        default=lambda *_: F32,
        audit=property_("inference_precision", PRECISION),
        changes_numerics=True,
    ),
    *OF_PROCESSES,
)


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
    fork_refusal = "OpenVINO's thread pool does not survive a fork"
    """Its pool of threads begins with the import, and none of it is in a fork."""


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

    knobs: Mapping[str, Knob] = {knob.name: knob for knob in _ALL}  # not changed
    baselines = BASELINES
    build = OpenVinoBuild
    switches = ("OV_", "OPENVINO_", "LD_", "PYTHON")
    files: Mapping[str, str] = {".xml": "openvino", ".onnx": "onnx"}  # not changed
    conversion = 1
    timing_prefixes = (*framework.LOADER_AND_ALLOCATORS, "OV_", "OPENVINO_", "ONEDNN_", "TBB_")

    def threads_on(self, cores: int) -> dict[str, Value]:
        """Return so many threads, which the process's mask keeps to its cores."""
        return threads_on(cores)

    def probe(self, python: Path, env: Mapping[str, str]) -> framework.Build:
        """Return the build of an interpreter; what took effect is asked of each compiled model."""
        return self.found(python, env, looks=[sorted(os.sched_getaffinity(0)), probing.cpu_flags()])

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
        """Return what the compiled model reports that it computes in: OpenVINO chooses it."""
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
