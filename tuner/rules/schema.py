"""What a file of rules has to look like, as a JSON Schema (draft 2020-12): the contract of `tftune rules --json`."""

from __future__ import annotations

from typing import Any

from tuner.rules.recipe import BATCH
from tuner.rules.strata import CLASSES, AdviceReason

SCHEMA = 2
THREADS = "threads"
GROUPS = (THREADS, BATCH)

Node = dict[str, Any]

_TEXT: Node = {"type": "string"}
_NUMBER: Node = {"type": "number"}
_COUNT: Node = {"type": "integer", "minimum": 0}
_NUMBER_OR_NOT: Node = {"type": ["number", "null"]}


def _object(required: Node, optional: Node | None = None) -> Node:
    properties = required | (optional or {})
    return {"type": "object", "properties": properties, "required": list(required)}


def _map(values: Node) -> Node:
    return {"type": "object", "additionalProperties": values}


def _list(items: Node) -> Node:
    return {"type": "array", "items": items}


def _or_null(node: Node) -> Node:
    return {"anyOf": [{"type": "null"}, node]}


_RANGE: Node = {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2}
_RATIO = _object({"ratio": _NUMBER, "low": _NUMBER_OR_NOT, "high": _NUMBER_OR_NOT, "workloads": _COUNT})
_KIND: Node = {"shape": _TEXT, "pool": _TEXT, "onednn": {"type": "boolean"}, "quota": {"type": "boolean"}}
_SITUATION: Node = {"workload": _TEXT, "mode": _TEXT, **_KIND}
_COUNTER_EXAMPLE = _object(
    {"study": _TEXT, **_SITUATION, "over_default": _NUMBER, "low": _NUMBER, "high": _NUMBER, "of_best": _NUMBER}
)
_LOSS = _object({"median": _NUMBER, "worst": _NUMBER, "worst_study": _TEXT})
_COMPARED = _object({"median": _NUMBER, "least": _COUNT})
_EXPECTED = _object({**_RATIO["properties"], "next": _or_null(_RANGE), "of_best": _RATIO, "policy": _RATIO})
_BY_CLASS: Node = {"type": "object", "propertyNames": {"enum": list(CLASSES)}}
_BUILD: Node = {name: node for name, node in _KIND.items() if name != "shape"}
_ADVISED: Node = {"studies": _COUNT, "gained": _RATIO, "advice": {"enum": [AdviceReason.FOLLOW, AdviceReason.NO_GAIN]}}
_HEADLINE = _object(
    {"class": {"enum": list(CLASSES)}, "studies": _COUNT, "followed": _COUNT, **_EXPECTED["properties"]}
)

EVIDENCE = _object(
    {
        "studies": _COUNT,
        "workloads": _list(_TEXT),
        "shapes": _COUNT,
        "measured": _COUNT,
        "right": _COUNT,
        "gain": _BY_CLASS | _map(_map(_RATIO)),
        "loss": _or_null(_LOSS),
        "compared": _or_null(_COMPARED),
        "told_apart": _NUMBER_OR_NOT,
        "counter_examples": _list(_COUNTER_EXAMPLE),
    },
    {
        "expected": _or_null(_EXPECTED),
        "strata": _list(_object({**_KIND, **_ADVISED}, _EXPECTED["properties"])),
        "builds": _list(_object({**_BUILD, **_ADVISED}, _EXPECTED["properties"])),
        "same_there": _list(_TEXT),
        "example": _object({**_SITUATION, "env": _map(_TEXT)}, {"arguments": _map(_COUNT)}),
    },
) | {
    "if": {"properties": {"studies": {"minimum": 1}}},
    "then": {"properties": {"loss": _LOSS, "compared": _COMPARED}},
}
"""An account (`tuner.rules.gains`), with what a rule adds to it."""

_RULE_EVIDENCE = EVIDENCE | {"required": [*EVIDENCE["required"], "strata", "builds"]}
_RULE = _object(
    {
        "if": _TEXT,
        "then": _TEXT,
        "condition": _list(_object({"feature": _TEXT, "threshold": _NUMBER, "below": {"type": "boolean"}})),
        "recipe": _map(_TEXT),
        "evidence": _RULE_EVIDENCE,
    }
)
_COVERAGE = _object(
    {
        "n_studies": _COUNT,
        "hosts": _list(_TEXT),
        "ranges": _map(_RANGE),
        "shapes": _map(_object({"host": _TEXT, "shape": _TEXT, "studies": _COUNT})),
        "workloads": _map(_list(_TEXT)),
        "runtimes": _map(_COUNT),
    }
) | {"additionalProperties": False}
_ROW = _object(
    {
        "name": _TEXT,
        "of_best": _or_null(_RATIO),
        "worst": _NUMBER,
        "worst_study": _TEXT,
        "worst_is": _object(_SITUATION),
        "right": _COUNT,
        "measured": _COUNT,
    }
)
_EACH = _object(
    {
        "study": _TEXT,
        **_SITUATION,
        "recipe": _list(_TEXT),
        "over_default": _NUMBER,
        "policy": _list(_TEXT),
        "policy_over_default": _NUMBER,
        "of_best": _map(_NUMBER),
        "best_over": _map(_NUMBER),
    }
)
_PROOF = _object(
    {
        "what": _TEXT,
        "kinds": _COUNT,
        "one_by_one": {"type": "boolean"},
        "studies": _COUNT,
        "rows": _list(_ROW),
        "over": _map(_BY_CLASS | _map(_RATIO)),
        "each": _list(_EACH),
    }
)
_GROUP = _object(
    {
        "headline": _list(_HEADLINE),
        "rules": _list(_RULE),
        "otherwise": EVIDENCE,
        "coverage": _COVERAGE,
        "proof": _object({}, dict.fromkeys(("by_workload", "by_machine", "by_shape"), _or_null(_PROOF))),
    }
)

DOCUMENT = _object(
    {
        "schema": {"const": SCHEMA},
        "made": _object(
            {
                "tftune": _TEXT,
                "created": {"type": "string", "minLength": 10},
                "n_studies": _COUNT,
                "filters": _map(_TEXT),
                "excluded": _map(_list(_TEXT)),
                "level": {"type": "number", "exclusiveMinimum": 0},
                "least_gain": _NUMBER,
                "margin": {"type": "number", "minimum": 0},
                "fewest_workloads": _COUNT,
            }
        ),
        "sources": _map(_TEXT),
        "groups": _object({}, dict.fromkeys(GROUPS, _GROUP)),
    }
)


def schema_error(data: Any) -> str | None:
    """Return where a document is no set of rules, and what was found there; None if it is one."""
    from jsonschema import Draft202012Validator  # only who reads a file waits for it
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(DOCUMENT).iter_errors(data))
    if error is None:
        return None
    place = error.json_path.removeprefix("$").lstrip(".") or "the file"
    detail = error.message if len(error.message) < _LONG else f"not of type {error.schema.get('type')}"
    return f"{place}: {detail}"


_LONG = 120
