"""What the inputs of a model that was found are fed with: what the user gives, or else values that are made up.

Made-up values are decided by type, name and shape, the first rule that fits. Whatever they are, every answer lists
them; those that may remove work, because the model reads from them how much there is to do, are *doubtful*, and a
warning too. A graph makes further ones doubtful: those whose values decide a size or a branch, or go into an operator
that is not known.

| input | value | doubtful |
| --- | --- | --- |
| with `--input` | what was given | |
| with `--input-range` | random numbers of that range | |
| text | a text of 40 words | yes |
| a mask: a word of its name is `mask` | ones, true; zeros where it is a `key_padding_mask` | of padding |
| what is padded, finished, stopped, skipped, dropped or ignored | zeros, false | yes |
| a training switch, or one truth value alone | false | yes |
| other truth values | true | |
| one number named `keep_prob` or as a dropout rate | 1, or 0 | yes |
| a sampling rate: `sr`, `sample_rate`, `sampling_rate` | 16000 | |
| a length: named `…len`, `…lengths`, `n_…` or `num_…` | size of what it measures, or 1 | yes |
| one integer for all items | 1 | yes |
| one floating-point number for all items | 0.5 | yes |
| a few numbers of an item named as its size, scale or duration | random in [0, 1) | yes |
| pixels: bytes in three dimensions or more | 0 to 255 at random | |
| indices of a table, as the graph shows, also by way of a remainder | its rows at random | |
| numbers that an index is worked out from | 0 and 1, or [0, 1), at random | yes |
| integers that may count: by name, without a batch, or one per item next to larger inputs | 0 and 1 at random | yes |
| other integers | 0 and 1 at random | |
| a few floating-point numbers without a batch next to inputs that have one | random in [0, 1) | yes |
| sound of one dimension, which may be the batch or the samples | random in [0, 1) | yes |
| other numbers | random in [0, 1) | |
"""

from __future__ import annotations

import hashlib
import os
import re
from math import prod
from typing import Any, Dict, List, Optional, Sequence

from .shapes import SAMPLING_RATE, SOUND, item_shape, outweighs
from .user_inputs import DtypeOf, batch_of_items, file_text, items_of, shortened, strings

SEED = 20160627
TEXT = (
    "On Monday morning the small museum near the old harbour opened its new hall, where visitors follow how ships were "
    "built, repaired and sailed over four centuries, and children may try every knot that a sailor had to know well."
)
_SWITCHES = {"training", "train", "is_training", "is_train", "learning_phase", "keras_learning_phase", "train_mode"}
_NOT_OF_MASKS = {"token", "tokens", "id", "ids", "position", "positions", "label", "labels", "indices"}
_CHANCES = {"prob", "probs", "probability", "rate", "ratio"}
_EXTENTS = {
    "shape", "size", "sizes", "info", "meta", "scale", "scales", "factor", "factors", "duration", "durations",
}  # fmt: skip
_OF_AMOUNTS = ("len", "lens", "length", "lengths", "ratio", "ratios", "rate", "prob", "probs", "size", "count")
_PADDING = {"pad", "padding", "paddings", "padded"}
_ENDED = {"finished", "done", "skip", "skipped", "eos", "stop", "stopped", "end", "ended", "terminal", "terminals"}
_LEFT_OUT = {"drop", "dropped", "ignore", "ignored", "invalid", "exclude", "excluded", "out"}
# Of integers: what counts work, and what names one of many.
_AMOUNTS = {
    "duration", "durations", "count", "counts", "repeat", "repeats", "size", "sizes", "frames", "nframes",
    "steps", "limit", "beams", "tokens", "k",
}  # fmt: skip
_NAMES = {
    "id", "ids", "label", "labels", "class", "classes", "category", "type", "index", "idx", "user", "item",
    "token", "word", "genre", "code",
}  # fmt: skip
_RATES = {"sr", "sample_rate", "sampling_rate", "samplerate"}
# Numbers of something else than the parts of another input.
_COUNTS = {"beams", "beam", "classes", "heads", "layers", "return", "groups", "iterations", "iters", "inference"}
_FEW = 4  # numbers that are no data
Report = Dict[str, Any]


def words_of(name: str) -> List[str]:
    """Return the words of an input's name, without numbers: `inputMask:0` has two."""
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    return [word for word in re.split(r"[^a-z]+", spaced.lower()) if word]


def is_length(name: str, dtype: str) -> bool:
    """Return whether an input is named as what counts the parts of another.

    Of floating-point numbers only the plural is clear: a `petal_length` is a feature.
    """
    words = words_of(name)
    if not words or _COUNTS.intersection(words):
        return False
    if "int" not in dtype:
        return any(word.endswith(("lens", "lengths")) for word in words)
    counts = words[0] in ("n", "num") and len(words) > 1
    return counts or any(word.endswith(("len", "lens", "length", "lengths")) for word in words)


def made_up(described: Report, others: Sequence[Report]) -> Report:
    """Return `constant` or `range`, what is made up for an input, and whether it is `doubtful`; see the table above.

    `others` are the other inputs of the model, of which a length measures one.
    """
    name, dtype, user_range = described["name"], described["dtype"], described["range"]
    if user_range is not None:
        return {"range": user_range}
    if dtype == "string":
        return {"constant": TEXT, "doubtful": True}
    words, n_values = words_of(name), prod(item_shape(described))
    is_single = None not in described["shape"] and prod(described["shape"]) == 1
    is_switch = "_".join(words) in _SWITCHES or "_".join(words[-2:]) in _SWITCHES or words[-1:] == ["training"]
    if is_mask(words):
        if words[-3:-1] == ["key", "padding"]:
            return {"constant": 0}
        if _LEFT_OUT.intersection(words):
            return {"constant": 0, "doubtful": True}
        return dict({"constant": 1}, **({"doubtful": True} if _PADDING.intersection(words) else {}))
    if _PADDING.intersection(words) or (dtype == "bool" and (_ENDED | _LEFT_OUT).intersection(words)):
        return {"constant": 0, "doubtful": True}
    if n_values == 1 and is_switch:
        return {"constant": 0, "doubtful": True}
    if dtype == "bool":
        return {"constant": 0, "doubtful": True} if is_single else {"constant": 1}
    if is_single and ("dropout" in words or ({"keep", "drop"} & set(words) and _CHANCES & set(words))):
        return {"constant": 1 if "keep" in words else 0, "doubtful": True}
    if n_values == 1 and "_".join(words) in _RATES:
        return {"constant": SAMPLING_RATE}
    if is_length(name, dtype):
        size = measured(described, others) if "int" in dtype else None
        return {"constant": fitting(1 if size is None else size, dtype), "doubtful": True}
    if is_single:
        return {"constant": 1 if "int" in dtype else 0.5, "doubtful": True}
    is_for_all = None not in described["shape"] and any(None in each["shape"] for each in others)
    if dtype == "uint8" and len(described["shape"]) >= 3:
        return {"range": [0, 256], "of": "pixels"}
    if "int" in dtype:
        is_doubtful = is_for_all or may_count(words, n_values, others)
        return dict({"range": [0, 2]}, **({"doubtful": True} if is_doubtful else {}))
    is_named = described["shape"] == [None] and bool(SOUND.intersection(words))
    is_sound = is_named or is_one_sound(described, others)
    is_extent = n_values <= _FEW and bool(_EXTENTS.intersection(words[-1:])) and any(is_grid(each) for each in others)
    is_for_all = is_for_all and not outweighs(described["shape"], [each["shape"] for each in others])
    return dict({"range": [0, 1]}, **({"doubtful": True} if is_sound or is_for_all or is_extent else {}))


def correct(
    described: Report,
    *,
    decides: bool,
    rows: Optional[int],
    is_worked_out: bool = False,
    is_plain: bool = False,
) -> None:
    """Correct what is made up for an input by what the graph shows.

    An input that indexes a table gets indices of all its `rows`, as far as its type has them: two rows would stay in
    the cache. One whose values `decides` how much is computed is doubtful, and so are numbers that an index
    `is_worked_out` from. One that is for plain arithmetic alone is not, whatever its name is.
    Whoever gives a range has said what the input holds.
    """
    filled = described["made_up"]
    if filled is None or described["range"] is not None:
        return
    may_be_index = "range" in filled and filled.get("of") != "pixels"
    decides = decides or (is_worked_out and may_be_index)
    if rows and rows > 1 and described["dtype"] not in ("bool", "string"):
        described["made_up"] = {"range": [0, fitting(rows - 1, described["dtype"]) + 1], "of": "rows"}
        described["values"], described["doubtful"] = values_text(described), False
    described["doubtful"] = (described["doubtful"] and not is_plain) or decides


def is_one_sound(described: Report, others: Sequence[Report]) -> bool:
    """Return whether an input of one open dimension is a sound: it is the only one, or a sampling rate is with it."""
    rates = [each["shape"] for each in others if "_".join(words_of(each["name"])) in _RATES]
    is_with_rate = any(shape is not None and all(isinstance(n, int) for n in shape) for shape in rates)
    return described["shape"] == [None] and "float" in described["dtype"] and (not others or is_with_rate)


def is_grid(described: Report) -> bool:
    """Return whether an item of an input has two dimensions or more, as images and frames of sound have."""
    return len(item_shape(described)) >= 2


def is_mask(words: Sequence[str]) -> bool:
    """Return whether the words of a name are those of a mask, and not of what is masked."""
    if not words or _NOT_OF_MASKS.intersection(words) or any(word.endswith(_OF_AMOUNTS) for word in words):
        return False
    return words[-1].endswith(("mask", "masks")) or not {"mask", "masks"}.isdisjoint(words)


def may_count(words: Sequence[str], n_values: int, others: Sequence[Report]) -> bool:
    """Return whether integers of an item may be how much there is to do: by their name, or one beside larger inputs."""
    if _AMOUNTS.intersection(words[-1:]):
        return True
    is_one = n_values == 1 and any(each["dtype"] == "string" or prod(item_shape(each)) > 1 for each in others)
    return is_one and not _NAMES.intersection(words)


def measured(described: Report, others: Sequence[Report]) -> Optional[int]:
    """Return the size that a length is one of: of the input whose name has most in common, its first but the batch.

    A size that the model leaves open comes before one that is written into it, such as the bands of a spectrogram.
    """
    own = set(words_of(described["name"]))
    candidates = [
        each
        for each in others
        if item_shape(each) and each["dtype"] != "string" and not is_length(each["name"], each["dtype"])
    ]
    if not candidates:
        return None
    found = max(candidates, key=lambda each: len(own.intersection(words_of(each["name"]))))
    sizes = zip(found["shape"], found.get("model_shape") or found["shape"])
    known = [found["batch_axis"], found.get("given_batch_at")]
    open_sizes = [n for place, (n, m) in enumerate(sizes) if place not in known and n and not isinstance(m, int)]
    return (open_sizes or item_shape(found))[0]


def fitting(value: int, dtype: str) -> int:
    """Return a number, or the largest that a type of integers holds."""
    import numpy as np

    return min(value, int(np.iinfo(dtype).max)) if "int" in dtype else value


def values_text(described: Report) -> str:
    """Return what an input is fed with in words, as they stand after its name, type and shape."""
    given, filled = described["given"], described["made_up"]
    if given is not None:
        if "file" not in given:
            return "= %s" % shortened(given["text"])
        name = os.path.basename(given["file"])
        return "from %s%s" % (name, file_text(given["file"]) if described["dtype"] == "string" else "")
    if described["dtype"] == "string":
        return "= text of %d words" % len(TEXT.split())
    if "constant" in filled:
        value = filled["constant"]
        return "= %s" % ({0: "false", 1: "true"}[value] if described["dtype"] == "bool" else value)
    low, high = filled["range"]
    if "of" in filled:
        return "%s from %d to %d" % (filled["of"], low, high - 1)
    if "int" not in described["dtype"]:
        return "in [%g, %g)" % (low, high)
    if high - low == 1:
        return "= %d" % low
    return "0 or 1" if (low, high) == (0, 2) else "from %d to %d" % (low, high - 1)


def array_of(described: Report, batch_size: int, dtype_of: DtypeOf) -> Any:
    """Return the array of an input for a batch; `dtype_of` gives NumPy's type of a type's name."""
    import numpy as np

    shape = [batch_size if n is None else n for n in described["shape"]]
    kind, filled = described["dtype"], described["made_up"]
    if described["given"] is not None:
        return batch_of_items(items_of(described, dtype_of), described["batch_axis"], shape)
    if kind == "string":
        return strings(shape, filled["constant"].encode())
    if "constant" in filled:
        return np.full(shape, filled["constant"], dtype=dtype_of(kind))
    # Each input has its own numbers, and the same in every process.
    seed = int(hashlib.sha256(described["name"].encode()).hexdigest()[:8], 16)
    rng = np.random.default_rng([SEED, seed])
    low, high = filled["range"]
    if "int" in kind:
        return rng.integers(low, high, size=shape, dtype=kind)
    array = (low + (high - low) * rng.random(shape)).astype(dtype_of(kind))
    if filled.get("of") == "rows":  # a short type may round them up to a row that there is not
        array[array.astype("float64") >= high] = low
    return array
