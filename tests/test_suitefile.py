"""Suite files: what they hold, what is refused, whose studies they find again, and that all of it reaches a node."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest
from msgspec import structs, to_builtins

from tests.command_line import tftune
from tests.conftest import Call
from tests.frameworks import subject
from tests.scripted import noisy, run
from tuner.cluster import copies
from tuner.cluster import node as nodes
from tuner.cluster.fleet import Fleet
from tuner.cluster.wire import Answer, AskOffer, Model, Offer, Piece, Unit, UnitEnd
from tuner.errors import BadInputError, TunerError
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.frameworks.tensorflow.framework import TensorFlow
from tuner.job import nested, suite
from tuner.job.parsed import parse_request
from tuner.job.request import SuiteRequest
from tuner.job.suitefile import read
from tuner.machine.host import detect
from tuner.measure.budget import Budget
from tuner.paths import code_version
from tuner.space.space import Space
from tuner.study.record import SCHEMA
from tuner.study.storage import Scratch, open_storage
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
mode = ["inference", "training"]
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
    team.write_text('mode = "training"\n[workloads.mlp]\n[workloads.lenet5]\nmode = "inference"\n')
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
        "--one-process --no-predict"
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
        ("[workloads.mlp]\nmode = 'learning'", "workloads.mlp: unknown mode 'learning'"),
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
    ours = {"k": "", "l": "param = 'width=128'", "m": "mode = 'training'"}
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
    with pytest.raises(BadInputError, match=r"--plan with mode in .*team\.toml, batch-size in .*team\.toml; leave"):
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


# ---- copies of models -----------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let what `nodes.answer` does be on a machine that has neither the driver's folder nor its models."""
    monkeypatch.setenv("TFTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(copies, "_PIECE_BYTES", 1000)
    return tmp_path / "cache/models"


class Nodes:
    """An engine with one node that is another folder of this machine."""

    n_started = 0

    def __init__(self, hidden: Path) -> None:
        self.hidden = hidden
        self.asked: Counter[str] = Counter()
        self._answers: list[Answer] = []

    def addresses(self) -> list[str]:
        return ["made://a"]

    def ask(self, address: str, name: str, question: bytes, *, measures: bool) -> None:
        del measures
        self.asked[name] += 1
        gone = self.hidden.with_name("gone")
        self.hidden.rename(gone)
        try:
            data, failure = (nodes.ask if name == "copy" else nodes.answer)(question), ""
        except TunerError as error:
            data, failure = None, str(error)
        gone.rename(self.hidden)
        self._answers.append(Answer(address=address, name=name, data=data, failure=failure))

    def answers(self, timeout_s: float) -> list[Answer]:
        del timeout_s
        came, self._answers = self._answers, []
        return came

    def drop(self, address: str) -> None:
        """It does not fail."""


def test_a_model_is_copied_and_its_case_is_the_same(
    team: Path, planned: Any, elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (team.parent / "models/3/variables").mkdir()
    (team.parent / "models/3/variables/data").write_bytes(bytes(range(256)) * 10)
    (team.parent / "models/3/empty").write_bytes(b"")
    team.write_text(f"{TEAM}[workloads.again]\nworkload = 'models/3'\n")  # it is copied once
    key = planned(team).cases[0].key
    code = "import pickle, sys; sys.exit(f'tftune: {pickle.load(sys.stdin.buffer).workload.words[0]}')"
    _scripted(monkeypatch, code)
    events = MagicMock()
    engine = Nodes(team.parent / "models")
    request = asked(team, storage=f"sqlite:///{tmp_path}/s.db")
    fleet = Fleet(request=request, engine=engine, events=events, outcome=str, first_node_s=0.0, join_s=0.0)
    fleet.run()
    assert engine.asked["copy"] == 6  # the protocol, three pieces of the data, the empty file, and the end
    assert engine.asked["offer"] == 2
    [notice] = [call.args[0] for call in events.notice.call_args_list]
    assert re.fullmatch(r".* does not have .*team/models/3: copying it \(0\.0 MiB\)", notice)
    [copy] = elsewhere.iterdir()
    assert (copy / "3/variables/data").read_bytes() == bytes(range(256)) * 10
    first, *others = fleet.cases()
    assert (first.workload, first.state, first.outcome) == ("ranker", "failed", str(copy / "3"))
    assert [each.workload for each in others] == ["lenet5", "again", "lenet5"]
    assert key in [call.args[1].key for call in events.started.call_args_list]
    events.skipped.assert_not_called()


def test_a_study_of_a_copy_has_the_path_that_was_asked_for(
    team: Path, planned: Any, elsewhere: Path, space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = planned(team, workloads="ranker")
    [source] = copies.sources(suite.workloads_of(here.request)[0]).values()
    for piece in source.pieces():
        copies.keep(piece)
    shutil.rmtree(team.parent / "models")
    copy = elsewhere / source.model.digest / "3"
    file, _ = nodes.files_of("one")
    run(space, noisy(), folder=tmp_path, budget=Budget(trials=3))[0].put(
        "command", f"tftune search {copy} --signature serve"
    )
    [made] = tmp_path.glob("*.db")
    file.parent.mkdir(parents=True)
    shutil.copy(made, file)
    _scripted(monkeypatch, "import sys; sys.exit('tftune: it was tried')")
    unit = Unit(
        id="one", key=here.cases[0].key, request=here.request, folder=str(team.parent), models={"ranker": source.model}
    )
    end = msgspec.json.decode(nodes.answer(msgspec.json.encode(unit)), type=UnitEnd)
    assert end.failure == "it was tried"
    with nodes.unpacked(end.studies, Scratch()) as (records, _):
        [record] = records
        assert record.get("command") == f"tftune search {team.parent}/models/3 --signature serve"
        stored = record.attributes()
        assert (stored.spec.words, stored.spec.name) == ([f"{team.parent}/models/3"], "ranker")
        assert stored.folder == team.parent
    (copy / "saved_model.pb").write_bytes(b"of another model")
    with pytest.raises(TunerError, match="the copied model of ranker is not here any more"):
        nodes.answer(msgspec.json.encode(structs.replace(unit, id="two")))
    copies.keep(Piece(model=source.model, path="3/saved_model.pb", data=b"\x08\x01\x12\x00"))
    copies.keep(Piece(model=source.model))
    assert (copy / "saved_model.pb").read_bytes() == b"\x08\x01\x12\x00"


@pytest.mark.parametrize("plan", [None, "10m"])
def test_models_that_are_named_by_a_path_are_copied_too(
    team: Path, planned: Any, elsewhere: Path, tmp_path: Path, plan: str | None
) -> None:
    """The name of a model may be another than that of its files, which is in the fingerprint."""
    assert planned(team).missing
    (team.parent / "models/latest").symlink_to("3")
    word = str(team.parent / "models/latest")
    request = SuiteRequest(workloads=f"mlp,{word}", storage=f"sqlite:///{tmp_path}/s.db", plan=plan)
    before = [(case.word, case.title, case.key) for case in suite.plan(request).cases]
    named = suite.workloads_of(request)[0]
    [source] = copies.sources(named).values()
    models = {word: source.model}
    pieces = [*source.pieces()]
    shutil.rmtree(team.parent / "models")
    without, paths = copies.with_copies(request, models)
    assert (without.workloads, paths) == ("mlp", {word: ""})
    for piece in pieces:
        copies.keep(piece)
    placed, paths = copies.with_copies(request, models)
    assert paths == {word: str(elsewhere / source.model.digest / "latest")}
    assert [(case.word, case.title, case.key) for case in suite.plan(placed).cases] == before


def test_code_is_never_copied(team: Path, planned: Any) -> None:
    team.write_text(
        "[workloads.mine]\nworkload = 'mine.py'\n[workloads.ranker]\nworkload = 'models/3'\n[workloads.mlp]\n"
    )
    named = suite.workloads_of(planned(team).request)[0]
    assert [*copies.sources(named)] == ["ranker"]
    (team.parent / "models/3/assets").mkdir()
    (team.parent / "models/3/assets/op.so").write_bytes(b"")
    assert [*copies.sources(named)] == []


DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("digest", "file", "path", "said"),
    [
        (DIGEST, "m", "../../x", "'..' is no name of a model's file"),
        (DIGEST, "m", "/etc/cron.d/x", "'/' is no name of a model's file"),
        (DIGEST, "m", "m/a\0b", "is no name of a model's file"),
        (DIGEST, "m", "m/x.py", "m/x.py is code, which a node does not take"),
        (DIGEST, "m", "m/op.SO", "m/op.SO is code"),
        (DIGEST, "m", "m/libop.so.2", "m/libop.so.2 is code"),
        (DIGEST, "..", "", "'..' is no name of a model's file"),
        (DIGEST, "m", "", "the copied model of made is damaged"),
        ("../" + DIGEST, "m", "m/x", "is no digest of a model"),
        ("", "m", "m/x", "'' is no digest of a model"),
    ],
)
def test_a_node_refuses_what_leads_elsewhere(elsewhere: Path, digest: str, file: str, path: str, said: str) -> None:
    piece = Piece(model=Model(digest=digest, file=file, name="made"), path=path, data=b"x")
    with pytest.raises(TunerError, match=re.escape(said)):
        nodes.ask(msgspec.json.encode(piece))
    assert not [each for each in elsewhere.rglob("*") if each.is_file()]


def test_a_node_takes_no_more_than_the_most(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "MOST_BYTES", 1000)
    model = Model(digest=DIGEST, file="m", name="made")
    copies.keep(Piece(model=model, path="m/a", data=bytes(600)))
    for piece in (
        Piece(model=model, path="m/b", data=bytes(600)),
        Piece(model=model, path="m/a", offset=600, data=bytes(600)),
        Piece(model=model, path="m/a", offset=-1, data=bytes(6)),
    ):
        with pytest.raises(TunerError, match="made is larger than"):
            copies.keep(piece)
    target = elsewhere / "link"
    (elsewhere / f".part-{DIGEST}/m/c").symlink_to(target)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        copies.keep(Piece(model=model, path="m/c", data=b"x"))
    assert not target.exists()


def test_a_model_that_is_too_large_is_not_copied(
    team: Path, planned: Any, elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "MOST_BYTES", 3)
    events, engine = MagicMock(), Nodes(team.parent / "models")
    request = asked(team, storage=f"sqlite:///{tmp_path}/s.db", workloads="ranker")
    with pytest.raises(TunerError, match="all nodes were refused"):
        Fleet(request=request, engine=engine, events=events, outcome=str, first_node_s=0.0, join_s=0.0).run()
    [notice] = [call.args[0] for call in events.notice.call_args_list]
    assert re.search(
        r"does not have .*team/models/3: it is too large to copy \(0\.0 MiB\), so put it on a shared file system",
        notice,
    )
    assert not elsewhere.exists()
    assert planned(team).missing == [0, 1, 2]


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
