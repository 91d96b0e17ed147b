"""Models as people have saved them: SavedModels of any tags or without signatures, operators of libraries, Keras files.

All are made and looked at in one process of TensorFlow, by the code that exports them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.command_line import tftune, tftune_here
from tuner.frameworks.tensorflow import build
from tuner.paths import cache_dir

pytestmark = pytest.mark.tensorflow

LOOK = r'''
import json, os, sys, zipfile
import h5py, numpy as np
import tensorflow as tf
from tuner.child.inputs import WorkloadError
from tuner.frameworks.tensorflow.child import adapter, exporter, kerasfile, libraries, savedmodel, source

v1, told = tf.compat.v1, {}
def attempt(name, call):
    """Keep what a call returns, or the error and its advice."""
    try:
        told[name] = call()
    except WorkloadError as error:
        told[name] = [str(error), error.advice]

def tagged(folder, tag_sets):
    """Write a SavedModel of TensorFlow 1 whose graphs multiply by the number of their tags and one."""
    builder = v1.saved_model.Builder(folder)
    for n, tags in enumerate(tag_sets):
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, [None, 2], name="x")
            y = x * v1.get_variable("v", initializer=1.0) * (len(tags) + 1)
            info = v1.saved_model.utils.build_tensor_info
            signature = v1.saved_model.signature_def_utils.build_signature_def(
                {"x": info(x)}, {"y": info(y)}, v1.saved_model.signature_constants.PREDICT_METHOD_NAME)
            session.run(v1.global_variables_initializer())
            if n == 0:
                builder.add_meta_graph_and_variables(session, tags, signature_def_map={"serving_default": signature})
            else:
                builder.add_meta_graph(tags, signature_def_map={"serving_default": signature})
    builder.save(as_text=folder == "text")

SETS = {
    "two": [["train"], ["serve"]], "gpu": [["serve", "gpu"], ["serve"]], "tpu": [["serve", "tpu"]], "text": [["serve"]],
    "hub": [["train"], []], "one": [["eval"]], "pair": [["train"], ["serve", "tpu"]], "open": [["train"], ["eval"]],
}
SPEC = {"kind": "savedmodel", "mode": "inference", "execution": "graph", "params": {}, "signature": None, "tags": None,
        "shapes": {}, "ranges": {}, "values": {}, "op_libraries": []}
def export(name, path, **changes):
    """Export a workload; return its folder and spec."""
    folder = os.path.abspath("export-" + name)
    os.makedirs(folder)
    spec = dict(SPEC, workload=os.path.abspath(path), folder=folder, **changes)
    exporter.export(spec)
    return folder, spec

def outputs_of(name, path, *arrays, **changes):
    """Return what the export of a workload computes, by name."""
    folder, spec = export(name, path, **changes)
    function, names = source.exported(spec), [each["name"] for each in json.load(open(folder + "/inputs.json"))]
    outputs = source.named(function(**{n: tf.constant(a) for n, a in zip(names, arrays)}))
    return {key: np.asarray(each.numpy()).tolist() for key, each in sorted(outputs.items()) if each.dtype != tf.string}

one = np.ones((1, 2), np.float32)
for folder, sets in SETS.items():
    tagged(folder, sets)
    attempt(folder, lambda: outputs_of(folder, folder, one))
attempt("chosen", lambda: outputs_of("chosen", "gpu", one, tags=["gpu", "serve"]))
attempt("not there", lambda: outputs_of("nt", "two", one, tags=["tpu"]))

class Net(tf.Module):
    def __init__(self):
        super().__init__()
        self.v = tf.Variable(2.0)
    @tf.function
    def __call__(self, x, training=False):
        return x * self.v * (10.0 if training else 1.0)
class Methods(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def encode(self, x):
        return x + 1.0
    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def score(self, x):
        return x + 2.0
net = Net()
net(tf.zeros([4, 2]))
for training in (True, False):
    net.__call__.get_concrete_function(tf.TensorSpec([None, 2]), training=training)
tf.saved_model.save(net, "none")
methods = Methods()
tf.saved_model.save(methods, "methods")
tf.saved_model.save(methods, "named", signatures={"encode": methods.encode, "score": methods.score})
tf.saved_model.save(tf.Module(), "nothing")
for name in ("none", "methods", "named", "nothing"):
    attempt(name, lambda: outputs_of(name, name, one))
attempt("method", lambda: outputs_of("method", "methods", one, signature="score"))

for name, outputs in {
    "ragged": "tf.RaggedTensor.from_row_splits(x[:, 0], [0, 1])", "sparse": "{'s': tf.sparse.from_dense(x), 'y': x}",
    "nested": "{'a': [x, {'b': x + 1.0, 'c': None}], 'd': x}", "text": "{'t': tf.strings.as_string(x), 'y': x}",
    "empty": "x[:0]", "number": "(x, 3.0)", "nil": "None",
}.items():
    with open(name + ".py", "w") as file:
        file.write("def build():\n    import tensorflow as tf\n    return lambda x: %s\ndef inputs(batch_size):\n"
                   "    import numpy as np\n    return np.ones((batch_size, 2), np.float32)\n" % outputs)
    attempt(name + ".py", lambda: outputs_of(name + ".py", name + ".py", one, kind="python"))

class Decides(tf.Module):
    """Some inputs decide by their values how much is computed, others do not."""
    def __init__(self):
        super().__init__()
        self.table = tf.Variable(tf.zeros([700, 4]))
    @tf.function(input_signature=[
        tf.TensorSpec([None, 8], tf.int32, "ids"), tf.TensorSpec([None, 4], tf.float32, "scores"),
        tf.TensorSpec([None, 4], tf.float32, "state"), tf.TensorSpec([None, 4], tf.float32, "series"),
        tf.TensorSpec([None, 4], tf.int32, "labels"), tf.TensorSpec([None, 4], tf.float32, "plain"),
        tf.TensorSpec([None, 4], tf.float32, "prompt"), tf.TensorSpec([None, 4], tf.float32, "checked"),
        tf.TensorSpec([None], tf.int32, "n_rooms"), tf.TensorSpec([None], tf.int32, "step_count"),
        tf.TensorSpec([None, 9, 5], tf.float32, "spoken"), tf.TensorSpec([None, 4], tf.float32, "opaque"),
        tf.TensorSpec([], tf.int32, "chunk_size"), tf.TensorSpec([None, 4], tf.float32, "boxes")])
    def serve(self, ids, scores, state, series, labels, plain, prompt, checked, n_rooms, step_count, spoken, opaque,
              chunk_size, boxes):
        rows = tf.unique(tf.reshape(ids, [-1])).y
        kept = tf.boolean_mask(plain, scores[:, 0] > 0.5)
        deep = tf.cond(tf.reduce_sum(state) > 1.0, lambda: plain @ tf.transpose(plain), lambda: plain[:, :1])
        steps = tf.while_loop(lambda x: tf.reduce_sum(x) > 1.0, lambda x: [x / 2.0], [series])[0]
        turns = tf.while_loop(  # the condition reads what a turn before made of the prompt
            lambda i, done, x: (i < 9) & ~done, lambda i, done, x: (i + 1, tf.reduce_sum(x) > 3.0, x + prompt),
            [0, False, tf.zeros_like(prompt)])[0]
        tf.debugging.assert_greater(checked, -1.0)
        picked = checked[:, labels[0, 0]]
        n = tf.shape(plain)[0]
        fixed = tf.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x * 2.0), [0, plain])[1]
        fixed += tf.zeros([n, 4]) + tf.one_hot(labels, 4)[:, 0]
        fixed += tf.image.resize(plain[:, None, :, None], [1, 4])[:, 0, :, 0]
        # Operators that no list names: one whose size depends on values, and one that hides a function.
        said = tf.nn.ctc_greedy_decoder(tf.transpose(spoken, [1, 0, 2]), tf.fill([tf.shape(spoken)[0]], 9))[0][0]
        chunks = tf.reshape(plain, [-1, chunk_size])
        heads = tf.reshape(checked, [tf.shape(checked)[0], 2, 2])
        places = tf.zeros([tf.shape(boxes)[0]], tf.int32)
        crops = tf.image.crop_and_resize(tf.zeros([1, 8, 8, 3]), boxes, places, [2, 2])
        hidden = tf.nondifferentiable_batch_function(1, 4, 10)(lambda x: x * 2.0)(opaque)
        return {"a": rows, "b": kept, "c": deep, "d": steps, "e": fixed, "f": turns, "g": picked,
                "h": tf.nn.embedding_lookup(self.table, n_rooms),
                "i": tf.sin(tf.cast(step_count, tf.float32)), "j": said.values, "k": hidden,
                "l": chunks, "m": heads, "n": crops}
decides = Decides()
tf.saved_model.save(decides, "decides", signatures=decides.serve)
decides_inputs = json.load(open(export("decides", "decides")[0] + "/inputs.json"))
tf.keras.Sequential([tf.keras.Input((4,), name="ids"), tf.keras.layers.Embedding(900, 2)]).save("emb.keras")
embedded, _ = export("emb", "emb.keras", kind="keras")
told["keras rows"] = json.load(open(embedded + "/inputs.json"))[0]["values"]
told["rows"] = next(each["values"] for each in decides_inputs if each["name"] == "n_rooms")
told["decisive"] = [each["name"] for each in decides_inputs if each["doubtful"]]

class OfFour(tf.Module):
    """A batch of four is written into its graph."""
    @tf.function(input_signature=[tf.TensorSpec([None, 2, 2], tf.float32, "image")])
    def serve(self, image):
        return {"y": tf.reshape(image, (4, 4)) @ tf.ones([4, 2])}
of_four = OfFour()
tf.saved_model.save(of_four, "of_four", signatures=of_four.serve)
of_four_folder = export("of_four", "of_four")[0]
told["of four"] = [json.load(open(of_four_folder + name)) for name in ("/inputs.json", "/graph.json")]

class Columns(tf.Module):
    """The columns of its inputs index tables: as they stand, one large and one small, and what is left of a hash."""
    def __init__(self):
        super().__init__()
        self.tables = [tf.Variable(tf.zeros([n, 4])) for n in (900, 900, 30, 800)]
        pairs = tf.lookup.KeyValueTensorInitializer(tf.range(9, dtype=tf.int64), tf.zeros([9]))
        self.numbers = tf.lookup.StaticHashTable(pairs, 0.0)
    @tf.function(input_signature=[
        tf.TensorSpec([None, 2], tf.int64, "packed"), tf.TensorSpec([None, 2], tf.int64, "uneven"),
        tf.TensorSpec([None, 4], tf.int64, "hashed"), tf.TensorSpec([None, 4], tf.int64, "labels"),
        tf.TensorSpec([None], tf.int64, "single"), tf.TensorSpec([None], tf.int64, "shifted"),
        tf.TensorSpec([None], tf.int64, "looked_up"), tf.TensorSpec([None], tf.float32, "scaled")])
    def serve(self, packed, uneven, hashed, labels, single, shifted, looked_up, scaled):
        look = tf.nn.embedding_lookup
        some = sum(look(table, packed[:, i]) for i, table in enumerate(self.tables[:2]))
        some += sum(look(table, each) for table, each in zip(self.tables[1:3], tf.unstack(uneven, axis=1)))
        some += sum(look(self.tables[3], tf.squeeze(each, 1) % 800) for each in tf.split(hashed, 4, axis=1))
        some += tf.gather_nd(self.tables[3], single[:, None]) + tf.gather_nd(self.tables[3], 2 * shifted[:, None])
        some += tf.gather(tf.constant(np.zeros([50, 4], "f4")), shifted + 1) + self.numbers.lookup(looked_up)[:, None]
        some += look(self.tables[3], tf.cast(scaled * 800.0, tf.int32))
        return {"y": some + tf.cast(labels, tf.float32)}
columns = Columns()
tf.saved_model.save(columns, "columns", signatures=columns.serve)
told["columns"] = {each["name"]: [each["values"], each["doubtful"]]
                   for each in json.load(open(export("columns", "columns")[0] + "/inputs.json"))}

class Utterance(tf.Module):
    """It puts a batch before the times of one utterance."""
    @tf.function(input_signature=[tf.TensorSpec([None, 80], tf.float32, "features")])
    def serve(self, features):
        return {"y": tf.nn.conv1d(features[None], tf.ones([5, 80, 4]), 1, "SAME")[0]}
utterance = Utterance()
tf.saved_model.save(utterance, "utterance", signatures=utterance.serve)
for number, sizes in enumerate(({}, {"features": [128, 80]}, {"features": ["batch", 80]})):
    attempt("utterance %d" % number, lambda: json.load(open(
        export("utterance%d" % number, "utterance", shapes=sizes)[0] + "/inputs.json"))[0]["batch_axis"])

class Cloud(tf.Module):
    """Its points look like a batch, and are one item."""
    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, "points")])
    def serve(self, points):
        return {"y": tf.reduce_max(points @ tf.ones([3, 10]), 0, keepdims=True)}
cloud = Cloud()
tf.saved_model.save(cloud, "cloud", signatures=cloud.serve)
for name in ("cloud", "utterance"):
    told["ignored batch of " + name] = json.load(open(
        export("ignored " + name, name, shapes={"features": ["batch", 80]} if name == "utterance" else {})[0]
        + "/inputs.json"))[0]["ignored_batch"]

class Policy(tf.Module):
    """Whose sizes are written: one observation gives one action."""
    @tf.function(input_signature=[tf.TensorSpec((17,), tf.float32, name="obs")])
    def serve(self, obs):
        return {"action": tf.linalg.matvec(tf.ones((6, 17)), obs)}
policy = Policy()
tf.saved_model.save(policy, "policy", signatures=policy.serve)
for number, sizes in enumerate(({}, {"obs": ["batch"]})):
    told["policy %d" % number] = json.load(open(
        export("policy%d" % number, "policy", shapes=sizes)[0] + "/inputs.json"))[0]["batch_axis"]

with tf.Graph().as_default(), v1.Session() as session:  # names as policies of TF-Agents have them
    given = {name: v1.placeholder(tf.float32, [None, 2]) for name in ("0/reward", "0/step-type", "x:0")}
    y = given["0/reward"] + 2 * given["0/step-type"] + given["x:0"]
    v1.saved_model.simple_save(session, "names", given, {"y": y})
for execution in ("graph", "xla"):
    _, spec = export("names-" + execution, "names", execution=execution)
    found = json.load(open(spec["folder"] + "/inputs.json"))
    step = adapter.loaded(spec)({each["name"]: tf.constant(one) for each in found})
    told["names " + execution] = [[each["name"] for each in found], step()["y"].numpy().tolist()]

with open("loads.py", "w") as file:
    file.write("import os\nimport h5py.h5\ndef build():\n    import tensorflow as tf\n"
               "    tf.load_op_library(os.path.relpath(h5py.h5.__file__))\n    return lambda x: x + 1.0\n"
               "def inputs(batch_size):\n    import numpy as np\n    return np.ones((batch_size, 2), np.float32)\n")
folder, spec = export("loads", "loads.py", kind="python", op_libraries=["json"])
told["recorded"], loaded = source.origin(folder)["libraries"], []
load_library, libraries.load = libraries.load, loaded.extend
source.exported(spec)
libraries.load = load_library
told["loaded again"], told["its path"] = loaded, h5py.h5.__file__

def unknown():
    with libraries.named_operators():
        raise tf.errors.NotFoundError(None, None, "Op type not registered 'SentencepieceOp' in binary")
attempt("operator", unknown)
attempt("library", lambda: libraries.load(["./none.so"]))

L = tf.keras.layers
class Mine(L.Layer):
    def call(self, x):
        return 2 * x
good = tf.keras.Sequential([L.Input((2,)), L.Dense(1)])
good.save("good.h5")
os.rename("good.h5", "GOOD.KERAS")  # HDF5, whatever it is called
tf.keras.Sequential([L.Input((2,)), Mine()]).save("custom.keras")
@tf.keras.utils.register_keras_serializable("own")
class Registered(Mine):
    pass
tf.keras.Sequential([L.Input((2,)), Registered()]).save("registered.keras")
tf.keras.Sequential([L.Input((2,)), L.Lambda(lambda x: x)]).save("lambda.keras")
class Own(tf.keras.Model):
    def call(self, x):
        return 2 * x
own = tf.keras.utils.register_keras_serializable("own")(Own)()
own(np.ones((1, 2), "f4"))
own.save("own.keras")
attempt("own", lambda: export("own", "own.keras", kind="keras"))
good.save_weights("net.weights.h5")
with h5py.File("weights.h5", "w") as file:
    file.attrs["layer_names"] = [b"dense"]
with h5py.File("data.h5", "w") as file:
    file["x"] = np.zeros(3)
with zipfile.ZipFile("zip.keras", "w") as file:
    file.writestr("x", "")
open("noise.h5", "wb").write(b"noise")
config = {"name": "s", "layers": [
    {"class_name": "InputLayer", "config": {"batch_input_shape": [None, 8, 8, 1], "name": "i"}},
    {"class_name": "DepthwiseConv2D", "config": {"name": "d", "kernel_size": [3, 3], "groups": 1}}]}
with h5py.File("old.h5", "w") as file:
    file.attrs["keras_version"] = "2.4.0"
    file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": config})
for name in ("GOOD.KERAS", "custom.keras", "lambda.keras", "net.weights.h5", "weights.h5", "data.h5", "zip.keras",
             "noise.h5", "old.h5"):
    attempt(name, lambda: kerasfile.load(name) and "loaded")
json.dump(told, open("told.json", "w"))
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models, and what was told of each."""
    home = tmp_path_factory.mktemp("saved")
    forked.run(LOOK, folder=home)
    return home


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, Any]:
    """What each model computes, or the error and its advice."""
    found: dict[str, Any] = json.loads((folder / "told.json").read_text())
    return found


@pytest.mark.parametrize(
    ("name", "factor"),
    [("two", 2), ("gpu", 2), ("tpu", 3), ("text", 2), ("hub", 1), ("one", 2), ("pair", 3), ("chosen", 3)],
)
def test_the_graph_is_the_one_that_is_served(told: dict[str, Any], name: str, factor: int) -> None:
    assert told[name] == {"y": [[factor, factor]]}


def test_a_choice_of_graphs_is_the_users(told: dict[str, Any]) -> None:
    assert told["open"] == ["several graphs could be meant: the tag sets are train; eval", "choose one: --tags train"]
    assert told["not there"][0] == "no graph is tagged tpu: the tag sets are train; serve"


def test_a_keras_model_of_its_own_class_has_a_way_out(told: dict[str, Any]) -> None:
    assert "does not show what its model takes" in told["own"][0]
    assert "model.export('FOLDER')" in told["own"][1]


def test_what_has_no_signature_is_called(told: dict[str, Any]) -> None:
    assert told["none"] == {"output_0": [[2, 2]]}  # the form with an open batch that does not train
    assert told["method"] == {"output_0": [[3, 3]]}
    assert told["methods"] == [
        "it has no signatures, and cannot be called",
        "choose one of its functions: --signature encode or --signature score",
    ]
    assert told["named"][1] == "choose one: --signature encode or --signature score"
    assert "write a Python file" in told["nothing"][1]


def test_values_that_decide_how_much_is_computed_are_doubtful(told: dict[str, Any]) -> None:
    assert sorted(told["decisive"]) == ["chunk_size", "ids", "opaque", "prompt", "scores", "series", "spoken", "state"]
    assert (
        told["rows"] == "rows from 0 to 699"
    )  # an index, and no number of something; nor does step_count do more than arithmetic


def test_a_batch_that_is_written_into_the_graph_makes_no_input_doubtful(told: dict[str, Any]) -> None:
    (image,), one_item = told["of four"]
    assert (image["doubtful"], one_item) == (False, None)


def test_one_item_to_which_the_graph_adds_a_batch_has_none(told: dict[str, Any]) -> None:
    message, advice = told["utterance 0"]
    assert message == "the first dimension of input 'features' is no batch: the graph puts one before it"
    assert advice == (
        "give the whole shape of every input, e.g. --input-shape features=128,80; if it is the batch, write that: "
        "features=batch,80"
    )
    assert (told["utterance 1"], told["utterance 2"]) == (None, 0)


def test_outputs_of_one_size_for_any_batch_are_known(told: dict[str, Any]) -> None:
    assert (told["ignored batch of cloud"], told["ignored batch of utterance"]) == (True, False)


def test_one_item_of_written_sizes_has_no_batch(told: dict[str, Any]) -> None:
    assert (told["policy 0"], told["policy 1"]) == (None, 0)


def test_a_column_for_each_table_is_an_index(told: dict[str, Any]) -> None:
    """Two rows of a table would stay in the cache."""
    assert told["columns"] == {
        "packed": ["rows from 0 to 899", False],
        "uneven": ["rows from 0 to 29", True],
        "hashed": ["rows from 0 to 799", False],
        "labels": ["0 or 1", False],
        "single": ["rows from 0 to 799", False],
        "shifted": ["0 or 1", True],
        "looked_up": ["0 or 1", True],
        "scaled": ["in [0, 1)", True],
    }


@pytest.mark.parametrize("execution", ["graph", "xla"])
def test_inputs_are_called_as_the_signature_calls_them(told: dict[str, Any], execution: str) -> None:
    """TensorFlow renames what is no name of Python."""
    assert told[f"names {execution}"] == [["0/reward", "0/step-type", "x:0"], [[4.0, 4.0]]]


def test_outputs_of_all_kinds_come_out(told: dict[str, Any]) -> None:
    assert told["ragged.py"] == {"output_0": [1], "output_1": [0, 1]}
    assert told["sparse.py"]["s_1"] == [1, 1]
    assert told["sparse.py"]["y"] == [[1, 1]]
    assert told["nested.py"] == {"a_0": [[1, 1]], "a_1": [[2, 2]], "d": [[1, 1]]}
    assert told["text.py"] == {"y": [[1, 1]]}
    assert told["empty.py"] == {"output_0": []}
    assert told["number.py"] == {"output_0": [[1, 1]], "output_1": 3.0}
    assert told["nil.py"] == ["the model returns no tensor", "return what it computes"]


def test_operators_of_libraries_are_named(told: dict[str, Any]) -> None:
    assert told["operator"][0].startswith("TensorFlow has no operator SentencepieceOp: it comes from a library")
    assert told["operator"][1].endswith("--op-library tensorflow_text")
    assert told["library"][0].startswith(
        "the library ./none.so cannot be loaded: NotFoundError: ./none.so: cannot open"
    )


def test_what_build_loads_is_loaded_again_by_each_process(told: dict[str, Any]) -> None:
    """A library without operators will do; no other process calls build()."""
    assert told["recorded"] == told["loaded again"] == ["json", told["its path"]]


@pytest.mark.parametrize(
    ("name", "message", "advice"),
    [
        ("custom.keras", "Could not locate class 'Mine'", "--op-library ./layers.py"),
        ("lambda.keras", "`Lambda` layer", "Keras does not run the Python code of a Lambda layer"),
        ("net.weights.h5", "it holds weights only", "calls load_weights()"),
        ("weights.h5", "it holds weights only", "give what model.save() writes"),
        ("data.h5", "it holds no Keras model", "give what model.save() writes"),
        ("zip.keras", "it is a zip archive without a model of Keras", "model.save('model.keras')"),
        ("noise.h5", "it is no file of Keras", "give what model.save() writes"),
        ("old.h5", "(it was saved with Keras 2.4.0): Unrecognized keyword arguments passed to DepthwiseConv2D: "
         "{'groups': 1}", "-m pip install tf_keras, then set TF_USE_LEGACY_KERAS=1"),
    ],
)  # fmt: skip
def test_keras_files_are_refused_with_the_reason(told: dict[str, Any], name: str, message: str, advice: str) -> None:
    assert message in told[name][0]
    assert advice in told[name][1]
    assert len(told[name][0]) < 500


def test_a_keras_file_is_known_by_what_it_holds(told: dict[str, Any]) -> None:
    assert told["GOOD.KERAS"] == "loaded"


@pytest.mark.parametrize(
    ("model", "layer", "decorator"),
    [
        ("registered", "Registered", "@tf.keras.utils.register_keras_serializable('own')"),
        ("custom", "Mine", ""),  # as the training script defines it
        ("custom", "Mine", "@tf.keras.utils.register_keras_serializable()"),  # later than the file was saved
    ],
)
def test_a_module_that_defines_a_layer_makes_its_file_load(
    folder: Path, model: str, layer: str, decorator: str
) -> None:
    (folder / "layers.py").write_text(
        f"import tensorflow as tf\n{decorator}\n"
        f"class {layer}(tf.keras.layers.Layer):\n    def call(self, x):\n        return 2 * x\n"
    )
    words = ["workloads", "show", f"{model}.keras", "--json"]
    refused = tftune_here(*words, cwd=folder)
    assert refused.returncode == 2
    assert f"load the file that defines {layer}" in refused.stderr
    done = tftune_here(*words, "--op-library", "layers.py", cwd=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("setting", ["variable", "theano", "jax"])
def test_another_backend_of_keras_is_no_matter_without_keras(folder: Path, tmp_path: Path, setting: str) -> None:
    """The cache is cold: TensorFlow is probed, and what it exports needs no Keras.

    What is probed is the same in all three cases; TensorFlow alone is enough to fail to import with a backend that
    Keras does not know.
    """
    (tmp_path / "keras.json").write_text(json.dumps({"backend": setting}))
    variable = {"KERAS_BACKEND": "jax"} if setting == "variable" else {"KERAS_HOME": str(tmp_path)}
    (tmp_path / "cache").mkdir()
    if setting != "theano":
        (tmp_path / "cache" / "builds").symlink_to(cache_dir() / "builds")
    env = {**os.environ, "TFTUNE_CACHE": str(tmp_path / "cache"), **variable}
    done = tftune("workloads", "show", "none", "--json", cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    done = tftune("workloads", "show", "mlp", cwd=folder, env=env)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    if setting == "variable":
        assert "KERAS_BACKEND=jax is set, and tftune tunes TensorFlow; unset KERAS_BACKEND" in last
    else:
        assert f"{tmp_path / 'keras.json'} sets the backend {setting}, and tftune tunes TensorFlow" in last


def test_settings_of_keras_that_change_a_model_make_another_build(tmp_path: Path) -> None:
    env = {"KERAS_HOME": str(tmp_path)}
    assert build.keras_settings(env) == []
    (tmp_path / "keras.json").write_text('{"floatx": "float16", "epsilon": 1e-07, "backend": "tensorflow"}')
    assert build.keras_settings(env) == ["floatx=float16"]
    (tmp_path / "keras.json").write_text("[]")
    assert build.keras_settings(env) == []
