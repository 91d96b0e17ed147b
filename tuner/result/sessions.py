"""The sessions of a study: the finals of each run, and each `tftune check`, as estimates for one setting."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec import structs

from tuner.measure.finals import ONE_PROCESS
from tuner.measure.recommendation import FinalsEstimates
from tuner.result.study import PooledResult, SessionResult, VerdictResult
from tuner.space.setting import Setting
from tuner.stats.estimate import Estimate
from tuner.stats.pooling import PooledVerdict, pooled_verdict
from tuner.study.attributes import Attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """When it began (ISO 8601; empty if that is not known), and the log-ratio of the setting to the default in it."""

    began: str
    estimate: Estimate

    def result(self) -> SessionResult:
        """Return the session as it is published."""
        low, high = self.estimate.interval()
        return SessionResult(began=self.began, ratio=self.estimate.ratio, low=low, high=high, rounds=self.estimate.n)


def of_setting(stored: Attributes, setting: Setting) -> list[Session]:
    """Return the sessions in which a setting was measured against the default, the oldest first."""
    default, objective = stored.subject.default, stored.objective
    lasts = [last for last in (stored.finals, stored.group_finals) if last is not None]
    all_finals = [*stored.earlier_finals, *stored.earlier_group_finals, *lasts]
    estimates = [(each.began, _estimate(each.estimates(objective), setting, default)) for each in all_finals]
    for check in stored.checks:
        first, second = check.contenders
        if first.setting == setting:
            estimates.append((check.began, check.estimates(objective).log_ratio(second.names[0], first.names[0])))
    sessions = [Session(began=began, estimate=each) for began, each in estimates if each is not None and each.df > 0]
    return sorted(sessions, key=lambda session: session.began)


def pooled_sessions(sessions: Sequence[Session], *, level: float, margin: float) -> PooledVerdict:
    """Return what sessions say together; one alone at the level that its finals have."""
    return pooled_verdict([session.estimate for session in sessions], level=level, margin=margin)


def pooled_result(pooled: PooledVerdict) -> PooledResult:
    """Return what sessions say together as it is published."""
    verdict = VerdictResult.of(pooled.verdict)
    return PooledResult(**structs.asdict(verdict), sessions=pooled.n, sessions_disagree=pooled.sessions_disagree)


def closest_s(sessions: Sequence[Session]) -> float | None:
    """Return the time (s) between the beginnings of the two sessions that lie closest; None of fewer than two."""
    began = sorted(datetime.fromisoformat(session.began) for session in sessions if session.began)
    return min(((b - a).total_seconds() for a, b in itertools.pairwise(began)), default=None)


def _estimate(estimates: FinalsEstimates, setting: Setting, default_name: str) -> Estimate | None:
    """Return the log-ratio of a setting to the default in finals; None where either did not run.

    The best of one process beside several ran in the same rounds as in the finals of its own.
    """
    own = (c.names[0] for c in estimates.contenders if c.setting == setting and ONE_PROCESS not in c.names)
    name = next(own, None)
    default = next((c.names[0] for c in estimates.contenders if default_name in c.names), None)
    return None if name is None or default is None else estimates.log_ratio(default, name)
