"""The attributes of a stored study, each as what it is of: the one place where they are understood and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, overload

from msgspec import Struct, convert

from tuner.errors import BadInputError, DamagedStudyError
from tuner.frameworks import registry
from tuner.machine.conditions import Conditions
from tuner.measure.constraint import Limits
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair
from tuner.measure.recommendation import FinalsEstimates
from tuner.measure.rounds import INCUMBENT, Contender, Round
from tuner.measure.warning import MeasurementWarning
from tuner.stats.equivalence import MARGIN
from tuner.stats.noise import PRIOR_NOISE, Noise
from tuner.study.subject import Subject, Values
from tuner.workload.spec import WorkloadSpec

T = TypeVar("T")
MEASURED = "measured"
"""The origin of a study that real processes were timed for."""


_NOISE_KEYS = {"quad_sd": "block_sd", "n_quads": "n_blocks"}
"""Noise is stored under the keys that it had in the first studies."""


def stored_noise(noise: Noise) -> dict[str, Any]:
    """Return noise as it is stored."""
    keys = {name: key for key, name in _NOISE_KEYS.items()}
    return {keys.get(name, name): value for name, value in asdict(noise.rounded()).items()}


class EndReason(StrEnum):
    """Why a search ended."""

    SPACE = "space"
    TRIALS = "trials"
    TIME = "time"
    NO_GAIN = "no gain"


_EARLIER_END_REASONS = {"the time budget is used up": EndReason.TIME}
"""Earlier runs kept the words alone."""


class Run(Struct, frozen=True, kw_only=True):
    """One run of a search: how long it took (s), how much of that was in slices, and why the search ended."""

    wall_s: float
    measured_s: float
    search_timed_share: float | None
    ended: EndReason | None = None
    ended_because: str
    n_trials: int | None = None
    """The trials of the study when the run ended."""
    incumbent: int | None = None
    """The number of the best of them, None if there was none or an earlier version ran."""

    @property
    def end(self) -> EndReason | None:
        """Return why the search ended, None where it was interrupted or did not say."""
        return self.ended or _EARLIER_END_REASONS.get(self.ended_because)


class Prediction(Struct, frozen=True, kw_only=True):
    """What a model of the machine has expected of a search: log-ratios to the default.

    `best` is the setting that it would have chosen, when the study had `n_before` trials; `log_ratios` are those of the
    trials that came after these, by their numbers; `trust` is how much the search believed it in the end, from 0 to 1,
    None where it did not end, or nothing could be measured.
    """

    best: Values
    best_log_ratio: float
    n_before: int
    log_ratios: tuple[tuple[int, float], ...]
    trust: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFinals:
    """Finals or a check, as they were held: when they began (ISO 8601; empty if not known), and the raw rounds.

    `node` is the node of a cluster that they were held on, empty outside of clusters.
    `levels` are those of the intervals of the incumbent against each rival, by the rival's first name. `noise` is what
    was known of the noise beside the rounds, None in those of earlier versions.
    """

    began: str
    node: str
    contenders: list[Contender]
    rounds: list[Round]
    levels: dict[str, float]
    margin: float
    noise: Noise | None
    ended: str

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StoredFinals:
        """Return stored finals, or a stored check, which has no levels."""
        contenders = [Contender.from_dict(each) for each in data["contenders"]]
        levels = data.get("levels", {})
        if "level" in data:
            # Earlier versions had one level for all comparisons together, and a margin that grew with the noise.
            each = 1 - (1 - data["level"]) / max(1, len(contenders) - 1)
            levels = {c.names[0]: each for c in contenders}
        return cls(
            began=convert(data.get("began", ""), str),
            node=convert(data.get("node", ""), str),
            contenders=contenders,
            rounds=convert(data["rounds"], list[Round]),
            levels=dict(levels),
            margin=float(data.get("margin", MARGIN)),
            noise=convert(data.get("noise"), Noise | None),
            ended=data.get("ended", ""),
        )

    def estimates(self, objective: Objective) -> FinalsEstimates:
        """Return what they say; of a check about its first contender."""
        contenders = self.contenders
        incumbent = next((c.names[0] for c in contenders if INCUMBENT in c.names), contenders[0].names[0])
        levels = {name: level for name, level in self.levels.items() if name != incumbent}
        return FinalsEstimates.of_rounds(
            self.rounds,
            contenders,
            objective,
            incumbent=incumbent,
            levels=levels,
            margin=self.margin,
            noise=self.noise,
        )


class _Attribute(Generic[T]):
    """An attribute as `read` understands it, or what `default` returns. It is stored under its name, or under `key`."""

    def __init__(self, read: Callable[[Any], T], default: Callable[[], T], *, key: str = "") -> None:
        self._read, self._default, self._key = read, default, key

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = self._key or name

    @overload
    def __get__(self, stored: None, owner: type) -> Self: ...

    @overload
    def __get__(self, stored: Attributes, owner: type) -> T: ...

    def __get__(self, stored: Attributes | None, owner: type) -> T | Self:
        if stored is None:  # of the class
            return self
        value = stored.parsed(self._key, self._read)
        return self._default() if value is None else value


def _typed(kind: type[T], default: Callable[[], T], *, key: str = "") -> _Attribute[T]:
    """Return an attribute of a type, and what it is where it is not stored."""
    return _Attribute(lambda data: convert(data, kind), default, key=key)


def _known(kind: type[T]) -> _Attribute[T | None]:
    """Return an attribute of a type, None where there is none."""
    return _Attribute(lambda data: convert(data, kind), lambda: None)


def _noise(data: Mapping[str, Any]) -> Noise:
    return convert({_NOISE_KEYS.get(key, key): value for key, value in data.items()}, Noise)


def _all_finals(data: Iterable[Mapping[str, Any]]) -> list[StoredFinals]:
    return [StoredFinals.from_dict(each) for each in data]


def _finals() -> _Attribute[StoredFinals | None]:
    """Return an attribute that is the last finals of some kind, None where there were none yet."""
    return _Attribute(StoredFinals.from_dict, lambda: None)


class Attributes:
    """What is stored of a study, from one reading of its storage.

    Whatever is not what it has to be raises DamagedStudyError, with the names of the study and of the attribute.
    """

    objective = _typed(Objective, lambda: Objective.THROUGHPUT)
    """What the search wanted more of."""
    limits = _typed(Limits, Limits)
    """What settings had to keep to."""
    noise: _Attribute[Noise | None] = _Attribute(_noise, lambda: None)
    """The noise that was measured, None where none was yet."""
    noise_pairs = _typed(list[Pair], list)
    """The pairs of the default with itself."""
    conditions = _typed(list[Conditions], list)
    """What the machine did during each run."""
    hints = _typed(dict[str, Values], dict)
    """The settings that were tried first, by what hinted at them."""
    prediction = _known(Prediction)
    """What a model of the machine has expected, None where none was asked."""
    outputs = _typed(dict[str, dict[str, list[int]]], dict)
    """The shapes of the outputs by name, by batch size; empty where the study does not say."""
    finals = _finals()
    group_finals = _finals()
    """Of several processes, where the search is of one."""
    earlier_finals: _Attribute[list[StoredFinals]] = _Attribute(_all_finals, list)
    """Those of earlier runs, the oldest first."""
    earlier_group_finals: _Attribute[list[StoredFinals]] = _Attribute(_all_finals, list)
    earlier_latency_finals: _Attribute[list[StoredFinals]] = _Attribute(_all_finals, list)
    promising: _Attribute[list[Contender]] = _Attribute(lambda data: list(map(Contender.from_dict, data)), list)
    """What a search for capacity has chosen to be measured under load beside the default."""
    checks: _Attribute[list[StoredFinals]] = _Attribute(_all_finals, list)
    """The checks of what was recommended, each of that setting first and the default second."""
    spec = _typed(WorkloadSpec, WorkloadSpec, key="asked")
    """How the workload was asked for."""
    folder = _Attribute(lambda data: Path(data["folder"]), Path, key="asked")
    """The folder that the search was run in."""
    origin = _typed(str, lambda: MEASURED)
    """Where the figures are from: `measured`, or what else."""
    created = _known(str)
    """When the study was begun (ISO 8601), None where it does not say."""
    updated = _known(str)
    """When the study was last searched or checked (ISO 8601), None where it does not say."""
    seed = _known(int)
    """The search's seed."""
    python = _known(str)
    """The interpreter that it was searched in."""
    trial_timeout = _known(str)
    numerics = _known(str)
    """Whether knobs might change the precision, None where it does not say."""
    pins = _typed(dict[str, str], dict)
    """The knobs that were set, by name."""
    batch_sizes = _typed(list[int], list)
    """Those that were asked for."""
    batch_note = _typed(str, str)
    """Why batch sizes are as they are."""
    doubts = _typed(list[MeasurementWarning], list)
    """What of a command makes its answers doubtful; earlier studies do not say."""
    planned = _typed(bool, bool)
    """Whether settings were measured as planned, and none was searched for or proven in finals."""
    why_no_energy = _known(str)
    """Why no energy was measured, None where it was."""

    def __init__(self, study: str, raw: Mapping[str, Any]) -> None:
        self.study = study
        self.raw = raw
        """The attributes as they are stored."""

    def parsed(self, key: str, parse: Callable[[Any], T]) -> T | None:
        """Return an attribute as `parse` understands it, None where there is none."""
        data = self.raw.get(key)
        if data is None:
            return None
        try:
            return parse(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedStudyError(self.study, f"'{key}'", error) from error

    def get(self, key: str, kind: type[T]) -> T | None:
        """Return an attribute as a value of that type, None where there is none."""
        return self.parsed(key, lambda data: convert(data, kind))

    @property
    def subject(self) -> Subject:
        """Return what the study is of."""

        def parse(data: Any) -> Subject:
            framework = registry.for_build(data["runtime"])
            framework.build_lines(data["runtime"])  # every report names the build
            default = framework.catalogue.default  # which earlier studies do not say
            return convert({"default": default, **data}, Subject)

        subject = self.parsed("described", parse)
        if subject is None:
            raise BadInputError(f"study {self.study} does not name its workload", "search again with --new")
        return subject

    @property
    def process_sd(self) -> float:
        """Return what two processes of one setting differ by (σ_p, log), as measured, or else the prior."""
        return (self.noise or PRIOR_NOISE).process_sd

    @property
    def touched(self) -> str:
        """Return when it was last searched or checked, or else begun (ISO 8601; empty if it does not say)."""
        return self.updated or self.created or ""

    @property
    def is_complete(self) -> bool:
        """Return whether nothing was left to measure when it last ended."""
        return bool(self.runs) and self.runs[-1].end is EndReason.SPACE

    @property
    def runs(self) -> list[Run]:
        """Return the runs of the search, the oldest first; earlier versions called them sessions."""
        return self.get("runs", list[Run]) or self.get("sessions", list[Run]) or []

    @property
    def latency_finals(self) -> StoredFinals | None:
        """Return the last finals at the latency of the default, None where there were none beside these answers."""
        return self._beside("latency_finals", StoredFinals.from_dict)

    @property
    def why_no_same_latency(self) -> str | None:
        """Return why the last run that asked held no such finals, None where it did, or gave other answers."""
        return self._beside("no_same_latency", lambda data: str(data["why"]))

    def _beside(self, key: str, parse: Callable[[Any], T]) -> T | None:
        """Return an attribute that stands beside answers, None where one of these is of another setting by now."""

        def parse_current(data: Any) -> T | None:
            beside = data.get("beside", {})
            last = {name: held["contenders"][0]["setting"] for name in beside if (held := self.raw.get(name))}
            return parse(data) if last.items() <= beside.items() else None

        return self.parsed(key, parse_current)
