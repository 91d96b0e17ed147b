"""What an error is due to, and what to do: its environment, an adapter's mistake, a batch size, or made-up inputs."""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
import traceback
from math import prod
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .shapes import EXAMPLE

HERE = os.path.dirname(os.path.realpath(__file__))
ROOM = "free some space, or set TMPDIR to a folder on another disk"
WRITABLE = "set TMPDIR to a folder that can be written"
# What a mistake of a program raises; what an adapter refuses in words of its own is something else.
_MISTAKES = (AssertionError, AttributeError, LookupError, NameError, TypeError)
_MOST = 4  # inputs that are named
_FEW = 8  # numbers of a vector that is no data
# What TensorFlow, ONNX Runtime and OpenVINO report of a reshape: the shape or size that is there, and what it is to be.
_RESHAPES = (
    r"Input to reshape is a tensor with (\d+) values, but the requested shape (?:has|requires a multiple of) (\d+)",
    r"cannot be reshaped to the requested shape\. Input shape: ?\{([\d,\s]+)\}, requested shape: ?\{([\d,\s]+)\}",
    r"[Rr]equested output shape \[([\d,\s]+)\] is incompatible with input shape \[([\d,\s]+)\]",
)
# What they report of other operators: the sizes of the first dimension that do not fit each other.
_FIRST_SIZES = (
    r"got split_dim 0 \(size = (\d+)\) and num_split (\d+)",
    r"Input shape axis 0 must equal (\d+), got shape \[(\d+)",
    r"Expected size\[0\] in \[0, (\d+)\], but got (\d+)",
    r"dims\(0\) != batch_size: (\d+) vs\. (\d+)",
    r"Axis 0 has mismatched dimensions of (\d+) and (\d+)",
)
# What operators say of strings that they cannot read, and a file of those that they can.
_FILES = (
    (r"[Cc]ould not parse (?:sequence )?example|[Ii]nvalid serialized", "train.tfrecord"),
    (r"[Uu]nknown image file format|(?i:jpe?g|png|gif|bmp) (?:data|image|file)|DecodeJpeg|DecodeImage", "photo.jpg"),
    (r"Expected RIFF|DecodeWav|Header mismatch", "clip.wav"),
    (r"StringToNumber|could not correctly convert string|\bsto(?:i|l|ll|f|d)\b", "42"),
    (r"Expect \d+ fields? but have", "rows.jsonl"),
    (r"(?:character found in|Invalid) base64|DecodeBase64", "encoded.txt"),
)
# Of an index: the number of rows that there are, or the last of them.
_BEYOND = re.compile(r"(?:is not in|out of range) \[0, (\d+)\)|within the inclusive range \[-?\d+, ?(\d+)\]")
_MISFIT = re.compile(r"incompatible|mismatch|broadcast", re.IGNORECASE)
_WHOLE = "if the first dimension is no batch, but nodes or edges, give whole shapes to all: --input-shape NAME=100,64"
_SHAPE = re.compile(r"[\[({](\d+(?:, ?\d+)+),?[\])}]")
Report = Dict[str, Any]


# ---- the environment ------------------------------------------------------------------------------------------------


def advice(error: BaseException, folder: str) -> str:
    """Return what to do about an error, "" if it does not tell of the environment; `folder` is the workload's."""
    own, other = hidden(error, folder)
    if own:
        return "rename %s, as %s was imported first and hides it" % (own, other)
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        return "install %s (%s -m pip install %s), or put it next to the workload" % (package, sys.executable, package)
    if isinstance(error, ImportError):
        if "failed to map segment" in str(error):
            return "the file system of that library does not let programs run: set TMPDIR to a folder of another one"
        return "fix that environment, or choose another interpreter with --python"
    if isinstance(error, OSError):
        return of_files(error)
    return ""


def hidden(error: BaseException, folder: str) -> Tuple[str, str]:
    """Return the file of a folder that cannot be imported as another has its name, and the other; "" without one.

    Frameworks import much of Python's library before the workload's folder is in the path.
    """
    module = getattr(error, "obj", None)  # of an AttributeError, since Python 3.10
    name = error.name if isinstance(error, ImportError) else getattr(module, "__name__", "")
    top = name.partition(".")[0] if isinstance(name, str) else ""
    if top not in sys.modules or not isinstance(error, (ImportError, AttributeError)):
        return "", ""
    loaded = getattr(sys.modules[top], "__file__", None) or "Python's own %s" % top
    for own in (os.path.join(folder, top + ".py"), os.path.join(folder, top, "__init__.py")):
        if os.path.isfile(own) and os.path.realpath(own) != os.path.realpath(loaded):
            return own, loaded
    return "", ""


def of_files(error: OSError) -> str:
    """Return what to do about a file that could not be written, "" if that is not what the error tells of."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ROOM
    if "No usable temporary directory" in str(error):
        return WRITABLE
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM) and isinstance(error.filename, str):
        folder = os.environ.get("TMPDIR") or tempfile.gettempdir()
        return WRITABLE if error.filename.startswith(folder.rstrip(os.sep) + os.sep) else ""
    return ""


# ---- where it came from ---------------------------------------------------------------------------------------------


def own_frames(error: BaseException, folder: str, adapters: Sequence[str] = ()) -> List[traceback.FrameSummary]:
    """Return where in the files of a folder an exception came from, autograph's copies of them included.

    The folders of `adapters` may lie in it; they are not the user's.
    """
    autograph_frames = re.findall(r'File "(.+?)", line (\d+), in (\S+)', str(error))
    frames = list(traceback.extract_tb(error.__traceback__))
    frames += [traceback.FrameSummary(file, int(line), function) for file, line, function in autograph_frames]
    installed = ("site-packages", "dist-packages")
    return [
        frame
        for frame in frames
        if frame.filename.startswith(folder)
        and not any(_is_in(frame, other) for other in (os.path.dirname(HERE), *adapters))
        and not any(name in frame.filename[len(folder) :].split(os.sep) for name in installed)
    ]


def adapter_mistake(error: BaseException, adapters: Sequence[str]) -> Tuple[List[traceback.FrameSummary], str]:
    """Return where in the folder of an adapter a mistake was raised, and whose that is; nothing of any other error."""
    frames = traceback.extract_tb(error.__traceback__)
    for folder in adapters if frames and isinstance(error, _MISTAKES) else ():
        if _is_in(frames[-1], folder):
            package = os.path.dirname(os.path.realpath(folder))
            is_ours = os.path.join(package, "").startswith(os.path.join(os.path.dirname(HERE), ""))
            own = [frame for frame in frames if _is_in(frame, folder)]
            return own, "tftune" if is_ours else os.path.basename(package)
    return [], ""


def _is_in(frame: traceback.FrameSummary, folder: str) -> bool:
    return os.path.realpath(frame.filename).startswith(os.path.join(os.path.realpath(folder), ""))


# ---- a step that failed ----------------------------------------------------------------------------------------------


def explained(error: BaseException, described: Sequence[Report], batch_size: int) -> Tuple[str, str]:
    """Return what to add to the message of a step that failed, and what to do; both are empty where neither is known.

    `described` are the inputs of the model; those that a Python file makes are never made up.
    """
    size = written_batch(str(error), batch_size)
    if size is not None and size != batch_size:
        return "the batch size %d is written into the graph" % size, "use --batch-size %d" % size
    beyond = _BEYOND.search(str(error))
    is_of_values = type(error).__name__ == "InvalidOutputError" or "assertion failed" in str(error)
    suspects = suspected(described, is_of_values=is_of_values)
    batched = [each for each in described if "made_up" in each and None in each["shape"]]
    is_misfit = len(batched) > 1 and _MISFIT.search(str(error))
    n_rows = None if beyond is None else int(beyond[1]) if beyond[1] else int(beyond[2]) + 1
    is_of_items = n_rows == batch_size  # as many rows as items
    if not suspects:
        return "", _WHOLE if is_misfit or (is_of_items and batched) else ""
    file = next((name for pattern, name in _FILES if re.search(pattern, str(error))), "")
    named = [
        "%s %s %s (%s)" % (each["known_as"], each["dtype"], each["values"], option(each, file, n_rows))
        for each in suspects[:_MOST]
    ]
    more = " and %d more" % (len(suspects) - _MOST) if len(suspects) > _MOST else ""
    advice = "give what the model expects: --input NAME=VALUE, --input NAME=FILE or --input-range NAME=LOW:HIGH"
    if is_of_items:
        advice = _WHOLE
    elif is_misfit:
        advice += "; " + _WHOLE
    return "tftune made up what its inputs hold: %s%s" % (", ".join(named), more), advice


def suspected(described: Sequence[Report], *, is_of_values: bool) -> List[Report]:
    """Return the inputs whose made-up values a model may refuse.

    Numbers in [0, 1) are among them if the error is one of values, such as of the result, or if they are a few for all
    items, such as scales.
    """
    own = [each for each in described if each.get("made_up") is not None]
    likely = [each for each in own if each["made_up"].get("range") != [0, 1] or is_vector(each)]
    doubtful = [each for each in likely if each["doubtful"]]
    others = [each for each in likely if not each["doubtful"]]
    return [*doubtful, *others] or (own if is_of_values else [])


def is_vector(described: Report) -> bool:
    """Return whether an input holds a few numbers for all items: a size, a scale, a shape."""
    return len(described["shape"]) == 1 and described["batch_axis"] is None and 1 < described["shape"][0] <= _FEW


def option(described: Report, file: str = "", n_rows: Optional[int] = None) -> str:
    """Return the option that gives an input other values, with an example.

    `file` is one of strings, where that is known, and `n_rows` are the rows that an index was found to go beyond.
    """
    name, dtype = described["known_as"], described["dtype"]
    if dtype == "string":
        usual = "photo.jpg" if re.search("image|jpe?g|png|bytes", name.lower()) else "FILE"
        return "--input %s=%s" % (name, file or usual)
    if dtype == "bool":
        return "--input %s=%s" % (name, "false" if described["made_up"]["constant"] else "true")
    if n_rows and "int" in dtype and "range" in described["made_up"]:
        return "--input-range %s=0:%d" % (name, n_rows)
    if is_vector(described):
        return "--input %s=%s" % (name, ",".join(["224" if "int" in dtype else "1"] * described["shape"][0]))
    if "range" in described["made_up"]:
        return "--input-range %s=%s" % (name, "0:1000" if "int" in dtype else "LOW:HIGH")
    return "--input %s=%s" % (name, EXAMPLE if described["doubtful"] and "int" in dtype else "VALUE")


def written_batch(text: str, batch_size: int) -> Optional[int]:
    """Return the batch size that a failed operator wants; None if its message is of something else, or no size fits."""
    for number, pattern in enumerate(_RESHAPES):
        match = re.search(pattern, text)
        if match:
            there, wanted = (prod(int(n) for n in part.split(",") if n.strip()) for part in match.groups())
            if number == 2:
                there, wanted = wanted, there
            size, rest = divmod(batch_size * wanted, there) if there else (0, 1)
            return size if size and not rest else None
    sizes = first_sizes(text)
    return next((size for size in sizes if size != batch_size), None) if batch_size in sizes else None


def first_sizes(text: str) -> List[int]:
    """Return the two sizes of a first dimension that a message is about, [] if it is about something else."""
    for pattern in _FIRST_SIZES:
        match = re.search(pattern, text)
        if match:
            return [int(size) for size in match.groups()]
    shapes = [[int(size) for size in shape.split(",")] for shape in _SHAPE.findall(text)[:2]]
    are_alike = len(shapes) == 2 and shapes[0][1:] == shapes[1][1:]
    return [shape[0] for shape in shapes] if are_alike else []
