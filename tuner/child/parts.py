"""Inputs that are the parts of one sparse or ragged tensor: made up each by itself, they do not fit each other."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

Report = Dict[str, Any]
_ROLES = (
    ("indices", r"ind(?:ices|ex)|idx"),
    ("values", r"(?:flat_?)?val(?:ue)?s"),
    ("dense_shape", r"(?:dense_?)?shape"),
    ("row_splits", r"(?:nested_?)?(?:row_?)?splits(?:_?0)?"),
)


def role_of(name: str) -> Optional[Tuple[str, str]]:
    """Return whose part an input is by its name, and which: ("x", "indices") of `x_indices`; None if it is none."""
    for role, words in _ROLES:
        match = re.fullmatch(r"(?:(.*?)[^A-Za-z0-9]+)??(?:%s)(?::0)?" % words, name, re.IGNORECASE)
        if match:
            return match[1] or "", role
    return None


def made_up_parts(described: Sequence[Report]) -> Optional[Tuple[str, str]]:
    """Return what inputs are the parts of that are not all given, and the way around; None where there are none.

    A sparse tensor has indices (n, rank), values (n) and a shape (rank), and a ragged one values (n) and splits (m).
    """
    owners: Dict[str, Dict[str, Report]] = {}
    for each in described:
        found = role_of(each["name"])
        if found is not None:
            owners.setdefault(found[0], {})[found[1]] = each
    for own in owners.values():
        parts = _sparse(own) or _ragged(own)
        if parts and any(each["given"] is None for each in parts):
            return _text(parts)
    return None


def _sparse(own: Dict[str, Report]) -> List[Report]:
    parts = [own[role] for role in ("indices", "values", "dense_shape") if role in own]
    ranks = [len(each["shape"]) for each in parts]
    fits = ranks == [2, 1, 1] and parts[0]["shape"][1] == parts[2]["shape"][0]
    return parts if fits and all("int" in parts[n]["dtype"] for n in (0, 2)) else []


def _ragged(own: Dict[str, Report]) -> List[Report]:
    parts = [own[role] for role in ("values", "row_splits") if role in own]
    return parts if len(parts) == 2 and "int" in parts[1]["dtype"] and len(parts[1]["shape"]) == 1 else []


def _text(parts: Sequence[Report]) -> Tuple[str, str]:
    names = [each["name"] for each in parts]
    is_sparse = len(parts) == 3
    kind = "SparseTensor" if is_sparse else "RaggedTensor"
    made = "s = tf.sparse.from_dense(x)" if is_sparse else "s = tf.RaggedTensor.from_tensor(x)"
    fields = ("indices", "values", "dense_shape") if is_sparse else ("flat_values", "row_splits")
    called = ", ".join("'%s': s.%s" % pair for pair in zip(names, fields))
    rank = parts[0]["shape"][1] if is_sparse and isinstance(parts[0]["shape"][1], int) else 2
    shapes = ["500,%d" % rank, "500"] if is_sparse else ["500", "33"]
    files = " ".join(
        ["--input-shape %s=%s" % pair for pair in zip(names, shapes)]
        + ["--input %s=%s.npy" % (name, re.sub(r"\W", "_", name)) for name in names]
    )
    message = "its inputs %s and %s are the parts of a %s, which do not fit each other if they are made up" % (
        ", ".join("'%s'" % name for name in names[:-1]),
        "'%s'" % names[-1],
        kind,
    )
    return message, (
        "write a Python file whose build() loads the model and returns a function of a dense x: %s; "
        "model(**{%s}); or give all of one call: %s" % (made, called, files)
    )
