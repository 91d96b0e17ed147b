"""A line-up: what was measured of frameworks side by side; `tuner.report.standings` says what it comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from tuner.machine.conditions import Conditions
from tuner.measure.cell import Cell
from tuner.measure.finals import Contender, Round, log_rates
from tuner.measure.objective import Objective
from tuner.report.result.study import StudyResult
from tuner.space.values import Value
from tuner.stats.equivalence import MARGIN, VerdictCode
from tuner.stats.estimate import Array, Estimate, paired
from tuner.study.subject import Subject

COMPLETE, OUT_OF_TIME, INTERRUPTED = "complete", "time", "interrupted"
"""How a comparison ended."""


class Kind(StrEnum):
    """Which setting of a framework."""

    DEFAULT = "default"
    TUNED = "tuned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What a search came to. `setting` is None where it failed."""

    study: str | None
    setting: dict[str, Value] | None
    failure: str = ""
    searched_s: float | None = None
    """For how long; None where that is not known."""

    @classmethod
    def of(cls, study: StudyResult, *, searched_s: float) -> Tuned:
        """Return the setting of a search: what it recommends, or, where it shows nothing, its best one.

        That is measured anew here, so that nothing is claimed of it yet. The default is kept where the best other
        setting was shown to be no better.
        """
        recommended, best = study.recommended, study.incumbent
        default = dict(study.baselines[study.default].setting)
        verdict = (study.verdicts or {}).get(study.default)
        is_open = verdict is None or verdict.code in (VerdictCode.UNDECIDED, VerdictCode.BETTER)
        if recommended is not None and dict(recommended.setting) != default:
            setting = dict(recommended.setting)
        elif best is not None and is_open and (best.ratio or 0.0) > 1.0:
            setting = dict(best.setting)
        else:
            setting = default
        return cls(study=study.study, setting=setting, searched_s=searched_s)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    @property
    def text(self) -> str:
        """Return the setting in words."""
        return self.failure or " ".join(f"{name}={value}" for name, value in (self.setting or {}).items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A setting of a framework that takes part."""

    framework: str
    kind: str
    contender: Contender
    build: Mapping[str, Any]
    start: Cell | None
    """Its first start, in which outputs and precision were looked at."""

    @property
    def name(self) -> str:
        """Return its name among the contenders."""
        return self.contender.names[0]

    @property
    def precision(self) -> str | None:
        """Return what it computes in, None where that is not known."""
        return None if self.start is None else self.start.precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How long (s) starts took: until the model was there, and from then until the first answer.

    With files in the page cache (warm), and without (cold).
    """

    cold: list[tuple[float, float]]
    warm: list[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A framework that takes no part."""

    framework: str
    reason: str
    hint: str
    status: str = "refused"
    """Of what came of its first start, or that it was refused before, or that nothing was measured yet."""
    deviation: float | None = None
    """How far its outputs lie from the reference's, where they were compared."""
    precision: str | None = None
    """What it computed in, where it ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineup:
    """All that was measured; the first side is the reference."""

    name: str | None
    subject: Subject
    batch_size: int
    sides: Sequence[Side]
    absent: Sequence[Absent]
    tuned: Mapping[str, Tuned]
    rounds: Sequence[Round]
    cells: Sequence[Cell]
    loads: Mapping[str, Loading]
    ended: str
    conditions: Conditions | None
    """During the last run; None where that is not known."""
    why_no_energy: str | None
    spread: float | None
    """How much the reference's outputs vary (`tuner.measure.agreement.spread`); None where that is not known."""
    margin: float = MARGIN
    outputs: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    """The shapes of the reference's outputs by name, by batch size."""
    y: Array = field(init=False)
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        """Take the log rates out of the rounds, once."""
        names, y = log_rates(self.rounds, [side.contender for side in self.sides], Objective.THROUGHPUT)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "y", y)

    @property
    def reference(self) -> str:
        """Return the name of the contender that all are compared with."""
        return self.sides[0].name

    def log_ratio(self, name: str, to: str) -> Estimate | None:
        """Return the log-ratio of two contenders in the finals; None where they did not run together."""
        if name not in self.names or to not in self.names:
            return None
        i, j = self.names.index(to), self.names.index(name)
        both = ~np.isnan(self.y[:, i]) & ~np.isnan(self.y[:, j])
        return paired(self.y, i, j) if both.any() else None
