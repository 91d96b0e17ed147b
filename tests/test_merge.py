"""Merging storages: what is new is copied once, what went on is brought up to date, and nothing is lost."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
import sqlalchemy

from tests.conftest import Call
from tests.planted import studies_in
from tuner.errors import BadInputError
from tuner.job import merge as merging
from tuner.job import rulebook
from tuner.job.merge import merge
from tuner.job.selection import Selection
from tuner.study.record import Record
from tuner.study.storage import all_records, open_storage

pytestmark = pytest.mark.slow


@pytest.fixture
def small(tmp_path: Path) -> str:
    """A storage with 4 studies."""
    url = f"sqlite:///{tmp_path}/small.db"
    studies_in(url, workloads=2)
    return url


def opened(url: str, *, create: bool = False) -> optuna.storages.BaseStorage:
    storage = open_storage(url, create=create)
    assert storage is not None
    return storage


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str, Record]:
    """A storage with one study, another that is not there yet, and the study."""
    source, into = (f"sqlite:///{tmp_path}/{name}.db" for name in "ab")
    return source, into, all_records(studies_in(source, workloads=1, cores=(8,)))[0]


def test_merging_copies_what_is_new_and_nothing_twice(small: str, tmp_path: Path) -> None:
    url = small
    into = f"sqlite:///{tmp_path}/team.db"
    assert {each.what for each in merge(url, into)} == {"new"}
    assert {each.what for each in merge(url, into)} == {"known"}
    source, target = (rulebook.make(each, Selection()) for each in (url, into))
    assert source.groups["threads"] == target.groups["threads"]


def test_another_study_of_the_same_name_gets_a_name_of_its_own(small: str, tmp_path: Path) -> None:
    url = small
    other = f"sqlite:///{tmp_path}/other.db"
    storage = studies_in(other, workloads=1, cores=(8,))
    all_records(storage)[0].put("created", "2126-12-01T00:00:00+00:00")
    into = f"sqlite:///{tmp_path}/team.db"
    list(merge(url, into))
    assert [each.study for each in merge(other, into)] == ["made-0.2"]
    assert [each.what for each in merge(other, into)] == ["known"]


def test_a_study_that_went_on_is_copied_again(two: tuple[str, str, Record]) -> None:
    source, into, record = two
    list(merge(source, into))
    record.put("updated", "2126-12-24T00:00:00+00:00")
    assert [each.what for each in merge(source, into)] == ["newer"]
    target = opened(into)
    assert [record.get("updated") for record in all_records(target)] == ["2126-12-24T00:00:00+00:00"]


def test_finals_that_came_later_are_brought(two: tuple[str, str, Record]) -> None:
    source, into, record = two
    finals = record.get("finals")
    record.put("finals", None)
    list(merge(source, into))
    record.put("finals", finals)
    assert [each.what for each in merge(source, into)] == ["newer"]
    target = opened(into)
    assert [r.get("finals") for r in all_records(target)] == [finals]
    assert optuna.get_all_study_names(target) == ["made-0"]


def test_what_is_under_way_elsewhere_is_not_copied(two: tuple[str, str, Record]) -> None:
    source, into, record = two
    running = record.study.ask()
    list(merge(source, into))
    record.study.tell(running, 0.5)
    assert [each.what for each in merge(source, into)] == ["newer"]
    target = opened(into)
    assert optuna.get_all_study_names(target) == ["made-0"]
    assert len(all_records(target)[0].study.get_trials()) == len(record.study.get_trials())


def test_studies_that_both_went_on_are_both_kept(two: tuple[str, str, Record]) -> None:
    source, into, theirs = two
    list(merge(source, into))
    target = opened(into)
    for value, record in ((1.0, theirs), (2.0, all_records(target)[0])):
        trial = record.study.get_trials()[0]
        trial.value = value
        record.study.add_trial(trial)
    assert [(each.study, each.what) for each in merge(source, into)] == [("made-0.2", "new")]
    assert {each.what for each in merge(source, into)} == {"known"}


@pytest.mark.parametrize("key", ["checks", "loads"])
def test_what_each_copy_measured_by_itself_is_never_lost(two: tuple[str, str, Record], key: str) -> None:
    source, into, theirs = two
    list(merge(source, into))
    began = {"theirs": "2126-12-01T00:00:00+00:00", "ours": "2126-12-02T00:00:00+00:00"}
    if key == "checks":
        finals = theirs.get("finals")
        of_two = {"contenders": finals["contenders"][:2]}
        one, other = ({**finals, **of_two, "began": each} for each in began.values())
    else:
        one, other = ({"result": {}, "measured": each} for each in began.values())
    theirs.add(key, one)
    assert [each.what for each in merge(source, into)] == ["newer"]
    ours = all_records(opened(into))[0]
    assert ours.get(key) == [one]
    ours.put(key, [other])
    theirs.put("updated", "2126-12-24T00:00:00+00:00")  # and so it is the newer copy
    assert [each.what for each in merge(source, into)] == ["newer"]
    assert [record.get(key) for record in all_records(opened(into))] == [[one, other]]
    assert {each.what for each in merge(source, into)} == {"known"}
    theirs.add(key, third := {**one, "began" if key == "checks" else "measured": "2126-12-03T00:00:00+00:00"})
    assert [each.what for each in merge(source, into)] == ["newer"]  # though ours has all else
    assert [record.get(key) for record in all_records(opened(into))] == [[one, other, third]]


def test_a_check_from_another_machine_leaves_a_study_its_own(two: tuple[str, str, Record]) -> None:
    """A search goes on with a study that is not marked as imported."""
    source, into, _ = two
    list(merge(source, into))
    [theirs] = all_records(opened(into))
    finals, began = theirs.get("finals"), "2126-12-24T00:00:00+00:00"
    theirs.add("checks", {**finals, "contenders": finals["contenders"][:2], "began": began})
    theirs.put("updated", began)
    assert [each.what for each in merge(into, source)] == ["newer"]
    [after] = all_records(opened(source))
    assert after.get("updated") == after.get("checks")[0]["began"] == began
    assert "imported" not in after.study.user_attrs


@pytest.mark.parametrize("value", [7, ["x"], {"a": 1}])
def test_checks_and_loads_of_another_form_are_damaged(two: tuple[str, str, Record], value: object) -> None:
    source, into, theirs = two
    theirs.put("loads", value)
    assert [each.what for each in merge(source, into)] == ["skipped: its loads is damaged"]


def test_a_damaged_study_is_skipped_and_the_others_are_not(small: str, call: Call, tmp_path: Path) -> None:
    storage = opened(small)
    first, second = all_records(storage)[:2]
    first.put("finals", {"contenders": []})
    trial = second.study.get_trials()[0]
    trial.user_attrs["setting"] = None
    second.study.add_trial(trial)
    lost = f"trial {len(second.study.get_trials()) - 1}"
    into = f"sqlite:///{tmp_path}/team.db"
    code, out, _ = call("import", small, "--storage", into)
    assert code == 0
    assert "made-0: skipped: its 'finals' is damaged" in out
    assert f"made-1: skipped: its {lost} is damaged" in out
    assert out.splitlines()[-1] == "2 new, 0 updated, 0 already here, 2 skipped"
    for words in (("export",), ("export", "--what", "studies"), ("list", "--json")):
        code, out, error = call(*words, "--storage", small)
        assert code == 0
        assert "made-2" in out and "made-0" not in out
        assert "skipped (damaged: its 'finals' cannot be read): made-0" in error
        assert f"skipped (damaged: its {lost} cannot be read): made-1" in error


def test_an_import_that_is_cut_short_leaves_no_half_study(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = f"sqlite:///{tmp_path}/team.db"
    parts = [*merging.parts()]
    monkeypatch.setattr(merging, "parts", lambda: iter([*parts, (sqlalchemy.table("none"), "trial_id")]))
    with pytest.raises(KeyError):  # after all rows of the first study but its mark
        list(merge(small, into))
    assert optuna.get_all_study_names(opened(into)) == []
    monkeypatch.undo()
    assert {each.what for each in merge(small, into)} == {"new"}


def test_a_newer_copy_that_is_cut_short_leaves_the_older_one(
    two: tuple[str, str, Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, into, record = two
    list(merge(source, into))
    before = all_records(opened(into))[0].study.user_attrs
    record.put("updated", "2126-12-24T00:00:00+00:00")

    def cut_short(*_: object) -> None:
        raise KeyError("cut short")

    with monkeypatch.context() as patch, pytest.raises(KeyError):  # the older one's rows are deleted by then
        patch.setattr(merging, "copy_rows", cut_short)
        list(merge(source, into))
    assert all_records(opened(into))[0].study.user_attrs == before
    assert [each.what for each in merge(source, into)] == ["newer"]


def test_a_copy_has_all_that_optuna_knows_of_a_study(small: str, tmp_path: Path) -> None:
    into = f"sqlite:///{tmp_path}/team.db"
    list(merge(small, into))
    for ours, copy in zip(all_records(opened(small)), all_records(opened(into)), strict=True):
        assert ours.study.directions == copy.study.directions
        assert ours.study.metric_names == copy.study.metric_names
        assert {**ours.study.user_attrs, "imported": socket.gethostname()} == copy.study.user_attrs
        for a, b in zip(ours.study.get_trials(), copy.study.get_trials(), strict=True):
            for name in ("number", "state", "value", "params", "distributions", "user_attrs", "system_attrs"):
                assert getattr(a, name) == getattr(b, name), name
            assert (a.datetime_start, a.datetime_complete) == (b.datetime_start, b.datetime_complete)


def test_a_study_of_a_later_generation_is_copied_once(small: str, tmp_path: Path) -> None:
    other, into = f"sqlite:///{tmp_path}/other.db", f"sqlite:///{tmp_path}/team.db"
    storage = studies_in(other, workloads=1, cores=(8,))
    record = all_records(storage)[0]
    record.put("created", "2126-12-01T00:00:00+00:00")
    optuna.copy_study(from_study_name="made-0", from_storage=storage, to_storage=storage, to_study_name="made-0.2")
    optuna.delete_study(study_name="made-0", storage=storage)
    target = opened(into, create=True)
    list(merge(small, into))
    optuna.create_study(study_name="made-0.2", storage=target)
    assert [(each.study, each.what) for each in merge(other, into)] == [("made-0.3", "new")]
    assert [(each.study, each.what) for each in merge(other, into)] == [("made-0.3", "known")]


def test_a_trial_that_was_left_open_elsewhere_does_not_make_two_studies_of_one(two: tuple[str, str, Record]) -> None:
    """A copy counts its trials anew, without those that run."""
    source, into, record = two
    record.study.ask()
    record.study.add_trial(record.study.get_trials()[0])
    list(merge(source, into))
    assert [each.what for each in merge(source, into)] == ["known"]


def test_a_storage_is_not_merged_with_itself(small: str) -> None:
    with pytest.raises(BadInputError, match="is the storage that you import into"):
        list(merge(small.removeprefix("sqlite:///"), small))


def test_imports_at_once_wait_for_each_other(small: str, tmp_path: Path) -> None:
    """Each is a process of its own; together they copy every study once, and whole."""
    into = f"sqlite:///{tmp_path}/team.db"
    command = [sys.executable, "-m", "tuner", "import", small, "--storage", into, "--json"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    ended = [(each.communicate(), each.returncode) for each in running]
    assert [code for _, code in ended] == [0, 0, 0], ended
    outcomes = [study["what"] for (out, _), _ in ended for study in json.loads(out)]
    assert sorted(outcomes) == ["known"] * 8 + ["new"] * 4
    source, target = (open_storage(url, create=False) for url in (small, into))
    assert source is not None
    assert target is not None
    for a, b in zip(all_records(source), all_records(target), strict=True):
        assert [trial.number for trial in a.study.get_trials()] == [trial.number for trial in b.study.get_trials()]


def test_another_hosts_half_copy_is_left_alone(small: str, tmp_path: Path) -> None:
    into = f"sqlite:///{tmp_path}/team.db"
    target = opened(into, create=True)
    optuna.create_study(study_name="made-0", storage=target).set_user_attr("imported", "elsewhere")
    assert [each.study for each in merge(small, into)] == ["made-0.2", "made-1", "made-2", "made-3"]
    assert "made-0" in optuna.get_all_study_names(target)


@pytest.mark.parametrize("lost", ["", "machine.id", "machine.cpu_model", "runtime.id", "workload.fingerprint"])
def test_what_cannot_be_read_is_named(lost: str, small: str, call: Call, tmp_path: Path) -> None:
    storage = open_storage(small, create=False)
    assert storage is not None
    records = all_records(storage)
    records[0].put("schema", 99)
    described = records[1].get("described") if lost else []
    if lost:
        part, key = lost.split(".")
        del described[part][key]
    records[1].put("described", described)
    into = f"sqlite:///{tmp_path}/team.db"
    code, out, _ = call("import", small, "--storage", into)
    assert code == 0
    assert "made-0: skipped: its format is 99, this version of tftune reads format 3" in out
    assert out.splitlines()[-1] == "2 new, 0 updated, 0 already here, 2 skipped"
    excluded = rulebook.make(small, Selection()).provenance.excluded
    assert excluded == {
        "its format is 99, this version of tftune reads format 3": ("made-0",),
        "damaged: its machine, build, workload or date cannot be read": ("made-1",),
    }
    for words in (("export",), ("list",)):
        assert (
            "skipped (its format is 99, this version of tftune reads format 3): made-0"
            in call(*words, "--storage", small)[2]
        )
    for record in records[2:]:
        record.put("schema", 99)
    code, _, error = call("import", small, "--storage", into)
    assert code == 2
    assert "its format is 99, this version of tftune reads format 3 (3)" in error


def test_import_says_what_it_did(small: str, call: Call, tmp_path: Path) -> None:
    url = small
    into = f"sqlite:///{tmp_path}/team.db"
    code, out, _ = call("import", url, "--storage", into)
    assert code == 0
    assert out.splitlines()[-1] == "4 new, 0 updated, 0 already here"
    assert json.loads(call("import", url, "--storage", into, "--json")[1])[0]["what"] == "known"
