"""What the user gives for an input by `--input`: a constant, or a file of items."""

from __future__ import annotations

import base64
import json
import os
import re
import zlib
from math import prod
from typing import Any, Callable, Dict, Optional, Sequence

from .shapes import OPEN, item_shape, shape_text

# Files that hold items; of all others the bytes are one item, but of TFRecords.
ITEM_FILES = (".npy", ".npz", ".json", ".jsonl", ".ndjson")
# A TFRecord: of each record its length (8 bytes), the checksum of that (4), its bytes, and their checksum (4).
_HEAD, _TAIL = 12, 4
_HEAD_BYTES = 1 << 16
_LINES = (".txt", ".csv", ".tsv", ".text")
_ENCODED = re.compile(rb'"(?:/9j/|iVBORw0KGgo|R0lGOD|UklGR)')  # how JPEG, PNG, GIF and WebP begin in base64
# What is no file and looks like one: a single word with an ending or a slash, or whatever ends as files do.
_FILE_NAME = re.compile(
    r"\S+\.[a-z][a-z0-9]{1,4}|\S*/\S*"
    r"|.*\.(jpe?g|png|gif|bmp|webp|tiff?|wav|mp[34]|flac|ogg|txt|jsonl?|np[yz]|tfrecord|csv|bin)",
    re.ASCII | re.IGNORECASE,
)
Report = Dict[str, Any]
DtypeOf = Callable[[str], Any]


class WorkloadError(Exception):
    """The workload does not do what is asked of one, or cannot be fed so: what was found, and what to do."""

    def __init__(self, message: str, advice: str) -> None:
        Exception.__init__(self, message)
        self.advice = advice


def shortened(text: str) -> str:
    """Return a text as one line of it can be shown."""
    line = " ".join(text.split())
    return line if len(line) <= 40 else line[:39] + "…"


def batch_of_items(items: Any, axis: Optional[int], shape: Sequence[int]) -> Any:
    """Return items, the first dimension, repeated or cut to the batch, and laid where an input has that."""
    import numpy as np

    if axis is None:
        return items[0]
    return np.ascontiguousarray(np.moveaxis(items[np.arange(shape[axis]) % len(items)], 0, axis))


def items_of(described: Report, dtype_of: DtypeOf) -> Any:
    """Return what the user gives for an input as an array of items; raises WorkloadError."""
    import numpy as np

    items = given_items(described, dtype_of)
    wanted = item_shape(described)
    if wanted and prod(wanted) == 1 and len(items) == 1:  # a list of single values
        items = items.reshape([-1, *wanted])
    if list(items.shape[1:]) != wanted:
        if described["given"].get("file") is None and items.size == 1:  # one value for all
            return np.broadcast_to(items.reshape([1] * (1 + len(wanted))), [1, *wanted])
        raise refused(
            described,
            "its items have the shape %s, and the model takes %s"
            % (shape_text(list(items.shape[1:])), shape_text(wanted)),
            "transpose them, as the dimensions are in another order"
            if sorted(items.shape[1:]) == sorted(wanted)
            else "give an item, or a batch of items",
        )
    return items


def given_items(described: Report, dtype_of: DtypeOf) -> Any:
    """Return what the user gives as an array of items, of the type that the input has; raises WorkloadError.

    A file of items need not have the shape yet that the model takes.
    """
    import numpy as np

    given, kind = described["given"], described["dtype"]
    if "file" not in given:
        return constant(described, given["text"], dtype_of)
    path, suffix = given["file"], os.path.splitext(given["file"])[1].lower()
    try:
        if suffix in (".json", ".jsonl", ".ndjson"):
            items = json_items(described, path)
        elif suffix == ".npy":
            # The memory is shared with other processes; a pickle in it may run code.
            items = stacked(described, np.load(path, mmap_mode="r", allow_pickle=False))
        elif suffix == ".npz":
            items = stacked(described, array_of_archive(described, path))
        elif kind == "string":
            with open(path, "rb") as file:
                content = file.read()
            if is_record(unpacked(content)):
                raise refused(described, "it is a TFRecord that gzip has compressed", "unpack it: gunzip")
            items = records_of(described, content) if is_record(content) else filled_with(described, content)
        else:
            raise refused(described, "it is not a file of numbers", "expected one that ends in .npy, .json or .jsonl")
    except (OSError, ValueError) as error:
        if any(words in str(error) for words in ("Object arrays", "Python objects")):  # NumPy's words for it
            plain = "str), or of bytes array.astype('S'" if kind == "string" else "'%s'" % kind
            advice = "save it with a plain type: np.save(file, array.astype(%s))" % plain
            raise refused(described, "it holds Python objects, which are not loaded", advice) from error
        raise refused(described, "it cannot be read: %s" % error, "write it again") from error
    return typed(described, items, dtype_of)


def array_of_archive(described: Report, path: str) -> Any:
    """Return the array of an archive that has the input's name, or its only one; raises WorkloadError."""
    import numpy as np

    with np.load(path, allow_pickle=False) as archive:
        name = described["known_as"] if described["known_as"] in archive.files else archive.files[0]
        if len(archive.files) > 1 and name != described["known_as"]:
            raise refused(
                described,
                "none of its arrays is called '%s', but %s" % (described["known_as"], ", ".join(archive.files)),
                "save the one array as .npy",
            )
        return archive[name]


def is_one_item(path: str) -> bool:
    """Return whether the bytes of a file are one item of an input of strings."""
    if path.lower().endswith(ITEM_FILES):
        return False
    try:
        with open(path, "rb") as file:
            return not is_record(file.read(_HEAD))
    except OSError:  # which is reported when it is read whole
        return True


def file_text(path: str) -> str:
    """Return in words what of a file for an input of strings may be meant otherwise: its lines, or base64 in it."""
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
    if not path.lower().endswith(ITEM_FILES) and is_one_item(path):
        is_text = path.lower().endswith(_LINES) and head.count(b"\n", 0, -1)
        lines = " of several lines (a .jsonl file has an item a line)" if is_text else ""
        return ", %d bytes as one item%s" % (os.path.getsize(path), lines)
    if _ENCODED.search(head) and b'"b64"' not in head:
        return ', base64 as it stands ({"b64": …} feeds the bytes)'
    return ""


def unpacked(content: bytes) -> bytes:
    """Return the first bytes of what gzip compressed; none of anything else."""
    try:
        return zlib.decompressobj(31).decompress(content, 12)  # 31: a header of gzip has to be there
    except zlib.error:
        return b""


def is_record(begin: bytes) -> bool:
    """Return whether a file that begins so is a TFRecord: its first 12 bytes are a length and the checksum of that."""
    crc = 0xFFFFFFFF
    for byte in begin[:8]:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return len(begin) >= _HEAD and begin[8:_HEAD] == masked.to_bytes(4, "little")


def records_of(described: Report, content: bytes) -> Any:
    """Return the records of a TFRecord as items of an input of strings; raises ValueError if its end is missing."""
    import numpy as np

    at, records = 0, []
    while at < len(content):
        begin = at + _HEAD
        at = begin + int.from_bytes(content[begin - _HEAD : begin - _TAIL], "little") + _TAIL
        if at > len(content):
            raise ValueError("the last record of the TFRecord is not complete")
        records.append(strings([1, *item_shape(described)], content[begin : at - _TAIL]))
    return np.concatenate(records)


def constant(described: Report, text: str, dtype_of: DtypeOf) -> Any:
    """Return the value that a text says, one for all, or an item of numbers with commas between them."""
    import numpy as np

    name, kind = described["name"], described["dtype"]
    if kind == "string":
        if _FILE_NAME.fullmatch(text) and os.path.isdir(text):
            advice = "give one of its files, or their contents as items of one file"
            raise WorkloadError("--input %s=%s is a folder" % (name, text), advice)
        if _FILE_NAME.fullmatch(text):
            raise WorkloadError(
                "--input %s=%s: there is no such file" % (name, text),
                "check its path; to give it as text, put it into a .txt file",
            )
        return filled_with(described, text.encode())
    if kind == "bool":
        try:
            return np.array([truth(text)])
        except KeyError:
            raise WorkloadError("--input %s is '%s'" % (name, text), "expected true or false, or a file") from None
    try:
        parts = re.sub(r"^\s*[\[(](.*)[\])]\s*$", r"\1", text).split(",")
        numbers = np.array([whole(part) if "int" in kind else float(part) for part in parts])
    except (ValueError, OverflowError):
        word = "a whole number" if "int" in kind else "a number"
        raise WorkloadError(
            "--input %s is '%s', no file and not %s" % (name, text, word),
            "expected %s for type %s, or a .npy, .json or .jsonl file" % (word, kind),
        ) from None
    if len(numbers) > 1 and item_shape(described) != [len(numbers)]:
        wanted = shape_text(item_shape(described))
        raise WorkloadError(
            "--input %s has %d numbers, and an item has the shape %s" % (name, len(numbers), wanted),
            "give one number for all, or a .npy file",
        )
    return typed(described, numbers[None] if len(numbers) > 1 else numbers, dtype_of)


def truth(text: str) -> bool:
    """Return whether a text says yes; raises KeyError where it says neither."""
    words = dict.fromkeys(("true", "1", "yes", "on", "t", "y"), True)
    words.update(dict.fromkeys(("false", "0", "no", "off", "f", "n"), False))
    return words[text.lower()]


def whole(text: str) -> int:
    """Return the whole number that a text says, 1e3 and 1000.0 too; raises ValueError or OverflowError."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)


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
    """Return the items of a file of JSON: a list of them, an item a line, or a request's `instances`.

    An item may stand in an object, under the input's name or as its only value.
    """
    with open(path, encoding="utf-8-sig") as file:
        text = file.read()
    try:
        document = json.loads(text)
    except ValueError:
        document = [json.loads(line) for line in text.splitlines() if line.strip()]
    if isinstance(document, dict) and isinstance(document.get("instances"), list):
        document = document["instances"]
    elif isinstance(document, dict) and described["known_as"] not in document and "inputs" in document:
        document = columns(document["inputs"])
    if isinstance(document, list):
        items = [json_value(described, each) for each in document]
    else:
        value = json_value(described, document)
        items = value if isinstance(value, list) else [value]
    if not items:
        raise refused(described, "it has no items", "expected an item a line")
    return stacked(described, items)


def columns(inputs: Any) -> Any:
    """Return the batches of a request's `inputs` by name: TensorFlow Serving's columns, or KServe's list of tensors."""
    import numpy as np

    if isinstance(inputs, list) and all(isinstance(each, dict) and {"name", "data"} <= each.keys() for each in inputs):
        return {
            each["name"]: np.reshape(each["data"], each["shape"]).tolist() if "shape" in each else each["data"]
            for each in inputs
        }
    return inputs


def json_value(described: Report, item: Any) -> Any:
    """Return what an item of JSON holds for an input: of an object a value, and of base64 its bytes."""
    if isinstance(item, dict) and list(item) != ["b64"]:
        key = next((name for name in (described["known_as"], *item) if name in item), None)
        if key is None or (len(item) > 1 and key != described["known_as"]):
            as_text = (
                "; if an object itself is the text, write it as a string" if described["dtype"] == "string" else ""
            )
            raise refused(
                described,
                "its objects have no key '%s', but %s" % (described["known_as"], shortened(", ".join(item)) or "none"),
                "rename the key to the input's name, or write the items alone" + as_text,
            )
        item = item[key]
    return decoded(item) if described["dtype"] == "string" else item


def decoded(item: Any) -> Any:
    """Return an item of JSON with the bytes of what is in base64, in lists too."""
    if isinstance(item, list):
        return [decoded(each) for each in item]
    encoded = item.get("b64") if isinstance(item, dict) else None
    return base64.b64decode(encoded) if isinstance(encoded, str) else item


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
        expected += " (of a grey image: array[..., None])" if (array.ndim, rank) == (2, 3) else ""
        raise refused(
            described,
            "it has the shape %s" % shape_text(list(array.shape)),
            "expected %s, or a batch of them" % expected,
        )
    return np.moveaxis(array, items_at(described, array.shape), 0)


def items_at(described: Report, sizes: Sequence[int]) -> int:
    """Return which dimension of an array are its items: the first, or the one that the model has as the batch.

    If both fit, one item is likelier than items of size 1. Raises WorkloadError if nothing decides.
    """
    axis: Optional[int] = described["batch_axis"]
    shape = described["shape"]
    if not axis or described["item_rank"] != len(shape) - 1 or len(sizes) != len(shape):
        return 0
    wanted = [n for place, n in enumerate(shape) if place != axis]
    items = {place: [n for at, n in enumerate(sizes) if at != place] for place in (0, axis)}
    fitting = [place for place in items if all(m in (n, OPEN, None) for n, m in zip(items[place], wanted))]
    if len(fitting) < 2 or items[0] == items[axis] or sizes[0] == 1:
        return fitting[0] if fitting else 0
    if sizes[axis] == 1:
        return axis
    whole = [",".join(map(str, [*item[:axis], "batch", *item[axis:]])) for item in items.values()]
    raise refused(
        described,
        "its shape %s is %d items of %s, or %d items in the model's order of dimensions"
        % (shape_text(list(sizes)), sizes[0], shape_text(list(items[0])), sizes[axis]),
        "give the shape: --input-shape %s=%s or %s" % (described["name"], *whole),
    )


def typed(described: Report, array: Any, dtype_of: DtypeOf) -> Any:
    """Return an array in the type of its input; raises WorkloadError where that would change its values."""
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


def refused(described: Report, what: str, advice: str) -> WorkloadError:
    """Return the error for what was given for an input."""
    given = described["given"]
    return WorkloadError(
        "--input %s=%s: %s" % (described["name"], shortened(given.get("file") or given["text"]), what), advice
    )
