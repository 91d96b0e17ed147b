"""What has been measured of a comparison, in an Optuna study without trials.

Each key names whatever the figure depends on: the variant with its build and space, its setting, and the
reference, as all figures are relative to that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import optuna
from msgspec import convert

from tuner.errors import BadInputError
from tuner.identity import digest
from tuner.job.frameworks.candidate import Candidate, Failure, PreparedVariant
from tuner.job.job import Job
from tuner.machine.conditions import Conditions
from tuner.measure.measurement import Measurement
from tuner.measure.rounds import Round
from tuner.plain import to_plain
from tuner.result.frameworks import INTERRUPTED, SettingKind, TunedResult
from tuner.study.record import Record, now
from tuner.study.storage import create_or_continue, open_storage
from tuner.workload.feed import InputFacts

T = TypeVar("T")
SCHEMA = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedStart:
    """The first start of a candidate: what it is, how long it took (s), and the sample of its outputs."""

    measurement: Measurement
    start_s: float
    sample: dict[str, Any] | None

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CheckedStart:
        """Return a stored one."""
        return cls(measurement=convert(data["cell"], Measurement), start_s=data["start_s"], sample=data["sample"])

    def to_dict(self) -> dict[str, Any]:
        """Return it by the names that it is stored under."""
        return {"cell": self.measurement, "start_s": self.start_s, "sample": self.sample}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How long (s) starts took: until the model was there, and from then until the first answer.

    With files in the page cache (warm), and without (cold).
    """

    cold: list[tuple[float, float]]
    warm: list[tuple[float, float]]


class Store:
    """The record of a comparison."""

    def __init__(self, record: Record, reference: PreparedVariant) -> None:
        """Take the record, and the variant that all are compared with."""
        self._record, self._reference = record, reference
        self._attributes: dict[str, Any] = {}
        self.reread()

    @classmethod
    def open(
        cls, storage_url: str, reference: PreparedVariant, *, batch_size: int, seed: int, new: bool, create: bool
    ) -> Store:
        """Return the record of a comparison in a storage, an empty one where there is none or a new one is wanted.

        Raises BadInputError where there is none and none is to be created.
        """
        job = reference.job
        key = [job.machine.id, *job.device.identity(), job.workload.fingerprint, batch_size, job.environment]
        key += [job.space.name, job.workload.mode, seed]
        storage = open_storage(storage_url, create=create)
        stem = f"frameworks-{job.workload.name}-{digest(key, length=8)}"
        if storage is None or (not create and stem not in {each.study_name for each in storage.get_all_studies()}):
            missing = f"no comparison of frameworks on {job.workload.name} at batch size {batch_size} is stored"
            raise BadInputError(f"{missing} in {storage_url}", "measure it: leave out --stored")
        record = create_or_continue(storage, stem, optuna.samplers.RandomSampler(), new=new)
        if record.get("frameworks_schema") is None:
            record.put("created", now())
            record.put("frameworks_schema", SCHEMA)
        if record.get("frameworks_schema") != SCHEMA:
            raise BadInputError(f"{record.name} was stored by another version of tftune", "start over with --new")
        return cls(record, reference)

    @property
    def name(self) -> str:
        """Return its name."""
        return self._record.name

    def reread(self) -> None:
        """Read what another run has stored since; what this one stores is known."""
        self._attributes = dict(self._record.study.user_attrs)

    def checked(self, candidate: Candidate) -> CheckedStart | None:
        """Return the first start of a setting; None where it is not stored."""
        stored = self._get(dict[str, Any], "check", *self._start_key(candidate))
        return None if stored is None else CheckedStart.from_dict(stored)

    def put_checked(self, candidate: Candidate, start: CheckedStart) -> None:
        """Store the first start of a setting."""
        self._put(start, "check", *self._start_key(candidate))

    def tuned(self, prepared: PreparedVariant) -> TunedResult | None:
        """Return what the search in a variant came to."""
        stored = self._get(dict[str, Any], "tuned", prepared.key)
        return None if stored is None else TunedResult(**({"searched_s": None} | stored))

    def put_tuned(self, prepared: PreparedVariant, tuned: TunedResult) -> None:
        """Store what the search in a variant came to."""
        self._put(tuned, "tuned", prepared.key)

    def rounds(self, of: Sequence[Candidate]) -> list[Round]:
        """Return the rounds of finals in which any of these but the reference took part, with what it told of these."""
        names = {self._key_of([candidate]): candidate.name for candidate in of}
        told = [_renamed(each, names) for each in self._rounds]
        reference = of[0].name
        return [convert(each, Round) for each in told if {*each["slices"], *each["failures"]} - {reference}]

    def add_round(self, of: Sequence[Candidate], held: Round) -> None:
        """Store a round of the finals, in which some of these took part."""
        keys = {candidate.name: self._key_of([candidate]) for candidate in of}
        self._put([*self._rounds, _renamed(to_plain(held), keys)], "rounds", self._reference.key)

    @property
    def ended(self) -> str | None:
        """Return how the last run ended; None where that is not known."""
        return self._get(str, "ended")

    @property
    def conditions(self) -> Conditions | None:
        """Return what else the machine did during the last run; None where that is not known."""
        return self._get(Conditions, "conditions")

    def put_begin(self) -> None:
        """Store that a run has begun: until it ends, it counts as interrupted."""
        self._put(INTERRUPTED, "ended")

    def put_end(self, ended: str, conditions: Conditions) -> None:
        """Store how a run ended, and what else the machine did meanwhile."""
        self._put(ended, "ended")
        self._put(conditions, "conditions")

    @property
    def inputs(self) -> tuple[InputFacts, ...]:
        """Return what the model was fed with; none where that is not stored."""
        return self._get(tuple[InputFacts, ...], "inputs") or ()

    @property
    def outputs(self) -> dict[str, dict[str, list[int]]]:
        """Return the shapes of the reference's outputs by name, by batch size; empty where they are not stored."""
        return self._get(dict[str, dict[str, list[int]]], "outputs") or {}

    def put_seen(self, job: Job) -> None:
        """Store what the model was fed with, and the shapes of its outputs."""
        self._put(job.inputs, "inputs")
        self._put({**self.outputs, **job.seen_outputs}, "outputs")

    def failure(self, prepared: PreparedVariant) -> Failure | None:
        """Return why a variant took no part in the last run; None where it did."""
        return self._get(Failure, "failure", prepared.key)

    def put_failure(self, prepared: PreparedVariant) -> None:
        """Store why a variant took no part, or that it did. The next run tries again."""
        self._put(prepared.failure, "failure", prepared.key)

    def loading(self, prepared: PreparedVariant) -> Loading | None:
        """Return how long starts of a variant took."""
        return self._get(Loading, "loading", prepared.key)

    def put_loading(self, prepared: PreparedVariant, loading: Loading) -> None:
        """Store how long starts of a variant took."""
        self._put(loading, "loading", prepared.key)

    def measurement(self, candidate: Candidate, batch_size: int) -> Measurement | None:
        """Return what was measured of a setting at a batch size."""
        return self._get(Measurement, "cell", self._key_of([candidate]), batch_size)

    @property
    def batch_sizes(self) -> set[int]:
        """Return the batch sizes at which anything was measured."""
        return {int(name.rpartition("/")[2]) for name in self._attributes if name.startswith("cell/")}

    def put_measurement(self, candidate: Candidate, measurement: Measurement) -> None:
        """Store what was measured of a setting at a batch size."""
        self._put(measurement, "cell", self._key_of([candidate]), measurement.batch_size)

    def _start_key(self, candidate: Candidate) -> list[str]:
        own = [] if candidate.kind is SettingKind.DEFAULT else [self._key_of([candidate])]
        return [candidate.prepared.key, self._reference.key, *own]

    def _key_of(self, of: Sequence[Candidate]) -> str:
        settings = [[each.prepared.key, each.prepared.settings()[each.kind].to_dict()] for each in of]
        return digest([self._reference.key, *settings])

    @property
    def _rounds(self) -> list[dict[str, Any]]:
        """Return all rounds of finals as they are stored."""
        return self._get(list[dict[str, Any]], "rounds", self._reference.key) or []

    def _get(self, kind: type[T], *key: object) -> T | None:
        """Return what is stored under a key as a value of that type; None where there is nothing."""
        data = self._attributes.get("/".join(map(str, key)))
        return None if data is None else convert(data, kind)

    def _put(self, value: object, *key: object) -> None:
        name, data = "/".join(map(str, key)), to_plain(value)
        self._record.put(name, data)
        self._attributes[name] = data


def _renamed(round_: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a round as plain data with other names of its contenders; those that have none are left out."""
    by_name = {
        part: {names[name]: each for name, each in round_[part].items() if name in names}
        for part in ("slices", "failures", "memory")
    }
    return {**round_, **by_name}
