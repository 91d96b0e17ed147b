"""A user's own model: SavedModels, .keras files, Python files and commands, found good or bad before any trial."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.command_line import tftune_here
from tuner.errors import BadInputError
from tuner.job.job import prepare
from tuner.job.parsed import parse_request
from tuner.job.request import SearchRequest
from tuner.trial.exporting import cached_folder
from tuner.trial.outcome import ReadyReport, TrialFailure
from tuner.workload.spec import WorkloadSpec

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("forks_only")]

MAKE = """
import tensorflow as tf
L = tf.keras.layers
ids = L.Input((None,), dtype="int32", name="ids")
extra = L.Input((4,), name="extra")
x = L.GlobalAveragePooling1D()(L.Embedding(30000, 16)(ids))
y = L.Dense(32, activation="relu")(L.Concatenate()([x, extra]))
two = tf.keras.Model({"ids": ids, "extra": extra}, {"a": L.Dense(3)(y), "b": L.Dense(2)(y)})
two.save("two.keras")
two.export("served")
tf.keras.Sequential([L.Input((8,), batch_size=4), L.Dense(8)]).save("fixed.keras")
class Module(tf.Module):
    def __init__(self):
        self.v = tf.Variable(tf.ones((8, 8)))
        keys = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2])
        self.table = tf.lookup.StaticHashTable(keys, 0)
    @tf.function(input_signature=[tf.TensorSpec((None, 8)), tf.TensorSpec((), tf.int32)])
    def product(self, x, n):
        return {"y": x @ self.v * tf.cast(n, tf.float32)}
    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)])
    def look(self, words):
        return {"n": self.table.lookup(words)}
    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)])
    def shout(self, words):
        return {"loud": tf.strings.upper(words), "length": tf.cast(tf.strings.length(words), tf.float32)}
class Scalar(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec(())])
    def double(self, k):
        return {"y": 2 * k}
scalar = Scalar()
tf.saved_model.save(scalar, "scalar", signatures={"serving_default": scalar.double})
module = Module()
signatures = {"product": module.product, "look": module.look, "shout": module.shout}
tf.saved_model.save(module, "more [1]", signatures=signatures)
"""

LAYERS = "def dense(n):\n    import tensorflow as tf\n    return tf.keras.layers.Dense(n, activation='relu')\n"
MINE = """'''A model beside a module of its own.'''
from layers_of_mine import dense
PARAMS = {"width": 16}
MODES = "inference", "training"
LOSS, OPTIMIZER = "mse", "adam"
BATCH_SIZE = 4
def build(width):
    import tensorflow as tf
    tf.keras.utils.set_random_seed(1)
    return tf.keras.Sequential([tf.keras.layers.Input((8,)), dense(width), dense(1)])
def inputs(batch_size):
    import numpy as np
    return np.random.default_rng(1).random((batch_size, 8), dtype=np.float32)
def targets(batch_size):
    import numpy as np
    return np.ones((batch_size, 1), np.float32)
"""
BENCH = """import os, sys, time
import numpy as np
x = np.ones((64 * int(sys.argv[1]), 64))
began = time.perf_counter()
for _ in range(200):
    x = np.tanh(x)
print("steps/sec:", 200 / (time.perf_counter() - began))
"""
SHORT = ("--time-budget", "1s", "--trials", "1", "--one-process", "--json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with a model of each kind."""
    home = tmp_path_factory.mktemp("models")
    forked.run(MAKE, folder=home)
    (home / "layers_of_mine.py").write_text(LAYERS)
    (home / "mine.py").write_text(MINE)
    (home / "bench.py").write_text(BENCH)
    return home


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("served", ["./served", "--input-shape", "ids=20", "--input-range", "ids=0:30000", "--batch-size", "2"]),
        ("mine", ["mine.py", "--mode", "training", "--param", "width=32", "--batch-size", "4"]),
        ("mysvc", ["--name", "mysvc", "--metric-regex", r"steps/sec: (\S+)", "--batch-size", "2", "--set", "inter_op=1",
                   "--", sys.executable, "bench.py", "{batch_size}"]),
    ],
)  # fmt: skip
def test_a_search_of_ones_own(folder: Path, name: str, words: list[str]) -> None:
    done = tftune_here("search", *SHORT, *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["workload"]["name"] == name
    assert document["trials"]["failed"] == 0
    assert document["finals"]["rounds"] >= 2
    assert document["recommended"]["setting"]["batch_size"] in (2, 4)
    if name == "mysvc":
        assert document["features"] is None
        assert (document["objective"], document["finals"]["unit"]) == ("maximize", "steps/sec")
    else:
        assert document["features"]["known"]
        assert document["features"]["flops"] > 0


def ready(*words: str, **options: Any) -> ReadyReport:
    """Return what a process of a workload of the current folder tells that comes up and takes steps."""
    spec = WorkloadSpec(words=words, **options)
    job = prepare(parse_request(SearchRequest(workload=spec, batch_size="1"), stores=False))
    process = job.launcher().launch(job.space.reference, job.space.deployment(job.space.reference))
    try:
        facts = process.ready()
        assert process.slice(0.05).n_steps > 0
        return facts
    finally:
        process.close()


def runs(*words: str, **options: Any) -> bool:
    """Return whether a process of a workload of the current folder comes up and takes steps."""
    return ready(*words, **options).step_s > 0


def test_strings_go_in_and_come_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What two processes computed is compared by its numbers, and they know that their strings were the same."""
    monkeypatch.chdir(folder)
    first, second = (ready("more [1]", signature="shout") for _ in range(2))
    assert first.sample == second.sample
    assert first.sample is not None
    assert list(first.sample["outputs"]) == ["length"]


def test_what_is_found_is_made_inputs_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert runs("more [1]", signature="product")
    assert runs("more [1]", signature="look")
    assert runs("two.keras", input_shapes=("ids=20",))
    assert runs("two.keras", input_shapes=("ids=20",), execution="eager")
    assert runs("served", input_shapes=("ids=20",), input_ranges=("ids=0:30000",), execution="xla")


def test_what_is_fed_is_known_and_can_be_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)

    def fed(*words: str, **options: Any) -> dict[str, str]:
        request = SearchRequest(workload=WorkloadSpec(words=words, **options))
        job = prepare(parse_request(request, stores=False))
        job.export()
        return {each.name: each.values for each in job.inputs}

    shapes = ("ids=20",)
    assert fed("two.keras", input_shapes=shapes) == {"ids": "rows from 0 to 29999", "extra": "in [0, 1)"}
    assert fed("more [1]", signature="product") == {"x": "in [0, 1)", "n": "= 1"}
    assert list(fed("more [1]", signature="shout").values()) == ["= text of 40 words"]
    assert fed("mine.py") == {}  # which makes its own
    (folder / "extra.json").write_text("[[1, 2, 3, 4]]")
    given = {"input_shapes": shapes, "inputs": ("ids=7", "extra=extra.json")}
    assert fed("two.keras", **given) == {"ids": "= 7", "extra": "from extra.json"}
    first, other = ready("two.keras", **given), ready("two.keras", input_shapes=shapes)
    assert first.outputs == {"a": [1, 3], "b": [1, 2]}
    assert first.sample is not None
    assert other.sample is not None
    assert first.sample["inputs"] != other.sample["inputs"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["two.keras"],
            "input 'ids' has the shape (?, ?); give its shape without the batch, e.g. --input-shape ids=128",
        ),
        (
            ["served", "--input-shape", "ids=2,3"],
            "--input-shape ids=2,3 does not fit: input 'ids' has the shape (?, ?)",
        ),
        (["two.keras", "--input-shape", "ids=2", "--input-range", "ids=0:9999999999"], "does not fit int32; expected"),
        (["served", "--input-shape", "words=2"], "--input-shape words: the model has no such input; known: extra, ids"),
        (["served", "--signature", "x"], "it has no signature 'x'; give --signature; known: serve, serving_default"),
        (["more [1]"], "none is called serving_default; choose one: --signature look or --signature product"),
        (["scalar", "--batch-size", "2"], "have no batch dimension; use --batch-size 1"),
        (["more [1]/saved_model.pb"], "is part of a SavedModel; give its folder, more [1]"),
        (["."], "is a folder without saved_model.pb; give the folder of a SavedModel, such as served"),
        (["fixed.keras", "--batch-size", "1,2"], "have the fixed batch size 4; use --batch-size 4"),
        (["fixed.keras", "--batch-size", "2"], "or save the model with an open batch: let it begin with keras.Input("),
        (["served", "--input-shape", "ids=9", "--input", "extra=none.npy"], "no file and not a number"),
    ],
)
def test_models_that_cannot_be_used_as_asked(folder: Path, words: list[str], message: str) -> None:
    done = tftune_here("search", *words, cwd=folder)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_the_batch_size_of_a_model_is_shown(folder: Path) -> None:
    done = tftune_here("workloads", "show", "fixed.keras", "--json", cwd=folder)
    assert json.loads(done.stdout)["workload"]["batch_size"] == 4, done.stderr


@pytest.mark.parametrize(
    ("text", "frame", "message"),
    [
        ("raise OSError('no licence')\n" + MINE, "", "'bad': OSError: no licence (line 1 of bad.py)"),
        ("import nowhere\n" + MINE, "import nowhere", "No module named 'nowhere' (line 1 of bad.py)"),
        (MINE.replace("dense(1)]", "dense(1 / 0)]"), "dense(1 / 0)", "ZeroDivisionError: division by zero (line 10"),
        (MINE.replace("dense(1)]", "dense(-1)]"), "Dense(n, activation", "(line 3 of layers_of_mine.py)"),
        (MINE.replace("return np.random", "return 5 # "), "", "TypeError: inputs() returned int, expected a tuple"),
        (MINE.replace("return np.random", "return [[1.0]], np.random"), "", "returned a list among its arrays"),
        (MINE.replace("(batch_size, 8)", "(32, 8)"), "", "inputs(2) returned an array of the shape (32, 8); the first"),
        (MINE.replace("return tf.keras.Seq", "return 5 or tf.keras.Seq"), "", "build() returned int; expected a Keras"),
        (MINE.replace("return tf.keras", "return lambda x: tf.py_function(abs, [x], x.dtype)\n    return tf.keras"),
         "", "or --framework tensorflow --execution eager"),
        (MINE.replace("(8,)", "(9,)"), "", "is incompatible with the layer: expected axis -1"),
    ],
)  # fmt: skip
def test_a_file_that_fails_says_where(folder: Path, text: str, frame: str, message: str) -> None:
    (folder / "bad.py").write_text(text)
    done = tftune_here("search", "bad.py", "--storage", "sqlite:///bad.db", cwd=folder)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr.splitlines()[-1]
    assert frame in done.stderr
    assert not (folder / "bad.db").exists()


BY_NAME = r"""
import pathlib
import tensorflow as tf
from tuner.child.inputs import WorkloadError, batch_of, load_module
from tuner.frameworks.tensorflow.child import source
class Module(tf.Module):
    def __init__(self):
        self.v = tf.Variable(10.0)
    @tf.function(input_signature=[tf.TensorSpec((None, 1), name="ids"), tf.TensorSpec((None, 1), name="mask")])
    def both(self, ids, mask):
        return {"y": ids * self.v + mask}
module = Module()
tf.saved_model.save(module, "both", signatures={"serving_default": module.both})
HEAD = '''
import numpy as np, tensorflow as tf
K = tf.keras
ids, mask = K.Input((1,), name="ids"), K.Input((1,), name="mask")
def both(ids, mask): return ids * 10.0 + mask
def by_keyword(*, mask, ids): return both(ids, mask)
class Own(K.Model):
    @property
    def input(self): raise ValueError("it was never called")
    def call(self, ids, other): return both(ids, other)
def targets(n): return np.ones((n, 1), np.float32)
def training(model): return lambda x, y: {"loss": model(x) - y}
def inputs(n): return %s
def build(): return %s
'''
named = "{'mask': np.full((n, 1), 2.0, np.float32), 'ids': np.full((n, 1), 3.0, np.float32)}"
unnamed = "np.full((n, 1), 3.0, np.float32), np.full((n, 1), 2.0, np.float32)"
signature = "tf.saved_model.load('both').signatures['serving_default']"
out_of_order = "K.Model({'mask': mask, 'ids': ids}, both(ids, mask))"
in_order = "K.Model({'ids': ids, 'mask': mask}, both(ids, mask))"
models = [
    (named, "both"), (named, "K.Model([mask, ids], both(ids, mask))"), (named, out_of_order), (named, signature),
    (unnamed, out_of_order), (unnamed, signature), (unnamed, in_order), (unnamed, "both"), (unnamed, "Own()"),
    (named, "K.Model({'ids': ids, 'masks': mask}, both(ids, mask))"), (named, "by_keyword"),
    (named, "lambda **k: both(**k)"),
    (named, "tf.function(both).get_concrete_function(*[tf.TensorSpec((None, 1))] * 2)"),
    (named, "lambda x: both(x['ids'], x['mask'])"),
]
for number, (inputs, build) in enumerate(models):
    path = str(pathlib.Path("by_name_%d.py" % number).absolute())
    pathlib.Path(path).write_text(HEAD % (inputs, build))
    spec = {"kind": "python", "workload": path, "params": {}, "execution": "graph", "mode": "inference"}
    source.NOTES.clear()
    try:
        call = source.step_of(spec)[1]
    except WorkloadError as error:
        print("!", error)
        continue
    [output] = call(*map(tf.constant, batch_of(load_module(path), spec, 2)[0])).values()
    print("=", float(output[0, 0]), *(note for _, note in source.NOTES))
spec["mode"] = "training"
inputs, targets = batch_of(load_module(path), spec, 2)
print("=", float(source.step_of(spec)[1](*map(tf.constant, inputs + targets))["loss"][0, 0]))
"""
ORDER = "inputs() returns a tuple, whose arrays go to ids, mask in this order; return a dictionary to name them"


def test_inputs_go_to_the_names_that_a_file_gives_them(tmp_path: Path) -> None:
    """Ids are 3 and the mask is 2, so that a model that gets them the wrong way round returns 23."""
    printed = forked.run(BY_NAME, folder=tmp_path).splitlines()
    answers = [line for line in printed if line.startswith(("= ", "! "))]
    assert answers[:9] == [*["= 32.0"] * 4, f"= 32.0 {ORDER}", f"= 32.0 {ORDER}", *["= 32.0"] * 3]
    assert answers[9].startswith("! inputs() returned ids, mask, and the model takes ids, masks")
    assert answers[10:] == [*["= 32.0"] * 4, "= 31.0"]


SETS_THREADS = "import tensorflow as tf\ntf.config.threading.set_intra_op_parallelism_threads(1)\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SETS_THREADS + MINE, "bad.py, line 2: the workload itself sets 1 thread for intra_op, so TF_NUM_INTRAOP"),
        ("import os\nos.environ['TF_NUM_INTRAOP_THREADS'] = '1'\n" + MINE,
         "bad.py, line 2: the workload itself sets TF_NUM_INTRAOP_THREADS=1, so the values of intra_op have no effect"),
        ("import os\nos.environ['TF_ENABLE_ONEDNN_OPTS'] = '0'\n" + MINE, "set it for all trials: TF_ENABLE_ONEDNN"),
        (MINE.replace("    return tf.k", "    tf.zeros(1)\n    tf.config.threading.set_intra_op_parallelism_threads(1)"
                      "\n    return tf.k"), "remove that call: tftune sets the threads"),
    ],
)  # fmt: skip
def test_a_file_that_sets_what_tftune_sets(folder: Path, text: str, message: str) -> None:
    (folder / "bad.py").write_text(text)
    done = tftune_here("search", "bad.py", "--storage", "sqlite:///bad.db", "--wait", cwd=folder)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr.splitlines()[-1]
    assert not (folder / "bad.db").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MINE.replace("return np.ones((batch_size, 1), np.float32)", "return [np.ones((batch_size, 1))] * 2"),
         "the model has 1 outputs, and targets() returns 2 arrays; return one array per output"),
        (MINE.replace("return tf.keras", "return lambda x: x\n    return tf.keras"), "define training(model)"),
    ],
)  # fmt: skip
def test_training_that_does_not_fit_its_model(folder: Path, text: str, message: str) -> None:
    (folder / "bad.py").write_text(text)
    done = tftune_here("workloads", "show", "bad.py", "--mode", "training", cwd=folder)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr.splitlines()[-1]
    assert len(done.stderr.splitlines()) == 1


def test_training_that_moves_no_loss_is_no_training(folder: Path) -> None:
    still = "import tensorflow as tf\n    return lambda x, y: tf.reduce_mean((model(x) - y) ** 2)\n"
    (folder / "still.py").write_text(f"{MINE}def training(model):\n    {still}")
    done = tftune_here("search", "still.py", "--mode", "training", "--batch-size", "4", *SHORT, cwd=folder)
    assert done.returncode == 3
    assert "invalid: InvalidOutputError: the loss did not change after the first step" in done.stderr


FORMS = {
    "unbuilt": ("tf.keras.Sequential([tf.keras.layers.Dense(2)])", "(np.ones((n, 3), 'f4'),)", "np.ones((n, 2), 'f4')"),
    "two": (
        "Two()",
        "(np.ones((n, 3), 'f4'), np.ones((n, 3), 'f4'))",
        "(np.ones((n, 3), 'f4'), np.ones((n, 3), 'f4'))",
    ),
}
FORM = """
MODES, LOSS = ("inference", "training"), "mse"
def build():
    import tensorflow as tf
    class Two(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = tf.keras.layers.Dense(3)
        def call(self, x, y):
            return {{"b": self.dense(x), "a": self.dense(y) + 1.0}}
    return {model}
def inputs(n):
    import numpy as np
    return {inputs}
def targets(n):
    import numpy as np
    return {targets}
"""
TABLE = """
def build():
    import tensorflow as tf
    keys = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2])
    table = tf.lookup.StaticHashTable(keys, 0)
    return lambda words: tf.cast(table.lookup(words), tf.float32)
def inputs(n):
    import numpy as np
    return np.array(["a"] * n)
"""


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_models_of_every_form_are_taken(tmp_path: Path, name: str, mode: str) -> None:
    model, inputs, targets = FORMS[name]
    (tmp_path / "mine.py").write_text(FORM.format(model=model, inputs=inputs, targets=targets))
    done = tftune_here("workloads", "show", "mine.py", "--mode", mode, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["features"]["heavy_operators"] == (2 if name == "two" else 1)


def test_inputs_of_random_lengths_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import itertools\nlengths = itertools.count(3)\ndef build():\n    return lambda x: x + 1.0\n"
        "def inputs(n):\n    import numpy as np\n    return (np.ones((n, next(lengths)), 'f4'),)\n"
    )
    done = tftune_here("workloads", "show", "mine.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "has the shape (?, 3), and (?, 5) when the file makes it again" in done.stderr


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU leaves nothing to pin to")
def test_what_acts_in_no_trial_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import os\nimport tensorflow as tf\ntf.config.run_functions_eagerly(True)\ndef build():\n"
        "    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n    return lambda x: x + 1.0\n"
        "def inputs(n):\n    import numpy as np\n    return (np.ones((n, 3), 'f4'),)\n"
    )
    notes: list[str] = []
    request = SearchRequest(workload=WorkloadSpec(words=("./mine.py",)), batch_size="1")
    prepare(parse_request(request, stores=False)).launcher(notify=notes.append)
    assert any(line.startswith("mine.py, line 3: run_functions_eagerly acts in no trial") for line in notes)
    assert any(line.startswith("mine.py, line 5: build() calls sched_setaffinity, which acts in no") for line in notes)


OWN_LOSSES = """
MODES, LOSS, BATCH_SIZE = ("inference", "training"), {loss}, 4
def build():
    import tensorflow as tf
    class Own(tf.keras.Model):
        def __init__(self):
            super().__init__()
            l2 = tf.keras.regularizers.L2(1)
            self.dense = tf.keras.layers.Dense(1, kernel_initializer="ones", kernel_regularizer=l2)
        def call(self, x):
            y = self.dense(x)
            self.add_loss(10.0 * tf.reduce_mean(y))
            return {{"b": y, "a": y}}
        def train_step(self, data):
            raise NotImplementedError
    tf.config.optimizer.set_jit(True)
    model = Own()
    model.compile("adam", jit_compile=True)
    return model
def inputs(n):
    import numpy as np
    return np.ones((n, 3), "f4")
def targets(n):
    import numpy as np
    return np.ones((n, 1), "f4"), np.zeros((n, 1), "f4")
"""


def test_training_is_that_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output is 3: (3 - 1)² + (3 - 0)² of outputs, 10 · 3 that the model adds, and 1 of each of three weights."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN_LOSSES.format(loss="'mse'"))
    told: list[str] = []
    options = WorkloadSpec(words=("./mine.py",), mode="training")
    job = prepare(parse_request(SearchRequest(workload=options, batch_size="1"), stores=False))
    job.launcher(notify=told.append)
    assert any(line.startswith("mine.py, line 14: the model has a train_step() of its own") for line in told)
    assert any(line.startswith("mine.py, line 16: build() calls set_jit, which acts in no trial") for line in told)
    assert any(line.startswith("mine.py, line 18: the training step is not compiled with XLA") for line in told)
    folder = cached_folder(job.workload, job.framework, job.build)
    assert (
        sum(n for _, n, _ in json.loads((folder / "graph.json").read_text())["variables"]) > 3 * 4
    )  # Adam has two each
    for loss, expected in (("'mse'", 46), ("['mae', 'mse']", 44), ("{'a': 'mae', 'b': 'mse'}", 44)):
        (tmp_path / "mine.py").write_text(OWN_LOSSES.format(loss=loss))
        sample = ready("./mine.py", mode="training").sample
        assert sample is not None
        assert sample["outputs"]["loss"] == [pytest.approx(expected)]


SIGNATURE = """
def build():
    import tensorflow as tf
    spec = tf.TensorSpec((None, 1), tf.float32)
    function = tf.function(lambda *, second, first: {"y": first - second})
    return function.get_concrete_function(second=spec, first=spec)
def inputs(n):
    import numpy as np
    return np.full((n, 1), 5, "f4"), np.full((n, 1), 2, "f4")
"""
GONE = """
def build():
    import tensorflow as tf
    weight = tf.Variable(2.0)
    return tf.function(lambda x: x * weight).get_concrete_function(tf.TensorSpec((None, 1)))
def inputs(n):
    import numpy as np
    return np.ones((n, 1), "f4")
"""
PREDICT = """
def build():
    import tensorflow as tf
    return tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(1)]).predict
def inputs(n):
    import numpy as np
    return np.ones((n, 3), "f4")
"""


def test_a_signature_takes_its_inputs_in_the_order_of_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SIGNATURE)
    sample = ready("./mine.py").sample
    assert sample is not None
    assert sample["outputs"] == {"y": [3.0]}
    (tmp_path / "mine.py").write_text(PREDICT)
    with pytest.raises(BadInputError, match="build\\(\\) returned the method predict of a Keras model") as caught:
        ready("./mine.py")
    assert caught.value.hint == "return the model"
    (tmp_path / "mine.py").write_text(GONE)
    with pytest.raises(BadInputError, match="whose variables are gone") as caught:
        ready("./mine.py")
    assert "loaded.signatures['serving_default'](x=x)" in caught.value.hint


LONGEST = """
BATCH_SIZE = 8
def build():
    import tensorflow as tf
    layers = tf.keras.layers
    return tf.keras.Sequential([layers.Input((None, 3)), layers.LSTM(4, return_sequences=True)])
def inputs(n):
    import numpy as np
    return np.ones((n, {length}, 3), "f4")
"""


def test_items_may_be_as_long_as_the_longest_of_their_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model of a batch of 2 would run as many steps of the loop for any other."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(LONGEST.format(length="5 * n"))
    assert list((ready("./mine.py").outputs or {}).values()) == [[1, 5, 4]]
    (tmp_path / "mine.py").write_text(LONGEST.format(length="5 if n > 1 else 9"))
    with pytest.raises(TrialFailure, match=r"shape \(1, 9, 3\), and the model was exported for \(\?, 5, 3\)"):
        ready("./mine.py")
    assert runs("./mine.py", execution="eager")


def test_what_cannot_be_a_graph_runs_eagerly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "def build():\n    import tensorflow as tf\n    return lambda x: tf.constant(x.numpy() + 1)\n"
        "def inputs(n):\n    import numpy as np\n    return np.ones((n, 3), 'f4')\n"
    )
    monkeypatch.chdir(tmp_path)
    assert runs("mine.py", execution="eager")
    assert tftune_here("workloads", "show", "mine.py", cwd=tmp_path).returncode == 2


def test_a_function_may_look_things_up_in_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(TABLE)
    monkeypatch.chdir(tmp_path)
    assert runs("mine.py")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("print('steps/sec: fast')", "'fast', which is not a number"),
        ("print('done')", "no line of its output matches '"),
        ("raise SystemExit('no device')", "the process ended with exit code 1: no device"),
    ],
)
def test_a_command_that_cannot_be_measured_is_told_of_before_any_trial(
    tmp_path: Path, script: str, message: str
) -> None:
    (tmp_path / "bad.py").write_text(script)
    words = ["--metric-regex", r"steps/sec: (\S+)", "--", sys.executable, "bad.py"]
    done = tftune_here("search", *words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert "cannot measure the command:" in last
    assert message in last
    assert not (tmp_path / "results").exists()
