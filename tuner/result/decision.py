"""The recommendation of a study and its reason, from the last finals and from all sessions with that setting."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from msgspec import structs

from tuner.measure.recommendation import FinalsEstimates, FinalsRecommendation, recommend
from tuner.measure.rounds import GROUP, INCUMBENT, ONE_PROCESS, SAME_BATCH, SAME_LATENCY, SIMPLER, Contender
from tuner.quantity import plural
from tuner.result.study import GainResult, NodeResult, PooledResult, SessionResult, VerdictResult
from tuner.result.wording import disagreement, sessions_words
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.stats.equivalence import MIN_DF, Verdict, VerdictCode
from tuner.stats.estimate import Estimate
from tuner.stats.pooling import PooledVerdict, pooled_verdict
from tuner.study.attributes import Attributes

_SEVERAL = 2  # sessions that can say something together


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRecommendation:
    """What to use, `advice`, which is the contender `chosen`, and why.

    `sessions` are those of `tried`, and `pooled` is what they say together, None where there are none: of the contender
    that the last finals recommend, or of their incumbent where they leave open whether that is better and earlier
    sessions measured it too. `tried` is the default where there is nothing to measure again.
    """

    advice: FinalsRecommendation
    chosen: Contender
    tried: Contender
    tried_as: str
    sessions: Sequence[Session]
    pooled: PooledVerdict | None
    reason: str

    @property
    def gain(self) -> GainResult | None:
        """Return what the sessions say together as it is published; None where there are none."""
        if self.pooled is None:
            return None
        return GainResult(**structs.asdict(pooled_result(self.pooled)), closest_s=closest_s(self.sessions))


def recommend_study(
    stored: Attributes, estimates: FinalsEstimates, verdicts: Mapping[str, Verdict], *, broken: Sequence[str]
) -> StudyRecommendation:
    """Return what a study recommends, by what its last finals say; `broken` names those that break a limit."""
    catalogue = stored.subject.catalogue
    default = catalogue.default
    candidate = recommend(estimates, catalogue, broken=broken)
    tried = _contender(estimates, estimates.incumbent if candidate.gain is None else candidate.source)
    tried_sessions = of_setting(stored, tried.setting, same_latency=estimates.incumbent == SAME_LATENCY)
    if candidate.gain is None and (len(tried_sessions) < _SEVERAL or not tried.eligible or tried.names[0] in broken):
        # The default it is: there is nothing that sessions could speak of.
        chosen = _contender(estimates, candidate.source)
        reason = _reason(candidate, estimates, verdicts, broken, default)
        return StudyRecommendation(
            advice=candidate,
            chosen=chosen,
            tried=chosen,
            tried_as=candidate.source,
            sessions=(),
            pooled=None,
            reason=reason,
        )
    level = estimates.level(default, tried.names[0])
    pooled = pooled_sessions(tried_sessions, level=level or 0.95, margin=estimates.margin)
    advice = candidate
    if not any(default in c.names and c.names[0] in broken for c in estimates.contenders):
        advice = _after_sessions(candidate, tried.names[0], pooled, default)
    return StudyRecommendation(
        advice=advice,
        chosen=_contender(estimates, advice.source),
        tried=tried,
        tried_as=tried.names[0] if candidate.gain is None else candidate.source,
        sessions=tried_sessions,
        pooled=pooled,
        reason=_reason(candidate, estimates, verdicts, broken, default)
        if advice is candidate
        else _of_sessions(advice, pooled, default),
    )


def deployment_of(
    source: str, chosen: Contender, *, default: str, in_words: Collection[str] = frozenset()
) -> Deployment:
    """Return what to set: nothing at all for the `default` at the default batch size.

    Of an ensemble the processes remain, with nothing set in them. The knobs that are `in_words` of a command are
    arguments of the program, too.
    """
    deployment = chosen.deployment
    if source == default and not deployment.members:
        return Deployment()
    told = {name: chosen.setting[name] for name in sorted(in_words)}
    return replace(deployment, arguments={**deployment.arguments, **told})


def _contender(estimates: FinalsEstimates, name: str) -> Contender:
    return next(c for c in estimates.contenders if name in c.names)


def _after_sessions(
    advice: FinalsRecommendation, tried: str, pooled: PooledVerdict, default: str
) -> FinalsRecommendation:
    """Return what finals recommend, or what several sessions together say of the contender that was `tried` in them."""
    if pooled.n < _SEVERAL:
        return advice
    if pooled.verdict.code is not VerdictCode.BETTER:
        return advice if advice.gain is None else FinalsRecommendation(source=default, tied=advice.tied)
    return (
        advice if advice.gain is not None else FinalsRecommendation(source=tried, tied=advice.tied, gain=pooled.verdict)
    )


def _of_sessions(advice: FinalsRecommendation, pooled: PooledVerdict, default: str) -> str:
    together = pooled_result(pooled)
    if advice.gain is not None:
        return f"better than {default} in {sessions_words(together)} combined; the last finals alone are undecided"
    disagree = disagreement(together)
    return (
        f"keep {default}: {sessions_words(together)} combined{disagree and f'{disagree},'} do not show that another "
        "setting is better"
    )


def _reason(
    advice: FinalsRecommendation,
    estimates: FinalsEstimates,
    verdicts: Mapping[str, Verdict],
    broken: Sequence[str],
    default: str,
) -> str:
    source, against = advice.source, verdicts.get(default)
    if _contender(estimates, source).names[0] in broken:
        return f"no setting meets the limits; {source} is recommended although it breaks one"
    if source == default:
        if against is None or against.speedup is None:
            return f"keep {default}: {why_none(estimates, default)}"
        return f"keep {default}: no setting was shown to be faster by more than the margin"
    if source == default + SAME_BATCH:
        return "the gain comes from the batch size: the default threads are as fast as the incumbent's"
    if any(default in c.names and c.names[0] in broken for c in estimates.contenders):
        return f"{source} meets the limits, and {default} does not"
    tied_names = [name for name in advice.tied if name not in (source, default)]
    simplest = f"; the simplest of the settings tied with the fastest ({', '.join(tied_names)})" if tied_names else ""
    if source == INCUMBENT:
        return f"better than {default} in the finals{simplest}"
    if source == GROUP:
        return f"several processes are better than {default} in the finals{simplest}"
    if source == SAME_LATENCY:
        return f"better than {default} in the finals, and a call is not shown to take longer"
    name = {SIMPLER: "a simpler setting than the incumbent", ONE_PROCESS: "one process"}.get(source, source)
    return f"{name} is better than {default} in the finals{simplest}"


def why_none(estimates: FinalsEstimates, default: str) -> str:
    """Return why finals say nothing of the default and another setting."""
    names = [name for c in estimates.contenders if default in c.names for name in c.names[:1]]
    both = [each for name in names if (each := estimates.log_ratio(name, estimates.incumbent)) is not None]
    if not both:
        return "the finals gave no result"
    n = len(estimates.y)
    rounds = plural(n, "round")
    if both[0].df < MIN_DF:
        return f"{rounds} of finals {'is' if n == 1 else 'are'} too few to decide"
    return f"{rounds} of finals vary too much to name a speed-up"


# ---- sessions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """When it began (ISO 8601; empty if that is not known), and the log-ratio of the setting to the default in it.

    `node` is the node of a cluster that it was held on, empty outside of clusters.
    """

    began: str
    estimate: Estimate
    node: str = ""

    def result(self) -> SessionResult:
        """Return the session as it is published."""
        low, high = self.estimate.interval()
        ratio, rounds = self.estimate.ratio, self.estimate.n
        return SessionResult(began=self.began, ratio=ratio, low=low, high=high, rounds=rounds, node=self.node)


def of_setting(stored: Attributes, setting: Setting, *, same_latency: bool = False) -> list[Session]:
    """Return the sessions in which a setting was measured against the default, the oldest first.

    The answer at the `same_latency` has finals of its own: in those of the same run its setting may be a rival, too.
    """
    default, objective = stored.subject.default, stored.objective
    if same_latency:
        earlier, last = stored.earlier_latency_finals, [stored.latency_finals]
    else:
        earlier = [*stored.earlier_finals, *stored.earlier_group_finals]
        last = [stored.finals, stored.group_finals]
    # A run that was killed while its finals took the place of others may have kept these twice.
    all_finals = [*(each for each in earlier if each not in last), *(each for each in last if each is not None)]
    held = [(each, _estimate(each.estimates(objective), setting, default)) for each in all_finals]
    for check in stored.checks:
        first, second = check.contenders
        if first.setting == setting:
            held.append((check, check.estimates(objective).log_ratio(second.names[0], first.names[0])))
    sessions = [
        Session(began=of.began, estimate=estimate, node=of.node)
        for of, estimate in held
        if estimate is not None and estimate.df > 0
    ]
    return sorted(sessions, key=lambda session: session.began)


def pooled_sessions(sessions: Sequence[Session], *, level: float, margin: float) -> PooledVerdict:
    """Return what sessions report together; one alone at the level that its finals have.

    A session without a node counts as one of the first node: it may have been held there, outside of a suite.
    """
    first = next((session.node for session in sessions if session.node), "")
    nodes = [session.node or first for session in sessions]
    return pooled_verdict([session.estimate for session in sessions], nodes=nodes, level=level, margin=margin)


def pooled_result(pooled: PooledVerdict) -> PooledResult:
    """Return what sessions say together as it is published."""
    verdict = VerdictResult.of(pooled.verdict)
    nodes = []
    for node, estimate in pooled.nodes.items():
        low, high = estimate.interval()
        nodes.append(NodeResult(node=node, ratio=estimate.ratio, low=low, high=high))
    disagree = pooled.sessions_disagree
    return PooledResult(**structs.asdict(verdict), sessions=pooled.n, sessions_disagree=disagree, nodes=tuple(nodes))


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
