"""The record: an Optuna study whose attributes hold everything that is known of a search.

Optuna's own fields hold what its dashboard shows (parameters, value, state); the raw slices and the reason of
each end are trial attributes, so that any statistic can be derived again. What a search needs to continue, and
a report to be drawn, is read from here and nowhere else.
"""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from tuner.errors import DamagedStudyError
from tuner.measure.objective import rounding
from tuner.measure.pair import Pair
from tuner.space.catalogue import Catalogue
from tuner.space.groups import INSTANCES
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.values import Value
from tuner.stats.estimate import Estimate
from tuner.study.attributes import Attributes
from tuner.trial.meter import energy_of
from tuner.trial.outcome import Status, TrialFailure

SCHEMA = 3
VALUE_NAME = "log speed-up over the default"
"""What the value of a trial is, for those who look at a study with Optuna's own tools."""
_GROUP = "group"
_STALE = timedelta(minutes=30)
_OWNER = f"{socket.gethostname()}:{os.getpid()}"


def name_value(study: optuna.Study) -> None:
    """Tell Optuna's tools what the value of a trial is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # the names, since 2023
        study.set_metric_names([VALUE_NAME])


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A finished trial. `log_ratio` and `se` are there if the status is ok; `pruned` if it was stopped early.

    A trial that is not `eligible` is a baseline that a pin rules out: compared with, and not chosen. `reference` is
    the number of the reference process that it was paired with, `process` that of its own, 0 if it is not known: other
    batch sizes of its threads may have run in it too; `alone` if it and the reference lived one at a time; not `steady`
    if it went on changing after its warm-up; `over_limit` if it breaks a limit.
    """

    number: int
    setting: Setting
    status: Status
    eligible: bool = True
    baselines: tuple[str, ...] = ()
    log_ratio: float | None = None
    se: float | None = None
    df: float = 0.0
    reference: int = 0
    process: int = 0
    alone: bool = False
    steady: bool = True
    over_limit: bool = False
    pruned: bool = False
    message: str = ""
    log: str = ""
    pair: Pair | None = None
    facts: dict[str, Any] | None = None
    deviation: float | None = None
    """How far its outputs lie from the reference's, relative; None where they could not be compared."""
    peak_memory_bytes: int | None = None
    wall_s: float = 0.0
    is_group: bool = False
    """Whether it is of several processes, in a study whose space is of one."""

    def failed(self, failure: TrialFailure) -> Trial:
        """Return the trial as one that ended with this failure."""
        return replace(self, status=failure.status, message=failure.message, log=failure.log)

    @property
    def timed_s(self) -> float:
        """Return the time spent inside slices."""
        return self.pair.timed_s if self.pair else 0.0

    @property
    def estimate(self) -> Estimate | None:
        """Return its log-ratio to the reference; None where there is no number."""
        if self.status is not Status.OK or self.log_ratio is None or self.se is None:
            return None
        return Estimate(
            mean=self.log_ratio,
            se=self.se,
            n=self.pair.n_blocks if self.pair else 0,
            df=self.df,
            rounding=rounding(self.pair.reference) + rounding(self.pair.candidate) if self.pair else 0.0,
        )

    @property
    def start_s(self) -> float:
        """Return how long its process took until it was warm; 0 where that is not known."""
        if self.facts is None:
            return 0.0
        phases_s = (self.facts[phase] for phase in ("context_s", "load_s", "first_step_s"))
        return float(sum(phases_s) + min(1.0, 2 * self.facts["warm_up"]["elapsed_s"]))

    @property
    def first_step_s(self) -> float | None:
        """Return how long the first step took; None where that is not known."""
        return self.facts["first_step_s"] if self.facts else None

    @property
    def settled(self) -> bool | None:
        """Return whether the warm-up came to its end; None where that is not known."""
        return self.facts["settled"] if self.facts else None

    @property
    def step_s(self) -> list[float]:
        """Return how long each step took that its pair tells of."""
        return [s for each in (self.pair.candidate if self.pair else []) for s in each.latency_samples_s]

    @property
    def energy_j_per_item(self) -> float | None:
        """Return the energy (J) that the device took for an item, with what it takes anyway; None if not known."""
        joules, _ = self._metered
        n_items = self.setting.batch_size * sum(each.n_steps for each in self.pair.candidate) if self.pair else 0
        return None if joules is None or not n_items else joules / n_items

    @property
    def power_w(self) -> float | None:
        """Return the mean power (W) of the device in its slices; None where that is not known."""
        joules, seconds = self._metered
        return None if joules is None or not seconds else joules / seconds

    @property
    def _metered(self) -> tuple[float | None, float]:
        """Return the energy (J) and the duration (s) of its slices, None where one of them was not metered."""
        return energy_of(self.pair.candidate if self.pair else [])

    @property
    def is_inapplicable(self) -> bool:
        """Return whether its setting means nothing for this workload, so that there is nothing to compare with.

        The workload overrides its variables, or computes something else under it. Any other failure may be temporary.
        """
        return self.status is Status.UNAPPLIED or (self.status is Status.INVALID and self.deviation is not None)


class Record:
    """One study in a storage."""

    def __init__(self, study: optuna.Study) -> None:
        self.study = study

    @property
    def name(self) -> str:
        """Return the study's name."""
        return self.study.study_name

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
        """Store a study attribute, plain data."""
        self.study.set_user_attr(key, value)

    def add(self, key: str, *values: object) -> None:
        """Store a study attribute that is a list with more at its end, plain data."""
        self.put(key, [*(self.get(key) or ()), *values])

    def trials(self) -> list[Trial]:
        """Return the finished trials of the space, in the order of their numbers; interrupted ones never happened."""
        return trials_of(self.study)

    def groups(self) -> list[Trial]:
        """Return the finished trials of several processes, where the space is of one."""
        return [_trial(self.study.study_name, frozen) for frozen in _finished(self.study) if _is_group(frozen)]

    def choices(self) -> dict[str, tuple[Value, ...]]:
        """Return the values of each knob, as `Space.choices` had them; none before the first trial was asked for."""
        frozen = next(iter(self.study.get_trials(deepcopy=False)), None)
        frozen_distributions = {} if frozen is None else frozen.distributions
        return {
            name: tuple(value for value in each.choices if isinstance(value, int | str))
            for name, each in frozen_distributions.items()
            if isinstance(each, CategoricalDistribution)
        }

    def observations(self) -> list[tuple[Setting, float, float, int]]:
        """Return (setting, log-ratio, its standard error, number of the reference) of each trial that gave a number.

        What many studies are learned from: without the raw slices that `trials` reads, and without groups.
        """
        rows = []
        for frozen in self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED)):
            attributes = frozen.user_attrs
            if (
                not _is_group(frozen)
                and attributes.get("status") == Status.OK
                and None
                not in (
                    attributes.get("log_ratio"),
                    attributes.get("se"),
                )
            ):
                setting = Setting.of(attributes["setting"])
                rows.append((setting, attributes["log_ratio"], attributes["se"], attributes.get("reference", 0)))
        return rows

    def begin(self, distributions: Mapping[str, BaseDistribution]) -> tuple[optuna.Trial, Setting]:
        """Ask Optuna for the next trial; its sampler says of which setting."""
        trial = self.study.ask(fixed_distributions=dict(distributions))
        trial.set_user_attr("owner", _OWNER)
        return trial, Setting.of({name: trial.params[name] for name in distributions})

    def begin_group(
        self, distributions: Mapping[str, BaseDistribution], setting: Setting, counts: Sequence[int]
    ) -> optuna.Trial:
        """Begin the trial of a setting of several processes; `counts` are all that may come."""
        self.study.enqueue_trial(setting.to_dict(), user_attrs={_GROUP: True})
        trial = self.study.ask(fixed_distributions={INSTANCES: CategoricalDistribution(counts), **distributions})
        trial.set_user_attr("owner", _OWNER)
        return trial

    def finish(self, running: optuna.Trial, trial: Trial) -> None:
        """Store a finished trial, then tell Optuna: what is finished is complete, whenever we are killed."""
        for key, value in _attributes(trial).items():
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
    return [_trial(study.study_name, frozen) for frozen in _finished(study) if not _is_group(frozen)]


def _finished(study: optuna.Study) -> list[FrozenTrial]:
    states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
    # The status is written last: without it a trial was never finished.
    return [t for t in study.get_trials(deepcopy=False, states=states) if "status" in t.user_attrs]


def _is_group(frozen: FrozenTrial) -> bool:
    return _GROUP in frozen.user_attrs


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


def _attributes(trial: Trial) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "eligible": trial.eligible,
        "baselines": list(trial.baselines),
        "setting": trial.setting.to_dict(),
        "log_ratio": trial.log_ratio,
        "se": trial.se,
        "df": trial.df,
        "reference": trial.reference,
        "process": trial.process,
        "alone": trial.alone,
        "steady": trial.steady,
        "over_limit": trial.over_limit,
        "pruned": trial.pruned,
        "message": trial.message,
        "log": trial.log,
        "facts": trial.facts,
        "deviation": trial.deviation,
        "peak_memory_bytes": trial.peak_memory_bytes,
        "wall_s": round(trial.wall_s, 3),
        _GROUP: trial.is_group or None,
        "pair": trial.pair.to_dict() if trial.pair else None,
        "status": trial.status.value,  # last: it says that the others are there
    }
    return {key: value for key, value in attributes.items() if value not in (None, "", [])}


def _trial(study: str, frozen: FrozenTrial) -> Trial:
    """Return a stored trial; raises DamagedStudyError where it cannot be understood."""
    try:
        return _understood(frozen, frozen.user_attrs)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedStudyError(study, f"trial {frozen.number}", error) from error


def _understood(frozen: FrozenTrial, attrs: Mapping[str, Any]) -> Trial:
    return Trial(
        number=frozen.number,
        setting=Setting.of(attrs["setting"]),
        status=Status(attrs["status"]),
        eligible=attrs["eligible"],
        baselines=tuple(attrs.get("baselines", ())),
        log_ratio=attrs.get("log_ratio"),
        se=attrs.get("se"),
        df=attrs.get("df", 0.0),
        reference=attrs.get("reference", 0),
        process=attrs.get("process", 0),
        alone=attrs.get("alone", False),
        steady=attrs.get("steady", True),
        over_limit=attrs.get("over_limit", False),
        pruned=attrs.get("pruned", False),
        message=attrs.get("message", ""),
        log=attrs.get("log", ""),
        pair=Pair.from_dict(attrs["pair"]) if "pair" in attrs else None,
        facts=attrs.get("facts"),
        deviation=attrs.get("deviation"),
        peak_memory_bytes=attrs.get("peak_memory_bytes"),
        wall_s=attrs.get("wall_s", 0.0),
        is_group=attrs.get(_GROUP, False),
    )
