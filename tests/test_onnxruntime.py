"""ONNX Runtime beside TensorFlow: what it refuses, what a recommendation becomes; and for real, a file and a search."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime import datasets

from tests.command_line import tftune, tftune_here
from tests.conftest import Call
from tuner.child.inputs import WorkloadError
from tuner.errors import BadInputError
from tuner.frameworks.onnxruntime.child import exporter, session
from tuner.frameworks.onnxruntime.framework import FRAMEWORK, OnnxRuntimeBuild, why_no_gpu
from tuner.frameworks.openvino.child import exporter as openvino_exporter
from tuner.job.job import Job, prepare
from tuner.job.parsed import parse_request, space_file
from tuner.job.request import SearchRequest
from tuner.machine.host import Machine
from tuner.report.emit import SERVING, Format, Ways, emit
from tuner.space.deployment import Deployment
from tuner.space.space import resolve
from tuner.trial.exporting import described_inputs
from tuner.trial.fresh import FreshLauncher
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Workload

# Only the tests that are `alone` start interpreters with TensorFlow in them.
pytestmark = pytest.mark.usefixtures("forks_only")
BOUND = {"intra_op_num_threads": 2, "intra_op_affinity": "cores", "execution_mode": "sequential"}
OPTIONS = {"intra_op_num_threads": 2, "execution_mode": "parallel", "session.intra_op.allow_spinning": 0}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bert-tiny", "--mode", "training"], "bert-tiny has no mode 'training' in ONNX Runtime; known: inference"),
        (["lenet5", "--execution", "xla"], "ONNX Runtime does not support --execution xla; expected graph"),
        (["lenet5", "--set", "intra_op=2"], "intra_op is a knob of tensorflow, not of onnxruntime"),
        (["lenet5", "--space", "quick"], "unknown onnxruntime search space 'quick'; known: cpu, gpu, serving, threads"),
        (
            ["lenet5", "--set", "execution_mode=both"],
            "execution_mode=both is not one of its values; expected sequential",
        ),
        (["none.onnx"], "no model file none.onnx; check its path"),
    ],
)
def test_bad_input_is_one_line(call: Call, words: list[str], message: str) -> None:
    code, out, err = call("inspect", *words, "--framework", "onnxruntime")
    assert (code, out) == (2, "")
    assert message in err


def test_a_model_file_names_its_framework(call: Call) -> None:
    code, _, err = call("inspect", "model.onnx", "--framework", "tensorflow")
    assert code == 2
    assert "TensorFlow does not read .onnx files; use --framework onnxruntime" in err


def test_an_option_that_does_nothing_is_not_set(machine: Machine, onnx: OnnxRuntimeBuild, resnet50: Workload) -> None:
    file = space_file("cpu", FRAMEWORK, machine)
    space = resolve(file, catalogue=FRAMEWORK.catalogue, machine=machine, build=onnx, workload=resnet50)
    one = space.reference.with_values(intra_op_num_threads=1)
    assert "inter_op_num_threads" not in space.deployment(one).options
    both = one.with_values(execution_mode="parallel", inter_op_num_threads=2)
    assert space.deployment(both).options["inter_op_num_threads"] == 2
    # Nothing of the lattice is the same thing twice.
    deployments = [str(space.deployment(point)) for point in space.points]
    assert len(set(deployments)) == len(deployments)


def test_a_recommendation_is_code_that_makes_the_session() -> None:
    lines = FRAMEWORK.session_code(Deployment(options=OPTIONS))
    assert "options.intra_op_num_threads = 2" in lines
    assert "options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL" in lines
    assert 'options.add_session_config_entry("session.intra_op.allow_spinning", "0")' in lines
    deployment = FRAMEWORK.catalogue.deploy({"intra_op_num_threads": 2, "intra_op_affinity": "none", "batch_size": 8})
    assert deployment.options == {"intra_op_num_threads": 2}
    for format_ in set(Format) - {Format.PYTHON, Format.JSON, *SERVING}:  # no variable carries an option
        text = emit(deployment, format_, title="t", ways=Ways(session=FRAMEWORK.session_code))
        assert "# Let your own code make the session with intra_op_num_threads: 2" in text
        assert "use --format python" in text
    nothing = FRAMEWORK.catalogue.deploy({"batch_size": 8})
    assert "onnxruntime" not in emit(nothing, Format.PYTHON, title="t", ways=Ways(session=FRAMEWORK.session_code))


BINDING = """
import json, os, time
cpus = os.sched_getaffinity(0)
def n_bound():
    return sum(os.sched_getaffinity(int(task)) < cpus for task in os.listdir("/proc/self/task"))
# Each thread binds itself when it first runs, which is after the session has been made.
deadline = time.monotonic() + 30
while n_bound() < {n} and time.monotonic() < deadline:
    time.sleep(0.01)
print(json.dumps([os.sched_getaffinity(os.getpid()) == cpus, n_bound()]))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one CPU there is nothing to bind a thread to")
@pytest.mark.parametrize("n", [2, 4])
def test_the_code_of_a_recommendation_makes_the_session_that_was_measured(n: int, tmp_path: Path) -> None:
    """The emitted lines, run as they stand: all threads are bound to a core but the caller; also on fewer cores."""
    bound = BOUND | {"intra_op_num_threads": n}
    text = emit(FRAMEWORK.catalogue.deploy(bound), Format.PYTHON, title="t", ways=Ways(session=FRAMEWORK.session_code))
    shutil.copy(datasets.get_example("sigmoid.onnx"), tmp_path / "model.onnx")
    code = f"{text}\n{BINDING.format(n=n - 1)}"
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    caller_is_free, n_bound = json.loads(ended.stdout)
    assert caller_is_free
    assert n_bound == n - 1  # NumPy's threads are not bound
    cpu = str(min(os.sched_getaffinity(0)))
    on_one = subprocess.run(["taskset", "-c", cpu, sys.executable, "-c", text], cwd=tmp_path, check=False)
    assert on_one.returncode == 0


def test_a_bound_thread_is_no_point_where_there_is_no_core_for_it(
    machine: Machine, onnx: OnnxRuntimeBuild, resnet50: Workload
) -> None:
    file = space_file("threads", FRAMEWORK, machine)
    space = resolve(file, catalogue=FRAMEWORK.catalogue, machine=machine, build=onnx, workload=resnet50)
    assert space.reference["intra_op_affinity"] == "cores"
    assert space.baselines["ort-explicit"]["intra_op_affinity"] == "none"
    bound = [point for point in space.points if point["intra_op_affinity"] == "cores"]
    assert {str(point["execution_mode"]) for point in bound} == {"sequential"}
    assert {int(point["intra_op_num_threads"]) for point in bound} == set(range(2, machine.physical_cores + 1)) & {
        int(point["intra_op_num_threads"]) for point in space.points
    }


# ---- real processes -------------------------------------------------------------------------------------------

MODEL = """
'''A small net.'''
ITEM, BATCH_SIZE = "row", 8
def build():
    import tensorflow as tf
    w = tf.Variable(tf.random.stateless_normal((64, 64), (1, 2)))
    return lambda x: OPERATION
def inputs(batch_size):
    import numpy as np
    return (np.random.default_rng(0).random((batch_size, 64), np.float32),)
"""


LARGE = """
'''A table, an LSTM and a factor of more than a MiB.'''
ITEM, BATCH_SIZE = "row", 4
def build():
    import tensorflow as tf
    tf.keras.utils.set_random_seed(0)
    ids = tf.keras.Input((5,), dtype="int32", name="ids")
    x = tf.keras.layers.Embedding(1000, 512)(ids)
    x = tf.keras.layers.LSTM(512)(x)
    return tf.keras.Model(ids, tf.keras.layers.Dense(1024)(x))
def inputs(batch_size):
    import numpy as np
    return (np.random.default_rng(0).integers(0, 1000, (batch_size, 5)).astype(np.int32),)
"""
FRAMEWORKS = ("tensorflow", "onnxruntime")


def job_of(workload: str, framework: str) -> Job:
    """Return a prepared job of a workload in a framework."""
    spec = WorkloadSpec.of_name(workload, framework=framework)
    return prepare(parse_request(SearchRequest(workload=spec), stores=False))


def sample_of(workload: str, framework: str) -> dict[str, Any]:
    """Return what a real process of a framework's default computes."""
    job = job_of(workload, framework)
    job.export()
    reference = job.space.reference
    with closing(FreshLauncher(target=job.target()).launch(reference, job.space.deployment(reference))) as process:
        sample = process.ready().sample
    assert sample is not None
    return sample


def written(folder: Path, operation: str) -> str:
    """Write a workload that does one thing, and return its name."""
    (folder / "net.py").write_text(MODEL.replace("OPERATION", operation))
    return "./net.py"


@pytest.mark.alone
@pytest.mark.tensorflow
def test_a_search_ends_with_a_verdict(tmp_path: Path) -> None:
    ended = tftune("search", "lenet5", "--framework", "onnxruntime", "--time-budget", "15s", "--json", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["runtime"]["framework"] == "onnxruntime"
    assert document["finals"]["rounds"] >= 1
    assert "ort-default" in document["verdicts"]
    assert {trial["status"] for trial in document["history"]} == {"ok"}
    assert {trial["setting"]["execution_mode"] for trial in document["history"]} == {"sequential", "parallel"}
    snippet = tftune("emit", "last", "--json", cwd=tmp_path)
    assert json.loads(snippet.stdout).keys() >= {"env", "arguments", "cpus"}


@pytest.mark.tensorflow
def test_a_comparison_says_what_a_mode_costs(tmp_path: Path) -> None:
    """Options reach the process: handing small operators in a row to a second pool takes longer than they do."""
    ended = tftune(
        *("compare", "lenet5", "--framework", "onnxruntime", "--time-budget", "90s", "--json"),
        *("--a", "ort-default", "--b", "execution_mode=parallel,inter_op_num_threads=2"),
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["b"]["execution_mode"] == "parallel"
    assert document["verdict"] == "worse"  # a quarter of the speed, as measured here


@pytest.mark.tensorflow
def test_an_operator_that_onnx_lacks_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    name = written(tmp_path, "tf.math.betainc(x, x, x)")
    ended = tftune_here("search", name, "--framework", "onnxruntime", cwd=tmp_path)
    assert ended.returncode == 2
    last = ended.stderr.strip().splitlines()[-1]
    assert "ONNX Runtime cannot run its operator Betainc on the CPU" in last
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.py"]


@pytest.mark.tensorflow
def test_what_is_converted_computes_the_same(tmp_path: Path) -> None:
    """A tensor that the model has from elsewhere stays one, and Keras's GELU needs an operator that ONNX lacks."""
    name = written(tmp_path, "tf.nn.gelu(tf.linalg.matmul(x, w)) + tf.math.erfc(x) * c")
    path = tmp_path / name
    path.write_text(path.read_text().replace("    return", "    c = tf.range(64, dtype=tf.float32)\n    return", 1))
    expected, converted = (list(sample_of(str(path), framework)["outputs"].values()) for framework in FRAMEWORKS)
    assert converted[0] == pytest.approx(expected[0], rel=1e-3, abs=1e-4)


@pytest.mark.tensorflow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one CPU there is nothing to bind a thread to")
def test_threads_are_bound_to_cores_and_a_set_count_alone_binds_none() -> None:
    job = job_of("lenet5", "onnxruntime")
    job.export()
    bound = job.space.reference.with_values(**BOUND)
    answers = []
    for setting in (bound, bound.with_values(intra_op_affinity="none")):
        with closing(FreshLauncher(target=job.target()).launch(setting, job.space.deployment(setting))) as process:
            effective = process.ready().effective
        deployment = job.space.catalogue.deploy(bound.to_dict())
        findings = {each.knob: each for each in job.auditor.audit(bound, deployment, effective)}
        answers.append(findings["intra_op_affinity"].answer)
    assert answers == [True, False]


@pytest.mark.tensorflow
def test_large_weights_are_converted_without_tf2onnx_s_copies(tmp_path: Path) -> None:
    """They pass it by and come back: a factor, a table, and an LSTM, which it knows as a whole by its constants."""
    (tmp_path / "large.py").write_text(LARGE)
    expected, converted = (
        list(sample_of(str(tmp_path / "large.py"), framework)["outputs"].values()) for framework in FRAMEWORKS
    )
    assert converted[0] == pytest.approx(expected[0], rel=1e-3, abs=1e-4)
    job = job_of(str(tmp_path / "large.py"), "onnxruntime")
    model = onnx.load(job.export()[0] / "model.onnx")
    assert len(model.graph.input) == 1
    sizes = {each.name: math.prod(each.dims) for each in model.graph.initializer}
    assert {1000 * 512, 512 * 1024} <= set(sizes.values())
    assert "LSTM" in {node.op_type for node in model.graph.node}


@pytest.mark.tensorflow
def test_a_scalar_input_of_a_model_has_no_batch(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    factor = helper.make_tensor_value_info("factor", TensorProto.FLOAT, [])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph([helper.make_node("Mul", ["x", "factor"], ["y"])], "scaled", [x, factor], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "scaled.onnx")
    sample = sample_of(str(tmp_path / "scaled.onnx"), "onnxruntime")
    assert len(sample["outputs"]["y"]) > 0


@pytest.mark.tensorflow
def test_an_input_of_unknown_rank_is_no_scalar(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "open", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "open.onnx")
    with pytest.raises(BadInputError, match="input 'x' has the shape unknown") as caught:
        job_of(str(tmp_path / "open.onnx"), "onnxruntime").export()
    assert caught.value.hint == "give its shape without the batch, e.g. --input-shape x=128"
    spec = WorkloadSpec(words=(str(tmp_path / "open.onnx"),), input_shapes=("x=7",))
    folder = prepare(parse_request(SearchRequest(workload=spec, batch_size="8"), stores=False)).export()[0]
    assert described_inputs(folder)[0]["shape"] == [None, 7]


@pytest.mark.tensorflow
def test_what_onnx_has_no_operators_for_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fourier.py"
    path.write_text(MODEL.replace("OPERATION", "tf.abs(tf.signal.fft(tf.cast(x @ w, tf.complex64)))"))
    with pytest.raises(BadInputError, match="tf2onnx cannot convert it: Cast, ComplexAbs, FFT compute in complex64"):
        job_of(str(path), "onnxruntime").export()


@pytest.mark.tensorflow
def test_an_onnx_file_is_used_where_it_lies(tmp_path: Path) -> None:
    from onnxruntime import datasets

    (tmp_path / "model.onnx").write_bytes(Path(datasets.get_example("sigmoid.onnx")).read_bytes())
    ended = tftune_here("inspect", "model.onnx", "--json", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["runtime"]["framework"] == "onnxruntime"
    assert document["workload"]["kind"] == "onnx"
    wrong = tftune_here("search", "model.onnx", "--input-shape", "nothing=3", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "--input-shape nothing: the model has no such input; known: x" in wrong.stderr
    fixed = tftune_here("search", "model.onnx", cwd=tmp_path)
    assert fixed.returncode == 2
    assert "have the fixed batch size 3; use --batch-size 3" in fixed.stderr
    (tmp_path / "bad.onnx").write_text("no model")
    bad = tftune_here("search", "bad.onnx", cwd=tmp_path)
    assert bad.returncode == 2
    assert "ONNX Runtime cannot load it" in bad.stderr


def test_an_onnx_file_that_is_cut_or_too_new_has_a_way_out_of_its_own(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    path = tmp_path / "m.onnx"
    for opset, ir_version, advice in ((17, 99, "install a newer ONNX Runtime, or save"), (999, 8, "earlier opset")):
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version), path)
        with pytest.raises(WorkloadError) as refused:
            exporter.model_inputs(str(path))
        assert advice in refused.value.advice
    path.write_bytes(path.read_bytes()[:30])
    with pytest.raises(WorkloadError) as refused:
        exporter.model_inputs(str(path))
    assert refused.value.advice == "the file is cut or damaged: copy it or fetch it again"


@pytest.mark.tensorflow
def test_an_onnx_file_that_cannot_be_fed_or_read_has_a_way_out(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper

    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 2])
    weights = numpy_helper.from_array(np.ones((2, 2), "float32"), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "outside", [x], [y], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "a.onnx", save_as_external_data=True, location="a.data", size_threshold=0)
    (tmp_path / "a.data").unlink()
    with pytest.raises(WorkloadError, match="ONNX Runtime cannot load it") as missing:
        exporter.model_inputs(str(tmp_path / "a.onnx"))
    assert missing.value.advice == "put the missing file with its weights into the model's folder: a.data"
    with pytest.raises(WorkloadError, match="OpenVINO cannot read it") as unread:
        openvino_exporter.model_inputs(str(tmp_path / "a.onnx"), [])
    assert unread.value.advice == "put the file with its weights, whole, into the model's folder: a.data"
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [None, 2])
    xs = helper.make_value_info("xs", helper.make_sequence_type_proto(tensor))
    joined = helper.make_node("ConcatFromSequence", ["xs"], ["y"], axis=0)
    graph = helper.make_graph([joined], "several", [xs], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "b.onnx")
    with pytest.raises(WorkloadError, match=r"unsupported type seq\(tensor\(float\)\)") as refused:
        exporter.model_inputs(str(tmp_path / "b.onnx"))
    assert "export the model with tensors for inputs, or measure a program" in refused.value.advice


# ---- on a GPU -------------------------------------------------------------------------------------------------

FAILED_TO_LOAD = (
    "[E:onnxruntime:Default, provider_bridge_ort.cc:2167 TryGetProviderInfo_CUDA] ProviderLibrary::Get "
    "[ONNXRuntimeError] : 1 : FAIL : Failed to load library libonnxruntime_providers_cuda.so with error: "
    "libcublasLt.so.12: cannot open shared object file: No such file or directory\n"
    "[W:onnxruntime:Default, onnxruntime_pybind_state.cc:965] Failed to create CUDAExecutionProvider. "
    "Require cuDNN 9.* and CUDA 12.*. Please install all dependencies\n"
)
NO_DRIVER = (
    "EP Error cuda_call.cc:129 CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version ; "
    "GPU=-1 ; hostname=h\n"
)


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (FAILED_TO_LOAD, "libcublasLt.so.12 cannot be loaded; this build needs cuDNN 9.* and CUDA 12.*"),
        (NO_DRIVER, "CUDA does not start: CUDA driver version is insufficient for CUDA runtime version"),
        ("", "it gives no reason"),
    ],
)
def test_why_it_uses_no_gpu_is_read_from_its_log(log: str, reason: str) -> None:
    error = why_no_gpu({"providers": ["CPUExecutionProvider"], "log": log})
    assert error.message == f"ONNX Runtime sees no GPU: {reason}"


@pytest.mark.tensorflow
def test_a_session_that_falls_back_to_the_cpu_is_refused() -> None:
    """ONNX Runtime only warns; here it is real, and built without CUDA."""
    fell_back = pytest.raises(WorkloadError, match="ONNX Runtime fell back to the CPU")
    with fell_back, pytest.warns(UserWarning, match="not in available provider names"):
        session.make_session(datasets.get_example("sigmoid.onnx"), {"prefer_nhwc": 1}, on_gpu=True)


def test_options_of_a_gpu_are_emitted_with_its_provider() -> None:
    options = {"cudnn_conv_algo_search": "heuristic", "intra_op_num_threads": 1}
    code = FRAMEWORK.session_code(Deployment(options=options))
    assert code[-2:] == [
        "providers = [(\"CUDAExecutionProvider\", {'cudnn_conv_algo_search': 'HEURISTIC'}), \"CPUExecutionProvider\"]",
        'session = onnxruntime.InferenceSession("model.onnx", options, providers=providers)',
    ]
    on_cpu = FRAMEWORK.session_code(Deployment(options={"intra_op_num_threads": 1}))
    assert on_cpu[-1] == 'session = onnxruntime.InferenceSession("model.onnx", options)'


def test_tf32_is_another_precision() -> None:
    effective = {"options": {}, "tf32": True}
    assert FRAMEWORK.precision(effective, "f32", has_tf32=True) == "tf32"
    assert FRAMEWORK.precision(effective, "f32", has_tf32=False) == "f32"
    assert FRAMEWORK.precision(effective | {"tf32": False}, "f32", has_tf32=True) == "f32"
    assert FRAMEWORK.precision(effective, None, has_tf32=True) is None
