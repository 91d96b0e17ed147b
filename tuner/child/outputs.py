"""What a step computed: whether that is a result, and a sample of it, by which processes are compared."""

from __future__ import annotations

import hashlib
from typing import Any, Dict, Iterable, Mapping, Optional

FINITE_CHUNK = 1 << 18  # values checked at once, to limit the memory needed for the check
SAMPLE_SIZE = 32  # values of each output
MOST_ITEMS, ITEM_VALUES = 64, 4  # of which some values of each output are told, too
NAN, INF, MINUS_INF = "nan", "inf", "-inf"  # as Python reads them
WORDS = {NAN: "NaN", INF: "infinite", MINUS_INF: "minus infinite"}
PLACES = 251
NOWHERE = [0] * PLACES
MOVED = 1e-3
MOST_HASHED = 1 << 26  # bytes of inputs of which a digest is made

Report = Dict[str, Any]
Arrays = Dict[str, Any]


class InvalidOutputError(Exception):
    """The model computed something that is not a number."""


def close(values: Any, others: Any) -> bool:
    """Return whether two arrays are the same, but for rounding; what is not finite is so at the same places."""
    import numpy as np

    values, others = widened(np.asarray(values)), widened(np.asarray(others))
    if values.shape != others.shape or moved(places(values), places(others)):
        return False
    finite = np.isfinite(values) & np.isfinite(others)
    if not finite.all():
        values, others = values[finite], others[finite]
    return bool(np.allclose(values, others, rtol=1e-3, atol=1e-3 * np.abs(values).max(initial=0.0)))


def agree(outputs: Arrays, others: Arrays) -> bool:
    """Return whether two calls computed the same, but for rounding."""
    return all(close(array, others[name]) for name, array in outputs.items())


def check_learns(first: Any, later: Any) -> None:
    """Raise InvalidOutputError where no loss has moved: a step that trains nothing is not the work that was meant."""
    if not any((later[name] != loss).any() for name, loss in first.items()):
        raise InvalidOutputError("the loss did not change after the first step: the model is not being trained")


def not_finite(outputs: Arrays) -> Report:
    """Return the `places` of values that are not finite, of the outputs that hold any."""
    found = {name: places(array) for name, array in outputs.items()}
    return {name: each for name, each in found.items() if each}


def places(array: Any) -> Report:
    """Return where an array is NaN, infinite and minus infinite, {} if it is finite: of each kind how many values.

    They are counted by their position modulo a prime, so that two arrays can be compared by little: `moved`.
    """
    import numpy as np

    values = np.ravel(array)
    found: Report = {}
    for at in range(0, values.size, FINITE_CHUNK):
        chunk = widened(values[at : at + FINITE_CHUNK])
        if np.isfinite(chunk).all():
            continue
        for part in (chunk.real, chunk.imag) if chunk.dtype.kind == "c" else (chunk,):
            for kind, is_kind in ((NAN, np.isnan), (INF, np.isposinf), (MINUS_INF, np.isneginf)):
                positions = (np.flatnonzero(is_kind(part)) + at) % PLACES
                if positions.size:
                    found[kind] = found.get(kind, 0) + np.bincount(positions, minlength=PLACES)
    return {kind: counts.tolist() for kind, counts in found.items()}


def moved(some: Report, others: Report) -> bool:
    """Return whether two arrays are not finite at different `places`.

    A value on a threshold may cross it by rounding: so many as one in a thousand are let pass.
    """
    apart = total = 0
    for kind in {*some, *others}:
        for n, m in zip(some.get(kind, NOWHERE), others.get(kind, NOWHERE)):
            apart += abs(n - m)
            total += max(n, m)
    return apart > MOVED * total


def counted(outputs: Arrays, found: Report) -> Report:
    """Return how many values each output has that is not finite everywhere, and how many of each kind."""
    return {
        name: dict({kind: sum(counts) for kind, counts in kinds.items()}, size=int(outputs[name].size))
        for name, kinds in found.items()
    }


def check_first(outputs: Arrays, found: Report, *, learns: bool) -> None:
    """Raise InvalidOutputError if outputs are no result: all of them not finite, or a loss that is not."""
    sizes = {name: array.size for name, array in outputs.items() if array.size}
    whole = [name for name, kinds in found.items() if sum(map(sum, kinds.values())) >= sizes[name]]
    if learns and found:
        raise InvalidOutputError("%s: the training diverges" % text_of(counted(outputs, found)))
    if sizes and len(whole) == len(sizes):
        raise InvalidOutputError("no output holds a finite value: %s" % text_of(counted(outputs, found)))


def check_later(first: Report, outputs: Arrays, *, learns: bool, at_random: bool) -> None:
    """Raise InvalidOutputError if a later step is not finite elsewhere than the first step was (`not_finite`).

    Of a model that computes at random that may be, but only of outputs of which something was not finite before.
    """
    found = not_finite(outputs)
    strange = [name for name in {*first, *found} if moved(first.get(name, {}), found.get(name, {}))]
    strange = sorted(name for name in strange if not (at_random and first.get(name) and not learns))
    if strange:
        now = counted(outputs, {name: found.get(name, {}) for name in strange})
        why = "the training diverges" if learns else "after the first step, and not at the same places in it"
        raise InvalidOutputError("%s, %s" % (text_of(now), why))


def text_of(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Return in words how many values of outputs are not finite."""
    parts = []
    for name, kinds in sorted(counts.items()):
        bad = {WORDS[kind]: kinds[kind] for kind in WORDS if kind in kinds}
        words = ", ".join(bad if len(bad) == 1 else ["%d %s" % (n, word) for word, n in bad.items()])
        of_all = "%d of %d values" % (sum(bad.values()), kinds["size"])
        parts.append("%s: %s are not finite%s" % (name, of_all, " (%s)" % words if bad else ""))
    return "; ".join(parts)


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


def first_of(output: Any) -> Any:
    """Return the first item of an output as a batch of one; an output without a batch as it is."""
    return output[:1] if output.ndim else output


def listed(values: Any) -> list[Any]:
    """Return numbers as JSON has them: it has no word for one that is not finite, which becomes text."""
    return [value if abs(value) < float("inf") else str(value) for value in values.tolist()]


def sample(arrays: Iterable[Any], outputs: Arrays, again: Arrays, *, learns: bool) -> Optional[Report]:
    """Return some values of what was computed for the first item, and a digest of what it was computed from.

    `not_finite` are the places of values that are not; it is left out where there are none.

    And a few values of each of some items of the batch, for processes that have the same batch. None where two runs in
    this process (`outputs`, `again`) do not agree: such a model computes at random. Of a model that `learns` the first
    loss is told: no later one is meant to be the same.
    """
    import numpy as np

    def values(output: Any) -> Any:
        # JSON knows no complex number, and NumPy no bfloat16.
        array = np.ravel(first_of(output))
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
    told = {"inputs": digest[:16], "outputs": {name: listed(sampled) for name, sampled in samples.items()}}
    found = {} if learns else not_finite({name: first_of(array) for name, array in outputs.items()})
    told = dict(told, not_finite=found) if found else told
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
    told = {"inputs": digest.hexdigest()[:16], "outputs": {name: listed(row.ravel()) for name, row in rows.items()}}
    found = not_finite(outputs)
    return dict(told, not_finite=found) if found else told
