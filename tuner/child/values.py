"""What the inputs of a model that was found are fed with: what the user gives, or else values that are made up.

Made-up values are decided by type, name and shape, the first rule that fits. Whatever they are, every answer lists
them; those that may remove work, because the model reads from them how much there is to do, are *doubtful*, and a
warning too.

| input | value | doubtful |
| --- | --- | --- |
| with `--input` | what was given | |
| with `--input-range` | random numbers of that range | |
| text | a text of 40 words | yes |
| a mask: a word of its name is `mask` | ones, true; zeros where it is a `key_padding_mask` | of padding |
| what is padded, finished, done or skipped | zeros, false | yes |
| a training switch, or one truth value alone | false | yes |
| other truth values | true | |
| one number named `keep_prob` or as a dropout rate | 1, or 0 | yes |
| a sampling rate: `sr`, `sample_rate`, `sampling_rate` | 16000 | |
| a length: named `…len`, `…lengths`, `n_…` or `num_…` | size of what it measures, or 1 | yes |
| one integer for all items | 1 | yes |
| one floating-point number for all items | 0.5 | yes |
| integers that may count: by name, or one per item beside larger inputs | 0 and 1 at random | yes |
| other integers | 0 and 1 at random | |
| sound of one dimension, which may be the batch or the samples | random in [0, 1) | yes |
| other numbers | random in [0, 1) | |
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from math import prod
from typing import Any, Callable, Dict, List, Optional, Sequence

from .shapes import shape_text

SEED = 20160627
TEXT = (
    "On Monday morning the small museum near the old harbour opened its new hall, where visitors follow how ships were "
    "built, repaired and sailed over four centuries, and children may try every knot that a sailor had to know well."
)
SAMPLING_RATE = 16000
ITEM_FILES = (".npy", ".json", ".jsonl")  # files that hold items; of all others the bytes are one
_SWITCHES = {"training", "train", "is_training", "is_train", "learning_phase", "keras_learning_phase", "train_mode"}
_NOT_OF_MASKS = {"token", "tokens", "id", "ids", "position", "positions", "label", "labels"}
_PADDING = {"pad", "padding", "paddings", "padded"}
_ENDED = {"finished", "done", "skip", "skipped"}
# Of integers: what counts work, and what names one of many.
_AMOUNTS = {
    "duration", "durations", "count", "counts", "repeat", "repeats", "size", "sizes", "frames", "nframes",
    "steps", "limit", "beams", "tokens", "k",
}  # fmt: skip
_NAMES = {
    "id", "ids", "label", "labels", "class", "classes", "category", "type", "index", "idx", "user", "item",
    "token", "word", "genre", "code",
}  # fmt: skip
_SOUND = {"audio", "wav", "waveform", "signal", "samples", "pcm", "speech", "sound"}
_RATES = {"sr", "sample_rate", "sampling_rate", "samplerate"}
# Numbers of something else than the parts of another input.
_COUNTS = {"beams", "beam", "classes", "heads", "layers", "return", "groups", "iterations", "iters", "inference"}
# What is no file and looks like one: a single word with an ending or a slash, or whatever ends as files do.
_FILE_NAME = re.compile(
    r"\S+\.[a-z][a-z0-9]{1,4}|\S*/\S*"
    r"|.*\.(jpe?g|png|gif|bmp|webp|tiff?|wav|mp[34]|flac|ogg|txt|jsonl?|np[yz]|tfrecord|csv|bin)",
    re.ASCII | re.IGNORECASE,
)
Report = Dict[str, Any]
DtypeOf = Callable[[str], Any]


class ValueRefusedError(Exception):
    """What was given cannot be fed: what was found, and what to do."""

    def __init__(self, message: str, advice: str) -> None:
        Exception.__init__(self, message)
        self.advice = advice


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


def item_shape(described: Report) -> List[int]:
    """Return the shape of an item: without the batch."""
    return [n for place, n in enumerate(described["shape"]) if place != described["batch_axis"] and n is not None]


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
        return dict({"constant": 1}, **({"doubtful": True} if _PADDING.intersection(words) else {}))
    if _PADDING.intersection(words) or (dtype == "bool" and _ENDED.intersection(words)):
        return {"constant": 0, "doubtful": True}
    if n_values == 1 and is_switch:
        return {"constant": 0, "doubtful": True}
    if dtype == "bool":
        return {"constant": 0, "doubtful": True} if is_single else {"constant": 1}
    if is_single and ({"keep", "prob"} <= set(words) or "dropout" in words):
        return {"constant": 1 if "keep" in words else 0, "doubtful": True}
    if n_values == 1 and "_".join(words) in _RATES:
        return {"constant": SAMPLING_RATE}
    if is_length(name, dtype):
        size = measured(described, others) if "int" in dtype else None
        return {"constant": fitting(1 if size is None else size, dtype), "doubtful": True}
    if is_single:
        return {"constant": 1 if "int" in dtype else 0.5, "doubtful": True}
    if "int" in dtype:
        return dict({"range": [0, 2]}, **({"doubtful": True} if may_count(words, n_values, others) else {}))
    is_sound = described["shape"] == [None] and (bool(_SOUND.intersection(words)) or not others)
    return dict({"range": [0, 1]}, **({"doubtful": True} if is_sound else {}))


def is_mask(words: Sequence[str]) -> bool:
    """Return whether the words of a name are those of a mask, and not of what is masked."""
    if not words or _NOT_OF_MASKS.intersection(words):
        return False
    return words[-1].endswith(("mask", "masks")) or not {"mask", "masks"}.isdisjoint(words)


def may_count(words: Sequence[str], n_values: int, others: Sequence[Report]) -> bool:
    """Return whether integers of an item may be how much there is to do: by their name, or one beside larger inputs."""
    if _AMOUNTS.intersection(words[-1:]):
        return True
    is_one = n_values == 1 and any(each["dtype"] == "string" or prod(item_shape(each)) > 1 for each in others)
    return is_one and not _NAMES.intersection(words)


def measured(described: Report, others: Sequence[Report]) -> Optional[int]:
    """Return the size that a length is one of: of the input whose name has most in common, its first but the batch."""
    own = set(words_of(described["name"]))
    candidates = [
        each
        for each in others
        if item_shape(each) and each["dtype"] != "string" and not is_length(each["name"], each["dtype"])
    ]
    if not candidates:
        return None
    return item_shape(max(candidates, key=lambda each: len(own.intersection(words_of(each["name"])))))[0]


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
        is_whole = described["dtype"] == "string" and not name.lower().endswith(ITEM_FILES)
        return "from %s%s" % (name, ", %d bytes as one item" % os.path.getsize(given["file"]) if is_whole else "")
    if described["dtype"] == "string":
        return "= text of %d words" % len(TEXT.split())
    if "constant" in filled:
        value = filled["constant"]
        return "= %s" % ({0: "false", 1: "true"}[value] if described["dtype"] == "bool" else value)
    low, high = filled["range"]
    if "int" not in described["dtype"]:
        return "in [%g, %g)" % (low, high)
    return "0 or 1" if (low, high) == (0, 2) else "from %d to %d" % (low, high - 1)


def shortened(text: str) -> str:
    """Return a text as one line of it can be shown."""
    line = " ".join(text.split())
    return line if len(line) <= 40 else line[:39] + "…"


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
    return (low + (high - low) * rng.random(shape)).astype(dtype_of(kind))


def batch_of_items(items: Any, axis: Optional[int], shape: Sequence[int]) -> Any:
    """Return items, the first dimension, repeated or cut to the batch, and laid where an input has that."""
    import numpy as np

    if axis is None:
        return items[0]
    return np.ascontiguousarray(np.moveaxis(items[np.arange(shape[axis]) % len(items)], 0, axis))


def items_of(described: Report, dtype_of: DtypeOf) -> Any:
    """Return what the user gives for an input as an array of items; raises ValueRefusedError."""
    import numpy as np

    items = given_items(described, dtype_of)
    wanted = item_shape(described)
    if list(items.shape[1:]) != wanted:
        if described["given"].get("file") is None and items.size == 1:  # one value for all
            return np.broadcast_to(items.reshape([1] * (1 + len(wanted))), [1, *wanted])
        raise refused(
            described,
            "its items have the shape %s, and the model takes %s"
            % (shape_text(list(items.shape[1:])), shape_text(wanted)),
            "give an item, or a batch of items",
        )
    return items


def given_items(described: Report, dtype_of: DtypeOf) -> Any:
    """Return what the user gives as an array of items, of the type that the input has; raises ValueRefusedError.

    A file of items need not have the shape yet that the model takes.
    """
    import numpy as np

    given, kind = described["given"], described["dtype"]
    if "file" not in given:
        return constant(described, given["text"], dtype_of)
    path, suffix = given["file"], os.path.splitext(given["file"])[1].lower()
    try:
        if suffix in (".json", ".jsonl"):
            items = json_items(described, path)
        elif suffix == ".npy":
            # The memory is shared with other processes; a pickle in it may run code.
            items = stacked(described, np.load(path, mmap_mode="r", allow_pickle=False))
        elif suffix == ".npz":
            raise refused(described, "it is an archive of arrays", "save the one array as .npy")
        elif kind == "string":
            with open(path, "rb") as file:
                items = filled_with(described, file.read())
        else:
            raise refused(described, "it is not a file of numbers", "expected one that ends in .npy, .json or .jsonl")
    except (OSError, ValueError) as error:
        raise refused(described, "it cannot be read: %s" % error, "write it again") from error
    return typed(described, items, dtype_of)


def constant(described: Report, text: str, dtype_of: DtypeOf) -> Any:
    """Return the value that a text says, one for all, or an item of numbers with commas between them."""
    import numpy as np

    name, kind = described["name"], described["dtype"]
    if kind == "string":
        if _FILE_NAME.fullmatch(text):
            raise ValueRefusedError(
                "--input %s=%s: there is no such file" % (name, text),
                "check its path; to give it as text, put it into a .txt file",
            )
        return filled_with(described, text.encode())
    if kind == "bool":
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if text.lower() not in words:
            raise ValueRefusedError("--input %s is '%s'" % (name, text), "expected true or false, or a file")
        return np.array([words[text.lower()]])
    try:
        numbers = np.array([int(part) if "int" in kind else float(part) for part in text.split(",")])
    except (ValueError, OverflowError):
        word = "a whole number" if "int" in kind else "a number"
        raise ValueRefusedError(
            "--input %s is '%s', no file and not %s" % (name, text, word),
            "expected %s for type %s, or a .npy, .json or .jsonl file" % (word, kind),
        ) from None
    if len(numbers) > 1 and item_shape(described) != [len(numbers)]:
        wanted = shape_text(item_shape(described))
        raise ValueRefusedError(
            "--input %s has %d numbers, and an item has the shape %s" % (name, len(numbers), wanted),
            "give one number for all, or a .npy file",
        )
    return typed(described, numbers[None] if len(numbers) > 1 else numbers, dtype_of)


def filled_with(described: Report, value: bytes) -> Any:
    """Return one item of an input of strings, that value throughout."""
    return strings([1, *item_shape(described)], value)


def strings(shape: Sequence[int], value: bytes) -> Any:
    """Return an array of strings that are all the same, and lose none of their zeros at the end."""
    import numpy as np

    array = np.empty(shape, dtype=object)
    array.fill(value)
    return array


def json_items(described: Report, path: str) -> Any:
    """Return the items of a file of JSON: a list of them, or an item a line."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        document = json.loads(text)
        items = document if isinstance(document, list) else [document]
    except ValueError:
        items = [json.loads(line) for line in text.splitlines() if line.strip()]
    if not items:
        raise refused(described, "it has no items", "expected an item a line")
    return stacked(described, items)


def stacked(described: Report, items: Any) -> Any:
    """Return an array of items, of a single item or of several: as many dimensions decide as an item has."""
    import numpy as np

    if described["dtype"] == "string":
        array = np.array(items, dtype=object)
        flat = [each.encode() if isinstance(each, str) else each for each in array.ravel().tolist()]
        if not all(isinstance(each, bytes) for each in flat):
            raise refused(described, "it holds other things than text", "expected strings, an item a line")
        array = np.array([*flat, None], dtype=object)[:-1].reshape(array.shape)
    else:
        try:
            array = np.asarray(items)
        except ValueError:
            raise refused(described, "its items have different shapes", "pad them to one shape") from None
        if array.dtype.kind not in "biufc":
            raise refused(described, "it does not hold numbers", "expected numbers, as type %s" % described["dtype"])
    rank = described["item_rank"]
    array = array[None] if rank is not None and array.ndim == rank else array
    if array.ndim == 0 or not len(array) or (rank is not None and array.ndim != 1 + rank):
        expected = "an item" if rank is None else "an item of %d dimensions" % rank
        raise refused(
            described,
            "it has the shape %s" % shape_text(list(array.shape)),
            "expected %s, or a batch of them" % expected,
        )
    return array


def typed(described: Report, array: Any, dtype_of: DtypeOf) -> Any:
    """Return an array in the type of its input; raises ValueRefusedError where that would change its values."""
    import numpy as np

    kind = described["dtype"]
    if kind == "string":
        return array
    may_be = "b" if kind == "bool" else "iub" if "int" in kind else "biufc" if "complex" in kind else "biuf"
    if array.dtype.kind not in may_be:
        raise refused(described, "it holds %s, and the model takes %s" % (array.dtype, kind), "convert it")
    if "int" in kind and array.size:
        limits = np.iinfo(kind)
        if not limits.min <= int(array.min()) <= int(array.max()) <= limits.max:
            expected = "expected numbers from %d to %d" % (limits.min, limits.max)
            raise refused(described, "it does not fit %s" % kind, expected)
    wanted = dtype_of(kind)
    if array.dtype == wanted:
        return array
    with np.errstate(over="ignore"):
        converted = array.astype(wanted)
    if "float" in kind and np.isfinite(array).all() and not np.isfinite(converted.astype("float64")).all():
        raise refused(described, "it holds numbers that are too large for %s" % kind, "scale them")
    return converted


def refused(described: Report, what: str, advice: str) -> ValueRefusedError:
    """Return the error for what was given for an input."""
    given = described["given"]
    return ValueRefusedError(
        "--input %s=%s: %s" % (described["name"], shortened(given.get("file") or given["text"]), what), advice
    )
