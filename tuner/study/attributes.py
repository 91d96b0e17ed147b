"""The attributes of a stored study, each as what it is of: the one place where they are understood and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, convert

from tuner.errors import BadInputError, DamagedStudyError
from tuner.frameworks import registry
from tuner.machine.conditions import Conditions
from tuner.measure.constraint import Limits
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair
from tuner.measure.recommendation import FinalsEstimates
from tuner.measure.rounds import INCUMBENT, Contender, Round
from tuner.stats.equivalence import MARGIN
from tuner.stats.moderation import Prior
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

    `levels` are those of the intervals of the incumbent against each rival, by the rival's first name. `noise` is what
    was known of the noise beside the rounds, None in those of earlier versions; some of these have a `prior`, which is
    what the log-ratio of one round was believed to scatter by.
    """

    began: str
    contenders: list[Contender]
    rounds: list[Round]
    levels: dict[str, float]
    margin: float
    noise: Noise | None
    prior: Prior | None
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
            began=data.get("began", ""),
            contenders=contenders,
            rounds=[Round.from_dict(each) for each in data["rounds"]],
            levels=dict(levels),
            margin=float(data.get("margin", MARGIN)),
            noise=convert(data.get("noise"), Noise | None),
            prior=convert(data.get("prior"), Prior | None),
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
            prior=self.prior,
        )


class Attributes:
    """What is stored of a study, from one reading of its storage.

    Whatever is not what it has to be raises DamagedStudyError, with the names of the study and of the attribute.
    """

    def __init__(self, study: str, raw: Mapping[str, Any]) -> None:
        self.study = study
        self.raw = raw
        """The attributes as they are stored."""

    def _parsed(self, key: str, parse: Callable[[Any], T]) -> T | None:
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
        return self._parsed(key, lambda data: convert(data, kind))

    @property
    def subject(self) -> Subject:
        """Return what the study is of."""

        def parse(data: Any) -> Subject:
            framework = registry.for_build(data["runtime"])
            framework.build_lines(data["runtime"])  # every report names the build
            default = framework.catalogue.default  # which earlier studies do not say
            return convert({"default": default, **data}, Subject)

        subject = self._parsed("described", parse)
        if subject is None:
            raise BadInputError(f"study {self.study} does not say what it is of", "search again with --new")
        return subject

    @property
    def objective(self) -> Objective:
        """Return what the search wanted more of."""
        return self.get("objective", Objective) or Objective.THROUGHPUT

    @property
    def limits(self) -> Limits:
        """Return what settings had to keep to."""
        return self.get("limits", Limits) or Limits()

    @property
    def noise(self) -> Noise | None:
        """Return the noise that was measured, None where none was yet."""
        return self._parsed(
            "noise", lambda data: convert({_NOISE_KEYS.get(key, key): value for key, value in data.items()}, Noise)
        )

    @property
    def process_sd(self) -> float:
        """Return what two processes of one setting differ by (σ_p, log), as measured, or else the prior."""
        return (self.noise or PRIOR_NOISE).process_sd

    @property
    def noise_pairs(self) -> list[Pair]:
        """Return the pairs of the default with itself."""
        return self._parsed("noise_pairs", lambda data: [Pair.from_dict(each) for each in data]) or []

    @property
    def conditions(self) -> list[Conditions]:
        """Return what the machine did during each run."""
        return self.get("conditions", list[Conditions]) or []

    @property
    def planned(self) -> bool:
        """Return whether settings were measured as planned, and none was searched for or proven in finals."""
        return self.get("planned", bool) or False

    @property
    def is_complete(self) -> bool:
        """Return whether nothing was left to measure when it last ended."""
        return bool(self.runs) and self.runs[-1].end is EndReason.SPACE

    @property
    def hints(self) -> dict[str, Values]:
        """Return the settings that were tried first, by what hinted at them."""
        return self.get("hints", dict[str, Values]) or {}

    @property
    def prediction(self) -> Prediction | None:
        """Return what a model of the machine has expected, None where none was asked."""
        return self.get("prediction", Prediction)

    @property
    def outputs(self) -> dict[str, dict[str, list[int]]]:
        """Return the shapes of the outputs by name, by batch size; empty where the study does not say."""
        return self.get("outputs", dict[str, dict[str, list[int]]]) or {}

    @property
    def runs(self) -> list[Run]:
        """Return the runs of the search, the oldest first; earlier versions called them sessions."""
        return self.get("runs", list[Run]) or self.get("sessions", list[Run]) or []

    @property
    def finals(self) -> StoredFinals | None:
        """Return the last finals, None where there were none yet."""
        return self._parsed("finals", StoredFinals.from_dict)

    @property
    def earlier_finals(self) -> list[StoredFinals]:
        """Return the finals of earlier runs, the oldest first."""
        return self._earlier("finals")

    @property
    def group_finals(self) -> StoredFinals | None:
        """Return the last finals on several processes, None where there were none."""
        return self._parsed("group_finals", StoredFinals.from_dict)

    @property
    def earlier_group_finals(self) -> list[StoredFinals]:
        """Return the finals on several processes of earlier runs, the oldest first."""
        return self._earlier("group_finals")

    @property
    def latency_finals(self) -> StoredFinals | None:
        """Return the last finals at the latency of the default, None where there were none."""
        return self._parsed("latency_finals", StoredFinals.from_dict)

    @property
    def earlier_latency_finals(self) -> list[StoredFinals]:
        """Return the finals at the latency of the default of earlier runs, the oldest first."""
        return self._earlier("latency_finals")

    @property
    def promising(self) -> list[Contender]:
        """Return what a search for capacity has chosen to be measured under load beside the default."""
        return self._parsed("promising", lambda data: [Contender.from_dict(each) for each in data]) or []

    @property
    def checks(self) -> list[StoredFinals]:
        """Return the checks of what was recommended, each of that setting first and the default second."""
        return self._finals_of("checks")

    def _earlier(self, key: str) -> list[StoredFinals]:
        # A run that was killed while new finals took the place of earlier ones may have kept these twice.
        return self._finals_of(f"earlier_{key}", lambda data: data != self.raw.get(key))

    def _finals_of(self, key: str, is_meant: Callable[[Any], bool] = lambda _: True) -> list[StoredFinals]:
        return self._parsed(key, lambda data: [StoredFinals.from_dict(each) for each in data if is_meant(each)]) or []

    @property
    def spec(self) -> WorkloadSpec:
        """Return how the workload was asked for."""
        return self.get("asked", WorkloadSpec) or WorkloadSpec()

    @property
    def folder(self) -> Path:
        """Return the folder that the search was run in."""
        return self._parsed("asked", lambda data: Path(data["folder"])) or Path()

    @property
    def origin(self) -> str:
        """Return where the figures are from: `measured`, or what else."""
        return self.get("origin", str) or MEASURED

    @property
    def created(self) -> str | None:
        """Return when the study was begun (ISO 8601), None where it does not say."""
        return self.get("created", str)

    @property
    def updated(self) -> str | None:
        """Return when the study was last searched or checked (ISO 8601), None where it does not say."""
        return self.get("updated", str)

    @property
    def seed(self) -> int | None:
        """Return the search's seed."""
        return self.get("seed", int)
