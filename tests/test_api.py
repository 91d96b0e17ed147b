"""The Python API: what it says is what the command line says, and the example notebook runs as it stands."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import pickle
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from IPython.core.formatters import HTMLFormatter
from msgspec import structs

import tuner
from tests.command_line import ROOT
from tests.conftest import Call
from tests.reference import keep, unpack
from tests.schemas import validator
from tuner.api.options import duration_text, list_text, request_of, setting_text, workload_spec
from tuner.cli import measure as cli_measure
from tuner.cli import model as cli_model
from tuner.cli import rules as cli_rules
from tuner.cli import search as cli_search
from tuner.errors import BadInputError
from tuner.job.parsed import parse_size
from tuner.job.request import (
    CheckRequest,
    CompareRequest,
    FrameworksRequest,
    LoadRequest,
    OverheadRequest,
    PredictRequest,
    ProfileRequest,
    RecommendRequest,
    SearchRequest,
    SizeRequest,
    SuiteRequest,
)
from tuner.job.run import SessionsResult
from tuner.workload.spec import WorkloadSpec

STUDY = "resnet50-inference-0ef21487"
FEW = ("resnet50-", "mlp-", "lenet5-")


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The studies behind the shipped rules."""
    return unpack(tmp_path_factory.mktemp("reference") / "reference.db")


@pytest.fixture(scope="module")
def few(storage: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of three workloads."""
    database = tmp_path_factory.mktemp("few") / "few.db"
    shutil.copy(storage, database)
    return keep(database, FEW)


@pytest.fixture(scope="module")
def study(storage: Path) -> tuner.Study:
    return tuner.load_study(STUDY, storage)


def test_what_is_promised_is_there() -> None:
    for name in tuner.__all__:
        assert getattr(tuner, name).__doc__
    assert set(tuner.__all__) <= set(dir(tuner))
    with pytest.raises(AttributeError, match="no attribute 'serch'"):
        _ = tuner.serch


def test_importing_it_costs_nothing_before_it_is_used() -> None:
    code = "import sys, tuner; print({'numpy', 'optuna', 'pandas', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "set()\n"


def test_a_study_is_what_the_command_line_shows(study: tuner.Study, storage: Path, call: Call) -> None:
    assert study.name == STUDY
    assert str(study).splitlines() == call("show", STUDY, "--storage", str(storage))[1].splitlines()
    assert study.to_dict() == json.loads(call("show", STUDY, "--storage", str(storage), "--json")[1])
    assert study.emit("k8s") == call("emit", STUDY, "--storage", str(storage), "--format", "k8s")[1]
    assert study.report("md") == call("report", STUDY, "--storage", str(storage), "--format", "md")[1]
    assert study.deployment() == study.result.recommended.deployment
    assert len(study.trials()) == len(study.result.history)


def test_the_variables_of_the_measurement_are_shown_and_applied(study: tuner.Study) -> None:
    environment = {"LD_LIBRARY_PATH": "/opt/lib", "TF_ENABLE_ONEDNN_OPTS": "0"}
    runtime = study.result.runtime | {"onednn_enabled": False, "onednn_reason": "variable"}
    under = tuner.Study(structs.replace(study.result, environment=environment, runtime=runtime))
    shown = str(under)
    assert "oneDNN off, Python" in shown
    assert "with TF_ENABLE_ONEDNN_OPTS=0; measure again elsewhere" in shown
    assert "LD_LIBRARY_PATH" not in shown + under.emit()
    assert "export TF_ENABLE_ONEDNN_OPTS=0" in under.emit()
    assert "with TF_ENABLE_ONEDNN_OPTS=0" in under.emit().split("export")[0]
    machine = under.result.machine
    expected = min(machine.logical_cpus, machine.cpu_quota or machine.logical_cpus)
    assert under.deployment().measured_cpus == expected
    assert under.deployment().own_env == study.deployment().env


def test_a_snippet_for_this_shell_names_what_was_left_out_of_the_measurement(
    storage: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_THREAD_LIMIT", "1")
    emit = ("emit", STUDY, "--storage", str(storage))
    assert "set here, and left out of the measurement: OMP_THREAD_LIMIT; unset it\n" in call(*emit)[2]
    assert "OMP_THREAD_LIMIT" not in call(*emit, "--format", "k8s")[2]
    assert json.loads(call(*emit, "--json")[1])["framework"] == "tensorflow"


def test_a_notebook_shows_the_card(study: tuner.Study) -> None:
    shown = str(HTMLFormatter()(study))
    first = study.card.answers[0]
    assert f"<b>{first.mark} {first.word}</b>" in shown
    assert repr(study) == f"<Study {first.word}: {first.text}>"


def test_studies_are_listed_and_filtered_alike(few: Path, call: Call) -> None:
    lines = tuner.list_studies(few, workloads="resnet50,mlp")
    listed = json.loads(call("list", "--storage", str(few), "--workloads", "resnet50,mlp", "--json")[1])
    assert [line.study for line in lines] == [line["study"] for line in listed]
    assert {line.workload for line in lines} == {"resnet50", "mlp"}
    machine = lines[0].machine
    assert {line.machine for line in tuner.list_studies(few, machines=machine)} == {machine}
    assert tuner.list_studies(few, since="2026-11-23") == []
    assert tuner.list_studies(few.with_name("none.db")) == []


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda s: tuner.load_study("none", s), "unknown study 'none'; known: "),
        (lambda s: tuner.load_study(STUDY, s.with_name("none.db")), "does not exist"),
        (lambda s: tuner.load_study(STUDY, s).emit("xml"), "unknown format 'xml'"),
        (lambda s: tuner.load_study(STUDY, s).report("pdf"), "unknown format 'pdf'"),
        (lambda s: tuner.search("resnet5", storage=s.with_name("new.db")), "unknown workload 'resnet5'"),
        (lambda s: tuner.search("resnet50", time_budget="soon", storage=s.with_name("new.db")), "--time-budget"),
        (lambda s: tuner.search("resnet50", pins={"inter": 1}, storage=s.with_name("new.db")), "'inter'"),
        (lambda s: tuner.search("resnet50", margin=2, storage=s.with_name("new.db")), "the margin is 200 %"),
        (lambda s: tuner.search("resnet50", seed=-1, storage=s.with_name("new.db")), "--seed is -1"),
        (lambda s: tuner.search("resnet50", sessions=0, storage=s.with_name("new.db")), "--sessions is 0"),
        (lambda _: tuner.compare("resnet50", "intel", "tf-default", margin=-1), "the margin is -100 %"),
        (lambda _: tuner.recommend("resnet50", rate=3.0), "--rate does not apply to a recommendation"),
        (lambda s: tuner.load_study("", s), "'' matches 213 studies; be more specific: bert-base-"),
        (lambda s: tuner.list_studies(s.with_name("none.db"), since="soon"), "--since is 'soon'"),
        (lambda s: tuner.load_rules("shipped").save(s.parent), "is a folder"),
        (lambda s: tuner.list_studies(s, machines="nowhere"), "unknown machine 'nowhere'"),
        (lambda s: tuner.learn_rules(s, workloads="none"), "unknown workload 'none'"),
        (lambda s: tuner.load_rules(s), "not valid JSON"),
        (lambda s: tuner.recommend("resnet50", rules=s.with_name("none.json")), "no rules file"),
    ],
)
def test_what_cannot_be_asked_raises(ask: Callable[[Path], Any], message: str, storage: Path) -> None:
    with pytest.raises(tuner.BadInputError, match=re.escape(message)):
        ask(storage)
    assert not storage.with_name("new.db").exists()


@pytest.mark.parametrize("function", [tuner.search, tuner.compare, tuner.recommend])
def test_an_option_that_there_is_not_is_an_error(function: Callable[..., Any]) -> None:
    settings = ("intel", "tf-default") if function is tuner.compare else ()
    with pytest.raises(TypeError, match="unexpected keyword argument 'time_buget'"):
        function("resnet50", *settings, time_buget="30s")


def test_damaged_studies_are_passed_over(few: Path, tmp_path: Path, call: Call) -> None:
    """One with a date, and one with finals, that are not what they have to be."""
    database = tmp_path / "damaged.db"
    database.write_bytes(few.read_bytes())
    with closing(sqlite3.connect(database)) as connection, connection:
        numbers = [number for (number,) in connection.execute("select study_id from studies")]
        for number, key in zip(numbers, ("created", "finals"), strict=False):
            words = (json.dumps({"no": 1}), key, number)
            connection.execute("update study_user_attributes set value_json = ? where key = ? and study_id = ?", words)
    assert len(tuner.list_studies(database)) == len(numbers) - 2
    code, out, _ = call("list", "--storage", str(database), "--json")
    assert (code, len(json.loads(out))) == (0, len(numbers) - 2)


def test_a_storage_that_is_not_there_is_not_one_without_fitting_studies(tmp_path: Path, call: Call) -> None:
    for filters in ((), ("--since", "7d")):
        assert "there is no file " in call("list", "--storage", str(tmp_path / "none.db"), *filters)[1]


def test_names_with_brackets_are_no_markup(tmp_path: Path, call: Call) -> None:
    out = call("list", "--storage", str(tmp_path / "a[red]b[/b].db"))[1]
    assert "a[red]b[/b].db" in out


def test_results_can_be_pickled(study: tuner.Study) -> None:
    for thing in (study, tuner.load_rules("shipped")):
        assert repr(pickle.loads(pickle.dumps(thing))) == repr(thing)


TYPED = {"storage", "details", "summary", "json_", "out", "format_", "top", "fail_on_undecided"}
"""Options of a terminal, and the storage, which has a name of its own there."""
OF_PYTHON = {"progress", "sessions", "every", "python"}
"""Arguments of functions that are no fields of their requests; `python` is `pythons` of a comparison of frameworks."""


@pytest.mark.parametrize(
    ("of_terminal", "of_python", "request_type"),
    [
        (cli_search.search, tuner.search, SearchRequest),
        (cli_measure.compare, tuner.compare, CompareRequest),
        (cli_measure.check, tuner.check, CheckRequest),
        (cli_measure.frameworks, tuner.compare_frameworks, FrameworksRequest),
        (cli_model.overhead, tuner.overhead, OverheadRequest),
        (cli_model.predict, tuner.predict, PredictRequest),
        (cli_model.profile, tuner.profile, ProfileRequest),
        (cli_rules.recommend, tuner.recommend, RecommendRequest),
    ],
    ids=lambda each: getattr(each, "__name__", "None"),
)
def test_options_are_by_default_the_same_in_a_terminal_and_in_python(
    of_terminal: Callable[..., Any], of_python: Callable[..., Any], request_type: Any
) -> None:
    typed = {name: default for name, default in defaults(of_terminal).items() if name not in TYPED}
    given = defaults(of_python)
    asked = {each.name: each.default for each in dataclasses.fields(request_type)}
    shared = typed.keys() & given.keys()
    assert len(shared) >= 3
    for name in shared:
        default = typed[name] / 100 if name == "margin" and typed[name] is not None else typed[name]
        assert plain(default) == plain(given[name]), name
        if asked.get(name, dataclasses.MISSING) is not dataclasses.MISSING:
            assert plain(asked[name]) == plain(given[name]), name
    of_workload = {each.name for each in dataclasses.fields(WorkloadSpec)}
    assert typed.keys() - of_workload - {"pythons"} <= given.keys(), "an option has another name in Python"
    assert given.keys() - asked.keys() <= OF_PYTHON, "an argument is no field of the request, and nobody reads it"


ASKED: list[tuple[str, Callable[[], Any], Any]] = [
    (
        "tuner.api.search.run_sessions",
        lambda: tuner.search(
            "resnet50", mode="training", rate="600/min", time_budget=90, batch_size=[1, 2], pins={"inter_op": 1},
            margin="3%", python=Path("python3"), trial_timeout=timedelta(minutes=1), max_p99_ms=50,
        ),
        SearchRequest(
            workload=WorkloadSpec(words=("resnet50",), mode="training", rate=10.0), time_budget="90.0s",
            batch_size="1,2", pins=["inter_op=1"], margin=0.03, python="python3", trial_timeout="60.0s", max_p99_ms=50,
        ),
    ),
    (
        "tuner.job.frameworks.compare_frameworks",
        lambda: tuner.compare_frameworks(
            "m.onnx", frameworks=["openvino"], batches=[1, 8], batch_size=4, python={"openvino": Path("p")}
        ),
        FrameworksRequest(
            workload=WorkloadSpec(words=("m.onnx",)), frameworks="openvino", batches="1,8", batch_size=4,
            pythons=["openvino=p"],
        ),
    ),
    (
        "tuner.api.comparison.measure",
        lambda: tuner.compare(["python", "b.py"], {"intra_op": 2}, "intel", metric_regex="x=(.*)"),
        CompareRequest(
            workload=WorkloadSpec(words=("python", "b.py"), metric_regex="x=(.*)"), a="intra_op=2", b="intel"
        ),
    ),
    ("tuner.api.comparison.check_study", lambda: tuner.check("mine"), CheckRequest(study="mine")),
    (
        "tuner.api.load.load_study",
        lambda: tuner.load_test("mine", max_p99_ms="50ms", time_budget=timedelta(minutes=4)),
        LoadRequest(study="mine", max_p99_ms="50ms", time_budget="240.0s"),
    ),
    (
        "tuner.api.rules.run_recommendation",
        lambda: tuner.recommend("mlp", rules=Path("r.json"), verify=True, time_budget=60),
        RecommendRequest(workload=WorkloadSpec(words=("mlp",)), rules="r.json", verify=True, time_budget="60.0s"),
    ),
    (
        "tuner.job.load.size",
        lambda: tuner.size("600/min", 50, costs={"a": 2}),
        SizeRequest(rate="600/min", max_p99_ms=50, costs=["a=2"]),
    ),
    (
        "tuner.api.model.profile_workload",
        lambda: tuner.profile("resnet50", batch_size=8),
        ProfileRequest(workload=WorkloadSpec(words=("resnet50",)), batch_size=8),
    ),
    (
        "tuner.api.model.measure_overhead",
        lambda: tuner.overhead("lenet5", execution="eager"),
        OverheadRequest(workload=WorkloadSpec(words=("lenet5",), execution="eager"), executions="eager"),
    ),
    (
        "tuner.api.model.predict_workload",
        lambda: tuner.predict("mlp", machine="cores=4", settings=[{"inter_op": 1}, "intel"], profile=Path("c.json")),
        PredictRequest(
            workload=WorkloadSpec(words=("mlp",)), machine="cores=4", settings=["inter_op=1", "intel"], pins=[],
            profile="c.json",
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("does", "ask", "request_"), ASKED, ids=[does for does, _, _ in ASKED])
def test_arguments_become_the_request_that_a_command_line_makes(
    does: str, ask: Callable[[], Any], request_: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    def keep(request: Any, *_: object) -> None:
        told.append(request)
        raise InterruptedError

    monkeypatch.setattr(does, keep)
    with pytest.raises(InterruptedError):
        ask()
    assert told == [request_]


def plain(default: Any) -> Any:
    """Return a default; nothing named is None or an empty list."""
    return None if default in ([], ()) else default


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """Return what the options of a function are by default, of those that need not be given."""
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}


def test_options_become_the_words_of_a_command_line() -> None:
    spec = workload_spec(
        Path("m.onnx"),
        mode="training",
        params={"seq_len": 384, "causal": True},
        input_shapes={"image": (224, 224, 3)},
        input_ranges={"ids": (0, 30522)},
        inputs={"training": False, "image": Path("photo.jpg"), "lengths": 400},
        name="my model",
    )
    assert spec == WorkloadSpec(
        words=("m.onnx",),
        mode="training",
        params=("seq_len=384", "causal=true"),
        input_shapes=("image=224,224,3",),
        input_ranges=("ids=0:30522",),
        inputs=("training=false", "image=photo.jpg", "lengths=400"),
        name="my model",
    )
    assert spec.command_line == (
        "m.onnx --mode training --param seq_len=384 --param causal=true --input-shape image=224,224,3 "
        "--input-range ids=0:30522 --input training=false --input image=photo.jpg --input lengths=400 --name 'my model'"
    )
    assert (duration_text(90), duration_text("5m"), duration_text(None)) == ("90.0s", "5m", None)
    assert [duration_text(each) for each in (timedelta(minutes=2), np.int64(9))] == ["120.0s", "9.0s"]
    assert parse_size(3 << 30) == 3 << 30
    assert duration_text(1_000_000.5) == "1000000.5s"
    assert [list_text(each) for each in (8, [1, 2], "1,2", np.int64(8))] == ["8", "1,2", "1,2", "8"]
    assert setting_text({"inter_op": 1, "batch_size": 16}) == "inter_op=1,batch_size=16"


def test_the_command_of_a_search_has_every_option_that_changes_it(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed again it asks for the same; where it is kept, whether anew, and whether it waits changes nothing of it."""
    spec = WorkloadSpec(
        words=("python", "bench.py", "--batch-size", "{batch_size}"), framework="onnxruntime", device="gpu:1",
        name="my model", mode="training", execution="eager", params=("a=1", "b=x y"), signature="serve", tags="",
        op_libraries=("./op.so",), input_shapes=("x=2,3",), input_ranges=("x=0:9",), inputs=("y=./y.npy",),
        metric_regex="items/s: ([0-9.]+)", minimize=True, rate=0.1, feed="device",
    )  # fmt: skip
    asked = SearchRequest(
        workload=spec, trials=30, time_budget="90s", seed=3, space="quick", objective="throughput", batch_size="1,2",
        pins=("inter_op=1", "intra_op=2"), python="./env/bin/python", margin=0.03, max_p99_ms="50ms",
        max_memory="2GiB", max_power_w="250W", numerics="may-change", trial_timeout="5m", instances=False,
        predict=False, launcher="fresh",
    )  # fmt: skip
    for of, usual, kept in (
        (asked, SearchRequest(workload=WorkloadSpec()), {"storage", "new", "wait", "planned"}),
        (spec, WorkloadSpec(), set()),
    ):
        names = {each.name for each in dataclasses.fields(of)}
        assert {name for name in names if getattr(of, name) == getattr(usual, name)} == kept
    plain = SearchRequest(workload=WorkloadSpec(words=("./served model",)), predict=True, max_p99_ms="7")
    assert plain.command == "tftune search './served model' --max-p99 7 --predict"
    planned = SearchRequest(workload=WorkloadSpec(words=("ncf",)), planned="tftune suite --plan 20m", instances=True)
    assert planned.command == "tftune suite --plan 20m"
    asked_plan = SuiteRequest(
        plan="20m", seed=3, pythons=("./a b/python",), framework="onnxruntime", trial_timeout="5m"
    )
    assert asked_plan.planned_command("./my model.py") == (
        "tftune suite --framework onnxruntime --plan 20m --workloads './my model.py' --python './a b/python' --seed 3 "
        "--trial-timeout 5m"
    )
    assert SuiteRequest(plan="15m").planned_command("ncf") == "tftune suite --plan 15m --workloads ncf"
    told: list[SearchRequest] = []

    def keep_request(request: SearchRequest, *_: object, **__: object) -> SessionsResult:
        told.append(request)
        return SessionsResult(record=None, interrupted=False)

    monkeypatch.setattr("tuner.job.run.run_sessions", keep_request)
    for request in (asked, plain):
        assert call(*shlex.split(request.command)[1:])[0] == 0
        assert told.pop() == request
    in_bytes = shlex.split(dataclasses.replace(plain, max_memory=3 << 30).command)
    assert parse_size(in_bytes[in_bytes.index("--max-memory") + 1]) == 3 << 30


def test_one_value_may_stand_for_a_list_of_one() -> None:
    """A text is not taken for the list of its letters: "16" is no shape of 1 and 6."""
    options: dict[str, Any] = {
        "input_shapes": {"x": "16", "y": 16, "z": "3,8"},
        "input_ranges": {"a": "0:9", "b": 9, "c": (0, 9)},
    }
    spec = workload_spec("m.onnx", op_libraries="tensorflow_text", **options)
    assert spec.input_shapes == ("x=16", "y=16", "z=3,8")
    assert spec.input_ranges == ("a=0:9", "b=9", "c=0:9")
    assert spec.op_libraries == ("tensorflow_text",)
    of_workload: dict[str, Any] = {"workload": "m.onnx", "options": {}}
    assert request_of(FrameworksRequest, {"frameworks": "openvino", **of_workload}).frameworks == "openvino"
    for settings, typed in (("intel", "intel"), ({"inter_op": 1}, "inter_op=1")):
        assert request_of(PredictRequest, {"settings": settings, **of_workload}).settings == [typed]


def test_an_option_that_is_none_is_not_given() -> None:
    none: dict[str, Any] = dict.fromkeys(["mode", "params", "tags", "op_libraries", "inputs", "rate", "minimize"])
    assert workload_spec("m.onnx", **none) == WorkloadSpec(words=("m.onnx",))


def test_inputs_of_python_are_not_fed_as_what_python_prints_of_them() -> None:
    spec = workload_spec("m.onnx", inputs={"a": [1, 2], "b": np.array([1.5, 2]), "c": np.float32(2), "d": np.bool_(1)})
    assert spec.inputs == ("a=1,2", "b=1.5,2.0", "c=2.0", "d=true")
    for value, way in ((["one", "two"], ".jsonl"), (b"\xff\xd8", "save its bytes"), (np.ones((2, 3)), "numpy.save")):
        with pytest.raises(BadInputError, match="give the path of a file instead") as caught:
            workload_spec("m.onnx", inputs={"text": value})
        assert way in caught.value.hint


def test_rules_are_those_of_the_command_line(call: Call) -> None:
    rules = tuner.load_rules("shipped")
    assert rules.markdown() == call("rules", "--rules", "shipped", "--format", "md")[1]
    assert rules.html() == call("rules", "--rules", "shipped", "--format", "html")[1]
    assert repr(rules) == "<Rules 3, from 237 studies>"
    assert "more than 16 cores" in str(rules)
    assert "more than 16 cores" in str(HTMLFormatter()(rules))
    # Cores; situations and sets of threads, of batch sizes, and of processes.
    assert str(HTMLFormatter()(rules)).count("<table>") == 7


@pytest.mark.tensorflow
def test_the_example_notebook_runs_as_it_stands(tmp_path: Path) -> None:
    """In a kernel of its own, all but the time: a real search and a comparison, each answer shown as a card."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(ROOT / "docs" / "notebook.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = re.sub(r'"(\d+)s"', lambda found: f'"{int(found[1]) // 2}s"', cell.source)
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    NotebookClient(notebook, timeout=400, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    cards = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert sum('class="tftune"' in card for card in cards) == 3
    stored = tuner.load_study("last", tmp_path / "results" / "tftune.db")
    validator("show").validate(stored.to_dict())
    assert stored.result.finals is not None
