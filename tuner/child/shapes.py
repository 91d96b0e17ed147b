"""Which dimension of an input is the batch, how large the others are, and which inputs belong together by their shapes.

A dimension is a number, a name, or None where it is open and has none. Names come from ONNX files alone, and they are
trusted first: a name such as `batch` shows where the batch is, and one size fits all dimensions of a name. Of inputs
without names the first dimension is the batch, as TensorFlow's models have it. A user who writes `batch` among the
sizes of `--input-shape` decides, and so does one who gives every input a size for each dimension: such a model has no
batch. A model of a graph has none either, whose first dimensions are called nodes or edges.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple, Union

Dimension = Union[int, str, None]
Shape = List[Dimension]
Report = Dict[str, Any]

BATCH = "batch"  # what stands in `--input-shape` for it
EXAMPLE = 128  # a size that a dimension could be given
SAMPLING_RATE = 16000
# What the batch is called, the clearest names first: a model with a `batch` may have an `n` of points.
_BATCH_NAMES = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (r"(?:.*[_.-])?batch(?:[_.-]?(?:size|dim|axis|n))?(?:[_.-]?\d+)?|bs|bsz", r"b", r"n")
]
_NUMBERED = re.compile(r"unk__\d+|(?:p2o\.)?DynamicDimension\.\d+|.*_dynamic_axes_\d+")  # tf2onnx, Paddle, PyTorch
_PARTS = {
    "time", "timesteps", "seq", "sequence", "seqlen", "frames", "steps", "length", "len", "tokens", "t", "l",
    "samples", "audio", "wav", "waveform", "signal", "height", "width", "h", "w", "rows", "cols", "columns",
}  # fmt: skip
"""Words of names for parts of an item, such as its times or its lines."""
_MEMBERS = {"node", "nodes", "edge", "edges", "point", "points", "vertex", "vertices", "atom", "atoms"}
"""Words of names for what a graph or a cloud consists of: it is an item, and has no batch if they come first."""
_CLOUDS, _ENDS = {"voxel", "voxels", "pillar", "pillars"}, {"senders", "receivers"}
"""Words of names of first dimensions, and of inputs of one dimension: if all have a file, these are one item."""
SOUND = {"audio", "wav", "waveform", "signal", "samples", "pcm", "speech", "sound"}
_ROWS = {"frames", "points", "cloud", "pointcloud", "nodes", "atoms", "vertices"}
_TOKENS = {"ids", "input_ids", "token_ids", "tokens", "input_tokens"}
"""Words of names of inputs, and names of inputs of integers, whose first dimension may be no batch."""
_SIDE = 32  # pixels that a side of an image has: fewer may be a batch
_OF_GRAPHS = [({"edge", "edges"}, [2, None]), ({"adj", "adjacency", "laplacian"}, [None, None])]
"""Words of names of inputs that only a graph has, and their shapes."""


def shape_text(shape: Sequence[Dimension]) -> str:
    """Return a shape as people write it, with ? for what is not known."""
    return "(%s)" % ", ".join("?" if n is None else str(n) for n in shape)


def without_numbers(model_inputs: Sequence[Report]) -> List[Report]:
    """Return inputs without the names that a converter numbers, as these show nothing: each open dimension has one."""
    names = [n for each in model_inputs for n in each["shape"] or ()]
    numbered = {n for n in names if isinstance(n, str) and _NUMBERED.fullmatch(n) and names.count(n) == 1}
    return [
        dict(each, shape=each["shape"] and [None if n in numbered else n for n in each["shape"]])
        for each in model_inputs
    ]


def is_part(name: Dimension) -> bool:
    """Return whether a dimension is named as one of the parts of an item is, and not as a batch."""
    return _has_word(name, _MEMBERS | _PARTS)


def _has_word(name: Dimension, words: Set[str]) -> bool:
    return isinstance(name, str) and bool(words.intersection(re.split(r"[^a-z]+", name.lower())))


def takes_graph(model_inputs: Sequence[Report], user_shapes: Dict[str, Shape], names: Set[str]) -> bool:
    """Return whether names show that a model takes one graph: names of first dimensions, or of an input of edges.

    Such an input has the shape (2, ?), or (?, ?) if it is a matrix, and inputs of nodes have no more dimensions. A user
    who gives it one size knows of a batch. `names` is what the batch is called: a clear one decides, but first
    dimensions that are called N or s0 may be nodes.
    """
    shapes = {each["name"]: each["shape"] or [None] for each in model_inputs}
    if not names and any(_has_word(shape[0], _MEMBERS) for shape in shapes.values()):
        return True
    is_said = any(BATCH in sizes for sizes in user_shapes.values())
    if names and (is_said or any(pattern.fullmatch(n) for pattern in _BATCH_NAMES[:2] for n in names)):
        return False
    if all("file" in (each.get("given") or {}) for each in model_inputs) and any(
        _has_word(shape[0], _CLOUDS) or (len(shape) == 1 and _has_word(name, _ENDS)) for name, shape in shapes.items()
    ):
        return True
    are_rows = len(shapes) > 1 and all(len(shape) <= 2 for shape in shapes.values())
    forms = {name: [n if isinstance(n, int) else None for n in shape] for name, shape in shapes.items()}
    return are_rows and any(
        any(_has_word(name, words) and forms[name] == form for words, form in _OF_GRAPHS)
        and len(user_shapes.get(name) or shape) == 2
        for name, shape in shapes.items()
    )


def batch_names(model_inputs: Sequence[Report], user_shapes: Dict[str, Shape]) -> Set[str]:
    """Return what the batch is called: as its name or the user says, else whatever first dimensions are called."""
    shapes = {each["name"]: each["shape"] for each in model_inputs if each["shape"]}
    all_names = {n for shape in shapes.values() for n in shape if isinstance(n, str)}
    named: Set[str] = set()
    for pattern in _BATCH_NAMES:
        named = named or {n for n in all_names if pattern.fullmatch(n)}
    for name, sizes in user_shapes.items():
        shape = shapes.get(name, [])
        if BATCH in sizes and len(sizes) == len(shape):
            named |= {n for n, size in zip(shape, sizes) if size == BATCH and isinstance(n, str)}
    if named:
        return named
    batches: Set[str] = set()
    inner: Set[str] = set()
    for each in model_inputs:
        for place, n in enumerate(each["shape"] or ()):
            if isinstance(n, str) and not isinstance(each["shape"][0], int):
                (batches if place == each.get("batch_at", 0) and not is_part(n) else inner).add(n)
    return batches - inner


def is_batch(name: Dimension) -> bool:
    """Return whether a dimension is named as a batch is."""
    return isinstance(name, str) and any(pattern.fullmatch(name) for pattern in _BATCH_NAMES)


def usual_place(model_input: Report) -> Optional[int]:
    """Return which dimension is the batch if no name shows it and the graph does not: of one image, none.

    An image has three channels, and both or none of its sides are open.
    """
    shape = model_input["shape"] or []
    is_image = model_input["dtype"] == "uint8" or _has_word(model_input["name"], {"image", "img", "picture", "photo"})
    if not is_image or len(shape) != 3 or 3 not in (shape[0], shape[2]):
        return 0
    sides = shape[:2] if shape[2] == 3 else shape[1:]
    are_open = not any(isinstance(side, int) for side in sides)
    return None if are_open or all(isinstance(side, int) and side >= _SIDE for side in sides) else 0


def batch_axis(
    shape: Shape, names: Set[str], *, has_names: bool, others: Sequence[Shape], usual: Optional[int] = 0
) -> Optional[int]:
    """Return which dimension of an input is the batch; None where none is.

    `names` is what the batch is called, `others` are the shapes of the other inputs, and `usual` is the place of the
    batch if nothing else shows it.
    """
    if not shape:
        return None
    named = [place for place, n in enumerate(shape) if n in names and isinstance(n, str)]
    if named:
        return named[0]
    if usual != 0:
        return usual if usual is not None and usual < len(shape) else None
    first = shape[0]
    if isinstance(first, str) and (has_names or is_part(first) or any(first in each[1:] for each in others)):
        return None
    open_places = [place for place, n in enumerate(shape) if n is None]
    if isinstance(first, int) and len(open_places) == 1 and (has_names or any(each[:1] == [None] for each in others)):
        return open_places[0]  # such as a state of (layers, batch, units) beside an input of (batch, …)
    return 0


def placed(model_inputs: Sequence[Report], user_shapes: Dict[str, Shape]) -> List[Report]:
    """Return each input with its `shape`, null for the batch, and with `batch_axis`, the place of that.

    If the user gives whole shapes, `given_batch_at` is where the batch would have been.
    What is not known of a shape stays open: `missing` finds it. Raises ValueError with the name of an input for sizes
    that do not fit it.
    """
    names = batch_names(model_inputs, user_shapes)
    axes: List[Optional[int]] = []
    for each in model_inputs:
        others = [other["shape"] for other in model_inputs if other is not each and other["shape"]]
        axis = None
        if each["shape"] is not None:
            axis = batch_axis(each["shape"], names, has_names=bool(names), others=others, usual=each.get("batch_at", 0))
        axes.append(axis)
    is_graph = takes_graph(model_inputs, user_shapes, names)
    is_whole = not is_graph and _are_whole(model_inputs, axes, user_shapes)
    usual = axes
    if is_graph or is_whole:
        names, axes = set(), [None] * len(axes)
    resolved = []
    for each, axis, usual_axis in zip(model_inputs, axes, usual):
        shape, axis = _sized(each, axis, user_shapes.get(each["name"]))
        resolved.append(dict(each, shape=shape, batch_axis=axis))
        if is_whole:
            resolved[-1]["given_batch_at"] = usual_axis
    sizes: Dict[str, int] = {}
    for each, before in zip(resolved, model_inputs):
        for name, size in zip(before["shape"] or (), each["shape"] or ()):
            if isinstance(name, str) and isinstance(size, int):
                sizes.setdefault(name, size)
    for each, before in zip(resolved, model_inputs):
        if each["shape"] is not None:
            each["shape"] = [
                None
                if place == each["batch_axis"] or (n in names and isinstance(n, str))
                else OPEN
                if n is None
                else _evaluated(n, sizes)
                for place, n in enumerate(each["shape"])
            ]
            axis = each["batch_axis"]
            # A size that is written into the model stays.
            if axis is not None and before["shape"] is not None and isinstance(before["shape"][axis], int):
                each["shape"][axis] = before["shape"][axis]
    return resolved


OPEN = "?"  # a dimension that has to be given


def _evaluated(n: Dimension, sizes: Dict[str, int]) -> Dimension:
    """Return the size of a named dimension, of a sum or product of named ones too; OPEN where it is not known.

    The total length of a decoder with a cache is what has passed and what comes.
    """
    if not isinstance(n, str):
        return n
    if n in sizes:
        return sizes[n]
    n = re.sub(r"^total_(\w+)$", r"past_\1 + \1", n)
    terms = [re.split(r"\s*\*\s*", term) for term in re.split(r"\s*\+\s*", n)]
    known = {name: sizes.get(name, int(name) if name.isdigit() else None) for names in terms for name in names}
    if terms == [[n]] or None in known.values():
        return OPEN
    return sum(prod(known[name] or 0 for name in names) for names in terms)


def _sized(model_input: Report, axis: Optional[int], sizes: Optional[Shape]) -> "tuple[Optional[Shape], Optional[int]]":
    """Return the shape of an input with what the user says of it, and the place of the batch; raises ValueError."""
    shape = model_input["shape"]
    if sizes is None:
        return shape, axis
    if BATCH in sizes:
        if shape is not None and not _fits(shape, sizes):
            raise ValueError(model_input["name"])
        return [None if n == BATCH else n for n in sizes], sizes.index(BATCH)
    if shape is None:
        return [None, *sizes], 0
    # The only dimension of an input is its batch, unless the user says how long it is: sound has no batch then.
    if axis is None or (len(shape) == len(sizes) == 1 and not isinstance(shape[0], int)):
        if not _fits(shape, sizes):
            raise ValueError(model_input["name"])
        return list(sizes), None
    if isinstance(shape[axis], int) and _fits(shape, sizes):
        return list(sizes), axis  # the batch size that is written into the model, once more
    whole = [*sizes[:axis], BATCH, *sizes[axis:]]
    if _fits(shape, whole):
        return [shape[place] if n == BATCH else n for place, n in enumerate(whole)], axis
    # As it is written where the first dimension is the batch, or whole.
    if isinstance(shape[0], int) and shape[axis] is None and _fits(shape, sizes):
        return list(sizes), 0
    from_second = [BATCH, *sizes]
    if axis == 0 or not _fits(shape, from_second):
        raise ValueError(model_input["name"])
    if isinstance(shape[axis], str):
        return [shape[place] if place in (0, axis) else n for place, n in enumerate(from_second)], axis
    return [shape[0], *sizes], 0


def _are_whole(model_inputs: Sequence[Report], axes: Sequence[Optional[int]], user_shapes: Dict[str, Shape]) -> bool:
    """Return whether the user gives every input whose batch could be open a size for each of its dimensions.

    If none could be open, this counts for all inputs that could have a batch.
    """
    could_have = [
        (
            each["shape"],
            user_shapes.get(each["name"], []),
            each["shape"] is None or not isinstance(each["shape"][axis], int),
        )
        for each, axis in zip(model_inputs, axes)
        if each["shape"] is None or axis is not None
    ]
    are_fixed = not any(is_open for *_, is_open in could_have)
    could_be = [(shape, sizes) for shape, sizes, is_open in could_have if is_open or are_fixed]
    is_plain = all(BATCH not in sizes for sizes in user_shapes.values())
    # Of one open dimension alone, the size is the item's.
    has_more = any(len(sizes) > (0 if are_fixed else 1) for _, sizes in could_be)
    return is_plain and has_more and all(shape is not None and _fits(shape, sizes) for shape, sizes in could_be)


def _fits(shape: Sequence[Dimension], sizes: Sequence[Dimension]) -> bool:
    """Return whether sizes are possible for a shape."""
    if len(shape) != len(sizes):
        return False
    return all(n == BATCH or not isinstance(m, int) or m == n for m, n in zip(shape, sizes))


def may_be_one_item(described: Report, others: Sequence[Report]) -> bool:
    """Return whether the rows of a file could be one item: of an input that is named as parts, which alone are open.

    Nothing shows that the first dimension is the batch: frames (?, 80) or tokens (?) may have none.
    """
    shape, words = described["shape"], re.split(r"[^a-z]+", described["name"].lower())
    if shape[:1] != [None] or len(shape) > 2 or any(None in other["shape"] for other in others):
        return False
    if len(shape) == 2:
        return "float" in described["dtype"] and bool(_ROWS.intersection(words))
    if "int" in described["dtype"]:
        return "_".join(words) in _TOKENS
    return "float" in described["dtype"] and bool(SOUND.intersection(words))


def item_shape(described: Report) -> List[int]:
    """Return the shape of an item: without the batch."""
    return [n for place, n in enumerate(described["shape"]) if place != described["batch_axis"] and n is not None]


def outweighs(shape: Sequence[Optional[int]], others: Iterable[Sequence[Optional[int]]]) -> bool:
    """Return whether an input without an open batch is larger than an item of each that has one."""
    items = [prod(n for n in each if n is not None) for each in others if None in each]
    return bool(items) and None not in shape and prod(n or 0 for n in shape) > max(items)


def is_missing(shape: Optional[Shape]) -> bool:
    """Return whether a shape has to be given."""
    return shape is None or OPEN in shape


def has_batch(placed_input: Report) -> bool:
    """Return whether an input of `placed` has a batch, as one of unknown rank is taken to have."""
    return placed_input["shape"] is None or placed_input["batch_axis"] is not None


def example(placed_input: Report) -> str:
    """Return what an input of `placed` could be given as `--input-shape`."""
    shape = [None, OPEN] if placed_input["shape"] is None else placed_input["shape"]
    axis = 0 if placed_input["shape"] is None else placed_input["batch_axis"]
    item = [n for place, n in enumerate(shape) if place != axis]
    size, name = EXAMPLE, placed_input["name"]
    if len(item) == 1 and _has_word(name, {"timestep", "timesteps"}):
        size = 1
    elif len(item) == 1 and "float" in placed_input["dtype"]:
        names = [name, *(placed_input.get("model_shape") or ())]
        size = SAMPLING_RATE if name.endswith("input_values") or any(_has_word(n, SOUND) for n in names) else EXAMPLE
    dimensions = placed_input.get("model_shape") or [None] * len(shape)
    of_item = [each for place, each in enumerate(dimensions) if place != axis]
    if not any(_has_word(each, {"height", "width"}) for each in of_item):
        return ",".join(str(size if n in (OPEN, None) else n) for n in item)
    return ",".join(str(_of_image(each, size) if n in (OPEN, None) else n) for n, each in zip(item, of_item))


def _of_image(dimension: Dimension, size: int) -> int:
    """Return the usual size of a dimension of images by its name, and `size` of any other."""
    if _has_word(dimension, {"channel", "channels"}):
        return 3
    return 224 if _has_word(dimension, {"height", "width"}) else size


def options(model_inputs: Sequence[Report], user_shapes: Dict[str, Shape]) -> List[str]:
    """Return the options that would complete all shapes that are missing: a dimension that is named needs one."""
    given = dict(user_shapes)
    typed: List[str] = []
    # What is a sum or product of others follows from these.
    is_sum = re.compile(r"[+*]|^total_").search
    sums = [each["name"] for each in model_inputs if any(is_sum(str(n)) for n in each["shape"] or ())]
    while True:
        missing = [each for each in placed(model_inputs, given) if is_missing(each["shape"])]
        if not missing:
            return typed
        lacking = min(missing, key=lambda each: each["name"] in sums)
        text = example(lacking)
        given[lacking["name"]] = [int(n) for n in text.split(",")]
        typed.append("--input-shape %s=%s" % (lacking["name"], text))


# ---- inputs that are the parts of one sparse or ragged tensor: made up each by itself, they do not fit each other ----

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
            return _parts_text(parts)
    return None


def _sparse(own: Dict[str, Report]) -> List[Report]:
    parts = [own[role] for role in ("indices", "values", "dense_shape") if role in own]
    ranks = [len(each["shape"]) for each in parts]
    fits = ranks == [2, 1, 1] and parts[0]["shape"][1] == parts[2]["shape"][0]
    return parts if fits and all("int" in parts[n]["dtype"] for n in (0, 2)) else []


def _ragged(own: Dict[str, Report]) -> List[Report]:
    parts = [own[role] for role in ("values", "row_splits") if role in own]
    return parts if len(parts) == 2 and "int" in parts[1]["dtype"] and len(parts[1]["shape"]) == 1 else []


def _parts_text(parts: Sequence[Report]) -> Tuple[str, str]:
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
