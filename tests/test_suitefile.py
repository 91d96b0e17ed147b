"""Suite files: what they hold, what is refused, whose studies they find again, and that all of it reaches a node."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs, to_builtins

from tests.command_line import tftune
from tests.conftest import Call
from tests.frameworks import subject
from tuner.cluster import node as nodes
from tuner.cluster.wire import AskOffer, Offer, Unit, UnitEnd
from tuner.errors import BadInputError
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.frameworks.tensorflow.framework import TensorFlow
from tuner.job import nested, suite
from tuner.job.parsed import parse_request
from tuner.job.request import SuiteRequest
from tuner.job.suitefile import read
from tuner.machine.host import detect
from tuner.paths import code_version
from tuner.space.space import Space
from tuner.study.record import SCHEMA
from tuner.study.storage import open_storage
from tuner.study.subject import workload_facts
from tuner.workload.spec import WorkloadSpec

DOCS = Path(__file__).parents[1] / "docs"
TEAM = """
time-budget = "1m"

[workloads.ranker]
workload = "models/3"
signature = "serve"
input-shape = "ids=128"
batch-size = [8, 1]

[workloads.lenet5]
modes = ["inference", "training"]
"""


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a suite file beside a SavedModel and a workload file, and work in another folder."""
    folder = tmp_path / "team"
    (folder / "models/3").mkdir(parents=True)
    (folder / "models/3/saved_model.pb").write_bytes(b"\x08\x01\x12\x00")
    (folder / "mine.py").write_text(
        '"""Mine"""\n\nPARAMS = {"width": 64}\nMODES = ("inference", "training")\nLOSS = "mse"\nBATCH_SIZE = 4\n\n\n'
        "def build(width): ...\n\n\ndef inputs(batch_size): ...\n\n\ndef targets(batch_size): ...\n"
    )
    (folder / "team.toml").write_text(TEAM)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return folder / "team.toml"


@pytest.fixture
def planned(tmp_path: Path, stock: Build, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Plan the suite of a file without asking a TensorFlow."""
    monkeypatch.setattr(TensorFlow, "probe", lambda *_: stock)
    return lambda file, **options: suite.plan(asked(file, storage=f"sqlite:///{tmp_path}/s.db", **options))


def asked(file: Path | str, **options: Any) -> SuiteRequest:
    """Return the request of a suite file."""
    parsed = read(str(file))
    return SuiteRequest(file=parsed.path, file_workloads=parsed.workloads, **{**parsed.options, **options})


# ---- what a file holds ----------------------------------------------------------------------------------------------


def test_a_workload_has_options_of_its_own_and_the_name_of_its_table(team: Path) -> None:
    file = read("../team/team.toml")
    assert file.options == {"time_budget": "1m", "pythons": []}
    ranker, lenet5 = file.workloads["ranker"], file.workloads["lenet5"]
    assert ranker.spec == WorkloadSpec(
        words=("../team/models/3",), name="ranker", signature="serve", input_shapes=("ids=128",)
    )
    assert (ranker.modes, ranker.batch_size) == (None, "8,1")
    assert (lenet5.spec, lenet5.modes) == (WorkloadSpec(words=("lenet5",)), "inference,training")
    assert read(str(team)).workloads["ranker"].spec.words == (str(team.parent / "models/3"),)


def test_paths_are_relative_to_the_file(team: Path) -> None:
    (team.parent / "env/bin").mkdir(parents=True)
    (team.parent / "env/bin/python").write_text("")
    (team.parent / "x.npy").write_bytes(b"")
    team.write_text(
        'python = ["env", "python3", "./other/python", "/usr/bin/python3", "~/env"]\nspace = "mine.toml"\n'
        '[workloads.mine]\nworkload = "mine.py"\nop-library = ["ops/op.so", "layers.py", "tensorflow_text"]\n'
        'input = ["x=@x.npy", "y=x.npy", "training=false"]\n[workloads.both]\nworkload = "resnet50+models/3"\n'
    )
    file = read("../team/team.toml")
    at = "../team"
    assert file.options == {
        "pythons": [f"{at}/env", "python3", f"{at}/./other/python", "/usr/bin/python3", "~/env"],
        "space": f"{at}/mine.toml",
    }
    mine = file.workloads["mine"].spec
    assert mine.words == (f"{at}/mine.py",)
    assert mine.op_libraries == (f"{at}/ops/op.so", f"{at}/layers.py", "tensorflow_text")
    assert mine.inputs == (f"x={at}/x.npy", f"y={at}/x.npy", "training=false")
    assert file.workloads["both"].spec.words == (f"resnet50+{at}/models/3",)


def test_the_modes_of_a_file_are_those_of_workloads_without(team: Path) -> None:
    team.write_text('modes = "training"\n[workloads.mlp]\n[workloads.lenet5]\nmodes = "inference"\n')
    assert {name: each.modes for name, each in read(str(team)).workloads.items()} == {
        "mlp": "training",
        "lenet5": "inference",
    }


def test_the_example_of_the_docs_is_a_suite_file(tmp_path: Path) -> None:
    [example] = re.findall(r"^```toml\n(.*?)^```", (DOCS / "cluster.md").read_text(), re.MULTILINE | re.DOTALL)
    file = tmp_path / "team.toml"
    file.write_text(example)
    workloads = read(str(file)).workloads
    assert [*workloads] == ["ranker", "ranker-xla", "trainer", "resnet50"]
    assert workloads["ranker"].spec.input_shapes == ("ids=128", "mask=128")


def test_the_docs_have_all_keys(team: Path) -> None:
    rows = re.findall(r"^\| of (?:the suite|a workload) \| (.*) \|$", (DOCS / "cluster.md").read_text(), re.MULTILINE)
    for row, place in zip(rows, ("", "workloads.lenet5."), strict=True):
        team.write_text(f"{place}zzz = 1\nworkloads.mlp = {{}}\n")
        with pytest.raises(BadInputError) as caught:
            read(str(team))
        known = caught.value.hint.removeprefix("known: ").split(", ")
        assert sorted(known) == sorted(re.findall(r"`([a-z-]+)`", row))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"it has no workloads; expected at least one table \[workloads\.NAME\]"),
        ("cpus = [1]", "it has no workloads"),
        ("workloads = 'lenet5'", r"workloads is 'lenet5'; expected tables \[workloads\.NAME\]"),
        ("[workloads]\nlenet5 = 1", r"workloads\.lenet5 is 1; expected a table \[workloads\.lenet5\]"),
        ("[[workloads]]\nname = 'lenet5'", r"workloads is \[\{'name': 'lenet5'\}\]"),
        ("[workload.lenet5]", "it has no workloads"),
        ("sede = 1\n[workloads.lenet5]", "unknown key 'sede'; did you mean seed?"),
        (
            "[workloads.lenet5]\nparams = ['a=1']",
            r"unknown key of workloads\.lenet5 'params'; did you mean param",
        ),
        ("[workloads.lenet5]\nframework = 'onnxruntime'", r"unknown key of workloads\.lenet5 'framework'"),
        ("[workloads.lenet5]\nsignature = 3", r"workloads\.lenet5\.signature is 3; expected text, such as \"serve\""),
        ("[workloads.lenet5]\nparam = {width = 3}", r"param is \{'width': 3\}; expected text, such as \"seq_len=384\""),
        ("[workloads.lenet5]\nparam = [3]", r"param is \[3\]; expected text"),
        ("[workloads.lenet5]\nbatch-size = [[1]]", r"batch-size is \[\[1\]\]; expected text, a number or a list"),
        ("[workloads.lenet5]\nbatch-size = true", "batch-size is True"),
        ("time-budget = 00:02:00\n[workloads.lenet5]", r"time-budget is datetime\.time.*expected text, such as \"2m\""),
        ("seed = -1\n[workloads.lenet5]", "seed is -1; expected a whole number of at least 0"),
        ("seed = 1.5\n[workloads.lenet5]", "seed is 1.5"),
        ("[workloads.'a,b']", "a workload is called 'a,b'; expected a name without commas"),
        ("[workloads.'']", "a workload is called ''"),
        ("[workloads.a]\n[workloads.a]", r"Cannot declare \('workloads', 'a'\) twice \(at line 2"),
        ("[workloads.a", "fix the TOML syntax there"),
        ("a = " + "[" * 9000, "fix the TOML syntax there"),
        ("seed = " + "9" * 5000, "fix the TOML syntax there"),
        ("time-budget = '1m", "fix the TOML syntax there"),
    ],
    ids=range(24),
)
def test_what_is_no_suite_is_said_in_one_line(team: Path, text: str, said: str) -> None:
    team.write_text(text)
    with pytest.raises(BadInputError, match=f"team.toml: .*{said}"):
        read(str(team))


def test_what_is_no_file_is_said_in_one_line(team: Path) -> None:
    for path, said in {"resnet50": "resnet50 is no file", str(team.parent): "team is a folder"}.items():
        with pytest.raises(BadInputError, match=f"{said}; give the path of a TOML file .* are named by --workloads"):
            read(path)
    team.write_bytes(b"\xff\xfe")
    with pytest.raises(BadInputError, match="is not UTF-8 text"):
        read(str(team))


# ---- its cases ------------------------------------------------------------------------------------------------------


def test_cases_have_what_the_file_gives_them(team: Path, planned: Any) -> None:
    plan = planned(team, cpus="1")
    assert [case.title for case in plan.cases] == ["ranker inference", "lenet5 inference", "lenet5 training"]
    assert plan.unavailable == []
    search = suite.search_request(plan.cases[0], plan.request)
    assert (search.batch_size, search.time_budget, search.workload.signature) == ("1,8", "1m", "serve")
    assert suite.search_request(plan.cases[1], plan.request).batch_size is None
    assert search.command == (
        f"tftune search {team.parent}/models/3 --framework tensorflow --signature serve --input-shape ids=128 "
        f"--name ranker --time-budget 1m --objective throughput --batch-size 1,8 --python {sys.executable} "
        "--no-instances --no-predict"
    )


def test_what_is_typed_wins(team: Path, planned: Any) -> None:
    assert [case.title for case in planned(team, modes="training").cases] == ["lenet5 training"]
    assert [case.title for case in planned(team, workloads="ranker").cases] == ["ranker inference"]
    assert len(planned(team, workloads="all").cases) == 3
    with pytest.raises(BadInputError, match=r"unknown workload of .*team\.toml 'rankr'; did you mean ranker"):
        planned(team, workloads="rankr")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("[workloads.b]\nworkload = 'models/3'\nsignature = 'serve'\ninput-shape = 'ids=128'\nbatch-size = '1,8'",
         "workloads.b: b and ranker are the same measurement; remove one of them"),
        ("[workloads.b]\nworkload = 'none/3'", "workloads.b: no workload file .*none/3"),
        ("[workloads.resnet5]", "workloads.resnet5: unknown workload 'resnet5'; did you mean resnet50"),
        ("[workloads.b]\nworkload = 'mine.py'\nparam = 'wide=1'", "workloads.b: unknown parameter 'wide'"),
        ("[workloads.mlp]\nsignature = 'serve'", "workloads.mlp: --signature does not apply to a Python file"),
        ("[workloads.mlp]\nbatch-size = 'many'", "workloads.mlp: --batch-size is 'many'"),
        ("[workloads.mlp]\nmodes = 'learning'", "workloads.mlp: unknown mode 'learning'"),
        ("[workloads.mlp]\nexecution = 'jit'", "workloads.mlp: unknown execution 'jit'"),
        ("[workloads.'-x']\nworkload = 'mlp'", "workloads.-x: --name is '-x'"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_said_with_its_table(team: Path, planned: Any, more: str, said: str) -> None:
    team.write_text(f"{TEAM}{more}\n")
    with pytest.raises(BadInputError, match=f"team.toml: {said}"):
        planned(team)


def test_each_option_makes_another_case(team: Path, planned: Any) -> None:
    tables = {
        "plain": "", "a": "signature = 'a'", "b": "input-shape = 'x=3'", "c": "input-range = 'x=0:3'",
        "d": "input = 'x=3'", "e": "tags = 'serve'", "f": "tags = ''", "g": "op-library = 'tensorflow_text'",
        "h": "execution = 'xla'", "i": "batch-size = 2", "j": "batch-size = [2, 4]",
    }  # fmt: skip
    ours = {"k": "", "l": "param = 'width=128'", "m": "modes = 'training'"}
    text = [f"[workloads.{name}]\nworkload = 'models/3'\n{options}\n" for name, options in tables.items()]
    text += [f"[workloads.{name}]\nworkload = 'mine.py'\n{options}\n" for name, options in ours.items()]
    team.write_text("".join(text))
    cases = planned(team).cases
    assert sorted(case.word for case in cases) == sorted({**tables, **ours})
    assert len({case.key for case in cases}) == len(cases)
    assert len({case.key.fingerprint for case in cases}) == len(cases) - 3  # but for the execution and the batch sizes


def test_the_study_of_a_case_is_found_again(team: Path, planned: Any, tmp_path: Path, space: Space) -> None:
    import optuna

    storage = open_storage(f"sqlite:///{tmp_path}/s.db", create=True)
    assert storage is not None
    case = planned(team).cases[0]
    study = optuna.create_study(study_name="known", storage=storage)
    facts = workload_facts(case.workload)
    here = structs.replace(subject(space), machine=detect(), workload=facts, runtime=case.build.to_dict())
    described = to_builtins(here) | {"space_digest": case.key.space_digest, "environment": {}}
    attributes = {"schema": SCHEMA, "described": described, "seed": 0, "created": "2026", "batch_sizes": [8, 1]}
    for key, value in (attributes | {"finals": {"contenders": [], "rounds": []}}).items():
        study.set_user_attr(key, value)
    assert planned(team).missing == [1, 2]
    team.write_text(TEAM.replace("[8, 1]", '"1..8"'))
    assert planned(team).missing == [0, 1, 2]
    team.write_text(TEAM.replace("ids=128", "ids=64"))
    assert planned(team).missing == [0, 1, 2]
    team.write_text(TEAM.replace("ranker", "of"))
    assert planned(team).missing == [1, 2]


def test_a_plan_of_settings_chooses_what_a_file_may_not(team: Path, planned: Any) -> None:
    team.write_text(TEAM.replace('time-budget = "1m"', ""))
    with pytest.raises(BadInputError, match=r"--plan with modes in .*team\.toml, batch-size in .*team\.toml; leave"):
        planned(team, plan="10m")
    team.write_text('cpus = 1\n[workloads.ranker]\nworkload = "models/3"\nsignature = "serve"\n')
    with pytest.raises(BadInputError, match="--plan with --cpus; leave"):
        planned(team, plan="10m")
    team.write_text('[workloads.ranker]\nworkload = "models/3"\nsignature = "serve"\n')
    plan = planned(team, plan="10m")
    assert {case.word for case in plan.cases} == {"ranker"}
    request = suite.search_request(plan.cases[0], plan.request, 66.0)
    assert (request.planned, request.workload.signature) == (
        f"tftune suite {team} --plan 10m --workloads ranker",
        "serve",
    )
    assert parse_request(request, stores=False).planned


# ---- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("planned")
def test_the_command_reads_a_file_and_typed_options_win(team: Path, call: Call) -> None:
    team.write_text(f'cpus = [1]\nseed = 3\nframework = "tensorflw"\n{TEAM}')
    code, _, err = call("suite", str(team), "--dry-run")
    assert (code, "unknown framework 'tensorflw'; did you mean tensorflow" in err) == (2, True)
    code, out, err = call("suite", str(team), "--framework", "tensorflow", "--dry-run", "--json")
    assert code == 0, err
    cases = json.loads(out)["cases"]
    assert [(case["workload"], case["mode"], case["shape"], case["batch_sizes"]) for case in cases] == [
        ("ranker", "inference", "1 CPU", [1, 8]),
        ("lenet5", "inference", "1 CPU", []),
        ("lenet5", "training", "1 CPU", []),
    ]
    code, out, _ = call("suite", "--workloads", "lenet5", "--framework", "tensorflow", str(team), "--dry-run")
    assert (code, "0 already done, 0 made now, 0 failed, 2 missing" in out) == (0, True)
    code, _, err = call("suite", "resnet50", "--dry-run")
    assert (code, "resnet50 is no file" in err) == (2, True)


# ---- a node ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("team")
def test_a_node_gets_the_options_and_makes_the_same_cases(
    planned: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "_folder", lambda: tmp_path / "units")
    here = planned("../team/team.toml")
    request = replace(here.request, storage="")
    question = AskOffer(version=code_version(), suite="s", request=request, folder=str(tmp_path / "here"))
    offer = msgspec.json.decode(nodes.answer(msgspec.json.encode(question)), type=Offer)
    assert not offer.failure
    assert [(case.word, case.key) for case in offer.cases] == [(case.word, case.key) for case in here.cases]
    assert len({case.id for case in offer.cases}) == 3
    _scripted(monkeypatch, "import pickle, sys; sys.exit(f'tftune: {pickle.load(sys.stdin.buffer).command}')")
    ranker = offer.cases[0]
    unit = Unit(
        id="one", key=ranker.key, request=replace(request, workloads=ranker.word, modes="inference"),
        folder=str(tmp_path / "here"),
    )  # fmt: skip
    end = msgspec.json.decode(nodes.answer(msgspec.json.encode(unit)), type=UnitEnd)
    assert end.failure == suite.search_request(here.cases[0], here.request).command


def _scripted(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let each search be a Python program instead."""
    monkeypatch.setattr(nested, "_command", lambda: [sys.executable, "-c", code])


# ---- the real thing -------------------------------------------------------------------------------------------------

MODEL = """
import tensorflow as tf

class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.ones([4, 4]))

    @tf.function(input_signature=[tf.TensorSpec([None, None, 4], tf.float32, "x")])
    def score(self, x):
        return {"y": tf.reduce_sum(x @ self.w, [1, 2])}

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, "x")])
    def serve(self, x):
        return {"y": x @ self.w}

model = Model()
tf.saved_model.save(model, "served/1", signatures={"serving_default": model.serve, "score": model.score})
"""


@pytest.mark.tensorflow
def test_a_suite_file_is_run_and_known_the_next_time(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", MODEL], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "team.toml").write_text(
        'space = "threads"\ntime-budget = "5s"\n[workloads.scorer]\nworkload = "served/1"\nsignature = "score"\n'
        'input-shape = "x=16,4"\nbatch-size = 4\n'
    )
    (tmp_path / "elsewhere").mkdir()
    words = ["suite", "../team.toml", "--cpus", "1"]
    first = tftune(*words, "--json", cwd=tmp_path / "elsewhere")
    assert first.returncode == 0, first.stderr
    [case] = json.loads(first.stdout)["cases"]
    assert (case["workload"], case["state"], case["batch_sizes"]) == ("scorer", "made", [4])
    shown = json.loads(tftune("show", case["study"], "--json", cwd=tmp_path / "elsewhere").stdout)
    assert shown["workload"]["name"] == "scorer"
    assert "--signature score --input-shape x=16,4 --name scorer" in shown["command"]
    assert "--batch-size 4" in shown["command"]
    again = tftune(*words, cwd=tmp_path / "elsewhere")
    assert "1 already done, 0 made now" in again.stdout
