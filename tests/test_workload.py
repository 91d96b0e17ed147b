"""Finding workloads and reading what they say of themselves, without running them."""

from __future__ import annotations

import ast
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tuner import inherited
from tuner.errors import BadInputError
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.job.parsed import parse_request
from tuner.job.request import SearchRequest
from tuner.workload.constants import syntax_tree
from tuner.workload.spec import WorkloadSpec, op_libraries
from tuner.workload.workload import Kind, Workload, catalogue, find, load, names

BODY = "def build(): pass\ndef inputs(batch_size): pass\n"
TRAINS = BODY + "MODES = ('inference', 'training')\n"
LITERATURE = [
    "bert-base",
    "bert-tiny",
    "dcgan",
    "densenet121",
    "densenet201",
    "efficientnetb0",
    "inceptionv3",
    "lenet5",
    "lstm",
    "matmul",
    "mlp",
    "mobilenetv2",
    "ncf",
    "resnet101",
    "resnet50",
    "transformer",
    "vgg19",
    "wide-deep",
]


def test_the_shipped_workload() -> None:
    workload = load("resnet50")
    assert (workload.name, workload.mode, workload.item, workload.batch_size) == ("resnet50", "inference", "image", 8)
    assert workload.description.startswith("ResNet-50")


def test_the_models_of_the_literature_are_there() -> None:
    assert names() == LITERATURE
    files = catalogue()
    assert [name for name, file in files.items() if "training" not in file.modes] == ["matmul"]
    assert all(file.description and file.source and file.batch_size for file in files.values())
    assert files["bert-base"].params == {"seq_len": 128}


def test_parameters_have_the_type_of_their_defaults(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "PARAMS = {'n': 1, 'rate': 0.5, 'kind': 'a', 'wide': False}\n"
        "def build(n, rate, *, kind='b'): pass\ndef inputs(batch_size, **params): pass\n"
    )
    workload = find(WorkloadSpec(words=(str(path),), params=("n=3e0", "rate=2", "kind=7", "wide=yes")))
    assert workload.params == {"n": 3, "rate": 2.0, "kind": "7", "wide": True}
    assert workload.fingerprint != load(str(path)).fingerprint
    for text in ("wide=maybe", "n=1.5", "n=inf", "rate=x"):
        with pytest.raises(BadInputError, match="expected"):
            find(WorkloadSpec(words=(str(path),), params=(text,)))


def test_execution_is_another_way_to_run_the_same_workload() -> None:
    eager = find(WorkloadSpec(words=("resnet50",), execution="eager"))
    assert eager.fingerprint == load("resnet50").fingerprint
    assert eager.child_spec()["execution"] == "eager"


def test_a_model_that_keras_saved(tmp_path: Path) -> None:
    path = tmp_path / "mine.keras"
    path.write_bytes(b"1")
    spec = WorkloadSpec(words=(str(path),), input_shapes=("x=224,224,3", "y="), input_ranges=("ids=30522", "z=-1:1"))
    workload = find(spec, FRAMEWORK.suffixes)
    assert (workload.kind, workload.name, workload.batch_size) == ("keras", "mine", 1)
    assert workload.shapes == {"x": [224, 224, 3], "y": []}
    assert workload.ranges == {"ids": [0, 30522], "z": [-1, 1]}
    path.write_bytes(b"2")
    assert find(spec, FRAMEWORK.suffixes).fingerprint != workload.fingerprint


def test_a_folder_that_tensorflow_saved(tmp_path: Path) -> None:
    (tmp_path / "1/variables").mkdir(parents=True)
    (tmp_path / "1/saved_model.pb").write_bytes(b"1")
    (tmp_path / "1/variables/variables.index").write_bytes(b"1")
    spec = WorkloadSpec(words=(str(tmp_path / "1"),), name="mine", signature="serve")
    workload = find(spec, FRAMEWORK.suffixes)
    assert (workload.kind, workload.name, workload.signature) == (Kind.SAVED_MODEL, "mine", "serve")
    (tmp_path / "1/variables/variables.index").write_bytes(b"2")
    assert find(spec, FRAMEWORK.suffixes).fingerprint != workload.fingerprint


def test_a_shipped_name_wins_over_a_folder_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "resnet50").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load("resnet50").kind is Kind.PYTHON
    with pytest.raises(BadInputError, match=r"saved_model\.pb"):
        load("./resnet50")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_shapes": ("x=1,-1",)}, "expected sizes without the batch"),
        ({"input_shapes": ("x=a",)}, "expected sizes without the batch"),
        ({"input_shapes": ("x=1", "x=2")}, "is given twice"),
        ({"input_ranges": ("x=3:3",)}, "expected LOW:HIGH with HIGH excluded, e.g. 0:30522"),
        ({"input_ranges": ("x",)}, "is not of the form NAME=VALUE"),
        ({"params": ("n=1",)}, "--param does not apply"),
        ({"signature": "serve"}, "--signature does not apply"),
        ({"mode": "training"}, "has no mode 'training'"),
    ],
)
def test_options_that_do_not_fit_a_model(tmp_path: Path, options: dict[str, object], message: str) -> None:
    path = tmp_path / "mine.keras"
    path.write_bytes(b"1")
    with pytest.raises(BadInputError, match=message):
        find(WorkloadSpec(words=(str(path),), **options), FRAMEWORK.suffixes)


def test_a_saved_model_has_no_eager_code(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"1")
    with pytest.raises(BadInputError, match="use graph or xla"):
        find(WorkloadSpec(words=(str(tmp_path),), execution="eager"))


def test_the_example_of_the_docs_is_a_workload(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "docs" / "models.md").read_text()
    path = tmp_path / "mine.py"
    path.write_text(text.partition("```python\n")[2].partition("```")[0])
    workload = find(WorkloadSpec(words=(str(path),), mode="training", params=("width=512",)))
    assert (workload.batch_size, workload.params) == (32, {"width": 512})


def test_a_user_file_is_read_and_not_run(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f'"""My model.\n\nMore."""\nraise SystemExit\nBATCH_SIZE: int = 4\n{BODY}')
    workload = load(str(path))
    assert (workload.name, workload.description, workload.batch_size, workload.item) == ("mine", "My model.", 4, "item")


def test_the_fingerprint_follows_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(BODY)
    first = load(str(path)).fingerprint
    assert load(str(path)).fingerprint == first
    path.write_text(BODY + "X = 1\n")
    assert load(str(path)).fingerprint != first


def test_the_fingerprint_follows_the_modules_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from net.blocks import make\nimport numpy\n" + BODY)
    (tmp_path / "net").mkdir()
    (tmp_path / "net/__init__.py").write_text("")
    (tmp_path / "net/blocks.py").write_text("import mine\nfrom layers import x\n")
    (tmp_path / "layers.py").write_text("x = 1\n")
    first = load(str(path)).fingerprint
    (tmp_path / "other.py").write_text("x = 1\n")
    assert load(str(path)).fingerprint == first
    (tmp_path / "layers.py").write_text("x = 2\n")
    assert load(str(path)).fingerprint != first


def test_relative_imports_are_followed_from_where_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import net\n" + BODY)
    (tmp_path / "net/parts").mkdir(parents=True)
    (tmp_path / "net/__init__.py").write_text("from . import layers\nfrom .parts import one\n")
    (tmp_path / "net/layers.py").write_text("x = 1\n")
    (tmp_path / "net/parts/__init__.py").write_text("from ..deep import y\n")
    (tmp_path / "net/deep.py").write_text("y = 1\n")
    fingerprints = {load(str(path)).fingerprint}
    for name in ("layers.py", "deep.py"):
        (tmp_path / "net" / name).write_text("y = 2\n")
        fingerprints.add(load(str(path)).fingerprint)
    assert len(fingerprints) == 3


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("W = np.load('w.npz')", "w.npz"),
        ("W = np.load(f'{HERE}/w.npz')", "w.npz"),
        ("W = np.load(os.path.join(os.path.dirname(__file__), 'weights', 'w.npz'))", "weights/w.npz"),
        ("W = np.load(Path(__file__).parent / 'weights' / 'w.npz')", "weights/w.npz"),
        ("M = tf.saved_model.load('served')", "served/variables/variables.index"),
        ("C.restore('ckpt/last')", "ckpt/last.data-00000-of-00001"),
        ("C.restore(tf.train.latest_checkpoint('ckpt'))", "ckpt/last.data-00000-of-00001"),
        ("M = TFBertModel.from_pretrained('./bert')", "bert/tf_model.h5"),
        ("PARAMS = {'weights': 'w.npz'}\ndef training(model, weights): ...", "w.npz"),
        ("sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'src'))\nimport net", "../src/net.py"),
        ("sys.path.append(str(Path(__file__).resolve().parent.parent))\nfrom src.net import x", "../src/net.py"),
    ],
)
def test_the_fingerprint_follows_what_the_file_reads(tmp_path: Path, text: str, file: str) -> None:
    path = tmp_path / "bench/mine.py"
    for folder in ("weights", "served/variables", "ckpt", "bert", "../src"):
        (path.parent / folder).mkdir(parents=True)
    for name in ("served/saved_model.pb", "ckpt/last.index", "ckpt/checkpoint", "bert/config.json"):
        (path.parent / name).write_text("")
    path.write_text(f"{text}\n{BODY}")
    (path.parent / file).write_text("x = 1\n")
    first = load(str(path)).fingerprint
    (path.parent / "other.npz").write_text("")
    assert load(str(path)).fingerprint == first
    (path.parent / file).write_text("x = 2\n")
    assert load(str(path)).fingerprint != first


def test_what_a_file_writes_is_no_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("L = open('times.txt', 'a')\nlogging.basicConfig(filename='run.txt')\nM = open('run.log')\n" + BODY)
    first = load(str(path)).fingerprint
    for name in ("times.txt", "run.txt", "run.log"):
        (tmp_path / name).write_text("1")
    assert load(str(path)).fingerprint == first


def test_the_fingerprint_follows_the_environment_that_the_file_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.py"
    reading = (
        "A = os.environ['WIDTH']\nB = os.environ.get('DEPTH', 2)\nC = os.getenv('SEED')\nos.environ['SET'] = '1'\n"
    )
    path.write_text(reading + BODY)
    prints = [load(str(path)).fingerprint]
    for name in ("WIDTH", "DEPTH", "SEED", "SET", "OTHER"):
        monkeypatch.setenv(name, "64")
        prints.append(load(str(path)).fingerprint)
    assert len(set(prints)) == 4
    assert prints[3:] == prints[3:4] * 3


@pytest.mark.parametrize(
    "reading",
    [
        "A = 'WIDTH' in os.environ",
        "A = os.environ.setdefault('WIDTH', '5')",
        "E = os.environ\nA = E['WIDTH']",
        "A = dict(os.environ)['WIDTH']",
        "NAME = 'WIDTH'\nA = os.getenv(NAME)",
        "A = os.getenv(key='WIDTH')",
        "A = os.environb[b'OTHER'] if 0 else {**os.environ}.get('WIDTH')",
        "A = decouple.config('WIDTH', cast=int)",
        "A = [os.environ.get(name) for name in ('DEPTH', 'WIDTH')]",
    ],
)
def test_a_file_may_ask_for_a_variable_in_any_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: str
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"{reading}\nB = 'a_b'.split('_')\n{BODY}")
    first = load(str(path)).fingerprint
    monkeypatch.setenv("_", "/usr/bin/other")
    monkeypatch.setenv("SHLVL", "7")
    assert load(str(path)).fingerprint == first
    monkeypatch.setenv("WIDTH", "64")
    assert load(str(path)).fingerprint != first


def test_a_variable_that_a_library_of_ours_sets_is_not_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.py"
    path.write_text("A = os.environ.get('KMP_DUPLICATE_LIB_OK')\n" + BODY)
    monkeypatch.delenv("KMP_DUPLICATE_LIB_OK", raising=False)
    monkeypatch.setattr(inherited, "_kept", dict(os.environ))
    first = load(str(path)).fingerprint
    monkeypatch.setenv("KMP_DUPLICATE_LIB_OK", "True")
    assert load(str(path)).fingerprint == first


def test_a_loss_may_be_a_function(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        TRAINS + "def mine(y, p): return y\nLOSS, OPTIMIZER = mine, 'adam'\ndef targets(batch_size): pass\n"
    )
    assert load(str(path), mode="training").mode == "training"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("resnet5", None, "unknown workload 'resnet5'; did you mean resnet50 or "),
        ("./nowhere.py", None, "no workload file ./nowhere.py"),
        ("bad.py", "def build(:\n", "bad.py, line 1:"),
        ("bad.py", "def build(): pass\n", "defines no function inputs()"),
        ("bad.py", "print('images/s: 5')\n", "as it is: --metric-regex '([0-9.]+) images/s' -- python "),
        ("bad.py", "\0", "bad.py"),
        ("bad.py", "BATCH_SIZE = 0\n" + BODY, "BATCH_SIZE is 0"),
        ("bad.py", "BATCH_SIZE = 'x'\n" + BODY, "BATCH_SIZE is 'x'"),
        ("bad.py", "MODES = ('serving',)\n" + BODY, "MODES is ('serving',)"),
        ("bad.py", "MODES = 3\n" + BODY, "MODES is 3"),
        ("bad.py", TRAINS, "lists the mode training, but defines neither LOSS nor training()"),
        ("bad.py", "LOSS = 'mse'\n" + TRAINS, "defines no function targets()"),
        ("bad.py", "PARAMS = ['n']\n" + BODY, "PARAMS is ['n']"),
        ("bad.py", "PARAMS = {'n': None}\n" + BODY, "PARAMS is {'n': None}"),
        ("bad.py", "PARAMS = {'n': 1}\n" + BODY, "no function takes the parameter n of PARAMS"),
        (
            "bad.py",
            "def build(n): pass\ndef inputs(batch_size): pass\n",
            "line 1: build(n) needs 'n', and PARAMS has no such",
        ),
        (
            "bad.py",
            "def build(): pass\ndef inputs(): pass\n",
            "line 2: inputs() takes too little; expected inputs(batch_size)",
        ),
    ],
)
def test_what_cannot_be_a_workload(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
        name = str(tmp_path / name)
    with pytest.raises(BadInputError) as caught:
        load(name)
    assert message in str(caught.value)


def test_tags_and_libraries_are_part_of_what_a_model_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "served").mkdir()
    (tmp_path / "served/saved_model.pb").write_bytes(b"x")
    (tmp_path / "op.so").write_bytes(b"first")

    def found(**options: Any) -> Workload:
        return find(WorkloadSpec(words=("served",), **options))

    plain, tagged, untagged = found(), found(tags="serve, gpu"), found(tags="")
    assert (plain.tags, tagged.tags, untagged.tags) == (None, ("gpu", "serve"), ())
    assert tagged.fingerprint == found(tags="gpu,serve").fingerprint
    library, module = found(op_libraries=("./op.so",)), found(op_libraries=("tensorflow_text",))
    assert library.child_spec()["op_libraries"] == [str(tmp_path / "op.so")]
    assert module.op_libraries == ("tensorflow_text",)
    (tmp_path / "op.so").write_bytes(b"second")
    changed = found(op_libraries=("op.so",))
    marks = [each.fingerprint for each in (plain, tagged, untagged, library, module, changed)]
    assert len(set(marks)) == len(marks)


@pytest.mark.parametrize(
    ("text", "batch_size"),
    [
        ("A, B = 4, 2\nBATCH_SIZE = A * B", 8),
        ("BATCH_SIZE: int = 8\nBATCH_SIZE *= 2", 16),
        ("BATCH_SIZE = 8\nBATCH_SIZE = 2 ** 3 + int('1')", 9),
        ("BIG = True\nif BIG:\n    BATCH_SIZE = 32\nelse:\n    BATCH_SIZE = 4", 32),
        ("from conf import A as BATCH_SIZE", 4),
        ("from conf import *\nBATCH_SIZE = A + 1", 5),
        ("import conf\nBATCH_SIZE = conf.SIZES[-1] << 1", 12),
        ("class Config:\n    batch = 3\nBATCH_SIZE = Config.batch", 3),
        ("SIZES = [1, 2]\nSIZES.append(7)\nBATCH_SIZE = max(*SIZES, 3)", 7),
        ("BATCH_SIZE = (n := 5) + n", 10),
        ("D = {'b': 8}\nfor key in D:\n    print(D[key])\nprint(D)\nBATCH_SIZE = D['b']", 8),
        ("D = {'b': 8}\ndef look(): return D['b']\nBATCH_SIZE = D['b']", 8),
        ("if __name__ == '__main__':\n    BATCH_SIZE = 99\nelse:\n    BATCH_SIZE = 6", 6),
        ("A = [1]\nB = A\nB += [7]\nBATCH_SIZE = A[1]", 7),
        ("A = {'b': 1}\nB = A\nB |= {'b': 7}\nBATCH_SIZE = A['b']", 7),
        ("A = [1]\nB = A[:]\nB += [7]\nBATCH_SIZE = len(A)", 1),
        ("A = [1]\nA += (7,)\nBATCH_SIZE = A[1]", 7),
        ("import conf\nfrom conf import SIZES\nconf.SIZES.append(9)\nBATCH_SIZE = SIZES[-1]", 9),
        ("import json\nD = {'b': 8}\nTEXT = json.dumps(D)\njson.dumps(D)\nBATCH_SIZE = D['b']", 8),
        ("from json import dumps\nD = {'b': 8}\nTEXT = dumps(D)\nBATCH_SIZE = D['b']", 8),
        ("exec('X = 2', {})\nBATCH_SIZE = 8", 8),
        ("A = 8\nexec(open('x').read())\nBATCH_SIZE = A", 8),
        ("MODES = ['inference']\nT = {}\nfor m in MODES:\n    T[m] = len(m) // 1\nBATCH_SIZE = len(MODES)", 1),
        ("D = {'b': 8}\nclass C:\n    n = 3\nD.update(open('x'))\nBATCH_SIZE = C.n", 3),
        ("A = []\nA.append(A)\nA.append(open('x'))\nBATCH_SIZE = 2", 2),
    ],
)
def test_constants_are_worked_out_without_running_the_file(tmp_path: Path, text: str, batch_size: int) -> None:
    (tmp_path / "conf.py").write_text("A = 4\nSIZES = [2, A + 2]\n")
    (tmp_path / "mine.py").write_text(f"{text}\n{BODY}")
    workload = load(str(tmp_path / "mine.py"))
    assert (workload.batch_size, workload.batch_problem, workload.notes) == (batch_size, None, ())


def test_parameters_modes_and_words_are_worked_out_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "PARAMS = dict(size=224, deep=True)\nPARAMS['size'] = 112 * 2\nPARAMS.update(size=PARAMS['size'] // 4)\n"
        "KIND = 'im'\nITEM = f'{KIND}age'\nMODES = ['inference'] + ['training']\nLOSS = 'mse'\n"
        "def build(size, deep): pass\ndef inputs(batch_size): pass\ndef targets(batch_size): pass\n"
    )
    workload = load(str(path), mode="training")
    assert (workload.params, workload.item) == ({"size": 56, "deep": True}, "image")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import os\nBATCH_SIZE = int(os.environ.get('B', 8))", 2),
        ("BATCH_SIZE = 8\ndef pick(): return 9\nBATCH_SIZE = pick()", 3),
        ("import os\nif os.name == 'nt':\n    BATCH_SIZE = 2\nelse:\n    BATCH_SIZE = 4", 2),
        ("from somewhere import BATCH_SIZE", 1),
        ("BATCH_SIZE = 10 ** 10 ** 10", 1),
        ("BATCH_SIZE = len('x' * 10 ** 9)", 1),
        ("for BATCH_SIZE in (1, 2):\n    pass", 1),
        ("D = {'b': 8}\nD['b'] *= 2\nBATCH_SIZE = D['b']", 3),
        ("D = {'b': 8}\nfor key in D:\n    D[key] = 16\nBATCH_SIZE = D['b']", 4),
        ("D = {'b': 8}\ndef double(d): d['b'] = 16\ndouble(D)\nBATCH_SIZE = D['b']", 4),
        ("BATCH_SIZE = 8\ndef configure(n):\n    global BATCH_SIZE\n    BATCH_SIZE = n\nconfigure(32)", 5),
        ("globals()['BATCH_SIZE'] = 8", 1),
        ("exec('BATCH_SIZE = 8')", 1),
        ("try:\n    BATCH_SIZE = 2\nexcept ImportError:\n    BATCH_SIZE = 4", 1),
        ("BATCH_SIZE = 8\neval('f()')", 2),
        ("BATCH_SIZE = 8\nfor k in 'ab':\n    globals()[k] = 1", 2),
        ("import sys\nBATCH_SIZE = 8\nsetattr(sys.modules[__name__], 'BATCH_SIZE', 16)", 3),
        ("import sys\nBATCH_SIZE = 8\nsys.modules[__name__].BATCH_SIZE = 16", 3),
        ("BATCH_SIZE = 8\ndef f(): exec('BATCH_SIZE = 16', globals())\ndef g(): f()\ng()", 4),
        ("A = [8]\nB = A\nB.append(open('x'))\nBATCH_SIZE = A[0]", 4),
        ("A = [8]\nB = {'a': A}\nB['a'].insert(0, open('x'))\nBATCH_SIZE = A[0]", 4),
        ("A = [8]\nB = A\nB += open('x')\nBATCH_SIZE = len(A)", 4),
        ("D = {'b': 8}\nE = D\nE['b'] = open('x')\nBATCH_SIZE = D['b']", 4),
        ("D = {'b': 8}\nfor x in (D,):\n    x['b'] = 16\nBATCH_SIZE = D['b']", 4),
        ("D = {'b': 8}\ndef double(): D['b'] = 16\ndouble()\nBATCH_SIZE = D['b']", 4),
        ("D = {'b': 8}\ndef double(d): d['b'] = 16\nX = double(d=D)\nBATCH_SIZE = D['b']", 4),
        ("import random\nA = [8, 16]\nrandom.shuffle(A)\nBATCH_SIZE = A[0]", 4),
        ("import conf\nD = {'b': 8}\nconf.grow(D)\nBATCH_SIZE = D['b']", 4),
        ("from conf import grow\nD = {'b': 8}\nX = grow(D)\nBATCH_SIZE = D['b']", 4),
        ("from somewhere import grow\nD = {'b': 8}\ngrow(D)\nBATCH_SIZE = D['b']", 4),
    ],
)
def test_a_computed_batch_size_is_never_taken_for_one(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "mine.py").write_text(f"{text}\n{BODY}")
    (tmp_path / "conf.py").write_text("def grow(d): d['b'] = 16\n")
    name = str(tmp_path / "mine.py")
    with pytest.raises(BadInputError, match=rf"mine\.py, line {line}: BATCH_SIZE is computed .*--batch-size 8"):
        parse_request(SearchRequest(workload=WorkloadSpec(words=(name,))), stores=False)
    for request in (
        SearchRequest(workload=WorkloadSpec(words=(name,)), batch_size="2"),
        SearchRequest(workload=WorkloadSpec(words=(name,)), pins=["batch_size=2"]),
    ):
        assert parse_request(request, stores=False).workload.name == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("./none.so", "--op-library ./none.so: no such file; give a .so or .py file, or the name of a module"),
        ("a-b", "--op-library a-b is no name of a module"),
        ("./served", "--op-library ./served: no such file"),
    ],
)
def test_libraries_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInputError) as caught:
        op_libraries([text])
    assert message in str(caught.value)


def test_an_option_of_models_is_refused_where_it_means_nothing(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(BODY)
    with pytest.raises(BadInputError, match="--tags does not apply to a Python file"):
        find(WorkloadSpec(words=(str(path),), tags="serve"))
    line = WorkloadSpec(words=("served",), tags="", op_libraries=("./a b.so", "text")).command_line
    assert line == "served --tags '' --op-library './a b.so' --op-library text"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import os\nPARAMS = {'n': os.cpu_count()}", "line 2: PARAMS is computed (PARAMS = {'n': os.cpu_count()})"),
        ("PARAMS = {'n': 1}\nfor k in PARAMS:\n    PARAMS = {}", "line 2: PARAMS is computed"),
        ("MODES = tuple(m for m in ('inference',))", "line 1: MODES is computed"),
        ("P = {'n': 1}\nPARAMS = P\nP['n'] = open('x')", "line 3: PARAMS is computed (P['n'] = open('x'))"),
        ("PARAMS = {}\nPARAMS.update(open('x'))", "run the file to read it; write its value"),
        ("P = {}\nPARAMS = P\nP.update(open('x'))", "run the file to read it; write its value below that line"),
        ("async def build(): pass", "line 1: build() is async; write def build("),
        ("class Net:\n    def build(self): pass", "line 2: build() is not a function of the module; move it out"),
    ],
)
def test_what_is_computed_or_out_of_place_is_said(tmp_path: Path, text: str, message: str) -> None:
    body = "def inputs(batch_size): pass\n" if "build" in text else BODY
    (tmp_path / "mine.py").write_text(f"{text}\n{body}")
    with pytest.raises(BadInputError) as caught:
        load(str(tmp_path / "mine.py"))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "build = lambda: None\ndef inputs(batch_size): pass",
        "import functools\n@functools.cache\ndef build(size): pass\ndef inputs(batch_size): pass",
        "if True:\n    def build(): pass\ndef inputs(batch_size): pass",
        "try:\n    from fast import build\nexcept ImportError:\n    def build(): pass\ndef inputs(batch_size): pass",
        "from models import *",
        "build: object = print\ninputs: object = print",
    ],
)
def test_functions_may_be_bound_in_any_way(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.py").write_text(text + "\n")
    assert load(str(tmp_path / "mine.py")).name == "mine"


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("def inputs(batch_size=32): pass\n", 1),
        ("PARAMS = {'size': 8}\ndef inputs(batch_size=32, size=8): pass\n", 1),
        ("PARAMS = {'size': 8}\ndef inputs(batch_size, size=8): pass\n", 0),
        ("def inputs(batch_size=1): pass\n", 0),
        ("BATCH_SIZE = 8\ndef inputs(batch_size=32): pass\n", 0),
        ("BATCH_SIZES = [8, 16]\n" + BODY, 1),
        *[(f"{name} = 32\n{BODY}", 1) for name in ("TRAIN_BATCH_SIZE", "GLOBAL_BATCH_SIZE", "BATCH_SIZE_TRAIN", "BSZ")],
        ("TRAIN_BATCH_SIZE = 32\ndef inputs(batch_size=TRAIN_BATCH_SIZE): pass\n", 1),
        ("class CFG:\n    batch_size = 32\n" + BODY, 1),
        ("CONFIG = {'lr': 0.1, 'batch_size': 32}\n" + BODY, 1),
        ("CONFIG = {'batch_size': 32}\nBATCH_SIZE = CONFIG['batch_size']\n" + BODY, 0),
        ("CONFIG = {'batch_size': 1}\nBATCH_NORM = True\nMAX_BATCH_SIZE = 64\nABS = 8\n" + BODY, 0),
    ],
)
def test_a_batch_size_that_is_not_read_is_noted(tmp_path: Path, text: str, notes: int) -> None:
    (tmp_path / "mine.py").write_text(f"def build(): pass\n{text}")
    found = load(str(tmp_path / "mine.py")).notes
    assert len(found) == notes
    assert all("tftune reads BATCH_SIZE: without it the batch size is 1; write BATCH_SIZE = " in each for each in found)


def test_what_is_left_out_of_a_file_is_noted(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"import os\nITEM = os.name\nbatch_size = 8\n{BODY}")
    workload = load(str(tmp_path / "mine.py"))
    assert workload.item == "item"
    assert [note.split("; write")[0] for note in workload.notes] == [
        "mine.py, line 2: ITEM is computed, and is left out",
        "mine.py has batch_size, but tftune reads BATCH_SIZE: without it the batch size is 1",
    ]


def test_one_thread_parses_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that parse at once end with "AST constructor recursion depth mismatch" now and then."""
    parse, parsing, most = ast.parse, set[int](), [0]

    def slow(*words: Any, **options: Any) -> ast.AST:
        parsing.add(threading.get_ident())
        time.sleep(0.01)
        most[0] = max(most[0], len(parsing))
        parsing.remove(threading.get_ident())
        return parse(*words, **options)

    monkeypatch.setattr(ast, "parse", slow)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(syntax_tree, ["x = 1"] * 8))
    assert most == [1]
