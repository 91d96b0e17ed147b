"""Typed results: their JSON, their published schema, and what is read back from a storage."""

from __future__ import annotations

import importlib
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from msgspec import to_builtins

from tests.conftest import Call
from tests.frameworks import subject
from tests.schemas import validator
from tests.scripted import noisy, run
from tuner.errors import BadInputError
from tuner.measure.budget import Budget
from tuner.result.document import describe_study
from tuner.result.schema import PUBLISHED, schema_of
from tuner.result.study import StudyResult
from tuner.space.space import Space
from tuner.study.attributes import Attributes, EndReason
from tuner.study.record import Record
from tuner.study.storage import all_records, open_storage
from tuner.study.subject import Subject

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory, space: Space) -> Path:
    """Return the database of a search."""
    folder = tmp_path_factory.mktemp("searched")
    run(space, noisy(), folder=folder, budget=Budget(trials=8))
    return folder / "t.db"


def plain(result: object) -> Any:
    """Return what a program reads of a result."""
    return json.loads(msgspec.json.encode(result))


def shown(call: Call, url: str) -> dict[str, object]:
    document: dict[str, object] = json.loads(call("show", "--storage", url, "--json")[1])
    return document


def test_what_is_shown_is_what_its_schema_says_and_reads_back_as_the_same(
    searched: Path, tmp_path: Path, call: Call, space: Space
) -> None:
    url = f"sqlite:///{shutil.copy(searched, tmp_path)}"
    document = shown(call, url)
    validator("show").validate(document)
    assert document["schema"] == 1
    again = msgspec.convert(document, StudyResult)
    assert plain(again) == document
    assert (again.default, len(again.history), again.space) == ("tf-default", 8, space.name)
    assert set(json.loads(call("list", "--storage", url, "--json")[1])[0]) == {
        "study", "machine", "cores", "build", "workload", "mode", "trials", "verdict", "setting", "groups",
        "groups_setting", "same_latency", "same_latency_setting", "planned", "created", "updated",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value"),
    [("machine.logical_cpus", "two"), ("finals.rounds", None), ("recommended.env", []), ("history.0.status", "lost")],
)
def test_the_schema_refuses_another_document(path: str, value: object, searched: Path, call: Call) -> None:
    document = shown(call, f"sqlite:///{searched}")
    *parts, last = path.split(".")
    place: object = document
    for part in parts:
        place = place[int(part)] if isinstance(place, list) else place[part]  # type: ignore[index]
    place[last] = value  # type: ignore[index]
    with pytest.raises(jsonschema.ValidationError):
        validator("show").validate(document)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(document, StudyResult)


def test_a_study_is_read_as_optuna_reads_it(searched: Path) -> None:
    storage = open_storage(f"sqlite:///{searched}", create=False)
    assert storage is not None
    [record] = all_records(storage)
    ours, optunas = record.snapshot().study, Record(record.study).snapshot().study
    assert ours.user_attrs == optunas.user_attrs
    names = ("number", "state", "values", "params", "distributions", "user_attrs", "datetime_start")
    of_ours, of_optunas = ([[getattr(t, n) for n in names] for t in each.get_trials()] for each in (ours, optunas))
    assert len(of_ours) >= 8
    assert of_ours == of_optunas


@pytest.mark.parametrize("command", PUBLISHED)
def test_every_document_has_a_schema(command: str, call: Call) -> None:
    code, out, _ = call("schema", *command.split())
    assert code == 0
    assert json.loads(out) == plain(schema_of(command))
    assert validator(command)


def test_the_list_of_workloads_is_a_document(call: Call) -> None:
    code, out, _ = call("workloads", "--json")  # held against its schema
    assert code == 0
    assert "resnet50" in {each["name"] for each in json.loads(out)}


def test_what_prints_no_document_has_no_schema(call: Call) -> None:
    code, _, error = call("schema", "run")
    assert code == 2
    assert "no command 'run' with --json" in error


def test_every_field_of_a_study_is_in_the_schema() -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(StudyResult)}
    assert fields == set(schema_of("show")["$defs"]["StudyResult"]["properties"])


# ---- what a storage holds -------------------------------------------------------------------------------------------


def known(space: Space, **stored: object) -> Attributes:
    return Attributes("made", {"described": to_builtins(subject(space)), **stored})


def test_what_a_study_is_of_reads_back_as_it_was(space: Space) -> None:
    assert known(space).subject == subject(space)
    assert isinstance(known(space).subject, Subject)


def test_earlier_studies_lack_what_was_not_said_then(space: Space) -> None:
    described = to_builtins(subject(space))
    for key in ("default", "environment", "space_digest", "schema"):
        del described[key]
    del described["knobs"]["intra_op"]["set_by"]
    read = Attributes("made", {"described": described}).subject
    assert read.default == "tf-default"
    assert read.schema == 1
    assert "environment" not in to_builtins(read)
    assert "set_by" not in to_builtins(read)["knobs"]["intra_op"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("described", {}),
        ("described", {"machine": {}, "runtime": {"id": "x"}}),
        ("noise", {"quad_sd": "much"}),
        ("limits", {"p99_s": "short"}),
        ("finals", {"rounds": 3}),
        ("checks", [{}]),
        ("runs", [{"wall_s": 1.0}]),
        ("objective", "speed"),
        ("conditions", [{}]),
    ],
)
def test_what_cannot_be_understood_is_one_clear_error(key: str, value: object, space: Space) -> None:
    stored = known(space, **{key: value})
    names = {"described": "subject"}
    with pytest.raises(BadInputError, match=f"study made cannot be read: its '{key}' is damaged"):
        getattr(stored, names.get(key, key))


def test_a_study_with_a_damaged_part_is_told_in_one_line(searched: Path, tmp_path: Path, call: Call) -> None:
    import optuna

    url = f"sqlite:///{shutil.copy(searched, tmp_path)}"
    optuna.load_study(study_name="made", storage=url).set_user_attr("noise", {"quad_sd": "much"})
    code, out, error = call("show", "--storage", url)
    assert (code, out) == (2, "")
    assert "study made cannot be read: its 'noise' is damaged" in error


def test_a_damaged_trial_is_named(searched: Path, tmp_path: Path, call: Call) -> None:
    url = f"sqlite:///{shutil.copy(searched, tmp_path)}"
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        connection.execute(
            "UPDATE trial_user_attributes SET value_json = '\"lost\"' WHERE key = 'status' AND trial_id = 3"
        )
        connection.commit()
    code, _, error = call("show", "--storage", url)
    assert code == 2
    assert "study made cannot be read: its trial 2 is damaged" in error


def test_why_a_search_ended_is_a_code_and_of_earlier_runs_its_words(space: Space) -> None:
    run_ = {"wall_s": 1.0, "measured_s": 0.5, "search_timed_share": None}
    words = "the time budget is used up"
    later = known(space, runs=[run_ | {"ended": "no gain", "ended_because": "x"}]).runs
    earlier = known(space, sessions=[run_ | {"ended_because": words}, run_ | {"ended_because": ""}]).runs
    assert [each.end for each in (*later, *earlier)] == [EndReason.NO_GAIN, EndReason.TIME, None]


def test_a_study_without_finals_says_null(space: Space) -> None:
    record, _ = run(space, noisy(), budget=Budget(trials=5))
    record.put("finals", None)
    study = describe_study(record)
    assert (study.verdicts, study.recommended, study.finals, study.shrinkage) == (None, None, None, None)
    validator("search").validate(plain(study))


@pytest.mark.parametrize("results", ["frameworks", "overhead"])
def test_a_page_has_the_figures_of_its_documents(results: str) -> None:
    """What `page.py` would write is there, and there is a chart for each model."""
    page = importlib.import_module(f"results.{results}.page")
    text = page.PAGE.read_text()
    tables = page.all_tables()
    assert tables.keys() - {"shapes"} == {*page.MODELS}
    assert ("shapes" in tables) is (results == "frameworks")
    assert page.filled(text, tables) == text
    for model, document in page.documents().items():
        validator(results).validate(document)
        sizes = {row["batch_size"] for row in document["rows"]}
        assert (ROOT / "results" / results / model / "chart.svg").exists() is (len(sizes) > 1)
