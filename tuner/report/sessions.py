"""The sessions of a study: each run's own finals, and each check of what it recommends, as evidence on one setting."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tuner.measure import finals
from tuner.measure.finals import INCUMBENT, Contender, Round
from tuner.measure.objective import Objective
from tuner.measure.recommendation import Standing
from tuner.search.record import Record
from tuner.space.setting import Setting
from tuner.stats.equivalence import MARGIN
from tuner.stats.estimate import Estimate
from tuner.stats.pooling import Together, together


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """When it began (ISO 8601; empty if that is not known), and the log-ratio of the setting to the default in it."""

    began: str
    estimate: Estimate

    def to_dict(self) -> dict[str, object]:
        """Return the session as plain data."""
        low, high = self.estimate.interval()
        return {"began": self.began, "ratio": self.estimate.ratio, "low": low, "high": high, "rounds": self.estimate.n}


def standing_of(data: Mapping[str, Any], objective: Objective) -> Standing:
    """Return what stored finals say."""
    contenders = [Contender.from_dict(each) for each in data["contenders"]]
    rounds = [Round.from_dict(each) for each in data["rounds"]]
    names, y = finals.table(rounds, contenders, objective)
    incumbent = next((c.names[0] for c in contenders if INCUMBENT in c.names), contenders[0].names[0])
    if "levels" in data:
        levels = data["levels"]
    else:
        # Earlier versions had one level for all comparisons together, and a margin that grew with the noise: not kept.
        each = 1 - (1 - data["level"]) / max(1, len(contenders) - 1)
        levels = {c.names[0]: each for c in contenders}
    levels = {name: level for name, level in levels.items() if name != incumbent}
    margin = float(data.get("margin", MARGIN))
    return Standing(contenders=contenders, incumbent=incumbent, names=names, y=y, levels=levels, margin=margin)


def of_setting(record: Record, setting: Setting) -> list[Session]:
    """Return the sessions in which a setting was measured against the default, the oldest first."""
    objective = Objective(record.get("objective", Objective.THROUGHPUT))
    last = record.get("finals")
    # A run that was killed while new finals took the place of earlier ones may have kept these twice.
    held = [each for each in record.get("earlier_finals", []) if each != last] + ([last] if last else [])
    default = record.catalogue.default
    found = [(data.get("began", ""), _estimate(standing_of(data, objective), setting, default)) for data in held]
    # A check has the setting first and the default second.
    checks = [data for data in record.get("checks", []) if Setting.of(data["contenders"][0]["setting"]) == setting]
    for data in checks:
        contenders = [Contender.from_dict(each) for each in data["contenders"]]
        first, second = (contender.names[0] for contender in contenders)
        names, y = finals.table([Round.from_dict(each) for each in data["rounds"]], contenders, objective)
        standing = Standing(contenders=contenders, incumbent=first, names=names, y=y, levels={})
        found.append((data["began"], standing.between(second, first)))
    known = [Session(began=began, estimate=each) for began, each in found if each is not None and each.df > 0]
    return sorted(known, key=lambda session: session.began)


def all_together(sessions: Sequence[Session], *, level: float, margin: float) -> Together:
    """Return what sessions say together; one alone at the level that its finals have."""
    return together([session.estimate for session in sessions], level=level, margin=margin)


def closest_s(sessions: Sequence[Session]) -> float | None:
    """Return the time (s) between the beginnings of the two sessions that lie closest; None of fewer than two."""
    began = sorted(datetime.fromisoformat(session.began) for session in sessions if session.began)
    return min(((b - a).total_seconds() for a, b in itertools.pairwise(began)), default=None)


def _estimate(standing: Standing, setting: Setting, default_name: str) -> Estimate | None:
    """Return the log-ratio of a setting to the default in finals; None where either did not run."""
    name = next((c.names[0] for c in standing.contenders if c.setting == setting), None)
    default = next((c.names[0] for c in standing.contenders if default_name in c.names), None)
    return None if name is None or default is None else standing.between(default, name)
