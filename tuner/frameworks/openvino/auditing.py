"""How OpenVINO's knobs are audited: by the properties that the compiled model tells."""

from __future__ import annotations

from tuner.space.auditing import Audit, AuditAnswer, AuditCase

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
