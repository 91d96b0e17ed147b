"""Output agreement: does a setting compute the same results as the reference?

Thread counts change the order of additions and so the last digits; other libraries and compilers may change more. A
setting that is fast because it computes something else has not won anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.child.outputs import moved, text_of

TOLERANCE = 0.05
"""The largest deviation that is still the same result: above what rounding does, to bfloat16 too, below an error."""
TELLING_SPREAD = 0.01
"""How much outputs have to vary, relative to the largest, for a small deviation to say that the same was computed."""
_ROUNDING = 1e-3  # that outputs of two processes of one setting may differ by, relative

Sample = Mapping[str, Any]
Vector = NDArray[np.float64]


def deviation(reference: Sample | None, candidate: Sample | None) -> float | None:
    """Return how far a sample of outputs lies from the reference's, relative to the largest of these.

    A sample is what a process tells of the first item of its batch: a digest of its inputs, and some values of each
    output, shape (k,). Where both tell of the same whole batch, a few values of each of its items count as well. None
    where the two cannot be compared: one gave no sample, or no numbers, or computed on other inputs, or the reference
    computed zeros only; 1 where they do not even have the same shape, or are not finite at the same places.
    """
    if not reference or not candidate or reference["inputs"] != candidate["inputs"] or not reference["outputs"]:
        return None
    parts = [_deviation(a, b) for a, b in _pairs(reference, candidate)]
    return max((part for part in parts if part is not None), default=None)


def moved_text(reference: Sample | None, candidate: Sample | None, *, than: str) -> str | None:
    """Return in words that outputs are not finite at other places than those of the reference, None if they are not.

    `than` is whose outputs the reference's are.
    """
    if reference and candidate and _moved(reference, candidate):
        return f"its outputs are NaN or infinite at other places than {than}"
    return None


def only_not_finite(found: Mapping[str, Mapping[str, int]], others: Iterable[str]) -> str | None:
    """Return in words which outputs hold NaN or infinite values, though none of `others` does; None if none."""
    strange = {name: counts for name, counts in found.items() if name not in set(others)}
    return text_of(strange) if strange else None


def _moved(reference: Sample, candidate: Sample) -> bool:
    """Return whether outputs are not finite at different places, in the first item or, of one batch, in that."""
    return any(
        moved(a.get("not_finite", {}).get(name, {}), b.get("not_finite", {}).get(name, {}))
        for a, b in _pairs(reference, candidate)
        for name in a["outputs"]
    )


def _pairs(reference: Sample, candidate: Sample) -> list[tuple[Sample, Sample]]:
    """Return what is compared: the samples of the first item and, of one batch, those of all its items."""
    batch, other = reference.get("batch"), candidate.get("batch")
    pairs = [(reference, candidate)]
    return [*pairs, (batch, other)] if batch and other and batch["inputs"] == other["inputs"] else pairs


def _values(numbers: Sequence[float | str]) -> Vector:
    """Return a sample's values, in which text stands for what is not finite."""
    return np.asarray([float(number) for number in numbers])


def _deviation(reference: Sample, candidate: Sample) -> float | None:
    """Return the largest deviation of some outputs, None where the reference has zeros only."""
    if _moved(reference, candidate):
        return 1.0
    worst: float | None = None
    for name, numbers in reference["outputs"].items():
        a, b = _values(numbers), _values(candidate["outputs"].get(name, []))
        if a.shape != b.shape:
            return 1.0
        finite = np.isfinite(a) & np.isfinite(b)
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return 1.0
        a, b = a[finite], b[finite]
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
    arrays = [_values(numbers) for part in parts for numbers in part.values()]
    spreads = [
        float(np.ptp(values) / np.abs(values).max())
        for values in (array[np.isfinite(array)] for array in arrays)
        if values.size > 1 and np.abs(values).max() > 0
    ]
    return max(spreads, default=None)


def outputs_differ(a: Sample | None, b: Sample | None) -> bool:
    """Return whether the outputs of two processes of one setting differ by more than rounding errors."""
    return (deviation(a, b) or 0.0) > _ROUNDING
