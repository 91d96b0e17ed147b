"""What a study recommends, and why: by its last finals, and by all sessions in which that setting was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from tuner.measure.finals import INCUMBENT, SAME_BATCH, SIMPLER, Contender
from tuner.measure.recommendation import Advice, Standing, recommend
from tuner.report.layout import plural
from tuner.report.result.study import GainResult
from tuner.report.sessions import Session, all_together, closest_s, of_setting, together_result
from tuner.search.attributes import Attributes
from tuner.space.deployment import Deployment
from tuner.stats.equivalence import Verdict, Word
from tuner.stats.pooling import Together

_SEVERAL = 2  # sessions that can say something together


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to use, `advice`, which is the contender `chosen`, and why.

    `sessions` are those of `tried`, and `whole` is what they say together, None where there are none: of the contender
    that the last finals recommend, or of their incumbent where they leave open whether that is better and earlier
    sessions measured it too. `tried` is the default where there is nothing to measure again.
    """

    advice: Advice
    chosen: Contender
    tried: Contender
    tried_as: str
    sessions: Sequence[Session]
    whole: Together | None
    reason: str

    @property
    def together(self) -> GainResult | None:
        """Return what the sessions say together as it is published; None where there are none."""
        if self.whole is None:
            return None
        return GainResult(**structs.asdict(together_result(self.whole)), closest_s=closest_s(self.sessions))


def decide(
    stored: Attributes, standing: Standing, verdicts: Mapping[str, Verdict], *, broken: Sequence[str]
) -> Decision:
    """Return what a study recommends, by what its last finals say; `broken` names those that break a limit."""
    catalogue = stored.subject.framework.catalogue
    default = catalogue.default
    candidate = recommend(standing, catalogue, broken=broken)
    tried = _contender(standing, standing.incumbent if candidate.gain is None else candidate.source)
    held = of_setting(stored, tried.setting)
    if candidate.gain is None and (len(held) < _SEVERAL or not tried.eligible or tried.names[0] in broken):
        # The default it is: there is nothing that sessions could speak of.
        chosen = _contender(standing, candidate.source)
        reason = _reason(candidate, standing, verdicts, broken, default)
        return Decision(
            advice=candidate,
            chosen=chosen,
            tried=chosen,
            tried_as=candidate.source,
            sessions=(),
            whole=None,
            reason=reason,
        )
    level = standing.level(default, tried.names[0])
    whole = all_together(held, level=level or 0.95, margin=standing.margin)
    advice = candidate
    if not any(default in c.names and c.names[0] in broken for c in standing.contenders):
        advice = _after_sessions(candidate, tried.names[0], whole, default)
    return Decision(
        advice=advice,
        chosen=_contender(standing, advice.source),
        tried=tried,
        tried_as=tried.names[0] if candidate.gain is None else candidate.source,
        sessions=held,
        whole=whole,
        reason=_reason(candidate, standing, verdicts, broken, default)
        if advice is candidate
        else _of_sessions(advice, whole, default),
    )


def deployment_of(source: str, chosen: Contender, *, default: str) -> Deployment:
    """Return what to set: nothing at all for the `default` at the default batch size."""
    return Deployment() if source == default else chosen.deployment


def _contender(standing: Standing, name: str) -> Contender:
    return next(c for c in standing.contenders if name in c.names)


def _after_sessions(advice: Advice, tried: str, whole: Together, default: str) -> Advice:
    """Return what finals recommend, or what several sessions together say of the contender that was `tried` in them."""
    if whole.n < _SEVERAL:
        return advice
    if whole.verdict.word is not Word.BETTER:
        return advice if advice.gain is None else Advice(source=default, alike=advice.alike)
    return advice if advice.gain is not None else Advice(source=tried, alike=advice.alike, gain=whole.verdict)


def _of_sessions(advice: Advice, whole: Together, default: str) -> str:
    disagree = ", which disagree," if whole.disagree else ""
    if advice.gain is not None:
        return f"better than {default} by {plural(whole.n, 'session')} together; the last finals alone leave it open"
    return f"keep {default}: {plural(whole.n, 'session')}{disagree} do not show together that anything is better"


def _reason(
    advice: Advice, standing: Standing, verdicts: Mapping[str, Verdict], broken: Sequence[str], default: str
) -> str:
    source, against = advice.source, verdicts.get(default)
    if _contender(standing, source).names[0] in broken:
        return f"no setting keeps to the limits: {source} is what there is"
    if source == default:
        if against is None or against.speedup is None:
            return f"keep {default}: the finals could not be held, or could decide nothing"
        return f"keep {default}: nothing was shown to beat it by more than the margin"
    if source == default + SAME_BATCH:
        return "the gain is the batch size's: the default threads do as well as the incumbent's"
    if any(default in c.names and c.names[0] in broken for c in standing.contenders):
        return f"{source} keeps to the limits, and {default} does not"
    others = [name for name in advice.alike if name not in (source, default)]
    simplest = (
        f"; the simplest of those that cannot be told apart from the fastest ({', '.join(others)})" if others else ""
    )
    if source == INCUMBENT:
        return f"better than {default} in the finals{simplest}"
    name = "a simpler setting than the incumbent" if source == SIMPLER else source
    return f"{name} is better than {default} in the finals{simplest}"
