"""The matrix of models and machine types: which study a cell shows, what is stale and why, and its pages."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy
from markdown_it import MarkdownIt
from msgspec import structs, to_builtins

from tests.conftest import Call
from tests.frameworks import MADE_MACHINE, STOCK
from tests.scripted import noisy, run
from tuner.errors import BadInputError
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.job.matrix import Matrix, read_matrix
from tuner.job.merge import copy_rows
from tuner.job.suite import changes, key_of
from tuner.machine.host import Machine
from tuner.machine.topology import Cache
from tuner.measure.budget import Budget
from tuner.quantity import age_text
from tuner.report import chart
from tuner.report import matrix as pages
from tuner.space.space import Space
from tuner.study.attributes import Attributes
from tuner.study.storage import engine_of, open_storage
from tuner.study.subject import workload_facts
from tuner.workload.workload import load

NEWER = replace(STOCK, id="newer", tensorflow="2.22.0")
SMALL = replace(
    MADE_MACHINE,
    id="small",
    cpu_model="Small CPU",
    online_cpus=2,
    logical_cpus=2,
    physical_cores=2,
    threads_per_core=1,
    sockets=1,
    affinity="0-1",
    memory_bytes=8 << 30,
    caches=[Cache(name="L2", size_bytes=1 << 20, n_instances=2)],
)
NOW = datetime.now(UTC)


class MadeStorage:
    """A storage of copies of two studies: one whose setting is better, and one that keeps the default."""

    def __init__(self, sources: Path, file: Path) -> None:
        self.url, self._sources = f"sqlite:///{file}", sources
        self.storage = opened(file)

    def add(
        self,
        workload: str = "resnet50",
        *,
        machine: Machine = MADE_MACHINE,
        build: Build = STOCK,
        days: float = 1.0,
        host: str | None = "",
        name: str | None = None,
        source: str = "better",
        described: dict[str, Any] | None = None,
        **attributes: Any,
    ) -> optuna.Study:
        """Add a study that is so many days old, of a host with the machine's name; of no host if that is None."""
        name = name or f"{workload}-{machine.id}-{build.id}-{days:g}"
        with (
            engine_of(opened(self._sources / source / "t.db")).connect() as rows,
            engine_of(self.storage).begin() as into,
        ):
            copy_rows(rows, into, "made", name)
            ours = (
                "key = 'owner' AND trial_id IN (SELECT trial_id FROM trials JOIN studies USING (study_id) "
                "WHERE study_name = :name)"
            )
            owner = json.dumps(f"{machine.id if host == '' else host}:12")
            change = f"UPDATE trial_user_attributes SET value_json = :owner WHERE {ours}"
            change = f"DELETE FROM trial_user_attributes WHERE {ours}" if host is None else change
            values = {"name": name} | ({} if host is None else {"owner": owner})
            into.execute(sqlalchemy.text(change), values)
        study = optuna.load_study(study_name=name, storage=self.storage)
        facts = study.user_attrs["described"] | {
            "machine": to_builtins(machine),
            "runtime": build.to_dict(),
            "workload": to_builtins(workload_facts(load(workload))),
        }
        at = (NOW - timedelta(days=days)).isoformat(timespec="seconds")
        for key, value in {"created": at, "updated": at, "described": facts | (described or {}), **attributes}.items():
            study.set_user_attr(key, to_builtins(value))
        return study

    def matrix(self) -> Matrix:
        return read_matrix(self.url)

    def stale(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Return what has changed, by workload and CPU model."""
        cells = self.matrix().cells
        return {(row.workload, column.machine.cpu_model): cell.stale for (row, column), cell in cells.items()}


def opened(file: Path) -> optuna.storages.BaseStorage:
    storage = open_storage(f"sqlite:///{file}", create=True)
    assert storage is not None
    return storage


@pytest.fixture(scope="module")
def sources(space: Space, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished studies: of a machine with a best setting, and of one on which all settings are as fast."""
    base = tmp_path_factory.mktemp("sources")
    for name, launcher in (("better", noisy()), ("equal", noisy(rate=lambda _: 100.0))):
        (base / name).mkdir()
        run(space, launcher, folder=base / name, budget=Budget(trials=8))
    return base


@pytest.fixture
def made(sources: Path, tmp_path: Path) -> MadeStorage:
    """An empty storage for made studies."""
    return MadeStorage(sources, tmp_path / "team.db")


@pytest.fixture
def team(made: MadeStorage) -> MadeStorage:
    """Four models on two machine types: one cell is stale, one missing, and one keeps the default."""
    for workload in ("resnet50", "mlp", "lenet5"):
        made.add(workload, days=3)
    made.add("bert-tiny", days=70, build=replace(STOCK, id="older", tensorflow="2.20.0"))
    for workload in ("resnet50", "mlp"):
        made.add(workload, machine=SMALL, days=0.2)
    made.add("lenet5", machine=SMALL, source="equal")
    return made


# ---- what has changed -----------------------------------------------------------------------------------------------


def test_changes_are_named_and_nothing_else_is_one(made: MadeStorage) -> None:
    key = key_of(Attributes("made", made.add().user_attrs))
    lines = {"build_then": "TensorFlow 2.20.0, oneDNN 3.7", "build_now": "TensorFlow 2.21.0, oneDNN 3.7"}
    for field, text in (
        ("build", "TensorFlow 2.20.0, now 2.21.0"),
        ("fingerprint", "the model changed"),
        ("host", "the machine changed"),
        ("device", "the machine changed"),
        ("space", "the search space changed"),
        ("space_digest", "the search space changed"),
        ("environment", "variables that change timings changed"),
    ):
        assert changes(key, structs.replace(key, **{field: "other"}), **lines) == (text,)
    both = structs.replace(key, build="other", host="other", device="other")
    assert changes(key, both, **lines) == ("the machine changed", "TensorFlow 2.20.0, now 2.21.0")
    assert changes(key, key, **lines) == ()


@pytest.mark.parametrize(
    ("then", "now", "text"),
    [
        ("TensorFlow 2, oneDNN 3.6 on OpenMP", "TensorFlow 2, oneDNN 3.7 on X", "oneDNN 3.6 on OpenMP, now 3.7 on X"),
        ("TensorFlow 2.21.0, oneDNN off", "TensorFlow 2.21.0, OpenVINO", "oneDNN off, now OpenVINO"),
        ("TensorFlow 2.21.0", "TensorFlow 2.21.0", "the build changed"),
    ],
)  # fmt: skip
def test_a_build_is_named_by_the_first_part_that_differs(made: MadeStorage, then: str, now: str, text: str) -> None:
    key = key_of(Attributes("made", made.add().user_attrs))
    assert changes(key, structs.replace(key, build="other"), build_then=then, build_now=now) == (text,)


def test_the_newest_study_of_a_model_on_a_machine_type_is_shown(made: MadeStorage) -> None:
    made.add(days=9)
    made.add(days=2)
    made.add(days=5)
    made.add(machine=replace(MADE_MACHINE, affinity="0-3", logical_cpus=4), days=20)
    assert sorted(cell.record.name for cell in made.matrix().cells.values()) == [
        *("resnet50-made-stock-2", "resnet50-made-stock-20")
    ]
    assert made.stale() == {("resnet50", "Made CPU"): ()}


def test_a_newer_build_on_the_machine_type_makes_others_stale(made: MadeStorage) -> None:
    made.add("resnet50", days=9)
    made.add("mlp", days=9, machine=SMALL)
    assert {*made.stale().values()} == {()}
    made.add("mlp", days=2, build=NEWER)
    assert made.stale() == {
        ("resnet50", "Made CPU"): ("TensorFlow 2.21.0, now 2.22.0",),
        ("mlp", "Made CPU"): (),
        ("mlp", "Small CPU"): (),
    }
    made.add("mlp", days=1)  # back again
    assert made.stale()["resnet50", "Made CPU"] == ()


def test_a_build_of_another_thread_pool_stands_beside_the_others(made: MadeStorage) -> None:
    made.add("resnet50", days=9)
    made.add("mlp", days=2, build=replace(NEWER, onednn_runtime="openmp"))
    assert {*made.stale().values()} == {()}


def test_an_unfinished_study_tells_of_a_newer_build_and_is_not_shown(made: MadeStorage) -> None:
    made.add("resnet50", days=9)
    made.add("mlp", days=2, build=NEWER, finals=None)
    assert made.stale() == {("resnet50", "Made CPU"): ("TensorFlow 2.21.0, now 2.22.0",)}
    assert made.matrix().notes == ["left out: 1 without finals"]


def test_another_fingerprint_here_makes_a_study_stale(made: MadeStorage) -> None:
    study = made.add()
    facts = study.user_attrs["described"]
    study.set_user_attr("described", facts | {"workload": facts["workload"] | {"fingerprint": "older"}})
    assert made.stale() == {("resnet50", "Made CPU"): ("the model changed",)}


def test_a_file_is_looked_for_where_it_was_measured_and_one_that_is_not_here_is_noted(
    made: MadeStorage, tmp_path: Path
) -> None:
    """Nothing is called stale of what cannot be found."""
    (tmp_path / "mine.py").write_text(Path(load("mlp").path).read_text())
    facts = {"workload": to_builtins(workload_facts(load(str(tmp_path / "mine.py"))))}
    asked = {"words": ["./mine.py"], "folder": str(tmp_path)}
    made.add(name="here", described=facts, asked=asked)
    assert made.stale() == {("mine", "Made CPU"): ()}
    with (tmp_path / "mine.py").open("a") as file:
        file.write("\nMORE = 1\n")
    assert made.stale() == {("mine", "Made CPU"): ("the model changed",)}
    (tmp_path / "mine.py").unlink()
    assert made.stale() == {("mine", "Made CPU"): ()}
    [note] = made.matrix().notes
    assert note == "a change of these models would go unnoticed, as this machine does not have them: mine"


def test_a_host_that_has_become_another_machine_makes_its_studies_stale(made: MadeStorage) -> None:
    made.add("resnet50", days=9)
    made.add("mlp", days=9, host="gamma")
    bigger = replace(MADE_MACHINE, id="bigger", cpu_model="Bigger CPU")
    made.add("mlp", days=1, machine=bigger, host="made")
    assert made.stale() == {
        ("resnet50", "Made CPU"): ("the machine changed",),
        ("mlp", "Made CPU"): (),
        ("mlp", "Bigger CPU"): (),
    }


def test_a_study_that_names_no_host_says_so(made: MadeStorage) -> None:
    made.add("resnet50", days=9, host=None)
    made.add("resnet50", days=1, machine=SMALL)
    assert {*made.stale().values()} == {()}
    assert made.matrix().notes == ["1 study does not name a host, so a changed machine would go unnoticed"]


def test_other_questions_are_counted_and_not_shown(made: MadeStorage) -> None:
    made.add("mlp")
    made.add("resnet50", name="a", planned=True)
    made.add("resnet50", name="b", objective="latency")
    made.add("resnet50", name="c", pins={"inter_op": "1"})
    made.add("resnet50", name="d", origin="simulated")
    made.add("resnet50", name="e", limits="strange")
    matrix = made.matrix()
    assert [row.workload for row in matrix.rows] == ["mlp"]
    own = "2 with another --objective, a limit, --set or --numerics"
    assert matrix.notes == [f"left out: 1 not measured, 1 planned, {own}"]
    assert [*matrix.unreadable.values()] == [["e"]]


def test_options_that_make_another_question_are_rows_of_their_own(made: MadeStorage) -> None:
    made.add("bert-tiny", name="plain", asked={"words": ["bert-tiny"], "folder": "."})
    made.add("bert-tiny", name="long", asked={"words": ["bert-tiny"], "params": ["seq_len=64"], "folder": "."})
    made.add("bert-tiny", name="sizes", batch_sizes=[1, 8])
    rows = [(row.options, row.batch_sizes) for row in made.matrix().rows]
    assert rows == [("", ()), ("", (1, 8)), ("--param seq_len=64", ())]


def test_without_a_study_that_can_be_shown_there_is_no_matrix(made: MadeStorage, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"no study in .* can be shown; start with: tftune search"):
        made.matrix()
    made.add(planned=True)
    with pytest.raises(BadInputError, match="can be shown: 1 planned; start with"):
        made.matrix()
    with pytest.raises(BadInputError, match="no studies in"):
        read_matrix(f"sqlite:///{tmp_path}/none.db")


# ---- pages ----------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _without_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the charts of studies, which take a second each."""
    monkeypatch.setattr(chart, "all_of", lambda _: ())


def test_the_pages_of_a_team(team: MadeStorage, call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    code, out, _ = call("report", "--suite", "--storage", team.url, "--out", str(folder))
    assert (code, out.strip()) == (0, str(folder / "index.html"))
    text = (folder / "index.html").read_text()
    assert "4 models on 2 machine types: 7 measured, 1 stale, 1 not measured." in text
    assert text.count("not measured</td>") == 1
    assert text.count("<mark>stale</mark> TensorFlow 2.20.0, now 2.21.0") == 1
    assert text.count("= keep the default</a>") == 1
    assert "1 session on 1 node, 3 days old" in text
    assert "1 session on 1 node, 2 months old" in text
    links = [part.partition('"')[0] for part in text.split('href="')[1:]]
    assert len({*links}) == 7
    for link in links:
        assert (folder / link).read_text().startswith("<!DOCTYPE html>")
    assert len([*folder.iterdir()]) == 8


def test_the_matrix_as_markdown_has_no_links(team: MadeStorage, call: Call) -> None:
    code, text, _ = call("report", "--suite", "--storage", team.url, "--format", "md")
    assert code == 0
    assert text.startswith("# What to set on which machine\n")
    assert "href" not in text
    assert "](" not in text
    rendered = MarkdownIt("commonmark").enable("table").render(text)
    assert rendered.count("<tr>") == 5
    assert rendered.count("<strong>stale</strong>: TensorFlow 2.20.0, now 2.21.0") == 1
    assert "<strong>= keep the default</strong> the best other setting: " in rendered


HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e|`[x](http://example.org)"


def test_what_comes_from_elsewhere_is_text_and_no_more(made: MadeStorage, call: Call, tmp_path: Path) -> None:
    study = made.add(
        name=f"../{HOSTILE}",
        machine=replace(MADE_MACHINE, cpu_model=f"{HOSTILE}\ud800"),
        build=replace(STOCK, tensorflow=HOSTILE),
    )
    facts = study.user_attrs["described"]
    study.set_user_attr("described", facts | {"workload": facts["workload"] | {"name": HOSTILE}})
    study.set_user_attr("asked", {"words": ["\0"], "params": [HOSTILE], "folder": "\0"})
    made.add(
        "mlp",
        name="index",
        build=replace(NEWER, tensorflow=HOSTILE),
        machine=replace(MADE_MACHINE, cpu_model=f"{HOSTILE}\ud800"),
    )
    folder = tmp_path / "site"
    assert call("report", "--suite", "--storage", made.url, "--out", str(folder))[0] == 0
    files = sorted(path.name for path in folder.iterdir())
    assert len(files) == 3
    assert "index.html" in files
    for file in files:
        text = (folder / file).read_text()
        assert "<script" not in text
        assert not {"\x1b", "\u202e", "\0"} & {*text}
        assert "alert(1)" in text
    markdown = call("report", "--suite", "--storage", made.url, "--format", "md")[1]
    assert not {"\x1b", "\u202e", "\0"} & {*markdown}
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown)
    assert "<script" not in rendered
    assert "<a " not in rendered
    assert rendered.count("<tr>") == 3


def test_a_damaged_study_is_named_and_its_cell_says_so(team: MadeStorage, call: Call, tmp_path: Path) -> None:
    study = optuna.load_study(study_name="mlp-small-stock-0.2", storage=team.storage)
    study.set_user_attr("finals", {"contenders": 3})
    folder = tmp_path / "site"
    code, _, error = call("report", "--suite", "--storage", team.url, "--out", str(folder))
    assert code == 0
    assert "mlp-small-stock-0.2" in error
    assert (folder / "index.html").read_text().count("cannot be read</td>") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["last", "--suite"], "--suite with a study, last; leave one of them out"),
        (["--suite", "--format", "pdf"], "unknown format 'pdf'"),
        (["--suite", "--format", "md", "--open"], "--open needs --format html"),
        (["--suite", "--out", "file"], "--out file is a file; give the name of a folder"),
    ],
)
def test_what_a_matrix_cannot_be_is_one_line(
    team: MadeStorage, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    code, _, error = call("report", *words, "--storage", team.url)
    assert code == 2
    assert said in error


def test_pages_of_studies_never_share_a_name() -> None:
    names = ["resnet50-inference-1", "a/b", "a_b", "index", "INDEX", "..", "é", "x" * 300, "x" * 301]
    files = [pages.page_name(name) for name in names]
    assert files[0] == "resnet50-inference-1.html"
    assert len({file.lower() for file in [*files, "index.html"]}) == len(names) + 1
    assert all("/" not in file and len(file) < 130 for file in files)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "less than an hour old"), (3600, "1 hour old"), (7200, "2 hours old"), (86400, "24 hours old"),
     (3 * 86400, "3 days old"), (70 * 86400, "2 months old"), (800 * 86400, "2 years old")],
)  # fmt: skip
def test_an_age_is_in_plain_words(seconds: float, text: str) -> None:
    assert age_text(seconds) == text
