"""Output agreement: does a setting compute the same results as the reference?

Thread counts change the order of additions and so the last digits; other libraries and compilers may change more. A
setting that is fast because it computes something else has not won anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

TOLERANCE = 0.05
"""The largest deviation that is still the same result: above what rounding does, to bfloat16 too, below an error."""
TELLING_SPREAD = 0.01
"""How much outputs have to vary, relative to the largest, for a small deviation to say that the same was computed."""
_ROUNDING = 1e-3  # that outputs of two processes of one setting may differ by, relative

Sample = Mapping[str, Any]


def deviation(reference: Sample | None, candidate: Sample | None) -> float | None:
    """Return how far a sample of outputs lies from the reference's, relative to the largest of these.

    A sample is what a process tells of the first item of its batch: a digest of its inputs, and some values of each
    output, shape (k,). Where both tell of the same whole batch, a few values of each of its items count as well. None
    where the two cannot be compared: one gave no sample, or no numbers, or computed on other inputs, or the reference
    computed zeros only; 1 where they do not even have the same shape.
    """
    if not reference or not candidate or reference["inputs"] != candidate["inputs"] or not reference["outputs"]:
        return None
    parts = [_deviation(reference["outputs"], candidate["outputs"])]
    batch, other = reference.get("batch"), candidate.get("batch")
    if batch and other and batch["inputs"] == other["inputs"]:
        parts.append(_deviation(batch["outputs"], other["outputs"]))
    return max((part for part in parts if part is not None), default=None)


def _deviation(reference: Mapping[str, Sequence[float]], candidate: Mapping[str, Sequence[float]]) -> float | None:
    """Return the largest deviation of some outputs, None where the reference has zeros only."""
    worst: float | None = None
    for name, values in reference.items():
        a, b = np.asarray(values, dtype=float), np.asarray(candidate.get(name, []), dtype=float)
        if a.shape != b.shape:
            return 1.0
        scale = float(np.abs(a).max(initial=0.0))
        if scale > 0.0:
            worst = max(worst or 0.0, float(np.abs(a - b).max()) / scale)
    return worst


def spread(sample: Sample | None) -> float | None:
    """Return how much the values of a sample's outputs vary, relative to the largest: of the output that does so most.

    Outputs that are all alike, as the probabilities of an untrained classifier, agree with anything. None where no
    output has several values.
    """
    if not sample or not sample["outputs"]:
        return None
    parts = [sample["outputs"], (sample.get("batch") or {}).get("outputs", {})]
    spreads = [
        float(np.ptp(values) / np.abs(values).max())
        for part in parts
        for values in map(np.asarray, part.values())
        if values.size > 1 and np.abs(values).max() > 0
    ]
    return max(spreads, default=None)


def outputs_differ(a: Sample | None, b: Sample | None) -> bool:
    """Return whether the outputs of two processes of one setting differ by more than rounding errors."""
    return (deviation(a, b) or 0.0) > _ROUNDING
