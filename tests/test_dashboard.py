"""Optuna's dashboard reads a study as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import optuna
import optuna_dashboard
import pytest

from tests.scripted import noisy, run
from tuner.job.merge import merge
from tuner.measure.budget import Budget
from tuner.space.space import Space
from tuner.study.record import VALUE_NAME


def asked(url: str, path: str) -> Any:
    """Return what the dashboard answers, as its page asks it."""
    application = optuna_dashboard.wsgi(optuna.storages.RDBStorage(url))
    environment: dict[str, Any] = {"PATH_INFO": path, "QUERY_STRING": "after=0"}
    setup_testing_defaults(environment)
    statuses: list[str] = []
    body = b"".join(application(environment, lambda status, *_: statuses.append(status)))
    assert statuses == ["200 OK"]
    return json.loads(body)


@pytest.mark.parametrize("is_imported", [False, True])
def test_the_dashboard_shows_a_study_with_the_name_of_its_value(
    is_imported: bool, tmp_path: Path, space: Space
) -> None:
    record, _ = run(space, noisy(), folder=tmp_path, budget=Budget(trials=8))
    url = f"sqlite:///{tmp_path}/t.db"
    if is_imported:
        into = f"sqlite:///{tmp_path}/team.db"
        assert [each.what for each in merge(url, into, waiting=print)] == ["new"]
        url = into
    [summary] = asked(url, "/api/studies")["study_summaries"]
    assert summary["study_name"] == record.name
    detail = asked(url, f"/api/studies/{summary['study_id']}")
    assert detail["objective_names"] == [VALUE_NAME]
    assert len(detail["trials"]) == len(record.trials())
    by_number = {trial["number"]: trial for trial in detail["trials"]}
    for trial in record.trials():
        shown = {param["name"]: param["param_external_value"] for param in by_number[trial.number]["params"]}
        assert shown == {name: str(value) for name, value in trial.setting.to_dict().items() if name in shown}
        assert "inter_op" in shown
