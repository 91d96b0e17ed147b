"""What a step computed: whether that is a result, and a sample of it, by which processes are compared."""

from __future__ import annotations

import hashlib
from typing import Any, Dict, Iterable, Optional

FINITE_CHUNK = 1 << 18  # values checked at once, to limit the memory needed for the check
SAMPLE_SIZE = 32  # values of each output
MOST_ITEMS, ITEM_VALUES = 64, 4  # of which some values of each output are told, too
MOST_HASHED = 1 << 26  # bytes of inputs of which a digest is made

Report = Dict[str, Any]
Arrays = Dict[str, Any]


class InvalidOutputError(Exception):
    """The model computed something that is not a number."""


def close(values: Any, others: Any) -> bool:
    """Return whether two arrays are the same, but for rounding."""
    import numpy as np

    return bool(np.allclose(values, others, rtol=1e-3, atol=1e-3 * np.abs(values).max(initial=0.0)))


def agree(outputs: Arrays, others: Arrays) -> bool:
    """Return whether two calls computed the same, but for rounding."""
    return all(close(array, others[name]) for name, array in outputs.items())


def check_learns(first: Any, later: Any) -> None:
    """Raise InvalidOutputError where no loss has moved: a step that trains nothing is not the work that was meant."""
    if not any((later[name] != loss).any() for name, loss in first.items()):
        raise InvalidOutputError("the loss did not change after the first step: the model is not being trained")


def check_finite(outputs: Arrays) -> None:
    """Raise InvalidOutputError if a floating-point output holds a NaN or an infinity."""
    import numpy as np

    for name, array in outputs.items():
        values = np.ravel(array)
        n_bad = sum(
            np.count_nonzero(~np.isfinite(widened(values[at : at + FINITE_CHUNK])))
            for at in range(0, values.size, FINITE_CHUNK)
        )
        if n_bad:
            raise InvalidOutputError("%s holds %d values that are not finite" % (name, n_bad))


def widened(values: Any) -> Any:
    """Return numbers in a type that NumPy knows: it has none of the narrow ones, such as bfloat16."""
    return values if values.dtype.kind in "fc" else values.astype("float32")


def first_item(array: Any) -> bytes:
    """Return the contents of the first item; an array of strings holds but their places in memory."""
    import numpy as np

    first = np.atleast_1d(array)[:1]
    if first.dtype.kind != "O":
        return first.tobytes()
    return b"\0".join(each if isinstance(each, bytes) else str(each).encode() for each in first.ravel())


def sample(arrays: Iterable[Any], outputs: Arrays, again: Arrays, *, learns: bool) -> Optional[Report]:
    """Return some values of what was computed for the first item, and a digest of what it was computed from.

    And a few values of each of some items of the batch, for processes that have the same batch. None where two runs in
    this process (`outputs`, `again`) do not agree: such a model computes at random. Of a model that `learns` the first
    loss is told: no later one is meant to be the same.
    """
    import numpy as np

    def values(output: Any) -> Any:
        # JSON knows no complex number, and NumPy no bfloat16.
        array = np.ravel(output[:1] if output.ndim else output)
        parts = [array.real, array.imag] if array.dtype.kind == "c" else [array]
        first = np.concatenate(parts).astype("float64")
        return first[:: max(1, -(-len(first) // SAMPLE_SIZE))]

    samples = {}
    for name, array in outputs.items():
        if not (array.ndim or learns):
            continue
        samples[name] = values(array)
        if not learns and not close(samples[name], values(again[name])):
            return None
    arrays = list(arrays)
    digest = hashlib.sha256(b"".join(first_item(array) for array in arrays)).hexdigest()
    told = {"inputs": digest[:16], "outputs": {name: sampled.tolist() for name, sampled in samples.items()}}
    batch = None if learns else sample_of_batch(arrays, outputs, again)
    return told if batch is None else dict(told, batch=batch)


def sample_of_batch(arrays: list[Any], outputs: Arrays, again: Arrays) -> Optional[Report]:
    """Return a few values of each of some items, evenly chosen, and a digest of the whole batch of inputs.

    None where the inputs are text or large, or where two runs do not agree.
    """
    import numpy as np

    arrays = [np.asarray(array) for array in arrays]  # a workload may give tensors
    if any(array.dtype.kind == "O" for array in arrays) or sum(array.nbytes for array in arrays) > MOST_HASHED:
        return None

    def values(output: Any) -> Any:
        flat = output.reshape(len(output), -1)
        items = np.unique(np.linspace(0, len(output) - 1, MOST_ITEMS).astype(int))
        few = flat[:, :: max(1, -(-flat.shape[1] // ITEM_VALUES))][items]  # nothing large is copied
        few = np.concatenate([few.real, few.imag], axis=1) if few.dtype.kind == "c" else few
        return few.astype("float64")

    rows = {name: values(array) for name, array in outputs.items() if array.ndim and array.size}
    if not all(close(row, values(again[name])) for name, row in rows.items()):
        return None
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return {"inputs": digest.hexdigest()[:16], "outputs": {name: row.ravel().tolist() for name, row in rows.items()}}
