"""OpenVINO beside TensorFlow: what it refuses, what a recommendation becomes; and for real, files and a comparison."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.command_line import tftune_here
from tests.conftest import Call
from tuner.child.inputs import WorkloadError
from tuner.errors import BadInputError
from tuner.frameworks.openvino.child import exporter
from tuner.frameworks.openvino.framework import FRAMEWORK, OpenVinoBuild
from tuner.job.job import Job, prepare
from tuner.job.parsed import parse_request, space_file
from tuner.job.request import SearchRequest
from tuner.machine.host import Machine
from tuner.report.emit import Format, Ways, emit
from tuner.space.space import resolve
from tuner.trial.fresh import FreshLauncher
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Workload

MODEL = """
'''Two inputs whose names are not in the order of the alphabet, one of them integers, and two outputs.'''
ITEM, BATCH_SIZE = "row", 4
def build():
    import tensorflow as tf
    tf.keras.utils.set_random_seed(0)
    x = tf.keras.Input((6,), name="zeta")
    ids = tf.keras.Input((5,), dtype="int32", name="alpha")
    rows = tf.keras.layers.Flatten()(tf.keras.layers.Embedding(100, 8)(ids))
    both = tf.keras.layers.Concatenate()([x, rows])
    return tf.keras.Model([x, ids], {"second": tf.keras.layers.Dense(3)(both), "first": tf.keras.layers.Dense(7)(rows)})
def inputs(batch_size):
    import numpy as np
    rng = np.random.default_rng(0)
    return rng.random((batch_size, 6), np.float32), rng.integers(0, 100, (batch_size, 5)).astype(np.int32)
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bert-tiny", "--mode", "training"], "bert-tiny has no mode 'training' in OpenVINO; known: inference"),
        (["lenet5", "--execution", "xla"], "OpenVINO does not support --execution xla; expected graph"),
        (["lenet5", "--set", "intra_op=2"], "intra_op is a knob of tensorflow, not of openvino"),
        (["lenet5", "--set", "performance_hint=FAST"], "performance_hint=FAST is not one of its values"),
        (["lenet5", "--set", "inference_precision=bf16"], "changes numerics; add --numerics may-change"),
        (["none.xml"], "no model file none.xml; check its path"),
    ],
)
def test_bad_input_is_one_line(call: Call, words: list[str], message: str) -> None:
    code, out, err = call("inspect", *words, "--framework", "openvino")
    assert (code, out) == (2, "")
    assert message in err


def test_an_interpreter_without_it_is_told_what_to_install(tmp_path: Path, call: Call) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    code, out, err = call("inspect", "lenet5", "--framework", "openvino", "--python", python)
    assert (code, out) == (2, "")
    assert "has no OpenVINO; install it" in err
    assert "-m pip install openvino" in err


def test_single_precision_is_asked_for_and_said(ov: OpenVinoBuild) -> None:
    lines = FRAMEWORK.build_lines(ov.to_dict())
    assert lines == [
        "OpenVINO 2026.4.1, Python 3.11.7",
        "the CPU device computes in BF16, FP32, FP16, INT8; it would compute in bf16 by itself, tftune asks for f32",
    ]
    text = emit(
        FRAMEWORK.catalogue.deploy({"inference_num_threads": 3, "cpu_pinning": 0}),
        Format.PYTHON,
        title="t",
        ways=Ways(session=FRAMEWORK.session_code),
    )
    assert '"INFERENCE_PRECISION_HINT": "f32"' in text.replace("'", '"')
    assert '"ENABLE_CPU_PINNING": False' in text.replace("'", '"')


def test_a_hint_is_searched_where_several_requests_share_a_model(
    machine: Machine, ov: OpenVinoBuild, resnet50: Workload
) -> None:
    file = space_file("serving", FRAMEWORK, machine)
    space = resolve(file, catalogue=FRAMEWORK.catalogue, machine=machine, build=ov, workload=resnet50)
    hints = {(str(p["performance_hint"]), int(p["streams"]) > 1) for p in space.points}
    assert hints == {("LATENCY", False), ("LATENCY", True), ("THROUGHPUT", True)}
    throughput = space.baselines["ov-throughput"]
    assert (throughput["performance_hint"], throughput["streams"]) == ("THROUGHPUT", machine.usable_cores)
    assert all(int(p["instances"]) * int(p["inference_num_threads"]) <= machine.physical_cores for p in space.points)


# ---- real processes -------------------------------------------------------------------------------------------


def job_of(workload: str, framework: str = "openvino", **options: Any) -> Job:
    """Return a prepared job of a workload in a framework."""
    spec = WorkloadSpec.of_name(workload, framework=framework)
    return prepare(parse_request(SearchRequest(workload=spec, **options), stores=False))


def facts_of(job: Job, **values: int | str) -> Any:
    """Return what a real process of a job's default, changed by these values, tells when it is warm."""
    job.export()
    setting = job.space.reference.with_values(**values)
    deployment = job.space.catalogue.deploy(setting.to_dict())
    with closing(FreshLauncher(target=job.target()).launch(setting, deployment)) as process:
        return process.ready()


@pytest.mark.tensorflow
def test_inputs_and_outputs_keep_their_names(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text(MODEL)
    expected, converted = (facts_of(job_of(str(path), name)).sample for name in ("tensorflow", "openvino"))
    assert expected["inputs"] == converted["inputs"]
    assert set(expected["outputs"]) == set(converted["outputs"]) == {"first", "second"}
    for name, values in expected["outputs"].items():
        assert converted["outputs"][name] == pytest.approx(values, rel=1e-3, abs=1e-5)


@pytest.mark.tensorflow
def test_the_precision_is_the_one_that_was_asked_for() -> None:
    """OpenVINO tells what it computes in, and in bf16 other numbers come out."""
    job = job_of("lenet5", numerics="may-change")
    single = facts_of(job)
    assert single.effective["properties"]["INFERENCE_PRECISION_HINT"] == "f32"
    if "BF16" not in job.build.capabilities:  # type: ignore[attr-defined]
        with pytest.raises(Exception, match="OpenVINO computes in f32, and was asked for bf16"):
            facts_of(job, inference_precision="bf16")
        return
    brain = facts_of(job, inference_precision="bf16")
    assert brain.effective["properties"]["INFERENCE_PRECISION_HINT"] == "bf16"
    assert brain.sample["outputs"] != single.sample["outputs"]


@pytest.mark.tensorflow
def test_several_requests_at_once_have_a_stream_each() -> None:
    job = job_of("lenet5", space="serving")
    facts = facts_of(job, streams=2)
    assert facts.effective["properties"]["NUM_STREAMS"] == "2"


@pytest.mark.tensorflow
def test_its_own_and_onnx_files_are_used_where_they_lie(tmp_path: Path) -> None:
    import openvino

    job = job_of("lenet5", batch_size="8")
    folder = job.export()[0]
    model = openvino.Core().read_model(folder / "model.xml")
    openvino.save_model(model, tmp_path / "mine.xml", compress_to_fp16=False)
    own = job_of(str(tmp_path / "mine.xml"), batch_size="8")
    assert own.workload.kind == "openvino"
    assert facts_of(own).step_s > 0
    onnx_folder = job_of("lenet5", "onnxruntime", batch_size="8").export()[0]
    (tmp_path / "mine.onnx").write_bytes((onnx_folder / "model.onnx").read_bytes())
    assert facts_of(job_of(str(tmp_path / "mine.onnx"), batch_size="8")).step_s > 0


@pytest.mark.tensorflow
def test_an_operator_that_it_cannot_convert_is_named(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(
        "'''A net.'''\nITEM, BATCH_SIZE = 'row', 8\n"
        "def build():\n    import tensorflow as tf\n    return lambda x: tf.math.betainc(x, x, x)\n"
        "def inputs(n):\n    import numpy as np\n    return (np.random.default_rng(0).random((n, 4), np.float32),)\n"
    )
    with pytest.raises(BadInputError, match=r"OpenVINO cannot convert it.*Betainc"):
        job_of(str(path)).export()


@pytest.mark.tensorflow
def test_a_search_ends_with_a_verdict(tmp_path: Path) -> None:
    ended = tftune_here("search", "lenet5", "--framework", "openvino", "--time-budget", "12s", "--json", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["runtime"]["framework"] == "openvino"
    assert document["finals"]["rounds"] >= 1
    assert "ov-default" in document["verdicts"]
    assert {trial["status"] for trial in document["history"]} == {"ok"}


def test_indices_of_tables_are_found_in_openvinos_own_files() -> None:
    """Two rows of a table would stay in the cache."""
    openvino = pytest.importorskip("openvino")
    ops = openvino.opset13
    names = ("ids", "hashed", "shifted", "doubled", "nested", "plain")
    given = {name: ops.parameter([-1, 8], np.int64, name=name) for name in names}
    for name, each in given.items():
        each.output(0).set_names({name})
    # As quantised weights are stored: whole numbers, which become numbers in the graph.
    table = ops.multiply(ops.convert(ops.constant(np.zeros((90, 4), np.uint8)), "f32"), ops.constant(np.float32(2)))
    first, size = ops.constant(np.int64(0)), ops.constant(np.int64(90))
    indices = [
        ops.convert(given["ids"], "i32"),
        ops.floor_mod(ops.multiply(given["hashed"], ops.constant(np.int64(31))), size),
        ops.add(given["shifted"], ops.constant(np.int64(2))),
        ops.add(given["doubled"], given["doubled"]),
    ]
    # An axis may be one number in a list.
    axes = [ops.constant(np.zeros(1, np.int64)), first, first, first]
    outputs = [ops.gather(table, index, axis) for index, axis in zip(indices, axes, strict=True)]
    inside = [ops.parameter([-1, 8], np.int64) for _ in range(2)]
    bodies = [openvino.Model([ops.gather(table, each, first)], [each], "body") for each in inside]
    branch = ops.if_op(ops.constant(True))
    branch.set_then_body(bodies[0])
    branch.set_else_body(bodies[1])
    branch.set_input(given["nested"].output(0), *inside)
    branch.set_output(*(body.results[0] for body in bodies))
    outputs.append(branch)
    model = openvino.Model([*outputs, ops.convert(given["plain"], "f32")], list(given.values()), "tables")
    rows = {"ids": 90, "hashed": 90, "shifted": 88}
    assert exporter.value_facts(model) == (set(), rows, {"doubled", "nested"}, {})


def test_the_size_of_boxes_and_fractions_that_become_indices_are_found() -> None:
    openvino = pytest.importorskip("openvino")
    ops = openvino.opset13
    shapes = {"x": [1, 3, 8, 8], "adaptive": [5, 4], "fixed": [5, 4], "scaled": [-1, 3], "y": [-1, 4]}
    given = {name: ops.parameter(shape, np.float32, name=name) for name, shape in shapes.items()}
    for name, each in given.items():
        each.output(0).set_names({name})
    places = ops.constant(np.zeros(5, np.int32))
    outputs = [
        ops.roi_align(given["x"], given[name], places, 2, 2, n, 1.0, "avg", "asymmetric")
        for name, n in (("adaptive", 0), ("fixed", 2))
    ]
    index = ops.convert(ops.multiply(given["scaled"], ops.constant(np.float32(90))), "i32")
    table = ops.constant(np.zeros((90, 4), np.float32))
    outputs.append(ops.gather(table, index, ops.constant(np.int64(0))))
    found = ops.convert(ops.matmul(given["y"], ops.constant(np.zeros((4, 4), np.float32)), False, False), "i32")
    outputs.append(ops.gather(table, found, ops.constant(np.int64(0))))
    facts = exporter.value_facts(openvino.Model(outputs, list(given.values()), "boxes"))
    assert (facts.decisive, facts.worked_out) == ({"adaptive"}, {"scaled"})


def test_an_input_of_a_type_that_numpy_has_not_is_refused(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    given = openvino.opset13.parameter([-1, 4], openvino.Type.u4, name="x")
    model = openvino.Model([openvino.opset13.convert(given, "f32")], [given], "half bytes")
    openvino.save_model(model, tmp_path / "m.xml")
    with pytest.raises(WorkloadError, match="its input 'x' has the unsupported type u4") as caught:
        exporter.model_inputs(str(tmp_path / "m.xml"), [])
    assert "openvino.preprocess" in caught.value.advice


def test_weights_that_are_not_there_are_named(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    ops = openvino.opset13
    given = ops.parameter([-1, 4], np.float32, name="x")
    product = ops.matmul(given, ops.constant(np.ones((4, 4), np.float32)), False, False)
    openvino.save_model(openvino.Model([product], [given], "dense"), tmp_path / "net.xml")
    (tmp_path / "net.bin").unlink()
    with pytest.raises(WorkloadError, match="OpenVINO cannot read it") as caught:
        exporter.model_inputs(str(tmp_path / "net.xml"), [])
    assert caught.value.advice == "put the file with its weights, whole, next to it: net.bin"
    (tmp_path / "net.xml").write_text("<net/>")
    with pytest.raises(WorkloadError) as caught:
        exporter.model_inputs(str(tmp_path / "net.xml"), [])
    assert caught.value.advice == "use a framework that runs it"


def test_an_input_has_the_name_that_its_author_gave_it(tmp_path: Path) -> None:
    """A converter adds names of what it leaves out, and rules go by names."""
    openvino = pytest.importorskip("openvino")
    ops = openvino.opset13
    names = {"keep": {"boolean_mask/Reshape_1:0", "keep"}, "x": {"x:0"}}
    given = {name: ops.parameter([-1, 4], np.float32, name=name) for name in names}
    for name, each in given.items():
        each.output(0).set_names(names[name])
    model = openvino.Model([ops.roi_align(ops.constant(np.ones((1, 3, 8, 8), np.float32)), given["keep"],
                            ops.constant(np.zeros(5, np.int32)), 2, 2, 0, 1.0, "avg", "asymmetric"), given["x"]],
                           list(given.values()), "named")  # fmt: skip
    openvino.save_model(model, tmp_path / "m.xml")
    assert [each["name"] for each in exporter.model_inputs(str(tmp_path / "m.xml"), [])] == ["keep", "x:0"]
    assert exporter.value_facts(model).decisive == {"keep"}


@pytest.mark.parametrize("is_open", [True, False])
def test_a_loop_that_ends_as_its_values_have_it_is_found(is_open: bool) -> None:
    """A solver stops when nothing changes any more; a recurrent layer counts its times."""
    openvino = pytest.importorskip("openvino")
    ops = openvino.opset13
    x = ops.parameter([-1, 4], np.float32, name="x")
    x.output(0).set_names({"x"})
    state, count, item = (
        ops.parameter(*each) for each in (([-1, 4], np.float32), ([], np.int64), ([-1, 4], np.float32))
    )
    later, next_count = ops.tanh(ops.add(state, item)), ops.add(count, ops.constant(np.int64(1)))
    change = ops.reduce_max(ops.absolute(ops.subtract(later, state)), ops.constant(np.array([0, 1])))
    goes_on = ops.less(next_count, ops.constant(np.int64(9)))
    if is_open:
        goes_on = ops.logical_and(goes_on, ops.greater(change, ops.constant(np.float32(0.1))))
    body = openvino.Model([goes_on, later, next_count], [state, count, item], "body")
    loop = ops.loop(ops.constant(np.int64(-1)), ops.constant(True))
    loop.set_function(body)
    loop.set_special_body_ports([-1, 0])
    loop.set_merged_input(state, ops.multiply(x, ops.constant(np.float32(0))).output(0), body.results[1].output(0))
    loop.set_merged_input(count, ops.constant(np.int64(0)).output(0), body.results[2].output(0))
    loop.set_invariant_input(item, x.output(0))
    loop.get_iter_value(body.results[1].output(0), -1)
    model = openvino.Model([loop.output(0)], [x], "loop")
    assert exporter.value_facts(model).decisive == ({"x"} if is_open else set())


@pytest.mark.parametrize(("size", "batch_at"), [(6, {"x": None}), (34, {})])
def test_outputs_show_that_a_call_is_one_item(size: int, batch_at: dict[str, int | None]) -> None:
    openvino = pytest.importorskip("openvino")
    ops = openvino.opset13
    x = ops.parameter([17], np.float32, name="x")
    x.output(0).set_names({"x"})
    product = ops.matmul(ops.constant(np.ones((size, 17), np.float32)), x, False, False)
    assert exporter.value_facts(openvino.Model([product], [x], "policy")).batch_at == batch_at


def test_what_openvino_says_keeps_the_line_that_introduces_the_last() -> None:
    text = "Check 'x' failed\nModel references undeclared parameters:\nopset1::Parameter 429 () -> (f32[...])\n"
    assert exporter.words(RuntimeError(text)) == (
        "Model references undeclared parameters: opset1::Parameter 429 () -> (f32[...])"
    )
