"""Compiling a model for the CPU with properties as text or number by name, and asking what has become of them."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple, Union

from ....child.inputs import WorkloadError

DEVICE = "CPU"
PRECISION, STREAMS = "INFERENCE_PRECISION_HINT", "NUM_STREAMS"
HINT, THROUGHPUT = "PERFORMANCE_HINT", "THROUGHPUT"
SWITCHES = ("ENABLE_CPU_PINNING",)
REPORTED = ("INFERENCE_NUM_THREADS", STREAMS, HINT, *SWITCHES, PRECISION)
F32 = "f32"
NAMES = {"float32": F32, "f32": F32, "bfloat16": "bf16", "bf16": "bf16", "float16": "f16", "f16": "f16"}
Options = Mapping[str, Union[int, str]]


def properties(options: Options, n_callers: int) -> Dict[str, Any]:
    """Return the properties to compile with: those of the options, and single precision unless they say otherwise.

    A model that is called several times at once gets a stream for each call, unless the hint THROUGHPUT is to choose.
    """
    chosen: Dict[str, Any] = {PRECISION: F32}
    if n_callers > 1 and options.get(HINT) != THROUGHPUT:
        chosen[STREAMS] = n_callers
    for name, value in options.items():
        chosen[name] = bool(value) if name in SWITCHES else value
    return chosen


def compiled(core: Any, model: Any, shapes: Mapping[str, "Tuple[int, ...]"], chosen: Mapping[str, Any]) -> Any:
    """Return a model compiled for inputs of these shapes by name.

    Raises WorkloadError where it computes in another precision than was asked for.
    """
    model.reshape({name: list(shape) for name, shape in shapes.items()})
    result = core.compile_model(model, DEVICE, dict(chosen))
    actual = precision_name(result.get_property(PRECISION))
    if actual != chosen[PRECISION]:
        raise WorkloadError(
            "OpenVINO computes in %s, and was asked for %s" % (actual, chosen[PRECISION]),
            "use a CPU, or a version of OpenVINO, that has it",
        )
    return result


def precision_name(reported: Any) -> str:
    """Return the short name of a precision as OpenVINO tells it, such as `<Type: 'float32'>`."""
    text = str(reported)
    return next((short for name, short in NAMES.items() if name in text), text)


def reported(compiled_model: Any) -> Dict[str, str]:
    """Return the properties that a compiled model has, as text."""
    values = {name: compiled_model.get_property(name) for name in REPORTED}
    values[PRECISION] = precision_name(values[PRECISION])
    return {name: str(getattr(value, "name", value)) for name, value in values.items()}
