"""A study of a database in a few statements. Optuna makes an object of each row, which takes four times as long."""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from typing import Any

import sqlalchemy
from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.storages._rdb import models  # the tables; a database of other ones is refused (`check_schema`)
from optuna.trial import FrozenTrial

_TABLES = models.BaseModel.metadata.tables
STUDIES, _STUDY_ATTRIBUTES = _TABLES["studies"], _TABLES["study_user_attributes"]
TRIALS, _TRIAL_ATTRIBUTES = _TABLES["trials"], _TABLES["trial_user_attributes"]
_PARAMS, _VALUES = _TABLES["trial_params"], _TABLES["trial_values"]

_distribution = functools.lru_cache(maxsize=1024)(json_to_distribution)


def read_study(engine: sqlalchemy.Engine, name: str) -> tuple[dict[str, Any], list[FrozenTrial]]:
    """Return the user attributes of a study and its trials, without system attributes and intermediate values."""
    with engine.connect() as rows:
        study = rows.scalar(sqlalchemy.select(STUDIES.c.study_id).where(STUDIES.c.study_name == name))
        attributes = _json_values(rows, _STUDY_ATTRIBUTES, _STUDY_ATTRIBUTES.c.study_id == study, "study_id")
        is_of_study = TRIALS.c.study_id == study
        trials = rows.execute(TRIALS.select().where(is_of_study).order_by(TRIALS.c.number)).mappings().all()
        ids = sqlalchemy.select(TRIALS.c.trial_id).where(is_of_study)
        of_trials = _json_values(rows, _TRIAL_ATTRIBUTES, _TRIAL_ATTRIBUTES.c.trial_id.in_(ids), "trial_id")
        params: dict[int, dict[str, Any]] = defaultdict(dict)
        distributions: dict[int, dict[str, BaseDistribution]] = defaultdict(dict)
        for row in rows.execute(_PARAMS.select().where(_PARAMS.c.trial_id.in_(ids)).order_by(_PARAMS.c.param_id)):
            distribution = _distribution(row.distribution_json)
            distributions[row.trial_id][row.param_name] = distribution
            params[row.trial_id][row.param_name] = distribution.to_external_repr(row.param_value)
        values = {
            row.trial_id: models.TrialValueModel.stored_repr_to_value(row.value, row.value_type)
            for row in rows.execute(_VALUES.select().where(_VALUES.c.trial_id.in_(ids)))
        }
    return attributes.get(study, {}), [
        FrozenTrial(
            number=row["number"],
            state=row["state"],
            value=values.get(row["trial_id"]),
            datetime_start=row["datetime_start"],
            datetime_complete=row["datetime_complete"],
            params=params[row["trial_id"]],
            distributions=distributions[row["trial_id"]],
            user_attrs=of_trials.get(row["trial_id"], {}),
            system_attrs={},
            intermediate_values={},
            trial_id=row["trial_id"],
        )
        for row in trials
    ]


def _json_values(
    rows: sqlalchemy.Connection, table: sqlalchemy.Table, condition: sqlalchemy.ColumnElement[bool], key: str
) -> dict[Any, dict[str, Any]]:
    """Return the attributes of a table that meet a condition, by what they are of."""
    found: dict[Any, dict[str, Any]] = defaultdict(dict)
    for row in rows.execute(table.select().where(condition)).mappings():
        found[row[key]][row["key"]] = json.loads(row["value_json"])
    return found
