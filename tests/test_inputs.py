"""Inputs of models that were found: which dimension is the batch, what they hold, and what answers say of that."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from tuner.child import blame, onnxfile, shapes, usage, values
from tuner.child.inputs import WorkloadError, described_inputs, fed, plain_strings, shortened
from tuner.child.outputs import InvalidOutputError
from tuner.errors import BadInputError
from tuner.frameworks.tensorflow.child.graph import Flat
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.job.job import check_batch, fixed_batch_size, left_out, possible_sizes, why_fixed
from tuner.measure.warning import Code, input_warnings
from tuner.result import evidence
from tuner.result.document import trial_result
from tuner.space.setting import Setting
from tuner.study.trials import Trial
from tuner.trial.outcome import Status, TrialFailure
from tuner.workload import spec as options
from tuner.workload.feed import facts_of, inputs_text, made_otherwise
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import find

Inputs = list[dict[str, Any]]


def model_input(name: str, dtype: str = "float32", shape: list[Any] | None = None) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": shape}


def described(
    *model_inputs: dict[str, Any],
    sizes: tuple[str, ...] = (),
    ranges: tuple[str, ...] = (),
    values: tuple[str, ...] = (),
) -> Inputs:
    """Return what an export describes of a model with these inputs, as the options ask for."""
    spec = {"shapes": options.shapes(sizes), "ranges": options.ranges(ranges), "values": options.values(values)}
    return described_inputs(list(model_inputs), spec, np.dtype)


def arrays(found: Inputs, batch_size: int, values: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the arrays of a batch by name."""
    spec = {"values": options.values(values)}
    return {each["name"]: fed(spec, each, batch_size, np.dtype) for each in found}


@pytest.mark.parametrize(
    ("model_inputs", "sizes", "expected"),
    [
        # A state whose second dimension is the batch, by the name that it shares with another input.
        (
            [["batch", "samples"], [2, "batch", 64], []],
            ("a=512",),
            [[None, 512], [2, None, 64], []],
        ),
        ([["N", 3], ["N"]], (), [[None, 3], [None]]),
        # Whatever first dimensions are called is the batch, at other places too.
        ([["s0", 512], [2, "s0", 64]], (), [[None, 512], [2, None, 64]]),
        # One size fits all dimensions of a name, and sums of names.
        (
            [["batch", "seq"], ["batch", "past + seq"], ["batch", 2, "past", 8]],
            ("a=16", "c=2,0,8"),
            [[None, 16], [None, 16], [None, 2, 0, 8]],
        ),
        # Time comes first: the name of the second dimension shows the batch.
        ([["time", "batch", 80]], ("a=100,80",), [[100, None, 80]]),
        # Time comes first, and no name shows anything: the user does.
        ([[None, None, 80]], ("a=100,batch,80",), [[100, None, 80]]),
        ([[None, None, 80]], ("a=100,80",), [[None, 100, 80]]),
        ([["time", 1, 80]], ("a=100,batch,80",), [[100, 1, 80]]),
        ([["time", 1, 80]], ("a=100,1,80",), [[100, 1, 80]]),
        # Names that show nothing.
        ([["s0", "s1", 80]], ("a=100,batch,80",), [[100, None, 80]]),
        # Without names, an open dimension beside an input whose first is open.
        ([[None, 512], [2, None, 64]], (), [[None, 512], [2, None, 64]]),
        # Converters number what has no name.
        ([["unk__1", 512], [2, "unk__2", 64]], (), [[None, 512], [2, None, 64]]),
        ([["p2o.DynamicDimension.0", 9], [2, "p2o.DynamicDimension.1"]], (), [[None, 9], [2, None]]),
        ([["a_dynamic_axes_1", 9], [2, "b_dynamic_axes_1", 64]], (), [[None, 9], [2, None, 64]]),
        ([["unk__1", "unk__2"], [2, "unk__1", "unk__2"]], ("a=7",), [[None, 7], [2, None, 7]]),
        ([["batch", 9], [2, "hidden", 64]], ("b=2,5,64",), [[None, 9], [2, 5, 64]]),
        # As it had to be written when the first dimension was always the batch.
        ([[None, 512], [2, None, 64]], ("b=1,64",), [[None, 512], [2, 1, 64]]),
        ([["unk__1", 512], [2, "unk__2", 64]], ("b=2,1,64",), [[None, 512], [2, 1, 64]]),
        ([["batch", 512], [2, "batch", 64]], ("b=1,64",), [[None, 512], [2, None, 64]]),
        ([None], ("a=7",), [[None, 7]]),
        ([None], ("a=7,batch",), [[7, None]]),
        # A size for every dimension: then there is no batch, in no input.
        ([[None, 64], [2, None]], ("a=100,64", "b=2,500"), [[100, 64], [2, 500]]),
        ([["batch", 64], ["batch"], [4]], ("a=100,64", "b=100"), [[100, 64], [100], [4]]),
        ([["num_nodes", 64], [2, "num_edges"], ["num_nodes"]], ("a=9,64", "b=2,20"), [[9, 64], [2, 20], [9]]),
        ([["batch", "num_points", 3]], ("a=500,3",), [[None, 500, 3]]),
        ([[4, 8]], ("a=4,8",), [[4, 8]]),
        # Empty caches.
        ([[None, 12, None, 64]], ("a=12,0,64",), [[None, 12, 0, 64]]),
        ([[4, 8]], (), [[4, 8]]),
    ],
)
def test_where_the_batch_is(model_inputs: list[Any], sizes: tuple[str, ...], expected: list[Any]) -> None:
    named = [model_input(name, shape=shape) for name, shape in zip("abc", model_inputs, strict=False)]
    found = described(*named, sizes=sizes)
    assert [each["shape"] for each in found] == expected
    for batch_size in (1, 4):
        for each, array in zip(found, arrays(found, batch_size).values(), strict=True):
            assert list(array.shape) == [batch_size if n is None else n for n in each["shape"]]


def test_all_shapes_that_are_missing_are_named_at_once() -> None:
    model = [model_input("ids", "int64", [None, None]), model_input("mask", "int64", [None, None])]
    with pytest.raises(WorkloadError) as caught:
        described(*model)
    assert str(caught.value) == (
        "inputs leave dimensions open: 'ids' has the shape (?, ?), 'mask' has the shape (?, ?)"
    )
    assert caught.value.advice.endswith("e.g. --input-shape ids=128 --input-shape mask=128")
    typed = [word for word in caught.value.advice.partition("e.g. ")[2].split() if "=" in word]
    assert [each["shape"] for each in described(*model, sizes=tuple(typed))] == [[None, 128], [None, 128]]


def test_dimensions_of_one_name_need_one_option() -> None:
    model = [model_input(name, "int64", ["batch", "sequence"]) for name in ("ids", "mask", "types")]
    with pytest.raises(WorkloadError) as caught:
        described(*model)
    assert caught.value.advice == "give their shapes without the batch, e.g. --input-shape ids=128"


def test_an_image_is_given_the_usual_sizes() -> None:
    with pytest.raises(WorkloadError, match="has the shape") as caught:
        described(model_input("pixel_values", shape=["batch_size", "num_channels", "height", "width"]))
    assert "e.g. --input-shape pixel_values=3,224,224" in caught.value.advice
    with pytest.raises(WorkloadError, match="has the shape") as caught:
        described(model_input("audio", shape=["batch_size", "channels", "samples"]))
    assert "e.g. --input-shape audio=128,128" in caught.value.advice


def test_what_follows_from_other_sizes_is_not_asked_for() -> None:
    cache = ["batch", 12, "past", 64]
    model = [
        model_input("mask", "int64", ["batch", "past + sequence"]),
        model_input("ids", "int64", ["batch", "sequence"]),
        model_input("key", shape=cache),
        model_input("value", shape=cache),
    ]
    with pytest.raises(WorkloadError) as caught:
        described(*model)
    assert caught.value.advice.endswith("e.g. --input-shape ids=128 --input-shape key=12,128,64")
    with pytest.raises(WorkloadError) as unnamed:
        described(model_input("x", shape=[None, None, 80]))
    assert unnamed.value.advice == (
        "give its shape without the batch, e.g. --input-shape x=128,80; if the model has no batch, give the whole "
        "shape of every input; if the batch is not the first dimension, write batch in its place, e.g. 128,batch,80"
    )
    with pytest.raises(WorkloadError) as numbered:
        described(model_input("x", shape=["s77", "s17", 16]))
    assert numbered.value.advice.endswith("write batch in its place, e.g. 128,batch,80")


def test_sizes_of_examples_fit_what_they_are_of() -> None:
    cache = ["batch", 12, "past_sequence_length", 64]
    decoder = [
        model_input("ids", "int64", ["batch", "sequence_length"]),
        model_input("mask", "int64", ["batch", "total_sequence_length"]),
        model_input("key", shape=cache),
    ]
    assert described(*decoder, sizes=("ids=1", "key=12,127,64"))[1]["shape"] == [None, 128]
    assert described(*decoder, sizes=("ids=1", "mask=500", "key=12,127,64"))[1]["shape"] == [None, 500]
    for model, example in (
        (decoder, "ids=128 --input-shape key=12,128,64"),
        ([decoder[0], decoder[1]], "ids=128 --input-shape mask=128"),
        ([model_input("timestep", "int64", ["steps"]), model_input("x", shape=["batch", 4])], "timestep=1"),
        ([model_input("input_values", shape=["batch", "sequence_length"])], "input_values=16000"),
        ([model_input("x", shape=["batch", "samples"])], "x=16000"),
        ([model_input("audio_signal", shape=["batch", 80, "frames"])], "audio_signal=80,128"),
        ([model_input("samples", "int64", ["batch", "seq"])], "samples=128"),
    ):
        with pytest.raises(WorkloadError) as caught:
            described(*model)
        assert caught.value.advice.partition("e.g. --input-shape ")[2].partition(";")[0] == example


def test_sizes_that_are_products_follow_from_others_but_not_from_the_batch() -> None:
    ids, pairs = (
        model_input("ids", "int64", ["batch", "seq"]),
        model_input("pairs", shape=["batch", "2*seq", "seq * 3 + 1"]),
    )
    found = described(ids, pairs, sizes=("ids=16",))
    assert [each["shape"] for each in found] == [[None, 16], [None, 32, 49]]
    latent = [model_input("x", shape=["batch", 4]), model_input("both", shape=["2*batch", 4])]
    with pytest.raises(WorkloadError) as caught:
        described(*latent)
    assert "e.g. --input-shape both=128,4; a dimension such as 2*batch follows the batch" in caught.value.advice


@pytest.mark.parametrize(
    ("nodes", "edges"),
    [
        (["num_nodes", 64], [2, "num_edges"]),
        (["points", 64], [2, None]),
        ([None, 64], [2, None]),
        (["s0", 64], [2, "s1"]),
        (["N", 64], [2, "E"]),
        (["x_dynamic_axes_1", 64], [2, "edge_index_dynamic_axes_1"]),
    ],
)
def test_a_graph_has_no_batch(nodes: list[Any], edges: list[Any]) -> None:
    model = [model_input("x", shape=nodes), model_input("edge_index", "int64", edges)]
    with pytest.raises(WorkloadError) as caught:
        described(*model)
    example = "--input-shape x=128,64 --input-shape edge_index=2,128"
    assert caught.value.advice.partition("; ")[0] == f"give their shapes, e.g. {example}"
    found = described(*model, sizes=("x=128,64", "edge_index=2,500"))
    assert [each["batch_axis"] for each in found] == [None, None]
    assert fixed_batch_size(found) == 1
    if nodes[0] in ("num_nodes", "points"):
        with pytest.raises(WorkloadError, match="does not fit") as without:
            described(*model, sizes=("edge_index=128",))
        assert without.value.advice == "give its shape, e.g. --input-shape edge_index=2,128"


@pytest.mark.parametrize("other", ["labels", "weights"])
def test_a_matrix_of_edges_has_no_batch(other: str) -> None:
    x, adjacency = model_input("x", shape=[None, 64]), model_input("adj", shape=[None, None])
    with pytest.raises(WorkloadError) as caught:
        described(x, adjacency)
    example = caught.value.advice.partition("e.g. ")[2]
    assert example == "--input-shape x=128,64 --input-shape adj=128,128"
    found = described(x, adjacency, sizes=tuple(word for word in example.split() if "=" in word))
    assert [each["shape"] for each in found] == [[128, 64], [128, 128]]
    # One of another name fails with the way out, whatever types the others have.
    named = [x, model_input("support", shape=[None, None])]
    named += [model_input("labels", "int64", [None])] if other == "labels" else []
    error = ValueError("Matrix size-incompatible: In[0]: [1,128], In[1]: [1,64]")
    assert "give whole shapes to all" in blame.explained(error, described(*named, sizes=("support=128",)), 1)[1]
    assert blame.explained(error, described(x), 1) == ("", "")
    # Those of many graphs have a batch, and so have pairs of other names.
    many = [model_input("x", shape=[None, 9, 64]), model_input("adj", shape=[None, 9, 9])]
    assert [each["shape"] for each in described(*many)] == [[None, 9, 64], [None, 9, 9]]
    assert described(model_input("ids", "int64", [None, None]), sizes=("ids=128",))[0]["shape"] == [None, 128]


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "sizes", "expected"),
    [
        ("image", "float32", [None, None, 3], "image=128,128,3", [128, 128, 3]),
        ("input_1", "uint8", [None, None, 3], "input_1=128,128,3", [128, 128, 3]),
        ("img", "float32", ["s0", "s1", 3], "img=128,128,3", [128, 128, 3]),
        ("image", "uint8", [224, 224, 3], "", [224, 224, 3]),
        ("image", "float32", [3, None, None], "image=3,128,128", [3, 128, 128]),
        # Several images, or what is none.
        ("image", "float32", ["batch", None, 3], "image=128,3", [None, 128, 3]),
        ("image", "float32", [None, 28, 28], "", [None, 28, 28]),
        ("image", "float32", [None, 784, 1], "", [None, 784, 1]),
        ("image", "float32", [None, None, None, 3], "image=128,128,3", [None, 128, 128, 3]),
        ("points", "float32", [None, None, 3], "points=128,3", [None, 128, 3]),
    ],
)
def test_one_image_has_no_batch(name: str, dtype: str, shape: list[Any], sizes: str, expected: list[Any]) -> None:
    image = model_input(name, dtype, shape)
    if sizes:
        with pytest.raises(WorkloadError) as caught:
            described(image)
        assert f"e.g. --input-shape {sizes}" in caught.value.advice
    [found] = described(image, sizes=(sizes,) if sizes else ())
    assert (found["shape"], found["batch_axis"]) == (expected, 0 if None in expected else None)
    if expected == [128, 128, 3]:
        option = f"{name}=batch,128,3"
        assert described(image, sizes=(option,))[0]["shape"] == [None, 128, 3]


@pytest.mark.parametrize(
    ("name", "dtype", "shape"),
    [
        ("x", "uint8", [4, 28, 28]),
        ("x", "uint8", [8, 64, 4]),
        ("image", "float32", [1, 224, 3]),
        ("image_boxes", "float32", [None, None, 4]),
        ("x", "uint8", [None, None, 4]),
        ("x", "uint8", [None, 224, 3]),
    ],
)
def test_what_may_be_a_batch_is_no_image(name: str, dtype: str, shape: list[Any]) -> None:
    sizes = (f"{name}=16,{shape[2]}",) if shape[:2] == [None, None] else ()
    [found] = described(model_input(name, dtype, shape), sizes=sizes)
    assert found["batch_axis"] == 0


def test_a_scan_goes_over_the_dimension_that_comes_first_at_it() -> None:
    walk, x = usage.Usage(), usage.given_value("x")
    walk.take_batch([walk.see("Transpose", [x], perm=[1, 0, 2])], None)
    assert walk.facts.batch_at == {}
    walk.take_batch([x], None)
    assert walk.facts.batch_at == {"x": None}


def test_the_files_of_a_graph_or_a_cloud_are_one_item(tmp_path: Path) -> None:
    def given(shapes_of: dict[str, list[Any]], files: dict[str, tuple[int, ...]]) -> list[Any]:
        for name, shape in files.items():
            np.save(tmp_path / f"{name}.npy", np.zeros(shape, "int32"))
        model = [model_input(name, "int32", shape) for name, shape in shapes_of.items()]
        return [each["shape"] for each in described(*model, values=tuple(f"{n}={tmp_path}/{n}.npy" for n in files))]

    graph: dict[str, list[Any]] = {"nodes": [None, 8], "senders": [None], "receivers": [None]}
    assert given(graph, {"nodes": (90, 8), "senders": (200,), "receivers": (200,)}) == [[90, 8], [200], [200]]
    assert given(graph, {"senders": (200,), "receivers": (200,)}) == [[None, 8], [None], [None]]
    cloud: dict[str, list[Any]] = {"voxels": ["voxels_num", 32, 4], "coors": ["voxels_num", 4]}
    assert given(cloud, {"voxels": (60, 32, 4), "coors": (60, 4)}) == [[60, 32, 4], [60, 4]]
    assert given(cloud, {}) == [[None, 32, 4], [None, 4]]
    many: dict[str, list[Any]] = {"voxels": ["batch", 32, 4], "x": ["batch", 4]}
    assert given(many, {"voxels": (60, 32, 4), "x": (60, 4)}) == [[None, 32, 4], [None, 4]]


def test_edges_that_all_items_share_leave_the_batch_open() -> None:
    series, edges = model_input("x", shape=[None, 12, 207, 2]), model_input("edge_index", "int64", [2, None])
    assert described(series, edges, sizes=("edge_index=500",))[0]["shape"] == [None, 12, 207, 2]
    assert described(series, edges)[0]["shape"] == [None, 12, 207, 2]
    for features in (["batch", 8], ["b", 8]):
        assert described(model_input("x", shape=features), model_input("edge_index", "int64", [2, 500]))[0][
            "shape"
        ] == [None, 8]
    assert described(model_input("x", shape=[None, 8]), edges, sizes=("edge_index=500",))[0]["shape"] == [None, 8]


def test_a_whole_shape_beside_one_with_a_batch_is_refused() -> None:
    model = [model_input("x", shape=[None, 64]), model_input("y", shape=[None, 8])]
    for sizes in (("x=32,64", "y=batch,8"), ("x=32,64",), ("x=32,64", "y=8")):
        with pytest.raises(WorkloadError, match="does not fit") as caught:
            described(*model, sizes=sizes)
        assert caught.value.advice == (
            "give its shape without the batch, e.g. --input-shape x=64; "
            "if the model has no batch, give the whole shape of every input"
        )


def test_a_shape_that_does_not_fit_is_refused() -> None:
    for sizes in ("x=2,3", "x=batch,2,3", "x=5"):
        with pytest.raises(WorkloadError, match=f"--input-shape {sizes} does not fit: input 'x' has the shape"):
            described(model_input("x", shape=[None, 4]), sizes=(sizes,))
    for text in ("x=-1", "x=batch,batch", "x=2,b"):
        with pytest.raises(BadInputError, match="with batch in its place"):
            options.shapes([text])


FEATURES = model_input("features", shape=[None, 400, 80])
MADE_UP = [
    # name, type, shape, what it holds, whether that is doubtful
    ("x", "float32", [None, 4], "in [0, 1)", False),
    ("ids", "int32", [None, 4], "0 or 1", False),
    ("sentences", "string", [None], "= text of 40 words", True),
    ("attention_mask", "int64", [None, 4], "= 1", False),
    ("mask", "float32", [None, 4], "= 1", False),
    ("inputMask:0", "int32", [None, 4], "= 1", False),
    ("masked_lm_positions", "int32", [None, 4], "0 or 1", False),
    ("padding_mask", "bool", [None, 4], "= true", True),
    ("key_padding_mask", "bool", [None, 4], "= false", False),
    ("valid", "bool", [None, 4], "= true", False),
    ("training", "bool", [], "= false", True),
    ("bert/is_training", "bool", [], "= false", True),
    ("use_cache_branch", "bool", [1], "= false", True),
    ("flag", "bool", [], "= false", True),
    ("keras_learning_phase", "int32", [], "= 0", True),
    ("keep_prob", "float32", [], "= 1", True),
    ("dropout_rate", "float32", [], "= 0", True),
    ("keep_probability", "float32", [], "= 1", True),
    ("keep_rate", "float32", [1], "= 1", True),
    ("drop_prob", "float32", [], "= 0", True),
    ("drop_rate", "float32", [None], "in [0, 1)", False),
    ("im_shape", "float32", [None, 2], "in [0, 1)", True),
    ("scale_factor", "float32", [None, 2], "in [0, 1)", True),
    ("im_info", "float32", [None, 3], "in [0, 1)", True),
    ("duration", "float32", [None], "in [0, 1)", True),
    ("info", "float32", [None, 400], "in [0, 1)", False),
    ("terminal", "bool", [None, 4], "= false", True),
    ("mask_indices", "int32", [None, 20], "0 or 1", False),
    ("lengths", "int64", [None], "= 400", True),
    ("length", "int64", [None, 1], "= 400", True),
    ("feature_lens", "int32", [None], "= 400", True),
    ("n_frames", "int32", [], "= 400", True),
    ("num_frames", "int32", [None], "= 400", True),
    ("seq_len", "int8", [None], "= 127", True),
    ("num_beams", "int32", [], "= 1", True),
    ("wav_lens", "float32", [None], "= 1", True),
    ("petal_length", "float32", [None, 1], "in [0, 1)", False),
    ("num_rooms", "float32", [None], "in [0, 1)", False),
    ("sr", "int64", [], "= 16000", False),
    ("steps", "int32", [], "= 1", True),
    ("threshold", "float32", [], "= 0.5", True),
    ("label", "int64", [None], "0 or 1", False),
    ("attention_mask_in", "int64", [None, 4], "= 1", False),
    ("mask_token_ids", "int64", [None, 4], "0 or 1", False),
    ("is_padding", "bool", [None, 4], "= false", True),
    ("paddings", "float32", [None, 4], "= 0", True),
    ("finished", "bool", [None, 4], "= false", True),
    ("is_training", "int32", [None], "= 0", True),
    ("training", "float32", [None, 1], "= 0", True),
    ("max_new_tokens", "int32", [None], "0 or 1", True),
    ("durations", "int32", [None, 50], "0 or 1", True),
    ("frame_count", "int32", [None], "0 or 1", True),
    ("top_k", "int32", [None], "0 or 1", True),
    ("token_lengths", "int32", [None, 3], "= 400", True),
    ("user_id", "int64", [None, 1], "0 or 1", False),
    ("mask_lengths", "int64", [None], "= 400", True),
    ("mask_ratio", "float32", [], "= 0.5", True),
    ("eos", "bool", [None], "= false", True),
    ("ignore", "bool", [None, 4], "= false", True),
    ("drop_mask", "float32", [None, 4], "= 0", True),
    ("output_shape", "int32", [2], "0 or 1", True),
    ("scales", "float32", [2], "in [0, 1)", True),
    ("picture", "uint8", [None, 8, 8, 3], "pixels from 0 to 255", False),
]


@pytest.mark.parametrize(("name", "dtype", "shape", "values", "doubtful"), MADE_UP, ids=[each[0] for each in MADE_UP])
def test_what_is_made_up(name: str, dtype: str, shape: list[int | None], values: str, doubtful: bool) -> None:
    found = described(model_input(name, dtype, shape), FEATURES)
    assert (found[0]["values"], found[0]["doubtful"]) == (values, doubtful)
    array = arrays(found, 3)[name]
    assert list(array.shape) == [3 if n is None else n for n in shape]
    if values.startswith("= ") and dtype != "string":
        value = {"= true": 1.0, "= false": 0.0}.get(values)
        assert set(array.ravel().tolist()) == {float(values[2:]) if value is None else value}
    if dtype == "string":
        assert len(array[0].split()) == 40


@pytest.mark.parametrize(
    ("model_inputs", "expected"),
    [
        ([["B", "N", 3]], [[None, "?", 3]]),  # points, of which there are many in an item
        ([["batch", "n", 64]], [[None, "?", 64]]),
        ([["N", "B", 64]], [["?", None, 64]]),
        ([["batch", 3, 64, 64], ["num_rois", 5]], [[None, 3, 64, 64], ["?", 5]]),
        ([["height", "width", 3]], [["?", "?", 3]]),
        ([["samples"]], [["?"]]),
    ],
)
def test_an_item_has_dimensions_of_its_own(model_inputs: list[Any], expected: list[Any]) -> None:
    named = [model_input("abc"[i], shape=shape) for i, shape in enumerate(model_inputs)]
    assert [each["shape"] for each in shapes.placed(named, {})] == expected


def test_sound_of_one_dimension_is_as_long_as_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sound = model_input("waveform", shape=[None])
    [made] = described(sound)
    assert (made["shape"], made["doubtful"]) == ([None], True)
    [given] = described(sound, sizes=("waveform=16000",))
    assert (given["shape"], given["batch_axis"]) == ([16000], None)
    for name, clip in (("one", np.ones(48, np.float32)), ("batch", np.ones((1, 48), np.float32))):
        np.save(f"{name}.npy", clip)
        found = described(sound, values=(f"waveform={name}.npy",))
        assert arrays(found, 1, (f"waveform={name}.npy",))["waveform"].shape == (48,)


def test_what_a_type_cannot_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("large.npy", np.full((1, 4), 1e6))
    with pytest.raises(WorkloadError, match="too large for float16"):
        described(model_input("x", "float16", [None, 4]), values=("x=large.npy",))
    np.savez("many.npz", a=np.ones(4), b=np.ones(4))
    with pytest.raises(WorkloadError, match="none of its arrays is called 'x', but a, b"):
        described(model_input("x", "string", [None]), values=("x=many.npz",))
    np.save("objects.npy", np.array([b"a", b"b"], dtype=object))
    with pytest.raises(WorkloadError, match="it holds Python objects") as caught:
        described(model_input("x", "string", [None]), values=("x=objects.npy",))
    assert "array.astype('S')" in caught.value.advice
    with pytest.raises(WorkloadError, match="input 'x' has the type qint8"):
        described(model_input("x", "qint8", [None, 4]))


def test_strings_keep_the_zeros_at_their_end() -> None:
    assert plain_strings(np.array([b"ab\0\0"], object)).tolist() == ["ab\0\0"]


def test_a_length_that_measures_nothing_is_one() -> None:
    assert described(model_input("lengths", "int64", [None]))[0]["values"] == "= 1"
    # Of several inputs, that whose name has most in common; where time comes first, its size is the first.
    audio, text = model_input("audio", shape=[None, 900]), model_input("text", "int32", [None, 30])
    for name, length in (("audio_len", 900), ("text_len", 30)):
        assert described(model_input(name, "int32", [None]), text, audio)[0]["values"] == f"= {length}"
    # Bands come before times.
    bands = model_input("x", shape=["B", 80, "T"])
    assert described(bands, model_input("x_len", "int32", ["B"]), sizes=("x=80,50",))[1]["values"] == "= 50"
    whole = described(bands, model_input("x_len", "int32", ["B"]), sizes=("x=8,80,50", "x_len=8"))
    assert whole[1]["values"] == "= 50"
    frames = model_input("x", shape=["time", "batch", 80])
    assert described(model_input("x_len", "int32", ["batch"]), frames, sizes=("x=50,80",))[0]["values"] == "= 50"


def test_a_range_is_taken_as_it_is_given() -> None:
    found = described(model_input("lengths", "int64", [None]), FEATURES, ranges=("lengths=300:301",))
    assert (found[0]["values"], found[0]["doubtful"]) == ("= 300", False)
    assert arrays(found, 2)["lengths"].tolist() == [300, 300]


def test_constants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = [
        model_input("training", "bool", []),
        model_input("lengths", "int32", [None]),
        model_input("size", "int32", [None, 2]),
        model_input("x", "float32", [None, 3]),
        model_input("text", "string", [None, 1]),
    ]
    values = ("training=True", "lengths=400", "size=224,300", "x=-1.5", "text=hello a=b world")
    found = described(*model, values=values)
    fed_arrays = arrays(found, 2, values)
    assert {name: array.tolist() for name, array in fed_arrays.items()} == {
        "training": True,
        "lengths": [400, 400],
        "size": [[224, 300]] * 2,
        "x": [[-1.5] * 3] * 2,
        "text": [[b"hello a=b world"]] * 2,
    }
    assert [array.dtype for array in fed_arrays.values()] == ["bool", "int32", "int32", "float32", "object"]
    assert [each["values"] for each in found[:2]] == ["= True", "= 400"]
    assert not any(each["doubtful"] for each in found)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("item.npy", np.arange(3, dtype="int64"))
    np.save("batch.npy", np.arange(6, dtype="float64").reshape(2, 3))
    Path("photo.jpg").write_bytes(b"\xff\xd8\x00")
    Path("lines.jsonl").write_text('"one"\n"two"\n')
    Path("list.json").write_text("[[1, 2, 3], [4, 5, 6]]")
    Path("scalar.json").write_text("7")
    model = [
        model_input("a", "int32", [None, 3]),
        model_input("b", "float32", [None, 3]),
        model_input("image_bytes", "string", [None]),
        model_input("text", "string", [None]),
        model_input("d", "int32", [3, None]),
        model_input("n", "int64", []),
    ]
    values = ("a=item.npy", "b=batch.npy", "image_bytes=photo.jpg", "text=lines.jsonl", "d=list.json", "n=scalar.json")
    found = described(*model, values=values)
    fed_arrays = {name: array.tolist() for name, array in arrays(found, 3, values).items()}
    assert fed_arrays == {
        "a": [[0, 1, 2]] * 3,
        "b": [[0, 1, 2], [3, 4, 5], [0, 1, 2]],  # repeated
        "image_bytes": [b"\xff\xd8\x00"] * 3,
        "text": [b"one", b"two", b"one"],
        "d": [[1, 4, 1], [2, 5, 2], [3, 6, 3]],
        "n": 7,
    }
    assert arrays(found, 1, values)["b"].tolist() == [[0, 1, 2]]  # cut
    assert found[2]["values"] == "from photo.jpg, 3 bytes as one item"
    # A shell leaves ~ behind an equals sign as it is, and curl writes @ before a file.
    monkeypatch.setenv("HOME", str(tmp_path))
    marks = ("=@", "=~/", "=@~/", "=", "=", "=")
    same = tuple(value.replace("=", mark) for value, mark in zip(values, marks, strict=True))
    assert described(*model, values=same) == found
    with pytest.raises(WorkloadError, match=r"--input image_bytes=\./photos is a folder"):
        Path("photos").mkdir()
        described(model[2], values=("image_bytes=./photos",))


@pytest.mark.parametrize(
    ("text", "dtype", "shape", "items"),
    [
        ('{"text": "one", "n": 1}\n{"text": "two", "n": 2}\n', "string", [None], [b"one", b"two"]),
        ('{"sentence": "one"}\n', "string", [None], [b"one"] * 2),
        ('{"instances": ["one", "two"], "signature_name": "serve"}', "string", [None], [b"one", b"two"]),
        ('{"instances": [{"b64": "AAE="}, {"text": {"b64": "AAI="}}]}', "string", [None], [b"\0\1", b"\0\2"]),
        ('{"inputs": [{"b64": "AAE="}, {"b64": "AAI="}]}', "string", [None], [b"\0\1", b"\0\2"]),
        ('{"inputs": {"text": [{"b64": "AAE="}, {"b64": "AAI="}]}}', "string", [None], [b"\0\1", b"\0\2"]),
        ('{"instances": [[1, 2], [3, 4]]}', "float32", [None, 2], [[1, 2], [3, 4]]),
        ('{"instances": [{"text": [1, 2]}, {"text": [3, 4]}]}', "int32", [None, 2], [[1, 2], [3, 4]]),
        ('{"text": [[1, 2], [3, 4]]}', "int32", [None, 2], [[1, 2], [3, 4]]),
        ('{"text": [1, 2]}', "int32", [None, 2], [[1, 2]] * 2),
        # A list of single values has as many items.
        ('"one"\n"two"\n', "string", [None, 1], [[b"one"], [b"two"]]),
        ("[3, 4]", "int32", [None, 1], [[3], [4]]),
        ("[3]", "int32", [None, 1], [[3]] * 2),
    ],
)
def test_items_of_json_may_stand_in_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, dtype: str, shape: list[int | None], items: list[Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("items.json").write_text(text)
    values = ("text=items.json",)
    assert arrays(described(model_input("text", dtype, shape), values=values), 2, values)["text"].tolist() == items


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("one.txt", "a line\n", ", 7 bytes as one item"),
        ("many.txt", "a line\nanother\n", ", 15 bytes as one item of several lines (a .jsonl file has an item a line)"),
        ("photo.jpg", "\n\n\n", ", 3 bytes as one item"),
        ("plain.jsonl", '"iV"\n', ""),
        ("encoded.json", '["iVBORw0KGgoAAA"]', ', base64 as it stands ({"b64": …} feeds the bytes)'),
        ("decoded.json", '[{"b64": "iVBORw0KGgoAAAAA"}]', ""),
    ],
)
def test_what_a_file_of_text_is_taken_for_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    [found] = described(model_input("text", "string", [None]), values=(f"text={name}",))
    assert found["values"] == f"from {name}{words}"


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "advice"),
    [
        ("objects.npy", "string", [None], "np.save(file, array.astype(str), or of bytes array.astype('S'))"),
        ("objects.npy", "float32", [None], "array.astype('float32')"),
        ("keys.json", "string", [None], "if an object itself is the text, write it as a string"),
        ("grey.npy", "float32", [None, 4, 5, 1], "an item of 3 dimensions (of a grey image: array[..., None])"),
        ("first.npy", "float32", [None, 4, 5, 3], "transpose them, as the dimensions are in another order"),
    ],
)
def test_what_cannot_be_fed_names_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, dtype: str, shape: list[int | None], advice: str
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("objects.npy", np.array([b"x", 1], object))
    np.save("grey.npy", np.ones((4, 5)))
    np.save("first.npy", np.ones((2, 3, 4, 5)))
    Path("keys.json").write_text('[{"a": 1, "b": 2}]')
    with pytest.raises(WorkloadError) as caught:
        described(model_input("x", dtype, shape), values=(f"x={name}",))
    assert advice in caught.value.advice


def test_the_records_of_a_tfrecord_are_its_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Two records, as TensorFlow writes them.
    records = bytes.fromhex("020000000000000078270b346f6e4ca15b8b0300000000000000b099490e74776f8990c909")
    Path("train-00000-of-00001").write_bytes(records)
    text = model_input("examples", "string", [None, 1])
    values = ("examples=train-00000-of-00001",)
    [found] = described(text, values=values)
    assert found["values"] == "from train-00000-of-00001"
    assert arrays([found], 3, values)["examples"].tolist() == [[b"on"], [b"two"], [b"on"]]
    Path("train-00000-of-00001").write_bytes(records[:-1])
    with pytest.raises(WorkloadError, match="the last record of the TFRecord is not complete"):
        described(text, values=values)
    Path("train-00000-of-00001").write_bytes(gzip.compress(records))
    with pytest.raises(WorkloadError, match="it is a TFRecord that gzip has compressed"):
        described(text, values=values)
    for other in (gzip.compress(b"a text"), gzip.compress(records)[:15]):  # which a model may decompress itself
        Path("train-00000-of-00001").write_bytes(other)
        assert arrays(described(text, values=values), 1, values)["examples"].tolist() == [[other]]


def test_bytes_in_messages_are_escaped() -> None:
    assert shortened("value: '\n\x1a\x08\x99é'") == "value: ' \\x1a\\x08\\x99é'"


def test_a_file_says_the_shape_that_the_model_leaves_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("item.npy", np.ones((400, 80), "float32"))
    np.save("batch.npy", np.ones((2, 50, 80), "float32"))
    features = model_input("features", shape=[None, None, 80])
    lengths = model_input("lengths", "int64", [None])
    for file, n in (("item", 400), ("batch", 50)):
        found = described(features, lengths, values=(f"features={file}.npy",))
        assert (found[0]["shape"], found[1]["values"]) == ([None, n, 80], f"= {n}")


ORDERS_OF_FILES = [
    # the model's shape, the file's, the shape that is fed, whether the file is in the model's order
    (["time", "batch", 80], (300, 1, 80), [300, None, 80], True),
    (["time", "batch", 80], (1, 300, 80), [300, None, 80], False),
    (["time", "batch", 80], (300, 80), [300, None, 80], False),
    (["time", "batch", 80], (1, 1, 80), [1, None, 80], False),
    ([50, "batch", 8], (50, 3, 8), [50, None, 8], True),
    ([50, "batch", 8], (3, 50, 8), [50, None, 8], False),
    ([2, "batch", 64], (2, 1, 64), [2, None, 64], True),
    ([2, "batch", 64], (9, 2, 64), [2, None, 64], False),
    ([2, "batch", 64], (2, 2, 64), [2, None, 64], False),
    (["batch", "time", 80], (300, 1, 80), [None, 1, 80], False),
    ([None, 3, 8], (300, 3, 8), [None, 3, 8], False),
]


@pytest.mark.parametrize(("shape", "file", "expected", "is_in_order"), ORDERS_OF_FILES)
def test_a_file_may_have_the_models_order_of_dimensions(
    tmp_path: Path, shape: list[Any], file: tuple[int, ...], expected: list[int | None], is_in_order: bool
) -> None:
    np.save(tmp_path / "x.npy", np.arange(np.prod(file), dtype="float32").reshape(file))
    values = (f"x={tmp_path}/x.npy",)
    model, other = model_input("x", shape=shape), model_input("y", shape=["batch" if "batch" in shape else None, 2])
    found = described(model, other, values=values)
    assert found[0]["shape"] == expected
    whole = np.load(tmp_path / "x.npy")
    batch = arrays(found, 1, values)["x"]
    axis = found[0]["batch_axis"]
    items = whole if len(file) < len(shape) else np.take(whole, 0, axis if is_in_order else 0)
    assert np.array_equal(np.take(batch, 0, axis), items)


def test_a_file_that_fits_in_two_orders_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((4, 30, 8), "float32"))
    frames, values = model_input("x", shape=["time", "batch", 8]), (f"x={tmp_path}/x.npy",)
    with pytest.raises(WorkloadError, match=r"is 4 items of \(30, 8\), or 30 items in the model's order") as caught:
        described(frames, values=values)
    for option, size in zip(caught.value.advice.partition("--input-shape ")[2].split(" or "), (30, 4), strict=True):
        found = described(frames, values=values, sizes=(option if "x=" in option else f"x={option}",))
        assert found[0]["shape"] == [size, None, 8]


ROWS = [
    # name, type, shape, rows, what is shown, others
    ("frames", "float32", [None, 80], 300, "frames=300,80", []),
    ("point_cloud", "float32", [None, 3], 300, "point_cloud=300,3", []),
    ("points", "float32", ["s0", 3], 2048, "points=2048,3", []),
    ("ids", "int64", [None], 400, "ids=400", []),
    ("audio", "float32", [None], 400, "audio=400", [("gain", "float32", [])]),
    # A batch of the file is what is meant, or nothing else.
    ("frames", "float32", [None, 80], 8, "", []),
    ("frames", "float32", ["batch", 80], 300, "", []),
    ("frames", "float32", [None, 64, 64, 3], 300, "", []),
    ("images", "float32", [None, 64, 64, 3], 300, "", []),
    ("features", "float32", [None, 13], 300, "", []),
    ("points", "float32", [None, 3], 300, "", [("age", "float32", [None, 1])]),
    ("tokens", "int64", [None, 128], 300, "", []),
    ("user_id", "int64", [None], 300, "", []),
    ("tokens", "string", [None], 300, "", []),
    ("signal", "float32", [None], 300, "", [("age", "float32", [None])]),
]


@pytest.mark.parametrize(("name", "dtype", "shape", "n_rows", "option", "others"), ROWS)
def test_rows_that_could_be_one_item_are_told_of(
    tmp_path: Path, name: str, dtype: str, shape: list[Any], n_rows: int, option: str, others: list[Any]
) -> None:
    kind = "S1" if dtype == "string" else dtype
    np.save(tmp_path / "f.npy", np.ones((n_rows, *shape[1:])).astype(kind))
    model = [model_input(name, dtype, shape), *(model_input(*each) for each in others)]
    values = (f"{name}={tmp_path}/f.npy",)
    found = described(*model, values=values)[0]
    assert found["doubtful"] is bool(option)
    note = f", one of its {n_rows} rows per item (--input-shape {option} makes them one item)"
    assert found["values"] == "from f.npy" + (note if option else "")
    if option:
        whole = described(*model, values=values, sizes=(option,))[0]
        assert (whole["shape"], whole["doubtful"]) == ([n_rows, *shape[1:]], False)
        first = option.replace(f"={n_rows}", "=batch")
        assert not described(*model, values=values, sizes=(first,))[0]["doubtful"]


@pytest.mark.parametrize(
    ("batch", "n_items", "note"),
    [
        (None, (10, 9), ", whose 9 items are repeated next to 10 of x"),
        (10, (10, 9), ", whose 9 items are repeated next to 10 of x"),
        (None, (10, 10), ""),
        (None, (10, 1), ""),  # one for all
        (8, (10, 9), ""),  # cut
    ],
)
def test_files_of_different_numbers_of_items_are_told_of(
    tmp_path: Path, batch: int | None, n_items: tuple[int, int], note: str
) -> None:
    names = ("x", "y")
    for name, n in zip(names, n_items, strict=True):
        np.save(tmp_path / f"{name}.npy", np.ones((n, 3), "float32"))
    values = tuple(f"{name}={tmp_path}/{name}.npy" for name in names)
    found = described(*(model_input(name, shape=[batch, 3]) for name in names), values=values)
    assert [(each["values"], each["doubtful"]) for each in found] == [
        ("from x.npy", False),
        (f"from y.npy{note}", bool(note)),
    ]


def test_sound_next_to_its_sampling_rate_is_one_item(tmp_path: Path) -> None:
    np.save(tmp_path / "clip.npy", np.ones(48, np.float32))
    sound, values = model_input("x", shape=[None]), (f"x={tmp_path}/clip.npy",)
    for rate in ([], [1]):
        assert described(sound, model_input("sample_rate", "int32", rate), values=values)[0]["shape"] == [48]
    # Two columns of a table.
    for other in (model_input("sample_rate", "int32", [None]), model_input("age", shape=[None])):
        assert described(sound, other, values=values)[0]["shape"] == [None]


def test_a_list_of_numbers_is_as_long_as_it_is() -> None:
    ids, mask = (model_input(name, "int64", ["batch", "seq"]) for name in ("ids", "mask"))
    values = ("ids=101,2023,102",)
    found = described(ids, mask, values=values)
    assert [each["shape"] for each in found] == [[None, 3], [None, 3]]
    assert arrays(found, 2, values)["ids"].tolist() == [[101, 2023, 102]] * 2
    with pytest.raises(WorkloadError, match="has the shape"):
        described(ids, mask, values=("ids=101",))
    with pytest.raises(WorkloadError, match="has the shape"):
        described(model_input("x", shape=["batch", "n"]), values=("x=0,5",))


def test_a_file_of_another_shape_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("item.npy", np.ones((400, 81), "float32"))
    with pytest.raises(WorkloadError, match="--input x: an item of 400,81 does not fit: input 'x' has the shape"):
        described(model_input("x", shape=[None, None, 80]), values=("x=item.npy",))


@pytest.mark.parametrize(
    ("value", "dtype", "shape", "message"),
    [
        ("y=1", "int32", [None], "--input y: the model has no such input"),
        ("x=maybe", "bool", [], "--input x is 'maybe'"),
        ("x=1.5", "int32", [None], "no file and not a whole number"),
        ("x=fast", "float32", [None], "no file and not a number"),
        ("x=1,2,3", "float32", [None, 2], "has 3 numbers, and an item has the shape (2)"),
        ("x=999", "int8", [None], "it does not fit int8"),
        ("x=missing.npy", "float32", [None, 2], "no file and not a number"),
        ("x=photo.jpg", "string", [None], "there is no such file"),
        ("x=my photo.jpg", "string", [None], "there is no such file"),
        ("x=images/photo", "string", [None], "there is no such file"),
        ("x=floats.npy", "int32", [None, 3], "it holds float64, and the model takes int32"),
        ("x=floats.npy", "float32", [None, 4], "its items have the shape (3), and the model takes (4)"),
        ("x=floats.npy", "float32", [None, 2, 2, 2], "it has the shape (2, 3)"),
        ("x=floats.npy", "string", [None], "it holds other things than text"),
        ("x=note.txt", "float32", [None], "it is not a file of numbers"),
        ("x=bad.npy", "float32", [None], "it cannot be read"),
        ("x=bad.json", "float32", [None], "it cannot be read"),
        ("x=uneven.json", "float32", [None, 2], "its items have different shapes"),
        ("x=empty.json", "float32", [None], "it has no items"),
        ("x=keys.json", "float32", [None], "its objects have no key 'x', but a, b"),
        ("x=none.json", "float32", [None], "its objects have no key 'x', but none"),
    ],
)
def test_values_that_cannot_be_fed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, dtype: str, shape: list[int | None], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("floats.npy", np.ones((2, 3)))
    for name, text in (("note.txt", "hello"), ("bad.npy", "x"), ("bad.json", "{"), ("uneven.json", "[[1], [2, 3]]")):
        Path(name).write_text(text)
    for name, text in (("empty.json", ""), ("keys.json", '[{"a": 1, "b": 2}]'), ("none.json", "{}")):
        Path(name).write_text(text)
    with pytest.raises(WorkloadError) as caught:
        described(model_input("x", dtype, shape), values=(value,))
    assert message in str(caught.value)
    assert caught.value.advice


def test_another_file_is_another_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.keras").write_bytes(b"1")

    def fingerprint(*values: str) -> str:
        return find(WorkloadSpec(words=("mine.keras",), inputs=values), FRAMEWORK.suffixes).fingerprint

    Path("photo.jpg").write_bytes(b"1")
    first = fingerprint("x=photo.jpg")
    Path("photo.jpg").write_bytes(b"2")
    assert len({first, fingerprint("x=photo.jpg"), fingerprint("x=1"), fingerprint("x=2"), fingerprint()}) == 5
    child = find(WorkloadSpec(words=("mine.keras",), inputs=("x=photo.jpg", "y=1")), FRAMEWORK.suffixes).child_spec()
    assert child["values"] == {"x": {"file": str(tmp_path / "photo.jpg")}, "y": {"text": "1"}}
    with pytest.raises(BadInputError, match="input 'x' has both --input and --input-range"):
        find(WorkloadSpec(words=("mine.keras",), inputs=("x=1",), input_ranges=("x=0:2",)), FRAMEWORK.suffixes)


def test_inputs_are_listed_in_a_line_and_doubtful_ones_warned_of() -> None:
    lengths, text = model_input("lengths", "int64", [None]), model_input("text", "string", [None])
    facts = facts_of(described(FEATURES, lengths, text))
    assert inputs_text(facts) == (
        "features float32 (batch, 400, 80) in [0, 1), lengths int64 (batch) = 400, "
        "text string (batch) = text of 40 words"
    )
    [warning] = input_warnings(facts, {"1": {"y": [1, 3]}})
    assert (warning.code, warning.observation) == (
        Code.MADE_UP,
        "what these inputs hold can change the work: lengths = 400, text = text of 40 words",
    )
    assert facts_of([{"name": "input_0", "dtype": "float32", "shape": [None, 3]}]) == []  # a Python file's own
    # Studies of what earlier versions made up otherwise are not continued.
    assert len(made_otherwise(facts)) == 2
    many = facts_of(described(*(model_input(f"x{n}", shape=[None, 1]) for n in range(20)), text))
    assert inputs_text(many).startswith("text string")
    assert inputs_text(many).endswith("and 13 more (--json lists all)")


def test_outputs_that_show_missing_work() -> None:
    facts = facts_of(described(model_input("x", shape=[None, 4])))
    [empty] = input_warnings(facts, {"1": {"y": [1, 0], "z": [1, 4]}})
    assert (empty.code, empty.observation) == (Code.EMPTY_OUTPUTS, "output y has the size (1, 0)")
    [axis] = input_warnings(facts, {"4": {"y": [1, 3], "loss": []}})
    assert axis.code == Code.BATCH_AXIS
    assert axis.observation == "no output grows with the batch (measured at 4): y (1, 3)"
    [axis] = input_warnings(facts, {"4": {"y": [1, 4]}, "8": {"y": [1, 4]}})
    assert axis.observation == "the outputs have the same shapes at the batch sizes 4 and 8: y (1, 4)"
    # A Python file makes its own inputs, which are no facts.
    [axis] = input_warnings((), {"1": {"y": [512, 64]}, "64": {"y": [512, 64]}})
    assert axis.code == Code.BATCH_AXIS
    # A size of one shows nothing of a batch of one, but the graph does.
    assert not input_warnings(facts, {"1": {"y": [1, 10]}})
    [axis] = input_warnings([msgspec.structs.replace(facts[0], ignored_batch=True)], {"1": {"y": [1, 10]}})
    assert axis.observation == "no output grows with the batch (measured at 1): y (1, 10)"
    assert not input_warnings(facts, {"4": {"y": [4, 3], "boxes": [100, 4]}})
    assert not input_warnings(facts, {"4": {"logits": [32, 4, 40]}})  # of text or speech: time first
    assert not input_warnings(facts, {"4": {"tokens": [80, 64]}, "8": {"tokens": [160, 64]}})
    assert not input_warnings(facts, {"1": {"y": [1, 10]}})
    assert not input_warnings((), {"4": {"y": [1, 3]}})  # a Python file knows its batch
    # Who says where the batch is knows it too.
    time_first = facts_of(described(model_input("x", shape=[None, None, 80]), sizes=("x=100,batch,80",)))
    assert not input_warnings(time_first, {"4": {"y": [20, 4, 64]}})


def test_a_large_input_that_does_not_grow_with_the_batch_is_told_of() -> None:
    """Whatever grows beside it is what items count."""
    image, ids = model_input("pixel_values", shape=[1, 224, 224, 3]), model_input("input_ids", "int32", ["batch", 77])
    facts = facts_of(described(image, ids))
    [note] = input_warnings(facts, {})
    assert (note.code, note.observation) == (
        Code.FIXED_INPUT,
        "pixel_values is (1, 224, 224, 3) at every batch size, and items count input_ids alone",
    )
    assert input_warnings(facts, {"1": {"y": [1, 3]}, "4": {"y": [4, 3]}}) == [note]
    assert not input_warnings(facts, {"1": {"y": [1, 3]}})
    # A small vector for all, what grows with the batch, and a model of an ensemble at its one batch size.
    user = model_input("user", shape=[1, 64])
    assert not facts_of(described(image))[0].doubtful
    for inputs in (
        [model_input("items", shape=["batch", 64]), user],
        [image],
        [image | {"shape": [None, 224, 224, 3]}, ids],
    ):
        assert Code.FIXED_INPUT not in {each.code for each in input_warnings(facts_of(described(*inputs)), {})}
    both = [*facts_of(described(image), "a"), *facts_of(described(ids), "b")]
    assert not input_warnings(both, {})


def test_only_possible_batch_sizes_are_kept() -> None:
    open_batch = described(model_input("x", shape=[None, 4]))
    of_four, scalar = described(model_input("x", shape=[4, 8])), described(model_input("x", shape=[]))
    assert [fixed_batch_size(each) for each in (open_batch, of_four, scalar)] == [None, 4, 1]
    assert [why_fixed("m", each) for each in (of_four, scalar, [])] == [
        "the inputs of m have the fixed batch size 4",
        "the inputs of m have no batch dimension",
        "m has no inputs, and so no batch",
    ]
    whole = described(model_input("x", shape=["batch", 3, "h", "w"]), sizes=("x=8,3,64,64",))
    assert why_fixed("m", whole) == (
        "--input-shape gives m whole shapes, so a call is one item (if they have the batch, leave it out: "
        "--input-shape x=3,64,64 --batch-size 8)"
    )
    one = described(model_input("x", shape=[None, 224, 224, 3]), sizes=("x=1,224,224,3",))
    assert why_fixed("m", one).endswith("leave it out: --input-shape x=224,224,3)")
    fixed = described(model_input("x", shape=[17]), sizes=("x=17",))
    assert why_fixed("m", fixed).endswith("leave it out: --input-shape x=batch --batch-size 17)")
    sound = described(model_input("x", shape=[None]), sizes=("x=16000",))
    graph = [model_input("x", shape=["num_nodes", 64]), model_input("edge_index", "int64", [2, "num_edges"])]
    for each in (sound, described(*graph, sizes=("x=9,64", "edge_index=2,20"))):
        assert why_fixed("m", each) == "the inputs of m have no batch dimension"
    assert possible_sizes([1, 2, 4], [open_batch]) == [1, 2, 4]
    assert possible_sizes([1, 2, 4], [open_batch, of_four]) == [4]
    assert possible_sizes([1, 2], [of_four]) == []
    assert [left_out([1, 2, 4], some) for some in ([1, 2], [4])] == ["4 is left out", "1, 2 are left out"]


def test_a_batch_that_is_written_as_0_is_no_batch_size_to_use() -> None:
    model: Any = SimpleNamespace(kind="onnx", path="m.onnx")
    space: Any = SimpleNamespace(domains={"batch_size": [1, 2]}, total_batch=None)
    for size, hint in ((0, "save the model with an open batch"), (4, "use --batch-size 4")):
        with pytest.raises(BadInputError) as caught:
            check_batch(model, described(model_input("x", shape=[size, 4])), space)
        assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("model_inputs", "sizes", "batch_size", "hint"),
    [
        # Nothing shows whether this is a batch or one item.
        ([[17]], (), 1, "use --batch-size 17, or, if a call is one item, --input-shape a=17"),
        ([[8, 3], []], (), 1, "use --batch-size 8, or, if a call is one item, --input-shape a=8,3"),
        ([[17]], ("a=17",), 17, "use --batch-size 1, or, if the first dimension is the batch, --input-shape a=batch"),
        (
            [[8, 3]],
            ("a=8,3",),
            8,
            "use --batch-size 1, or, if the first dimension is the batch, --input-shape a=batch,3",
        ),
        ([[8, 3]], ("a=8,3",), 2, "use --batch-size 1"),
        ([[1, 3]], (), 2, "use --batch-size 1"),
        ([[8, 3], [9]], (), 2, "use --batch-size 1"),
    ],
)
def test_a_size_that_may_be_the_batch_or_the_items_has_both_readings(
    model_inputs: list[Any], sizes: tuple[str, ...], batch_size: int, hint: str
) -> None:
    named = [model_input(name, shape=shape) for name, shape in zip("ab", model_inputs, strict=False)]
    model: Any = SimpleNamespace(kind="onnx", path="m.onnx")
    space: Any = SimpleNamespace(domains={"batch_size": [batch_size]}, total_batch=None)
    with pytest.raises(BadInputError) as caught:
        check_batch(model, described(*named, sizes=sizes), space)
    assert caught.value.hint == hint
    option = hint.partition("--input-shape ")[2]
    if option:  # each reading works
        other = described(*named, sizes=(option,))
        size = 1 if sizes == () else model_inputs[0][0]
        assert fixed_batch_size(other) == size
        assert other[0]["batch_axis"] == (None if size == 1 else 0)


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        ({"obs": [17]}, [[6]], ["obs"]),
        ({"obs": [17], "step": []}, [[6], []], ["obs"]),
        ({"x": [224, 224, 3]}, [[1, 224, 224, 8]], ["x"]),
        ({"x": [64]}, [[1, 64]], ["x"]),
        # A batch, or nothing shows it.
        ({"x": [8, 3]}, [[8, 5]], []),
        ({"x": [8, 50, 3]}, [[40, 8, 5]], []),
        ({"x": [8, 3]}, [[64, 5]], []),
        ({"x": [8, 3, 16, 16]}, [[1, 1, 1600, 7]], []),  # boxes of all images, behind each other
        ({"x": [8, 3]}, [[5], [8]], []),
        ({"x": [8, 3]}, [[]], []),
        ({"x": [8, 3]}, [], []),
        ({"x": [8, 3]}, [[None, 5]], []),
        ({"x": [8, 3]}, [None], []),
        ({"x": [8, 3]}, [[0, 5]], []),
        ({"x": [1, 3]}, [[5]], []),
        ({"x": [None, 3]}, [[5]], []),
        ({"x": ["batch", 3]}, [[5]], []),
        ({"x": None}, [[5]], []),
        ({"x": [8, 3], "y": [9, 3]}, [[5]], []),
    ],
)
def test_outputs_show_that_a_call_is_one_item(inputs: dict[str, Any], outputs: list[Any], expected: list[str]) -> None:
    assert usage.of_one_item(inputs, outputs) == expected


@pytest.mark.parametrize(("size", "axis"), [(6, None), (34, 0)])
def test_outputs_of_an_onnx_file_show_that_a_call_is_one_item(tmp_path: Path, size: int, axis: int | None) -> None:
    onnx = pytest.importorskip("onnx")
    tensors = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [n]) for name, n in (("x", 17), ("y", size))
    ]
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["w", "x"], ["y"])], "g", tensors[:1], tensors[1:])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "m.onnx")
    spec = {"kind": "onnx", "workload": str(tmp_path / "m.onnx"), "shapes": {}, "ranges": {}, "values": {}}
    [found] = described_inputs([model_input("x", shape=[17])], spec, np.dtype)
    assert (found["shape"], found["batch_axis"]) == ([17], axis)


def test_batch_sizes_that_never_run_are_named_once() -> None:
    def trial(number: int, batch_size: int, status: Status) -> Trial:
        setting = Setting.of({"batch_size": batch_size, "intra_op": number})
        return Trial(number=number, setting=setting, status=status, message="" if status is Status.OK else "reshape")

    failed = [trial(1, 2, Status.FAILED), trial(2, 2, Status.FAILED), trial(3, 4, Status.FAILED)]
    trials = [trial(0, 1, Status.OK), *failed]
    [warning] = evidence.batch_warnings(trials)
    assert warning.observation == "only batch size 1 of those that were tried ran: at 2, 4, reshape"
    assert not evidence.batch_warnings([*trials[:1], trial(1, 2, Status.OOM)])
    assert not evidence.batch_warnings([*trials[:1], trial(1, 1, Status.FAILED)])


def test_settings_that_failed_are_counted_where_others_ran() -> None:
    def trial(number: int, batch_size: int, status: Status, message: str = "") -> Trial:
        setting = Setting.of({"batch_size": batch_size, "intra_op": number})
        return Trial(number=number, setting=setting, status=status, message=message)

    ok, again = trial(1, 1, Status.OK), trial(2, 1, Status.OK)
    trials = [ok, trial(2, 1, Status.FAILED, "no line"), trial(3, 1, Status.FAILED, "'1.18s/it'")]
    [warning] = evidence.failure_warnings(trials)
    assert (warning.code, warning.observation) == (
        Code.FAILED_SETTINGS,
        "2 of 3 settings failed, the last one with: '1.18s/it'",
    )
    # What to do about it stands beside it.
    failure = TrialFailure(Status.FAILED, "numbers with different units", hint="print one unit")
    hinted = trial(3, 1, Status.OK).failed(failure)
    [warning] = evidence.failure_warnings([ok, hinted])
    assert warning.observation.endswith("the last one with: numbers with different units; print one unit")
    assert trial_result(hinted, 0.01).message == "numbers with different units; print one unit"
    # One that ran when it was tried again did not fail; a batch size that never runs is told of by itself.
    assert "1 of 3 settings" in evidence.failure_warnings([*trials, again])[0].observation
    assert not evidence.failure_warnings([ok, trial(1, 2, Status.FAILED, "reshape")])
    assert not evidence.failure_warnings([ok, trial(2, 1, Status.OOM), trial(3, 1, Status.TIMEOUT)])


RESHAPE = "Input to reshape is a tensor with 3072 values, but the requested shape has 12288"


@pytest.mark.parametrize(
    ("text", "batch_size", "expected"),
    [
        (RESHAPE, 1, 4),
        ("Input to reshape is a tensor with 6144 values, but the requested shape has 3072", 2, 1),
        ("Input to reshape is a tensor with 10 values, but the requested shape requires a multiple of 3", 1, None),
        ("cannot be reshaped to the requested shape. Input shape:{1,16}, requested shape:{4,16}", 1, 4),
        ("Requested output shape [4,16] is incompatible with input shape [1,16]", 1, 4),
        ("cannot be reshaped to the requested shape. Input shape:{0,16}, requested shape:{4,16}", 1, None),
        ("no such thing", 1, None),
        ("Incompatible shapes: [4,8] vs. [2,8] [[{{node add}}]]", 2, 4),
        ("ConcatOp : Dimension 0 in both shapes must be equal: shape[0] = [1,8] vs. shape[1] = [4,8]", 1, 4),
        ("Shape of tensor x [1,8] is not compatible with expected shape [4,8].", 1, 4),
        ("tensor with wrong shape. Expected [4,8] got [1,8]", 1, 4),
        ("In[0] and In[1] must have compatible batch dimensions: [2,1,8] vs. [4,8,1]", 2, None),
        ("logits and labels must be broadcastable: logits_size=[2,8] labels_size=[4,8]", 2, 4),
        ("Matrix size-incompatible: In[0]: [1,8], In[1]: [9,4]", 1, None),
        ("Incompatible shapes: [1,128,768] vs. [1,512,768]", 1, None),
        ("Incompatible shapes: [3,8] vs. [4,8]", 1, None),
        ("the split dimension, but got split_dim 0 (size = 1) and num_split 4", 1, 4),
        ("Input shape axis 0 must equal 4, got shape [1,8]", 1, 4),
        ("Expected size[0] in [0, 1], but got 4", 1, 4),
        ("cs_prev.dims(0) != batch_size: 4 vs. 1", 1, 4),
        ("Non concat axis dimensions must match: Axis 0 has mismatched dimensions of 4 and 1", 1, 4),
        ("Non concat axis dimensions must match: Axis 2 has mismatched dimensions of 4 and 1", 1, None),
    ],
)
def test_a_failed_operator_tells_the_batch_size(text: str, batch_size: int, expected: int | None) -> None:
    assert blame.written_batch(text, batch_size) == expected


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("lines.ndjson", "[1, 2, 3, 4]\n[1, 2, 3, 4]\n"),
        ("marked.json", "\ufeff[[1, 2, 3, 4]]"),
        ("columns.json", '{"inputs": {"x": [[1, 2, 3, 4]], "y": [[0]]}}'),
        ("one.json", '{"signature_name": "serving_default", "inputs": [[1, 2, 3, 4]]}'),
        ("named.json", '{"inputs": [[1, 2, 3, 4]], "x": [[1, 2, 3, 4]]}'),
        ("v2.json", '{"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}'),
        ("v2nested.json", '{"inputs": [{"name": "y", "data": [[0]]}, {"name": "x", "data": [[1, 2, 3, 4]]}]}'),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_requests_of_servers_are_files_of_items(tmp_path: Path, name: str, contents: str, dtype: str) -> None:
    (tmp_path / name).write_text(contents, encoding="utf-8")
    given = (f"x={tmp_path / name}",)
    found = described(model_input("x", dtype, [None, 4]), values=given)
    assert arrays(found, 2, given)["x"].tolist() == [[1, 2, 3, 4]] * 2


def test_lines_of_json_are_items_of_text_under_both_names(tmp_path: Path) -> None:
    for suffix in ("jsonl", "ndjson"):
        (tmp_path / f"lines.{suffix}").write_text('"one"\n"two"\n')
        given = (f"x={tmp_path / 'lines'}.{suffix}",)
        found = described(model_input("x", "string", [None]), values=given)
        assert arrays(found, 2, given)["x"].tolist() == [b"one", b"two"]


def test_an_array_of_an_archive_is_taken_by_name_or_alone(tmp_path: Path) -> None:
    for number, arrays_of_file in enumerate(({"a": np.ones((2, 4))}, {"x": np.ones((2, 4)), "y": np.zeros(4)})):
        path = tmp_path / f"{number}.npz"
        np.savez(path, **arrays_of_file)
        given = (f"x={path}",)
        found = described(model_input("x", "float32", [None, 4]), values=given)
        assert arrays(found, 2, given)["x"].tolist() == [[1, 1, 1, 1]] * 2


@pytest.mark.parametrize(
    ("dtype", "text", "value"),
    [
        ("int32", "1e3", 1000), ("int32", "4.0", 4), ("float32", "[1,2]", [1, 2]), ("int64", "(1, 2)", [1, 2]),
        ("bool", "on", True), ("bool", "Off", False), ("bool", "T", True), ("bool", "n", False),
    ],
)  # fmt: skip
def test_a_constant_is_written_in_many_ways(dtype: str, text: str, value: Any) -> None:
    given = (f"x={text}",)
    found = described(model_input("x", dtype, [None, 2]), values=given)
    assert arrays(found, 1, given)["x"].tolist() == [value if isinstance(value, list) else [value] * 2]
    for wrong in ("1.5", "[1", "1,2]"):
        with pytest.raises(WorkloadError, match="--input x is "):
            described(model_input("x", "int32", [None, 2]), values=(f"x={wrong}",))


def test_failures_name_the_inputs_that_were_made_up() -> None:
    text, ids = model_input("image_bytes", "string", [None]), model_input("ids", "int64", [None, 4])
    found = described(FEATURES, ids, text)
    reason, advice = blame.explained(ValueError("Unknown image file format"), found, 1)
    assert reason == (
        "tftune made up what its inputs hold: image_bytes string = text of 40 words (--input image_bytes=photo.jpg), "
        "ids int64 0 or 1 (--input-range ids=0:1000)"
    )
    assert "--input NAME=FILE" in advice
    assert "--input-range ids=0:7)" in blame.explained(ValueError("indices[0] = 9 is not in [0, 7)"), found, 2)[0]
    beyond = ValueError("indices[0] = 3 is not in [0, 2)")
    assert "whole shapes" in blame.explained(beyond, found, 2)[1]
    given = described(model_input("x", shape=[None, 4]), ids, values=("x=1", "ids=3"))
    assert "whole shapes" in blame.explained(beyond, given, 2)[1]
    assert blame.explained(beyond, given, 4) == ("", "")
    for error, file in (("Could not parse example input, value: 'On'", "train.tfrecord"), ("no", "photo.jpg")):
        assert f"(--input image_bytes={file})" in blame.explained(ValueError(error), found, 1)[0]
    assert blame.explained(ValueError(RESHAPE), found, 1)[1] == "use --batch-size 4"
    [few] = described(model_input("ids", "int64", [5]))  # as ONNX Runtime says it
    error = ValueError("indices element out of data bounds, idx=1 must be within the inclusive range [-7,6]")
    assert "(--input-range ids=0:7)" in blame.explained(error, [few], 1)[0]
    for text, example in (("StringToNumberOp could not", "age=42"), ("Expect 2 fields but have 4", "age=rows.jsonl")):
        assert (
            f"(--input {example})"
            in blame.explained(ValueError(text), described(model_input("age", "string", [None])), 1)[0]
        )
    # Numbers in [0, 1) are blamed for a result that is no number alone.
    numbers = described(FEATURES)
    assert blame.explained(ValueError("no"), numbers, 1) == ("", "")
    assert "features float32 in [0, 1)" in blame.explained(InvalidOutputError("y is NaN"), numbers, 1)[0]
    assert blame.explained(ValueError("no"), [{"name": "input_0", "dtype": "int64", "shape": [None]}], 1) == ("", "")


def test_values_that_decide_how_much_is_computed_are_found_in_an_onnx_file(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    node, kinds = onnx.helper.make_node, onnx.TensorProto
    names = ["ids", "flag", "cond", "trips", "plain", "outer", "local", "counts", "late", "tokens", "features"]
    tensors = [onnx.helper.make_tensor_value_info(name, kinds.FLOAT, ["batch"]) for name in names]
    inner = onnx.helper.make_graph([node("Unique", ["outer"], ["u"])], "then", [], [tensors[4]])
    loop_inputs = [onnx.helper.make_tensor_value_info(name, kinds.FLOAT, []) for name in ("i", "c", "state")]
    loop_outputs = [onnx.helper.make_tensor_value_info(name, kinds.BOOL, []) for name in ("goes_on", "next")]
    body = onnx.helper.make_graph([node("Less", ["state", "i"], ["goes_on"])], "body", loop_inputs, loop_outputs)
    late = [onnx.helper.make_tensor_value_info(name, kinds.FLOAT, []) for name in ("i", "c", "first", "second")]
    told = [onnx.helper.make_tensor_value_info(name, kinds.BOOL, []) for name in ("goes", "now", "then")]
    turn = [
        node("Not", ["first"], ["goes"]),
        node("Less", ["second", "i"], ["now"]),
        node("Add", ["second", "i"], ["then"]),
    ]
    two_turns = onnx.helper.make_graph(turn, "turn", late, told)
    nodes = [
        node("Cast", ["ids"], ["cast"]),
        node("Cast", ["tokens"], ["indices"]),
        node("Gather", ["table", "indices"], ["vectors"]),
        node("NonZero", ["cast"], ["places"]),
        node("Shape", ["plain"], ["size"]),
        node("Expand", ["plain", "size"], ["wide"]),
        node("If", ["flag"], ["either"], then_branch=inner, else_branch=inner),
        node("Loop", ["", "", "cond"], ["last"], body=body),
        node("Range", ["", "trips", ""], ["numbers"]),
        node("Shrink", ["plain", "local"], ["shape", "found"], domain="own"),
        node("LSTM", ["plain", "w", "r", "", "counts"], ["y"]),
        node("TreeEnsembleRegressor", ["features"], ["score"], domain="ai.onnx.ml"),  # a path for each value
        node("Loop", ["", "", "", "late"], ["end"], body=two_turns),  # what ends it comes round after a turn
    ]
    shrink = onnx.helper.make_function(
        "own", "Shrink", ["a", "b"], ["c", "d"], [node("Shape", ["a"], ["c"]), node("NonZero", ["b"], ["d"])], []
    )
    table = onnx.numpy_helper.from_array(np.zeros((50, 4), "float32"), "table")
    graph = onnx.helper.make_graph(nodes, "g", tensors, [], [table])
    onnx.save(onnx.helper.make_model(graph, functions=[shrink]), tmp_path / "m.onnx")
    decisive = {"ids", "flag", "cond", "trips", "outer", "local", "counts", "late", "features"}
    assert onnxfile.value_facts(str(tmp_path / "m.onnx"))[:3] == (decisive, {"tokens": 50}, set())
    (tmp_path / "bad.onnx").write_bytes(b"\xff\xff")
    assert onnxfile.value_facts(str(tmp_path / "bad.onnx")) == usage.UNKNOWN


def test_what_goes_into_an_operator_that_is_not_known_is_doubtful(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    node, kinds = onnx.helper.make_node, onnx.TensorProto
    names = ["own", "same_name", "inside", "called", "new", "trees", "kept", "plain"]
    tensors = [onnx.helper.make_tensor_value_info(name, kinds.FLOAT, ["batch", 4]) for name in names]
    branch = onnx.helper.make_graph([node("Own", ["inside"], ["u"], domain="own")], "then", [], [tensors[7]])
    block = onnx.helper.make_function("own", "Block", ["a"], ["b"], [node("Decode", ["a"], ["b"], domain="own")], [])
    nodes = [
        node("MatMul", ["own", "w"], ["a"]),
        node("Own", ["a"], ["b"], domain="own"),
        node("Relu", ["same_name"], ["c"], domain="own"),
        node("If", ["w"], ["d"], then_branch=branch, else_branch=branch),
        node("Block", ["called"], ["e"], domain="own"),
        node("OfNextYear", ["new"], ["f"]),
        node("LabelEncoder", ["trees"], ["g"], domain="ai.onnx.ml"),
        node("GroupQueryAttention", ["plain", "plain", "plain", "", "", "kept"], ["h"], domain="com.microsoft"),
        node("SkipLayerNormalization", ["h", "plain", "w"], ["y"], domain="com.microsoft"),
    ]
    weights = onnx.numpy_helper.from_array(np.zeros((4, 4), "float32"), "w")
    graph = onnx.helper.make_graph(nodes, "g", tensors, [], [weights])
    onnx.save(onnx.helper.make_model(graph, functions=[block]), tmp_path / "m.onnx")
    assert onnxfile.value_facts(str(tmp_path / "m.onnx")).decisive == {*names} - {"plain"}


TURNED = {"perm": [0, 2, 1]}
ORDERS = [
    # name, the shape of x, what it goes through, --input-shape, where the batch is
    ("time first", ["s0", 1, 16], [("LSTM", {})], "128,16", 1),
    ("no names", [None, 1, 16], [("GRU", {})], "128,16", 1),
    ("both open", ["s77", "s17", 16], [("Cast", {"to": 1}), ("RNN", {})], "128,16", 1),
    ("a size of time", [50, "s17", 16], [("LSTM", {})], "", 1),
    ("indices", ["s0", "s1"], [("Gather", {}), ("LSTM", {})], "128", 1),
    ("one item", ["s0", 16], [("Unsqueeze", {"axes": [1]}), ("LSTM", {})], "128,16", None),
    ("one item is added", [None, 80], [("Unsqueeze", {"axes": [0]}), ("Conv", {})], "128,80", None),
    ("turned", [None, 80], [("Unsqueeze", {"axes": [0]}), ("Transpose", TURNED), ("Conv", {})], "128,80", None),
    ("from one to the next", ["s0", 1, 64], [("Scan", {"num_scan_inputs": 1})], "128,1,64", None),
    # As Keras has them, and whatever else has the batch first.
    ("transposed", ["s0", 50, 16], [("Transpose", {"perm": [1, 0, 2]}), ("LSTM", {})], "", 0),
    ("laid out", ["s0", 50, 16], [("LSTM", {"layout": 1})], "", 0),
    ("named", ["batch", 50, 16], [("LSTM", {})], "", 0),
    ("an axis inside", ["s0", 80], [("Unsqueeze", {"axes": [1]}), ("Conv", {})], "", 0),
    ("reshaped", ["s0", 80], [("Reshape", {}), ("LSTM", {})], "", 0),
    ("images", ["s0", 3, 8, 8], [("Conv", {})], "", 0),
]


@pytest.mark.parametrize(
    ("shape", "steps", "sizes", "place"), [each[1:] for each in ORDERS], ids=[each[0] for each in ORDERS]
)
def test_the_graph_of_an_onnx_file_shows_where_the_batch_is(
    shape: list[Any], steps: list[Any], sizes: str, place: int | None, tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    make, kinds = onnx.helper.make_node, onnx.TensorProto
    body = onnx.helper.make_graph([], "turn", [], [])
    others = {"Scan": ["w", "&"], "Gather": ["table", "&"], "Reshape": ["&", "sizes"], "Conv": ["&", "w"]}
    nodes, last = [], "x"
    for number, (operator, attributes) in enumerate(steps):
        before, last = last, f"v{number}"
        extra = {"body": body} if operator == "Scan" else {}
        operands = [before if name == "&" else name for name in others.get(operator, ["&"])]
        nodes.append(make(operator, operands, [last], **attributes, **extra))
    inputs = [onnx.helper.make_tensor_value_info("x", kinds.FLOAT, shape)]
    table = onnx.numpy_helper.from_array(np.zeros((90, 16), "f4"), "table")
    path = str(tmp_path / "m.onnx")
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", inputs, [], [table])), path)
    spec = {"kind": "onnx", "workload": path, "shapes": {}, "ranges": {}, "values": {}}
    model = [model_input("x", shape=shape)]
    if sizes:
        with pytest.raises(WorkloadError) as caught:
            described_inputs(model, spec, np.dtype)
        assert f"e.g. --input-shape x={sizes}" in caught.value.advice
    spec["shapes"] = options.shapes((f"x={sizes}",)) if sizes else {}
    [found] = described_inputs(model, spec, np.dtype)
    assert found["batch_axis"] == place
    if place is not None and not isinstance(shape[place], int):
        assert found["shape"][place] is None
    spec["shapes"] = {"x": ["batch", *(128 if not isinstance(n, int) else n for n in shape[1:])]}
    if shape[:1] != [50]:
        assert described_inputs(model, spec, np.dtype)[0]["batch_axis"] == 0  # whoever knows better says so


def test_the_size_of_boxes_decides_how_much_is_computed(tmp_path: Path) -> None:
    """Unless so many points of each are read, however large it is."""
    onnx = pytest.importorskip("onnx")
    make, kinds = onnx.helper.make_node, onnx.TensorProto
    names = ["x", "adaptive", "usual", "fixed", "rois", "target", "plain"]
    nodes = [
        make("RoiAlign", ["x", "adaptive", "i"], ["a"], sampling_ratio=0),
        make("RoiAlign", ["x", "usual", "i"], ["b"]),
        make("RoiAlign", ["x", "fixed", "i"], ["c"], sampling_ratio=2),
        make("MaxRoiPool", ["x", "rois"], ["d"]),
        make("Reshape", ["x", "target"], ["e"]),
        # As Flatten and the heads of transformers are exported: from constants, and from shapes.
        make("Reshape", ["plain", "sizes"], ["f"]),
        make("Shape", ["plain"], ["s"]),
        make("Gather", ["s", "zero"], ["n"]),
        make("Concat", ["n", "sizes"], ["all"], axis=0),
        make("Reshape", ["plain", "all"], ["g"]),
    ]
    tensors = [onnx.helper.make_tensor_value_info(name, kinds.FLOAT, [4, 4]) for name in names]
    numbers = [onnx.numpy_helper.from_array(np.array(n), name) for n, name in (([-1, 16], "sizes"), ([0], "zero"))]
    graph = onnx.helper.make_graph(nodes, "g", tensors, [], numbers)
    onnx.save(onnx.helper.make_model(graph), tmp_path / "m.onnx")
    facts = onnxfile.value_facts(str(tmp_path / "m.onnx"))
    assert facts.decisive == {"adaptive", "usual", "rois", "target"}


def test_a_column_for_each_table_is_an_index_in_an_onnx_file(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    node, kinds = onnx.helper.make_node, onnx.TensorProto
    names = ["packed", "uneven", "plain"]
    tensors = [onnx.helper.make_tensor_value_info(name, kinds.INT64, ["batch", 2]) for name in names]
    nodes = [
        node("Split", ["packed"], ["a", "b"], axis=1),
        *[node("Gather", ["large", each], [f"of_{each}"]) for each in ("a", "b")],
        node("Slice", ["uneven", "zero", "one", "axis"], ["c"]),
        node("Gather", ["uneven", "one"], ["d"], axis=1),
        node("Gather", ["large", "c"], ["of_c"]),
        node("Gather", ["small", "d"], ["of_d"]),
    ]
    tables = [onnx.numpy_helper.from_array(np.zeros((n, 4), "f4"), name) for n, name in ((90, "large"), (5, "small"))]
    tables += [onnx.numpy_helper.from_array(np.array([n]), name) for n, name in ((0, "zero"), (1, "one"), (1, "axis"))]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", tensors, [], tables)), tmp_path / "m.onnx")
    # Few rows of a large table stay in the cache.
    assert onnxfile.value_facts(str(tmp_path / "m.onnx")) == ({"uneven"}, {"packed": 90, "uneven": 5}, set(), {})


INDEXING = [
    # name, what stands between the ids and a table of 90 rows, the rows of the ids, whether an index is worked out
    ("cast", [("Cast", ["ids"], {"to": 7}), ("Reshape", ["&", "shape"], {})], 90, False),
    ("joined", [("Concat", ["ids", "ids"], {"axis": 0})], 90, False),
    ("from the end", [("Add", ["ids", "n"], {}), ("Where", ["flag", "&", "ids"], {})], 90, False),
    ("hashed", [("Mul", ["ids", "prime"], {}), ("Mod", ["&", "n"], {})], 90, False),
    ("hashed, a part of the table each", [("Mod", ["ids", "n"], {}), ("Add", ["&", "offsets"], {})], 90, False),
    ("clipped", [("Sub", ["ids", "n"], {}), ("Clip", ["&", "zero", "n"], {})], 90, False),
    ("multiplied", [("Mul", ["ids", "n"], {})], None, True),
    ("beyond the end", [("Add", ["ids", "n"], {})], None, True),
    ("after two rows of others", [("Add", ["two", "ids"], {}), ("Cast", ["&"], {"to": 7})], 88, False),
    ("a part of the table each", [("Unsqueeze", ["offsets"], {}), ("Add", ["ids", "&"], {})], 10, False),
    ("shifted twice", [("Add", ["ids", "two"], {}), ("Add", ["&", "two"], {})], None, True),
    ("shifted or not", [("Add", ["ids", "two"], {}), ("Where", ["flag", "&", "zero"], {})], None, True),
    ("joined with a sum", [("Add", ["ids", "n"], {}), ("Concat", ["ids", "&"], {"axis": 0})], None, True),
]


@pytest.mark.parametrize(
    ("steps", "rows", "is_worked_out"), [each[1:] for each in INDEXING], ids=[e[0] for e in INDEXING]
)
def test_indices_are_found_behind_what_is_made_of_them_in_an_onnx_file(
    steps: list[Any], rows: int | None, is_worked_out: bool, tmp_path: Path
) -> None:
    """Two rows of a table would stay in the cache, and an index beyond its end fails."""
    onnx = pytest.importorskip("onnx")
    nodes, last = [], "ids"
    for number, (operator, names, attributes) in enumerate(steps):
        before, last = last, f"v{number}"
        operands = [before if name == "&" else name for name in names]
        nodes.append(onnx.helper.make_node(operator, operands, [last], **attributes))
    nodes.append(onnx.helper.make_node("Gather", ["table", last], ["y"]))
    inputs = [onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["batch"])]
    numbers = {"n": 90, "two": np.int32(2), "zero": 0, "prime": 31, "offsets": [0, 30, 40]}
    constants = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in numbers.items()]
    table = onnx.numpy_helper.from_array(np.zeros((90, 4), "f4"), "table")
    graph = onnx.helper.make_graph(nodes, "g", inputs, [], [table, *constants])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "m.onnx")
    found = onnxfile.value_facts(str(tmp_path / "m.onnx"))
    uneven = {"ids"} if rows == 10 else set()  # another part has 50 rows
    assert found == (uneven, {"ids": rows} if rows else {}, {"ids"} if is_worked_out else set(), {})


@pytest.mark.parametrize(
    ("operators", "is_worked_out"),
    [
        (["Mul", "Cast"], True),
        (["Mul", "Floor", "Clip", "Cast"], True),  # most of [0, 1) is one row
        (["Cast"], False),  # the rows of the table
        (["Mul", "ArgMax"], False),
        (["MatMul", "Cast"], False),  # of pictures and sound, what a network finds in them
    ],
)
def test_floating_point_numbers_are_indices_if_they_come_one_by_one(
    operators: list[str], is_worked_out: bool, tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    nodes, last = [], "x"
    for number, operator in enumerate(operators):
        before, last = last, f"v{number}"
        operands = [before, "n"] if operator in ("Mul", "MatMul") else [before]
        nodes.append(onnx.helper.make_node(operator, operands, [last], **({"to": 7} if operator == "Cast" else {})))
    nodes.append(onnx.helper.make_node("Gather", ["table", last], ["y"]))
    inputs = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 3])]
    table = onnx.numpy_helper.from_array(np.zeros((90, 4), "f4"), "table")
    path = str(tmp_path / "m.onnx")
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", inputs, [], [table])), path)
    spec = {"kind": "onnx", "workload": path, "shapes": {}, "ranges": {}, "values": {}}
    found = described_inputs([model_input("x", shape=["batch", 3])], spec, np.dtype)[0]
    assert found["doubtful"] is is_worked_out
    assert found["values"] == ("rows from 0 to 89" if operators == ["Cast"] else "in [0, 1)")


FLOWS = [
    # name, nodes as (operator, sources) after x and n, which inputs decide how much is computed, and which are indices
    ("chunks", [("Pack", [1]), ("Reshape", [0, 2])], [1], set()),
    ("heads from a shape", [("Shape", [0]), ("StridedSlice", [2]), ("Pack", [3]), ("Reshape", [0, 4])], [], set()),
    ("flattened", [("Const", []), ("Reshape", [0, 2])], [], set()),
    ("boxes of one size", [("Const", []), ("CropAndResize", [1, 0, 2, 2])], [], set()),
    ("scaled", [("Const", []), ("Mul", [0, 2]), ("Cast", [3]), ("GatherV2", [2, 4])], [], {0}),
    ("a bucket", [("Const", []), ("Bucketize", [0]), ("GatherV2", [2, 3])], [], {0}),
    ("found by a network", [("Const", []), ("MatMul", [0, 2]), ("Cast", [3]), ("GatherV2", [2, 4])], [], set()),
    ("the largest", [("Const", []), ("ArgMax", [0]), ("GatherV2", [2, 3])], [], set()),
    ("whole numbers", [("Const", []), ("Sum", [1]), ("GatherV2", [2, 3])], [], {1}),
]


@pytest.mark.parametrize(
    ("nodes", "decisive", "indices"), [each[1:] for each in FLOWS], ids=[each[0] for each in FLOWS]
)
def test_what_values_decide_in_a_graph_of_tensorflow(nodes: list[Any], decisive: list[int], indices: set[int]) -> None:
    empty: Any = SimpleNamespace(as_graph_def=lambda: SimpleNamespace(library=SimpleNamespace(function=[])))
    flat = Flat(empty)
    inputs = [["Placeholder", [], [[kind, [1, 4]]], {}, 1] for kind in ("float32", "int32")]
    flat.nodes = inputs + [[name, [(n, 0) for n in sources], [["float32", None]], {}, 1] for name, sources in nodes]
    found = flat.followed([(0, 0), (1, 0)])
    assert (found[0], found[2]) == (decisive, indices)
    assert not {*decisive} & {*found[1]}  # nor is it for plain arithmetic alone


@pytest.mark.parametrize(
    ("nodes", "rank", "without"),
    [
        ([("ExpandDims", 0), ("Conv2D", None)], 3, [0]),
        ([("Cast", None), ("ExpandDims", -3), ("ExpandDims", 1), ("Conv2D", None)], 3, [0]),
        ([("ExpandDims", 0), ("ResizeBilinear", None)], 4, [0]),
        ([("StridedSlice", 5), ("Conv2D", None)], 3, [0]),
        ([("StridedSlice", 2), ("Conv2D", None)], 4, []),
        ([("ExpandDims", 1), ("Conv2D", None)], 4, []),
        ([("Conv2D", None)], 4, []),
        ([("ExpandDims", 0), ("Sub", None)], 3, []),  # from each to each
        ([("Max", None), ("ExpandDims", 0), ("Conv2D", None)], 3, []),
    ],
)
def test_an_item_to_which_a_graph_of_tensorflow_adds_the_batch(nodes: list[Any], rank: int, without: list[int]) -> None:
    empty: Any = SimpleNamespace(as_graph_def=lambda: SimpleNamespace(library=SimpleNamespace(function=[])))
    flat = Flat(empty)
    flat.nodes = [["Placeholder", [], [["float32", [None, 80]]], {}, 1]]
    for number, (name, axis) in enumerate(nodes):
        attributes = {} if axis is None else {"axis": axis}
        attributes = {"new_axis_mask": axis, "shrink_axis_mask": 0} if name == "StridedSlice" else attributes
        flat.nodes.append([name, [(number, 0)], [["float32", [None] * rank]], attributes, 1])
    assert flat.without_batch([(0, 0)]) == without


@pytest.mark.parametrize(
    ("yes", "no", "is_check"),
    [
        (["NoOp"], ["Const", "Assert", "NoOp"], True),
        (["NoOp"], ["If"], True),
        (["Conv2D"], ["Assert", "NoOp"], False),
        (["Identity"], ["Identity"], False),
    ],
)
def test_a_branch_is_a_check_if_it_computes_nothing(yes: list[str], no: list[str], is_check: bool) -> None:
    def node(operator: str, *names: str) -> Any:
        values = [SimpleNamespace(func=SimpleNamespace(name=name)) for name in names]
        return SimpleNamespace(op=operator, attr=dict(zip(("then_branch", "else_branch"), values, strict=False)))

    bodies = {"yes": yes, "no": no, "passes": ["NoOp"], "stops": ["Assert"]}
    functions = [
        SimpleNamespace(
            signature=SimpleNamespace(name=name), node_def=[node(each, "passes", "stops") for each in operators]
        )
        for name, operators in bodies.items()
    ]
    graph: Any = SimpleNamespace(as_graph_def=lambda: SimpleNamespace(library=SimpleNamespace(function=functions)))
    assert Flat(graph).is_check(SimpleNamespace(node_def=node("If", "yes", "no"))) is is_check


TABLES = [
    # name, nodes before the lookup, the table's shape, how it is looked up
    ("a constant of the graph", "Constant", (90, 4), {}),
    ("quantized", "DequantizeLinear", (90, 4), {}),
    ("transposed", "Transpose", (4, 90), {}),
    ("looked up by column", "Identity", (4, 90), {"axis": -1}),
    ("of numbers", "Identity", (90,), {}),
    ("of pictures", "Identity", (90, 8, 8), {}),
    ("in a function", "lookup", (90, 4), {}),
]


@pytest.mark.parametrize(("operator", "dims", "attributes"), [each[1:] for each in TABLES], ids=[e[0] for e in TABLES])
def test_tables_stand_in_many_places_of_an_onnx_file(
    operator: str, dims: tuple[int, ...], attributes: dict[str, int], tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    make = onnx.helper.make_node
    table = onnx.numpy_helper.from_array(np.zeros(dims, "f4"), "table")
    gather = make("Gather", ["made", "ids"], ["y"], **attributes)
    nodes = [make(operator, ["table"], ["made"]), gather]
    if operator == "Constant":
        nodes = [make("Constant", [], ["made"], value=table), gather]
    if operator == "lookup":
        nodes = [make("lookup", ["table", "ids"], ["y"], domain="own")]
    function = onnx.helper.make_function(
        "own", "lookup", ["weight", "indices"], ["row"], [make("Gather", ["weight", "indices"], ["row"])], []
    )
    inputs = [onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["batch"])]
    graph = onnx.helper.make_graph(nodes, "g", inputs, [], [table])
    onnx.save(onnx.helper.make_model(graph, functions=[function]), tmp_path / "m.onnx")
    assert onnxfile.value_facts(str(tmp_path / "m.onnx")) == (set(), {"ids": 90}, set(), {})


@pytest.mark.parametrize(
    ("dtype", "rows", "most"), [("uint8", 384, 255), ("int8", 384, 127), ("float16", 30522, 30521)]
)
def test_rows_fit_the_type_of_their_input(dtype: str, rows: int, most: int) -> None:
    """A byte has 256 values, and a short type of numbers rounds up to a row that there is not."""
    [ids] = described(model_input("ids", dtype, [None, 4000]))
    values.correct(ids, decides=False, rows=rows)
    assert (ids["values"], ids["doubtful"]) == (f"rows from 0 to {most}", False)
    array = arrays([ids], 3)["ids"].astype("float64")
    assert 0 <= array.min() < array.max() <= most
    assert len(np.unique(array)) > 100
    for other in ("bool", "string"):  # which have no such numbers
        [ids] = described(model_input("ids", other, [None, 4]))
        before = dict(ids)
        values.correct(ids, decides=False, rows=rows)
        assert ids == before


def test_numbers_that_an_index_is_worked_out_from_are_doubtful() -> None:
    for name, dtype, is_doubtful in (("ids", "int64", True), ("x", "float32", True), ("mask", "int64", False)):
        [found] = described(model_input(name, dtype, [None, 4]))
        values.correct(found, decides=False, rows=None, is_worked_out=True)
        assert found["doubtful"] is is_doubtful


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("x_indices", "x_values", "x_dense_shape"), "SparseTensor"),
        (("indices", "values", "dense_shape"), "SparseTensor"),
        (("features/flat_values:0", "features/row_splits:0"), "RaggedTensor"),
    ],
)
def test_parts_of_one_tensor_are_not_made_up(
    names: tuple[str, ...], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    types = {
        2: (("float32", [None]), ("int64", [None])),
        3: (("int64", [None, 2]), ("float32", [None]), ("int64", [2])),
    }
    parts = [model_input(name, *each) for name, each in zip(names, types[len(names)], strict=True)]
    with pytest.raises(WorkloadError, match=f"are the parts of a {kind}, which do not fit each other") as caught:
        described(*parts)
    for name in names:
        assert f"--input {name}=" in caught.value.advice
        assert f"'{name}': s." in caught.value.advice
    # What is given whole is fed as it is, and one of the names alone is no part.
    np.save("a.npy", np.array([[0, 0], [1, 3]]))
    np.save("b.npy", np.ones(2, "f4"))
    np.save("c.npy", np.array([2, 5]))
    if len(names) == 3:
        files = tuple(f"{name}={file}.npy" for name, file in zip(names, "abc", strict=True))
        found = described(*parts, sizes=(f"{names[0]}=2,2", f"{names[1]}=2"), values=files)
        assert [each.tolist() for each in arrays(found, 1, files).values()] == [[[0, 0], [1, 3]], [1.0, 1.0], [2, 5]]
    assert len(described(*parts[1:])) == len(parts) - 1


def test_failures_name_the_few_numbers_that_all_items_share() -> None:
    image = model_input("image", shape=[None, 8, 8, 3])
    for other, text in (
        (model_input("scales", shape=[4]), "scales float32 in [0, 1) (--input scales=1,1,1,1)"),
        (model_input("output_shape", "int32", [2]), "output_shape int32 0 or 1 (--input output_shape=224,224)"),
    ):
        found = described(image, other)
        assert blame.explained(ValueError("no"), found, 1)[0] == f"tftune made up what its inputs hold: {text}"
        option = blame.option(found[1]).partition(" ")[2]
        assert described(image, other, values=(option,))[1]["values"] == f"= {option.partition('=')[2]}"


def test_names_of_dimensions_are_read_from_an_onnx_file(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    tensors = [
        helper.make_tensor_value_info("x", kinds.FLOAT, ["batch", 3, None]),
        helper.make_tensor_value_info("scalar", kinds.INT64, []),
        helper.make_tensor_value_info("anything", kinds.FLOAT, None),
    ]
    large = onnx.numpy_helper.from_array(np.zeros((300, 300), "float32"), "w")
    graph = helper.make_graph([], "g", tensors, [], [large])
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    assert onnxfile.input_shapes(str(tmp_path / "m.onnx")) == {
        "x": ["batch", 3, None],
        "scalar": [],
        "anything": None,
    }
    (tmp_path / "bad.onnx").write_bytes(b"\xff\xff")
    (tmp_path / "empty.onnx").write_bytes(b"")
    assert onnxfile.input_shapes(str(tmp_path / "bad.onnx")) == {}
    assert onnxfile.input_shapes(str(tmp_path / "empty.onnx")) == {}


def test_names_that_are_no_batch() -> None:
    assert shapes.is_part("sequence_length")
    assert not shapes.is_part("unk__10")
    assert not shapes.is_part(None)
    assert shapes.batch_names([model_input("x", shape=["batch_size", "seq"])], {}) == {"batch_size"}
    assert shapes.batch_names([model_input("x", shape=["a * batch", 3])], {}) == {"a * batch"}


def test_exporters_number_the_batches_of_inputs() -> None:
    for name in ("batch_1", "batch_size_2", "batch2"):
        inputs = [model_input("x", shape=["batch", 3]), model_input("y", shape=[name, 5])]
        assert [each["shape"] for each in shapes.placed(inputs, {})] == [[None, 3], [None, 5]]
    # PyTorch names what has none after its input.
    numbered = model_input("tokens", shape=["tokens_dynamic_axes_1", "tokens_dynamic_axes_2"])
    assert described(numbered, sizes=("tokens=128",))[0]["shape"] == [None, 128]


def test_ranges_of_floating_point_numbers_need_not_be_whole() -> None:
    [found] = described(model_input("x", "float32", [None, 4]), ranges=("x=-0.5:1.5",))
    assert found["values"] == "in [-0.5, 1.5)"
    for name, dtype, text, message in (
        ("ids", "int32", "ids=0.5:2", "expected whole numbers|does not fit int32"),
        ("x", "float16", "x=0:100000", "does not fit float16"),
    ):
        with pytest.raises(WorkloadError, match=message):
            described(model_input(name, dtype, [None, 4]), ranges=(text,))
    with pytest.raises(BadInputError, match="--input-range x is 'a:b'"):
        options.ranges(("x=a:b",))


def test_a_file_beside_the_workload_that_another_module_hides(tmp_path: Path) -> None:
    import statistics

    advice = f"rename {tmp_path}/statistics.py, as {statistics.__file__} was imported first and hides it"
    with pytest.raises(ImportError) as no_name:
        from statistics import N  # type: ignore[attr-defined]  # noqa: F401
    with pytest.raises(AttributeError) as no_attribute:
        statistics.N  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError) as no_module:
        import statistics.n  # type: ignore[import-not-found]
    for caught in (no_name, no_attribute, no_module):
        assert blame.advice(caught.value, str(tmp_path)) != advice
    (tmp_path / "statistics.py").write_text("N = 4")
    for caught in (no_name, no_attribute, no_module):
        assert blame.advice(caught.value, str(tmp_path)) == advice
    own = str(Path(statistics.__file__).parent)
    assert "choose another interpreter" in blame.advice(no_name.value, own)
    assert blame.advice(AttributeError("'int' object has no attribute 'n'", obj=3), str(tmp_path)) == ""
