"""The record: an Optuna study whose attributes hold everything that is known of a search.

Optuna's own fields hold what its dashboard shows (parameters, value, state); the raw slices and the reason of
each end are trial attributes, so that any statistic can be derived again. What a search needs to continue, and
a report to be drawn, is read from here and nowhere else.
"""

from __future__ import annotations

import copy
import math
import os
import socket
import warnings
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import optuna
import sqlalchemy
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from tuner.errors import DamagedStudyError
from tuner.plain import to_plain
from tuner.space.catalogue import Catalogue
from tuner.space.groups import INSTANCES
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.values import Value
from tuner.study.attributes import Attributes
from tuner.study.rows import read_study
from tuner.study.trials import GROUP, Trial, attributes_of, trial_from
from tuner.trial.outcome import Status

SCHEMA = 3
VALUE_NAME = "log speed-up over the default"
"""What the value of a trial is, for those who look at a study with Optuna's own tools."""
_ESTIMATES = "estimates"
_STALE = timedelta(minutes=30)
_OWNER = f"{socket.gethostname()}:{os.getpid()}"


def name_value(study: optuna.Study) -> None:
    """Tell Optuna's tools what the value of a trial is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # the names, since 2023
        study.set_metric_names([VALUE_NAME])


class _Snapshot(optuna.Study):
    """A study as its storage had it once. It cannot be written."""

    def __init__(self, name: str, user_attrs: dict[str, Any], trials: list[FrozenTrial]) -> None:
        self.study_name = name
        self._user_attrs = user_attrs
        self._trials = trials

    @property
    def user_attrs(self) -> dict[str, Any]:
        return self._user_attrs

    def get_trials(self, deepcopy: bool = True, states: Container[TrialState] | None = None) -> list[FrozenTrial]:
        trials = [trial for trial in self._trials if states is None or trial.state in states]
        return copy.deepcopy(trials) if deepcopy else trials


class Record:
    """One study in a storage; `engine` runs statements on the storage, if it is a database."""

    def __init__(self, study: optuna.Study, engine: sqlalchemy.Engine | None = None) -> None:
        self.study, self._engine = study, engine

    def __getstate__(self) -> dict[str, object]:
        """Return what another process gets: an engine's connections are of this one."""
        return {"study": self.study, "_engine": None}

    @property
    def name(self) -> str:
        """Return the study's name."""
        return self.study.study_name

    def snapshot(self) -> Record:
        """Return the study as it is now: it is read once, and not again each time that something is asked for."""
        if isinstance(self.study, _Snapshot):
            return self
        if self._engine is not None:
            return Record(_Snapshot(self.name, *read_study(self._engine, self.name)))
        return Record(_Snapshot(self.name, self.study.user_attrs, self.study.get_trials(deepcopy=False)))

    @property
    def catalogue(self) -> Catalogue:
        """Return the knobs and baselines that the study is over."""
        return self.attributes().subject.catalogue

    def attributes(self) -> Attributes:
        """Return what is stored of the study, in one reading."""
        return Attributes(self.name, self.study.user_attrs)

    def get(self, key: str) -> Any:
        """Return a study attribute as it is stored, None where there is none."""
        return self.study.user_attrs.get(key)

    def put(self, key: str, value: object) -> None:
        """Store a study attribute."""
        self.study.set_user_attr(key, to_plain(value))

    def add(self, key: str, *values: object) -> None:
        """Store a study attribute that is a list with more at its end."""
        self.study.set_user_attr(key, [*(self.get(key) or ()), *to_plain(values)])

    def trials(self) -> list[Trial]:
        """Return the finished trials of the space, in the order of their numbers; interrupted ones never happened."""
        return trials_of(self.study)

    def groups(self) -> list[Trial]:
        """Return the finished trials of several processes, where the space is of one."""
        return _read(self.study, of_groups=True)

    def put_estimates(self, trials: Sequence[Trial]) -> None:
        """Store what all passes say of the trials, whose own attributes are from when each of them ended."""
        numbers = [trial.number for trial in trials if trial.covariance is not None]
        if not numbers:
            return
        by_number = {trial.number: trial for trial in trials}
        rows = [by_number[number] for number in numbers]
        self.put(
            _ESTIMATES,
            {
                "trials": numbers,
                "log_ratios": [round(row.log_ratio or 0.0, 9) for row in rows],
                "df": round(rows[0].df, 3),
                "covariance": [
                    [round(1e6 * (row.covariance or {}).get(number, 0.0), 6) for number in numbers[: i + 1]]
                    for i, row in enumerate(rows)
                ],
            },
        )

    def choices(self) -> dict[str, tuple[Value, ...]]:
        """Return the values of each knob, as `Space.choices` had them; none before the first trial was asked for."""
        frozen = next((each for each in self.study.get_trials(deepcopy=False) if not _is_group(each)), None)
        frozen_distributions = {} if frozen is None else frozen.distributions
        return {
            name: tuple(value for value in each.choices if isinstance(value, int | str))
            for name, each in frozen_distributions.items()
            if isinstance(each, CategoricalDistribution)
        }

    def observations(self, process_sd: float, *, of_groups: bool = False) -> list[tuple[Setting, float, float, int]]:
        """Return (setting, log-ratio, its standard error, number of the reference) of each trial that gave a number.

        They are of the space, or of groups. What many studies are learned from: without the raw slices that `trials`
        reads. The standard errors leave out the luck of the two processes; `process_sd` is σ_p (log scale).
        """
        rows = []
        for frozen in self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED)):
            attributes = frozen.user_attrs
            log_ratio, se = attributes.get("log_ratio"), attributes.get("se")
            is_ok = attributes.get("status") == Status.OK and _is_group(frozen) == of_groups
            if is_ok and log_ratio is not None and se is not None:
                if "passes" in attributes:
                    se = math.sqrt(max(se**2 - 2 * process_sd**2, 0.0))
                rows.append((Setting.of(attributes["setting"]), log_ratio, se, attributes.get("reference", 0)))
        return rows

    def begin(
        self, distributions: Mapping[str, BaseDistribution], setting: Setting | None = None
    ) -> tuple[optuna.Trial, Setting]:
        """Ask Optuna for the next trial; its sampler says of which setting if none is given."""
        if setting is not None:
            self.study.enqueue_trial(setting.to_dict())
        trial = self.study.ask(fixed_distributions=dict(distributions))
        trial.set_user_attr("owner", _OWNER)
        return trial, Setting.of({name: trial.params[name] for name in distributions})

    def begin_group(
        self, distributions: Mapping[str, BaseDistribution], setting: Setting, counts: Sequence[int]
    ) -> optuna.Trial:
        """Begin the trial of a setting of several processes; `counts` are all that may come."""
        self.study.enqueue_trial(setting.to_dict(), user_attrs={GROUP: True})
        trial = self.study.ask(fixed_distributions={INSTANCES: CategoricalDistribution(counts), **distributions})
        trial.set_user_attr("owner", _OWNER)
        return trial

    def finish(self, running: optuna.Trial, trial: Trial) -> None:
        """Store a finished trial, then tell Optuna: what is finished is complete, whenever we are killed."""
        for key, value in attributes_of(trial).items():
            running.set_user_attr(key, value)
        if trial.status is not Status.OK or trial.log_ratio is None:
            self.study.tell(running, state=TrialState.FAIL)
        elif trial.pruned:
            running.report(trial.log_ratio, step=0)
            self.study.tell(running, state=TrialState.PRUNED)
        else:
            self.study.tell(running, trial.log_ratio)

    def abandon(self, number: int) -> None:
        """Close a trial that did not come to its end: it says nothing about its setting."""
        self.study.tell(number, state=TrialState.FAIL)

    def abandon_stale(self) -> None:
        """Close what a killed run of this host left open; whoever calls this holds the right to measure here."""
        host = _OWNER.rpartition(":")[0]
        for _ in self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            self.abandon(self.study.ask().number)  # a group that waited for the moment between two statements
        for frozen in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            owner = str(frozen.user_attrs.get("owner", _OWNER)).rpartition(":")[0]
            began = frozen.datetime_start
            # A container that is started again has another name; nothing runs for this long.
            old = began is None or datetime.now() - began > _STALE
            if owner == host or old:
                self.abandon(frozen.number)


def trials_of(study: optuna.Study) -> list[Trial]:
    """Return the finished trials of an Optuna study, as `Record.trials` does."""
    return _read(study, of_groups=False)


def _read(study: optuna.Study, *, of_groups: bool) -> list[Trial]:
    """Return finished trials of an Optuna study, with what all its passes say of them."""
    trials = [trial_from(study.study_name, frozen) for frozen in _finished(study) if _is_group(frozen) == of_groups]
    stored = study.user_attrs.get(_ESTIMATES)
    if stored is None:
        return trials
    try:
        return _with_stored(trials, stored)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DamagedStudyError(study.study_name, f"'{_ESTIMATES}'", error) from error


def _with_stored(trials: Sequence[Trial], stored: Mapping[str, Any]) -> list[Trial]:
    numbers, rows = stored["trials"], stored["covariance"]
    at = {number: i for i, number in enumerate(numbers)}

    def with_estimate(trial: Trial) -> Trial:
        i = at.get(trial.number)
        if i is None:
            return trial
        covariance = {number: 1e-6 * float(rows[max(i, j)][min(i, j)]) for j, number in enumerate(numbers)}
        se = math.sqrt(max(0.0, covariance[trial.number]))
        return replace(
            trial, log_ratio=float(stored["log_ratios"][i]), se=se, df=float(stored["df"]), covariance=covariance
        )

    return [with_estimate(trial) for trial in trials]


def _finished(study: optuna.Study) -> list[FrozenTrial]:
    states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
    # The status is written last: without it a trial was never finished.
    return [t for t in study.get_trials(deepcopy=False, states=states) if "status" in t.user_attrs]


def _is_group(frozen: FrozenTrial) -> bool:
    return GROUP in frozen.user_attrs


def pending_of(study: optuna.Study) -> list[Setting]:
    """Return the settings of the space whose trials are under way, as far as they are known."""
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    # The owner is written once all parameters are.
    return [Setting.of(t.params) for t in running if "owner" in t.user_attrs and not _is_group(t)]


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return the Optuna distribution of each knob: its values on the lattice and in the baselines."""
    return {name: CategoricalDistribution(values) for name, values in space.choices().items()}


def now() -> str:
    """Return the time of day for the record."""
    return datetime.now(UTC).isoformat(timespec="seconds")
