"""The knobs of OpenVINO's CPU device: properties that a model is compiled with.

Semantics and sources: OpenVINO documentation, CPU device (supported properties, multi-stream execution, threads
scheduling) and High-level performance hints. A model that runs several requests at once needs as many streams as there
are calls, so that how many of these there are decides both.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.frameworks.openvino.child.compiling import F32, HINT, PRECISION, THROUGHPUT
from tuner.space.auditing import Audit, AuditAnswer, AuditCase
from tuner.space.carrier import Option
from tuner.space.common import BATCH_SIZE, CPUS, INSTANCES, MALLOC, STREAMS, one_or_all
from tuner.space.knob import Knob
from tuner.space.values import SWITCH, Numbers, Value, Words

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
            return None, f"the compiled model does not tell {name}"
        return _SWITCH.get(reported, reported) == str(case.values[knob]), f"the compiled model says {name}={reported}"

    return audit


def listed(knob: str, name: str) -> Audit:
    """Return the audit of a precision, which the compiled model tells as `<Type: 'float32'>` or by its short name."""
    names = {"f32": ("f32", "float32"), "bf16": ("bf16", "bfloat16"), "f16": ("f16", "float16")}

    def audit(case: AuditCase) -> AuditAnswer:
        reported = str(case.effective["properties"].get(name))
        wanted = names[str(case.values[knob])]
        return any(each in reported for each in wanted), f"the compiled model says {name}={reported}"

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
        audit=listed("inference_precision", PRECISION),
        changes_numerics=True,
    ),
    CPUS,
    INSTANCES,
    STREAMS,
    MALLOC,
)


KNOBS: dict[str, Knob] = {knob.name: knob for knob in _ALL}
